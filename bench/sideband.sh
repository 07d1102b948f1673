#!/bin/bash
# sideband.sh [BUILD] - what the records of execs and mappings cost, into BUILD/bench/sideband.txt. As root, half a minute.
set -eu
cd "$(dirname "$0")/.."
out=${1:-build}/bench
mkdir -p "$out"
gcc -std=gnu17 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -Wno-missing-field-initializers -Ilib -I. \
	bench/sideband.c agent/sideband*.c agent/events.c agent/maps.c lib/base/*.c -lnettle -lxxhash -o "$out/sideband" 2>"$out/sideband.log" || {
	cat "$out/sideband.log"
	exit 1
}
"$out/sideband" | tee "$out/sideband.txt"
