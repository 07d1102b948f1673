#!/bin/bash
# unwind.sh [BUILD] - what a frame costs by our unwinder and by a map per lookup, into BUILD/bench/unwind.txt and .json.
#
# Needs root (BPF) and half a minute. See README.md. ROUNDS and DEPTH in the environment change it.
set -eu
cd "$(dirname "$0")/.."
B=${1:-build}
out=$B/bench
[ "$(id -u)" = 0 ] || { echo "bench: needs root, because BPF programs are loaded" >&2; exit 1; }
bpftool=$(compgen -G '/usr/sbin/bpftool' || command -v bpftool) ||
	{ echo "bench: bpftool is missing; run: make deps" >&2; exit 1; }
mkdir -p "$out/gen/bench"
clang -target bpf -D__TARGET_ARCH_x86 -mcpu=v3 -O2 -g -std=gnu17 -Wall -Wextra -Werror -Wno-unused-parameter \
	-Wno-missing-declarations -I. -c bench/unwind.bpf.c -o "$out/unwind.bpf.o"
"$bpftool" gen skeleton "$out/unwind.bpf.o" name unwind_bpf >"$out/gen/bench/unwind.skel.h"
gcc -std=gnu17 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -Wno-missing-field-initializers -Ilib -I. -I"$out/gen" \
	bench/unwind.c agent/cfi_pack.c -lbpf -o "$out/unwind"
"$out/unwind" "$out/unwind.json" "${ROUNDS:-100}" "${DEPTH:-32}" | tee "$out/unwind.txt"
