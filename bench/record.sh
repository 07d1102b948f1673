#!/bin/bash
# record.sh [BUILD] - what a recording costs on this machine, into BUILD/bench/. See bench/README.md.
#
# Needs root (BPF) and about a minute and a half. kernel.bpf_stats_enabled is set for the time of the run and set back.
set -eu
cd "$(dirname "$0")/.."
B=${1:-build}
out=$B/bench
agent=$B/flame-agent
START_RUNS=${START_RUNS:-20}     # of the start, for hyperfine and for until_ready
WINDOW_S=${WINDOW_S:-5}          # of a recording whose BPF cost is read
SWITCH_PAIRS=${SWITCH_PAIRS:-10} # of pingpong without and with the agent
SWITCH_ROUNDS=${SWITCH_ROUNDS:-200000}

die() {
	echo "bench: $*" >&2
	exit 1
}
[ "$(id -u)" = 0 ] || die "needs root, because the agent loads BPF programs"
for p in "$agent" "$B/workloads/cpu_split"; do [ -x "$p" ] || die "$p is not built; run: make"; done
for c in hyperfine gnuplot python3 gcc; do command -v $c >/dev/null || die "$c is missing; run: make deps"; done

mkdir -p "$out"
scratch=$(mktemp -d)
stats=$(sysctl -n kernel.bpf_stats_enabled)
clean() {
	jobs -pr | xargs -r kill 2>/dev/null || true # the load and the agent, when the run is broken off
	sysctl -q -w kernel.bpf_stats_enabled="$stats"
	rm -rf "$scratch"
}
trap clean EXIT
trap 'exit 130' INT TERM
for p in pingpong until_ready; do
	gcc -std=gnu17 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror bench/$p.c -o "$out/$p" -pthread
done

# record NAME ARGS... : starts a recording in the background, returns when it samples; $recorder is its pid
record() {
	local name=$1 ready
	shift
	mkfifo "$scratch/$name.ready"
	"$agent" record "$@" -o "$scratch/$name.folded" --summary "$scratch/$name.json" --quiet --ready-fd 9 \
		9>"$scratch/$name.ready" 2>"$scratch/$name.err" &
	recorder=$!
	# 30 s: a start takes well under a second; the end of the file means that the agent died
	ready=$(timeout 30 head -c 1 "$scratch/$name.ready") || true
	[ "$ready" = R ] || die "$name: the agent did not start: $(cat "$scratch/$name.err")"
	rm "$scratch/$name.ready"
}
finished() { wait "$1" || die "the agent failed: $(cat "$scratch"/*.err)"; }

echo "bench: start ($START_RUNS runs)"
hyperfine -N --warmup 2 --runs "$START_RUNS" --export-json "$out/start.json" --style none \
	-n "record -d 1ms" "$agent record -d 1ms -o $scratch/start.folded --quiet" >"$scratch/hyperfine" 2>&1 ||
	die "$(cat "$scratch/hyperfine")"
for ((i = 0; i < START_RUNS; i++)); do
	"$out/until_ready" "$agent" record -d 10s -o "$scratch/start.folded" --quiet >>"$scratch/ready"
done

sysctl -q -w kernel.bpf_stats_enabled=1
for hz in 99 997; do
	echo "bench: BPF cost at $hz Hz ($WINDOW_S s)"
	"$B/workloads/cpu_split" --threads "$(nproc)" --seconds $((WINDOW_S + 5)) >/dev/null &
	load=$!
	bpftool -j prog show >"$scratch/$hz.none"
	record "$hz" -F "$hz" -d "$((WINDOW_S + 2))s"
	bpftool -j prog show >"$scratch/$hz.start"
	sleep "$WINDOW_S" # the span that is measured
	bpftool -j prog show >"$scratch/$hz.end"
	finished "$recorder"
	kill "$load" 2>/dev/null || true
	wait "$load" 2>/dev/null || true
done
sysctl -q -w kernel.bpf_stats_enabled="$stats"

echo "bench: switches ($SWITCH_PAIRS pairs of $SWITCH_ROUNDS rounds)"
cpu=$(($(nproc) - 1))
plain() { without=$("$out/pingpong" "$SWITCH_ROUNDS" $cpu); }
recorded() {
	record "switch$1" -F 1 -d 60s
	with=$("$out/pingpong" "$SWITCH_ROUNDS" $cpu)
	kill -INT "$recorder"
	finished "$recorder"
}
plain # warms up
for ((i = 0; i < SWITCH_PAIRS; i++)); do
	# either goes first in turn, so that a drift of the machine does not count for one side
	if ((i % 2)); then recorded $i && plain; else plain && recorded $i; fi
	echo "$without $with" >>"$scratch/switch"
done

python3 bench/record_report.py "$scratch" "$out"
gnuplot -e "dir='$out'" bench/record.gp
echo "bench: $out/record.json, $out/start.svg, $out/bpf.svg, $out/switch.svg"
