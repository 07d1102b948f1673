#!/bin/bash
# fleet.sh [BUILD] - what heartbeats of a large fleet cost the backend, into BUILD/bench/fleet.json. See bench/README.md.
#
# Needs no root. AGENTS heartbeat every INTERVAL s for SECONDS_EACH s over loopback: once through a pool of
# connections that stay open, once with a connection for each. The backend runs on a scratch directory under BUILD.
# FLAME=1 records the backend with our own agent meanwhile (root), into BUILD/bench/fleet-*.svg.
set -eu
cd "$(dirname "$0")/.."
B=${1:-build}
out=$B/bench
AGENTS=${AGENTS:-100000}
INTERVAL=${INTERVAL:-30}
SECONDS_EACH=${SECONDS_EACH:-30}
CONNECTIONS=${CONNECTIONS:-256}

die() {
	echo "bench: $*" >&2
	exit 1
}
[ -x "$B/flame-backend" ] || die "$B/flame-backend is not built; run: make"
for c in gcc python3; do command -v $c >/dev/null || die "$c is missing; run: make deps"; done
mkdir -p "$out"
scratch=$(mktemp -d "$out/fleet.XXXXXX")
backend= recorder=
clean() {
	[ -z "$recorder" ] || kill "$recorder" 2>/dev/null || true
	[ -z "$backend" ] || kill "$backend" 2>/dev/null || true
	rm -rf "$scratch"
}
trap clean EXIT
trap 'exit 130' INT TERM
gcc -std=gnu17 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -Wno-missing-field-initializers -Ilib -I. bench/fleet.c \
	lib/base/*.c -o "$out/fleet" -lxxhash -lnettle -lgnutls
ulimit -n 8192 2>/dev/null || true

"$B/flame-backend" --data "$scratch/data" --listen 127.0.0.1:0 2>"$scratch/log" &
backend=$!
port=
for ((i = 0; i < 200; i++)); do # the log has no event to wait for
	port=$(sed -n 's/.*action=listen .*port=\([0-9]*\).*/\1/p' "$scratch/log")
	[ -n "$port" ] && break
	kill -0 $backend 2>/dev/null || die "$(tail -n 1 "$scratch/log")"
	read -rt 0.05 <> <(:) || true
done
[ -n "$port" ] || die "the backend does not listen"

failed=0
for kind in kept:0 each:1; do
	name=${kind%:*}
	echo "bench: fleet, $AGENTS agents every $INTERVAL s for $SECONDS_EACH s, connections $name"
	if [ -n "${FLAME:-}" ]; then
		"$B/flame-agent" record -p $backend -d "$((SECONDS_EACH + 20))s" -F 997 -o "$out/fleet-$name.svg" \
			--quiet 2>"$scratch/record.log" &
		recorder=$!
	fi
	"$out/fleet" --port "$port" --pid $backend --agents "$AGENTS" --seconds "$SECONDS_EACH" --interval "$INTERVAL" \
		--connections "$CONNECTIONS" --per-connection "${kind#*:}" >"$scratch/$name.json" || failed=1
	if [ -n "$recorder" ]; then
		kill -INT "$recorder" 2>/dev/null || true
		wait "$recorder" || die "$(tail -n 1 "$scratch/record.log")"
		recorder=
		echo "bench: $out/fleet-$name.svg"
	fi
done
[ $failed = 0 ] || die "no figures"
python3 - "$scratch" "$out/fleet.json" <<'PY'
import json, os, sys

scratch, out = sys.argv[1:]
rows = {}
for name in ("kept", "each"):
    r = rows[name] = json.load(open(f"{scratch}/{name}.json"))
    print("bench: %-4s %5.0f heartbeats/s, all %d answered: backend %.1f us of CPU each, %.1f %% of a core; "
          "latency p50 %.2f, p99 %.2f, max %.1f ms" % (name, r["beats_per_s"], r["answered"],
          r["backend_cpu_us_per_beat"], 100 * r["backend_share_of_core"], r["latency_ms"]["p50"],
          r["latency_ms"]["p99"], r["latency_ms"]["max"]))
json.dump({"schema": "flame-bench-fleet/1", "cpus": os.cpu_count(), **rows}, open(out, "w"), indent=1)
PY
echo "bench: $out/fleet.json"
