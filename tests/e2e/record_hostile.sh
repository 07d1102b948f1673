#!/bin/bash
# record_hostile.sh [BUILD] - `flame-agent record` while files of running programs are spoilt under it.
#
# Six processes burn in a library each; of a third of the files the end is cut off and written back again and again,
# the others have bits flipped in their headers and unwind tables. The agent must neither fail nor grow, must
# keep every sample, and must say of each stack that it cannot follow why; others' stacks stay whole. The libraries' code
# itself is left alone, so that their programs run on. Needs root, as record.sh does.
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
A=$B/flame-agent
W=$B/workloads
T=$(mktemp -d) || exit 3
bg=()
cleanup() {
	for p in "${bg[@]}"; do kill -KILL "$p" 2>/dev/null; done
	wait 2>/dev/null
	rm -rf "$T"
}
trap cleanup EXIT
failed=0
# holds $? NAME WHY : judges the command before it
holds() { if [ "$1" = 0 ]; then echo "ok $2"; else failed=1 && echo "not ok $2: $3"; fi; }
judge() { # SCRIPT NAME ARG...
	local script=$1 name=$2 why
	shift 2
	why=$(python3 "tests/e2e/$script" "$@" 2>&1)
	holds $? "$name" "$why"
}

if ! why=$("$A" record -q -d 1ms -o "$T/probe.folded" 2>&1); then
	echo "skip sampling on this kernel: $why"
	exit 0
fi

libs=() victims=()
for i in 1 2 3 4 5 6; do
	libs+=("$T/late$i.so")
	cp "$W/late/late_work.so" "$T/late$i.so"
	mkfifo "$T/burns$i"
	nice -n 19 python3 tests/e2e/record_hostile.py victim "$T/late$i.so" >"$T/burns$i" &
	victims+=($!)
	bg+=($!)
	read -r -t 30 line <"$T/burns$i" && [ "$line" = burns ] || holds 1 "a victim burns" "it does not"
done
mkfifo "$T/harmed"
python3 tests/e2e/record_hostile.py harm 11 "${libs[@]}" >"$T/harmed" &
harm=$!
bg+=($harm)
read -r -t 30 line <"$T/harmed"
[ "$line" = harmed ]
holds $? "every file is spoilt before it is met" "$line"

mkfifo "$T/ready"
"$A" record -q -d 120s -F 499 -o "$T/h.folded" --summary "$T/h.json" --ready-fd 9 9>"$T/ready" 2>"$T/h.err" &
agent=$!
bg+=($agent)
read -r -n 1 -t 30 ready <"$T/ready"
"$W/chain_nofp" --chunks 1500 >/dev/null
kill -INT $agent
wait $agent
holds $? "B24 B25: the agent survives files that are cut and bit-flipped under it" "exit $?, $(cat "$T/h.err")"
judge record_judge.py "no sample of theirs is lost" losses "$T/h.json"
judge record_judge.py "stacks sum to the ledger" sums "$T/h.json"
judge record_hostile.py "each stack of theirs is whole or says why not" labelled "$T/h.folded" "$T/h.json" "${victims[@]}"
judge record_judge.py "stacks of others stay whole" whole "$T/h.folded" chain_nofp 0.95
python3 -c 'import json, sys; s = json.load(open(sys.argv[1])); sys.exit(s["symbols"]["helper_restarts"])' "$T/h.json"
holds $? "B25: no file brings the helper down" "it was started again"
alive=0
for p in "${victims[@]}"; do kill -0 "$p" 2>/dev/null && alive=$((alive + 1)); done
[ $alive = 6 ]
holds $? "the spoilt programs ran all the while" "$alive of 6 are left"

GLIBC_TUNABLES=glibc.malloc.tcache_count=0 "$A" record -q -d 100ms -F 499 --repeat 12 -o "$T/r.folded" --summary "$T/r.json"
holds $? "12 windows over spoilt files" "exit $?"
judge record_hostile.py "12 windows over spoilt files leave the memory as it was" flat "$T/r.json"
exit $failed
