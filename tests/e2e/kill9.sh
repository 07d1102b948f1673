#!/bin/bash
# kill9.sh [BUILD] - agent and backend are killed at random moments while windows of a second are recorded and sent.
# In the end: verify is clean, every window that was acknowledged is stored once, none of ours is left anywhere.
#
# KILLS (20) and SEED (1) in the environment; a run of 1,000 takes half an hour. Between the two stands
# kill9_tap.py, which remembers what the backend acknowledged. Needs root; skips what the kernel lacks.
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
KILLS=${KILLS:-20}
RANDOM=${SEED:-1}
# In memory, where that is there: a kill takes nothing of the page cache.
T=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) || exit 3
export FLAME_KILL9=$T # by which all of ours are known
agent="" backend="" tap="" load=""
ours() { grep -lzFx "FLAME_KILL9=$T" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | grep -vx $$; }
programs() { # of ours: the agent, its recorders and helpers, the backend
	local p
	for p in $(ours); do [[ $(readlink "/proc/$p/exe") == */flame-* ]] && echo "$p"; done
}
cleanup() {
	for p in $(programs) $tap $load; do kill -9 "$p" 2>/dev/null; done
	rm -rf "$T"
}
trap cleanup EXIT
failed=0
ok() { echo "ok $*"; }
not_ok() { failed=1; echo "not ok $1: $2"; }
holds() { if [ "$1" = 0 ]; then ok "$2"; else not_ok "$2" "$3"; fi; } # $? NAME WHY
until_true() { # SECONDS COMMAND... : asks again until it holds
	local deadline=$((SECONDS + $1))
	shift
	until "$@" 2>/dev/null; do
		[ $SECONDS -lt $deadline ] || return 1
		sleep 0.05 # files have no event to wait for
	done
	return 0
}
"$B/flame-agent" record -d 1ms -o "$T/probe.folded" --quiet 2>"$T/probe" || {
	echo "skip kill -9: cannot record here: $(tail -n 1 "$T/probe")"
	exit 0
}

# Pushes wait long for their commit, so that a kill often meets one that waits: an acknowledgement that is given before
# its commit (FLAME_FAULT=ack_early of flame-backend-faulty) is lost and found.
start_backend() {
	"$B/flame-backend" --data "$T/data" --listen "127.0.0.1:${port:-0}" --commit-interval 500ms 2>>"$T/backend.log" &
	backend=$!
}
start_agent() {
	"$B/flame-agent" daemon --backend "http://127.0.0.1:$(cat "$T/tap.port")" --state-dir "$T/state" --heartbeat 500ms \
		--host h9 --frequency 99 --continuous --window-continuous 1s 2>>"$T/agent.log" &
	agent=$!
}
# The kernel's programs and maps that ours hold, as "prog ID" and "map ID" lines.
remember_held() {
	local p
	for p in $(programs); do sed -n 's/^\(prog\|map\)_id:\t/\1 /p' "/proc/$p/fdinfo/"* 2>/dev/null; done >>"$T/held"
}
port=""
start_backend
until_true 60 grep -q action=listen "$T/backend.log"
port=$(sed -n 's/.*action=listen .*port=\([0-9]*\).*/\1/p' "$T/backend.log")
python3 tests/e2e/kill9_tap.py serve "$T" "$port" 2>"$T/tap.log" &
tap=$!
until_true 20 test -s "$T/tap.port" || { not_ok "the tap starts" "$(cat "$T/tap.log")"; exit 1; }
"$B/workloads/cpu_split" --threads 1 --seconds 3600 >/dev/null 2>&1 &
load=$!
start_agent
until_true 30 test -s "$T/acked" || { not_ok "windows arrive" "$(tail -n 2 "$T/agent.log" "$T/backend.log")"; exit 1; }

kill_one() { # PID
	kill -9 "$1"
	wait "$1" 2>/dev/null
	return 0
}
for ((i = 0; i < KILLS; i++)); do
	printf -v moment '%d.%02d' $((RANDOM % 2)) $((RANDOM % 60)) # 0 to 1.6 s, 0.8 on average
	sleep "$moment"
	remember_held
	case $((RANDOM % 5)) in
	0 | 1) kill_one "$agent" && start_agent ;;
	2 | 3) kill_one "$backend" && start_backend ;;
	*)
		kill_one "$agent"
		kill_one "$backend"
		start_backend
		start_agent
		;;
	esac
done 2>/dev/null # bash's words about killed jobs

# --- the end: what is under way is delivered, then both end in peace

spool_is_empty() { [ -z "$(ls "$T"/state/spool/*.push 2>/dev/null)" ]; }
more_acked() { [ "$(wc -l <"$T/acked")" -gt "$1" ]; }
until_true 60 more_acked "$(wc -l <"$T/acked")"
holds $? "after $KILLS kills windows are still delivered" "$(tail -n 3 "$T/agent.log") $(tail -n 3 "$T/backend.log")"
until_true 30 python3 -c "
import json, sys
s = json.load(open('$T/state/status.json'))
sys.exit(not (s['schema'] == 'flame-agent-status/1' and s['state'] in ('profiling', 'dormant') and s['backend'] == 'ok'))"
holds $? "the agent's status is whole and says that all is well" "$(cat "$T/state/status.json")"
remember_held
kill "$agent"
wait "$agent"
holds $? "the agent ends by SIGTERM" "exit $?"
spool_is_empty || { # of the last seconds: not delivered in time; the next start sends it
	start_agent
	until_true 30 spool_is_empty
	kill "$agent"
	wait "$agent"
}
left=$(ls "$T/state/spool")
[ -z "$left" ]
holds $? "its spool has neither windows nor halves of files" "$left"
kill "$backend"
wait "$backend"
holds $? "the backend ends by SIGTERM" "exit $?"
out=$("$B/flame-backend" verify "$T/data")
holds $? "verify is clean" "$out"
out=$(python3 tests/e2e/kill9_tap.py judge "$T" "$T/data" 2>&1)
holds $? "every acknowledged window is stored, once" "$out"
echo "# $out"

# --- nothing is left

none_runs() { [ -z "$(programs)" ]; }
until_true 10 none_runs
holds $? "no process of ours is left" "$(for p in $(programs); do tr '\0' ' ' <"/proc/$p/cmdline"; done)"
all_gone() {
	local kind id
	while read -r kind id; do
		bpftool "$kind" show id "$id" >/dev/null 2>&1 && return 1
	done < <(sort -u "$T/held")
	return 0
}
if command -v bpftool >/dev/null; then
	[ "$(sort -u "$T/held" | grep -c prog)" -ge 3 ]
	holds $? "recordings were under way at the kills" "$(sort -u "$T/held" | wc -l) objects seen"
	until_true 20 all_gone
	holds $? "no BPF object of ours is left" "$(sort -u "$T/held" | while read -r k i; do bpftool "$k" show id "$i" 2>/dev/null; done | head -n 3)"
else
	echo "skip BPF objects after kill -9: no bpftool"
fi
exit $failed
