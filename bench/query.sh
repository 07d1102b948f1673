#!/bin/bash
# query.sh [BUILD] - what a flame graph of a day takes, with and without roll-ups, into BUILD/bench/query.json.
#
# SERIES and HOURS say of how much; filling the store takes most of the time. Needs no root.
set -eu
cd "$(dirname "$0")/.."
B=${1:-build}
out=$B/bench

die() {
	echo "bench: $*" >&2
	exit 1
}
for c in gcc python3; do command -v $c >/dev/null || die "$c is missing; run: make deps"; done
mkdir -p "$out"
scratch=$(mktemp -d "$out/query.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
gcc -std=gnu17 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -Wno-missing-field-initializers -Ilib -I. bench/query.c \
	bench/profiles.c backend/store*.c backend/blob.c backend/dict*.c backend/matcher.c lib/prof/*.c lib/base/*.c \
	-o "$out/query" -lsqlite3 -lxxhash -lnettle -lgnutls -lz -lm -pthread
"$out/query" "${SERIES:-100}" "${HOURS:-24}" "$scratch" >"$scratch/row" || die "query failed"
du -cb "$scratch"/data/2*.db | tail -n 1 | cut -f1 >"$scratch/data.bytes"
du -cb "$scratch"/data/roll-*.db | tail -n 1 | cut -f1 >"$scratch/roll.bytes"
python3 - "$scratch" "$out/query.json" <<'PY'
import json, os, sys

scratch, out = sys.argv[1:]
row = json.load(open(f"{scratch}/row"))
for name in "data", "roll":
    row[name + "_bytes"] = int(open(f"{scratch}/{name}.bytes").read())
json.dump({"schema": "flame-bench-query/1", "cpus": os.cpu_count(), **row}, open(out, "w"), indent=1)
print("bench: flame graph of %d series x %d h: %.0f ms (%.0f ms without roll-ups), 6 h %.0f ms, 1 h %.0f ms; "
      "roll-ups made in %.1f s, %.0f %% of the data's bytes" % (row["series"], row["hours"], row["flamegraph_ms"],
      row["flamegraph_ms_data"], row["flamegraph_6h_ms"], row["flamegraph_1h_ms"], row["rollups_s"],
      100 * row["roll_bytes"] / row["data_bytes"]))
PY
echo "bench: $out/query.json"
