#!/bin/bash
# names.sh [BUILD] - time and memory to name first-seen stacks, into BUILD/bench/names.txt. See README.md.
#
# Needs root or the rights to read other processes' maps, and two minutes. NAMES_UNITS (40) units of some 2.5 MB of
# DWARF each are made of one compilation, linked as often under different names: what counts is how much there is to
# search, and it is compiled once. node is SKIPped where it is not installed.
set -eu
cd "$(dirname "$0")/.."
B=${1:-build}
out=$B/bench
work=$out/names
mkdir -p "$work"
make -s B="$B" "$B/flame-agent" >&2
objects=
for f in agent/*.c lib/*/*.c; do
	case $f in agent/main.c | agent/fault_seeded.c) ;; *) objects+=" $B/obj/${f%.c}.o" ;; esac
done
libs=$(make -s B="$B" --eval='names-libs: ; @echo $(LIBS_AGENT)' names-libs)
# shellcheck disable=SC2086 # objects and libraries are words
gcc -std=gnu17 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -Wno-missing-field-initializers -Ilib -I. bench/names.c \
	$objects -o "$out/names_bench" $libs -lpthread

units=${NAMES_UNITS:-40}
{
	echo '#include <map>'
	echo '#include <regex>'
	echo '#include <string>'
	echo '#include <vector>'
	echo 'namespace {'
	echo 'volatile unsigned long sink;'
	echo 'template <int N> struct step { static inline void go(unsigned long n) { sink = sink + n * N; } };'
	echo 'template <int N> struct walk { static inline void go(unsigned long n) { step<N>::go(n); step<N + 1>::go(n); } };'
	for i in $(seq 0 1999); do
		echo "__attribute__((noinline, used)) void f$i(std::map<std::string, unsigned long> &m, unsigned long n)"
		echo "{ walk<$i>::go(n); if (n > $i) walk<$((i + 7))>::go(sink); m.begin(); sink = m.size(); }"
	done
	echo '}'
	echo 'extern "C" bool entry(const char *s) { return std::regex_match(s, std::regex("a+b")); }'
} >"$work/unit.cpp"
g++ -O2 -g -fPIC -c "$work/unit.cpp" -o "$work/unit.o"
objs=()
for i in $(seq "$units"); do
	objcopy --redefine-sym entry=entry_$i "$work/unit.o" "$work/unit_$i.o"
	objs+=("$work/unit_$i.o")
done
echo '#include <unistd.h>
int main() { return write(1, "r", 1) != 1 || pause(); }' >"$work/main.cpp"
g++ -O2 -g "$work/main.cpp" "${objs[@]}" -o "$work/big"
rm -f "$work"/unit_*.o
dwarf=$(size -A -d "$work/big" | awk '/^\.debug_/ { n += $2 } END { print int(n / 1000000) }')
{
	echo "C++ program with $dwarf MB of DWARF in $units units; a helper's request may take 5000 ms"
	"$out/names_bench" c++ "$work/big"
	if command -v node >/dev/null; then
		"$out/names_bench" node node -e 'console.log("r"); setInterval(() => {}, 1000);'
	else
		echo "SKIP node: not installed"
	fi
} | tee "$out/names.txt"
echo "bench: $out/names.txt"
