#!/bin/bash
# ingest.sh [BUILD] - what the store takes on this machine, into BUILD/bench/ingest.json. See bench/README.md.
#
# Needs no root and about SECONDS_EACH a size. The data goes to a scratch directory under BUILD, because the
# figures are those of the disk that the fsyncs reach.
set -eu
cd "$(dirname "$0")/.."
B=${1:-build}
out=$B/bench
SECONDS_EACH=${SECONDS_EACH:-5}
HOSTS=${HOSTS:-10 100 1000}

die() {
	echo "bench: $*" >&2
	exit 1
}
for c in gcc python3 gnuplot; do command -v $c >/dev/null || die "$c is missing; run: make deps"; done
mkdir -p "$out"
scratch=$(mktemp -d "$out/ingest.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
gcc -std=gnu17 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -Wno-missing-field-initializers -Ilib -I. bench/ingest.c bench/profiles.c \
	backend/store*.c backend/blob.c backend/dict*.c backend/matcher.c lib/prof/*.c lib/base/*.c \
	-o "$out/ingest" -lsqlite3 -lxxhash -lnettle -lgnutls -lz -lm -pthread

for hosts in $HOSTS; do
	echo "bench: ingest, $hosts hosts ($SECONDS_EACH s)"
	"$out/ingest" "$hosts" "$SECONDS_EACH" "$scratch/$hosts" >"$scratch/$hosts.json" || die "ingest failed"
	du -sb "$scratch/$hosts" | cut -f1 >"$scratch/$hosts.bytes" # after the close, so with nothing in a WAL
	du -sb --exclude=dict.db "$scratch/$hosts" | cut -f1 >"$scratch/$hosts.data"
done
python3 - "$scratch" "$out/ingest.json" $HOSTS <<'PY'
import json, os, sys

scratch, out, hosts = sys.argv[1], sys.argv[2], sys.argv[3:]
rows = []
for h in hosts:
    row = json.load(open(f"{scratch}/{h}.json"))
    size = int(open(f"{scratch}/{h}.bytes").read())
    data = int(open(f"{scratch}/{h}.data").read())
    row["bytes_per_profile"] = round(data / row["profiles"], 1)  # without the dictionary, which does not grow for ever
    row["dict_bytes"] = size - data
    rows.append(row)
    print("bench: %5s hosts: %6d profiles/s, %8d samples/s, %6.0f bytes/profile, ack %.0f ms (max %.0f), "
          "flame graph of %d profiles %.0f ms" % (h, row["profiles_per_s"], row["samples_per_s"],
          row["bytes_per_profile"], row["ack_ms_mean"], row["ack_ms_max"], row["profiles_read"], row["flamegraph_ms"]))
with open(os.path.join(os.path.dirname(out), "ingest.tsv"), "w", encoding="ascii") as f:
    for row in rows:
        f.write("%d\t%d\t%d\t%.1f\n" % (row["hosts"], row["profiles_per_s"], row["samples_per_s"], row["bytes_per_profile"]))
json.dump({"schema": "flame-bench-ingest/1", "cpus": os.cpu_count(), "rows": rows}, open(out, "w"), indent=1)
PY
gnuplot -e "dir='$out'" bench/ingest.gp
echo "bench: $out/ingest.json, plot in $out/ingest.svg"
