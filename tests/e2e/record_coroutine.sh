#!/bin/bash
# record_coroutine.sh [BUILD] - a stack that begins in makecontext() has no caller that is none.
#
# glibc's __start_context does not say that nothing called it; by its rule the caller is a word of the heap. What lies
# in no mapping is not a frame.
set -u
cd "$(dirname "$0")/../.." || exit 3
A=${1:-build}/flame-agent
T=$(mktemp -d) || exit 3
trap 'rm -rf "$T"' EXIT

if ! why=$("$A" record -q -d 1ms -o "$T/probe.folded" 2>&1); then
	echo "skip coroutines: $why"
	exit 0
fi
cat >"$T/coroutine.c" <<'C'
#include <stdlib.h>
#include <ucontext.h>
static volatile unsigned long sink;
static ucontext_t ring[2];
__attribute__((noinline)) static void coroutine_leaf(int n)
{
	for (int i = 0; i < n; i++)
		sink += i;
}
static void coroutine(int self)
{
	for (;;) {
		coroutine_leaf(100000);
		swapcontext(&ring[self], &ring[!self]);
	}
}
int main(void)
{
	for (int i = 0; i < 2; i++) {
		getcontext(&ring[i]);
		ring[i].uc_stack.ss_sp = malloc(65536);
		ring[i].uc_stack.ss_size = 65536;
		ring[i].uc_link = &ring[!i];
		makecontext(&ring[i], (void (*)(void))coroutine, 1, i);
	}
	setcontext(&ring[0]);
	return 1;
}
C
gcc -O2 -fomit-frame-pointer "$T/coroutine.c" -o "$T/coroutine" || exit 3
"$T/coroutine" &
program=$!
timeout 60 "$A" record -q -d 2 -F 499 -p $program -o "$T/out.folded"
kill $program
wait $program 2>/dev/null
awk '
	{ all += $NF }
	/;\[unknown\]/ { stray += $NF; line = $0 }
	/;coroutine;/ { good += $NF }
	END {
		if (stray > 0 || good < 0.95 * all) {
			printf "not ok coroutine has no stray caller: %d of %d ns, as %s\n", stray, all, line
			exit 1
		}
		print "ok coroutine has no stray caller"
	}' "$T/out.folded"
