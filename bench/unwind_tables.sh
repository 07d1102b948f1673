#!/bin/bash
# unwind_tables.sh [BUILD] - size and compile time of unwind tables, into BUILD/bench/unwind_tables.txt. See README.md.
#
# Needs no root and half a minute. What is not installed is SKIPped; FILES in the environment adds files.
set -eu
cd "$(dirname "$0")/.."
B=${1:-build}
out=$B/bench
lib=/usr/lib/$(gcc -print-multiarch)
mkdir -p "$out"
gcc -std=gnu17 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -Wno-missing-field-initializers -Ilib -I. \
	bench/unwind_tables.c agent/cfi*.c lib/base/cursor.c -lz -o "$out/unwind_tables"

# PATTERN REFERENCE_KIB: whole-file sizes of a packed table without block index, measured once with another
# program on other builds of the same libraries (2026-11, Debian 12); `-` where there was none.
files=()
add() {
	local found
	found=$(compgen -G "$1" | head -n 1 || true)
	files+=("${found:-$1}" "$2")
}
add "$lib/libc.so.6" 77
add "$lib/libcrypto.so.3" 234
add "$lib/libstdc++.so.6" 96
add "$lib/libpython3.11.so.1.0" 156
add "/usr/bin/python3.1?" -
add "/usr/lib/jvm/java-17-openjdk-*/lib/server/libjvm.so" 223
add "/usr/lib/jvm/*25*/lib/server/libjvm.so" 271
add "/usr/bin/node" 298
add "$lib/libnode.so.*" -
add "$lib/libLLVM-14.so.1" 2423
add /bin/bash 54
add "/lib64/ld-linux-x86-64.so.2" -
for f in ${FILES:-}; do add "$f" -; done
"$out/unwind_tables" "${files[@]}" | tee "$out/unwind_tables.txt"
echo "bench: $out/unwind_tables.txt"
