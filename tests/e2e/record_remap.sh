#!/bin/bash
# record_remap.sh [BUILD] - code that replaces other code at the same addresses is walked and named as itself.
#
# A program opens library a, works in it, closes it, and does the same with library b, which the kernel puts where a
# was. Their frames differ in size, so the unwind tables of one give nonsense in the other.
set -u
cd "$(dirname "$0")/../.." || exit 3
A=${1:-build}/flame-agent
T=$(mktemp -d) || exit 3
trap 'rm -rf "$T"' EXIT

if ! why=$("$A" record -q -d 1ms -o "$T/probe.folded" 2>&1); then
	echo "skip replaced code: $why"
	exit 0
fi
cat >"$T/library.c" <<'C'
static volatile unsigned long sink;
__attribute__((noinline)) unsigned long LEAF(unsigned long n)
{
	volatile unsigned long pad[PAD];
	for (int i = 0; i < PAD; i++)
		pad[i] = n;
	for (unsigned long i = 0; i < n; i++)
		sink += pad[i % PAD];
	return sink;
}
__attribute__((noinline)) unsigned long MIDDLE(unsigned long n)
{
	volatile unsigned long pad[3 * PAD];
	pad[1] = n;
	return LEAF(n) + pad[1];
}
unsigned long run(unsigned long n)
{
	return MIDDLE(n) + 1;
}
C
cat >"$T/program.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double cpu_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}
__attribute__((noinline)) static double work(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	unsigned long (*run)(unsigned long) = library ? (unsigned long (*)(unsigned long))dlsym(library, "run") : 0;
	double start = cpu_now();
	if (!run)
		exit(1);
	fprintf(stderr, "%lx\n", (unsigned long)run >> 12);
	while (cpu_now() < start + 0.5)
		run(20000);
	double took = cpu_now() - start;
	dlclose(library);
	return took;
}
int main(int argc, char **argv)
{
	double took[2] = {0};
	getchar();
	for (int i = 0; i < 6; i++)
		took[i % 2] += work(argv[1 + i % 2]);
	printf("%f %f\n", took[0], took[1]);
	return argc != 3;
}
C
flags=(-O2 -fomit-frame-pointer)
gcc "${flags[@]}" -fPIC -shared -DPAD=4 -DLEAF=a_leaf -DMIDDLE=a_middle "$T/library.c" -o "$T/a.so" &&
	gcc "${flags[@]}" -fPIC -shared -DPAD=40 -DLEAF=b_leaf -DMIDDLE=b_middle "$T/library.c" -o "$T/b.so" &&
	gcc "${flags[@]}" "$T/program.c" -o "$T/program" || exit 3

mkfifo "$T/go" "$T/ready"
"$T/program" "$T/a.so" "$T/b.so" <"$T/go" >"$T/took" 2>"$T/places" &
program=$!
exec 8>"$T/go"
timeout 300 "$A" record -q -d 240 -F 499 -p $program -o "$T/out.folded" --ready-fd 9 9>"$T/ready" &
agent=$!
head -c 1 "$T/ready" >"$T/is_ready"
echo >&8
wait $program || { echo "not ok replaced code: the program failed"; kill $agent; exit 1; }
kill -INT $agent
wait $agent || { echo "not ok replaced code: the recording failed"; exit 1; }

if [ "$(sort -u "$T/places" | wc -l)" != 1 ]; then
	echo "skip replaced code: the kernel put the libraries at $(sort -u "$T/places" | wc -l) places"
	exit 0
fi
awk -v took="$(cat "$T/took")" '
	{ ns = $NF; all += ns }
	/;main;work;run;a_middle;a_leaf/ { a += ns; next }
	/;main;work;run;b_middle;b_leaf/ { b += ns; next }
	{ other += ns; if (ns > most) { most = ns; line = $0 } }
	END {
		split(took, t, " ")
		da = a / 1e9 / t[1] - 1; db = b / 1e9 / t[2] - 1
		if (other > 0.02 * all || da * da > 0.0025 || db * db > 0.0025) {
			printf "not ok replaced code is itself: a %.3f of %.3f s, b %.3f of %.3f s, other %.3f s, as %s\n",
				a / 1e9, t[1], b / 1e9, t[2], other / 1e9, line
			exit 1
		}
		print "ok replaced code is walked and named as itself"
	}' "$T/out.folded"
