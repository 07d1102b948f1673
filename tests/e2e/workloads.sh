#!/bin/bash
# workloads.sh [BUILD] - are the workloads what workloads/README.md says? A verdict is only as good as they are.
#
# Machine code: twins are the same instructions, no tail calls, frames kept, the layout of tail_noreturn.
# Runs: arguments, truth.json, proportions by count, by instruction (callgrind) and by their own clocks, and the
# stacks by frame pointers (workloads_walk.py, through ptrace).
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
W=$B/workloads
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT
failed=0
ok() { echo "ok $*"; }
not_ok() { failed=1; echo "not ok $1: $2"; }
# holds $? NAME WHY : judges the command before it; WHY may hold substitutions, which would overwrite $?
holds() { if [ "$1" = 0 ]; then ok "$2"; else not_ok "$2" "$3"; fi; }

for w in cpu_split lock_convoy tail_noreturn; do
	[ -x "$W/$w" ] || { echo "not ok $w: $W/$w is not built"; exit 1; }
	objdump -d --no-show-raw-insn "$W/$w" >"$scratch/$w.dis"
done

# code WORKLOAD FUNCTION : its instructions without addresses and padding
code() {
	awk -v f="<$2>:" '$2 == f { on = 1; next } /^$/ { on = 0 } on' "$scratch/$1.dis" |
		cut -f2- | sed -E 's/[0-9a-f]+ <[^+>]*/<F/; s/ +$//' | grep -vE '^(cs |data16 )*nop|^xchg +%ax'
}

# --- machine code

same() {
	local w=$1 first=$2 f
	shift
	for f in "$@"; do
		[ -n "$(code "$w" "$f")" ] && [ "$(code "$w" "$f")" = "$(code "$w" "$first")" ] || return 1
	done
}
same cpu_split split_heavy split_medium split_light
holds $? "cpu_split: twins are the same code" "objdump -d of split_* differs"
same lock_convoy critical_work outside_work
holds $? "lock_convoy: twins are the same code" "objdump -d of critical_work and outside_work differs"

# A function's loop: 11 instructions from the first mov to the jne back to it.
for f in cpu_split:split_heavy lock_convoy:critical_work; do
	[ "$(code "${f%:*}" "${f#*:}" | grep -cE '^(mov|shl|shr|xor|sub|jne) ' || true)" = 13 ]
	holds $? "${f#*:}: 11 instructions an iteration" "the loop was unrolled or vectorized"
done

# frames WORKLOAD FUNCTION... : each begins a frame, and none leaves by a jump into another function
frames() {
	local w=$1 f bad=
	shift
	for f in "$@"; do
		code "$w" "$f" | head -n 1 | grep -q '^push *%rbp$' && code "$w" "$f" | grep -q '^mov *%rsp,%rbp$' ||
			bad+="$f has no frame; "
		awk -v f="<$f>:" '$2 == f { on = 1; next } /^$/ { on = 0 } on && $2 ~ /^jmp/' "$scratch/$w.dis" |
			grep -qvE "<$f(\.cold)?(\+|>)" && bad+="$f makes a tail call; "
	done
	[ -z "$bad" ]
	holds $? "$w: whole chain keeps frames, no tail calls" "$bad"
}
frames cpu_split main worker run path_a path_b pace split_heavy split_medium split_light
frames lock_convoy worker lock_wait critical_work outside_work hold_sleep
frames tail_noreturn main real_caller burn_noreturn

[ "$(code tail_noreturn real_caller | tail -n 1 | awk '{ print $1, $NF }')" = "call <F>" ] &&
	nm -S "$W/tail_noreturn" | {
		while read -r address size _ symbol; do
			[ "$symbol" = real_caller ] && end=$((0x$address + 0x$size))
			[ "$symbol" = innocent_next ] && next=$((0x$address))
		done
		[ -n "${end:-}" ] && [ "$end" = "${next:-}" ]
	}
holds $? "tail_noreturn: innocent_next follows the last call" "see objdump -d around real_caller"

# --- arguments

bad=
while read -r w args; do
	# shellcheck disable=SC2086 # the words are the arguments
	"$W/$w" $args >"$scratch/out" 2>"$scratch/err"
	rc=$?
	[ $rc = 2 ] && [ ! -s "$scratch/out" ] && [ "$(wc -l <"$scratch/err")" = 1 ] || bad+="$w $args: exit $rc; "
done <<-END
	cpu_split --rounds
	cpu_split --rounds 0
	cpu_split --rounds -1
	cpu_split --rounds 1x
	cpu_split --rounds 99999999999999999999999
	cpu_split --round 1
	cpu_split --truth=
	cpu_split --ops 1
	cpu_split stray
	lock_convoy --threads 65
	lock_convoy --ops=
	tail_noreturn --chunks 0x10
	busy_host --batches 0
	busy_host --execs 10001
END
[ -z "$bad" ]
holds $? "wrong arguments: exit 2, one line, no work" "$bad"
for w in cpu_split lock_convoy tail_noreturn busy_host; do
	"$W/$w" --help | grep -q -- '--truth'
	holds $? "$w: --help" "does not name --truth"
done
"$W/cpu_split" --rounds 1 --chunk 1000 --truth "$scratch/none/t" >"$scratch/out" 2>"$scratch/err"
[ $? = 1 ] && [ "$(wc -l <"$scratch/err")" = 1 ]
holds $? "an unwritable truth is an error" "$(cat "$scratch/err")"

# --- runs

# sum NAME ARGS... : checksum of a run
sum() { "$W/$1" "${@:2}" | sed -n 's/.*checksum=\([0-9a-f]*\).*/\1/p'; }
for run in "cpu_split --rounds 1 --chunk 2000" "cpu_split --rounds 1 --chunk 2000 --threads 3" \
	"lock_convoy --ops 10 --hold-work 1000 --outside-work 1000" "tail_noreturn --chunks 3 --chunk 1000"; do
	# shellcheck disable=SC2086
	a=$(sum $run --seed 5) b=$(sum $run --seed 5) c=$(sum $run --seed 6)
	[ -n "$a" ] && [ "$a" = "$b" ] && [ "$a" != "$c" ]
	holds $? "same checksum for the same arguments: $run" "$a $b, other seed $c"
done

"$W/cpu_split" --rounds 4 --pace-ms 1 --truth "$scratch/cpu_split.json" >/dev/null &&
	"$W/cpu_split" --seconds 1 --threads 2 --truth "$scratch/threads.json" >/dev/null &&
	"$W/lock_convoy" --ops 20 --hold-sleep-us 500 --truth "$scratch/lock_convoy.json" >/dev/null &&
	"$W/tail_noreturn" --chunks 50 --truth "$scratch/tail_noreturn.json" >/dev/null &&
	"$W/busy_host" --seconds 2 --processes 50 --switches 2000 --execs 20 --truth "$scratch/busy_host.json" >/dev/null
holds $? "runs end well" "a run failed"
python3 tests/e2e/workloads_truth.py "$scratch" || failed=1
[ -z "$(find "$scratch" -name '*.tmp')" ]
holds $? "no temporary truth is left" "$(ls "$scratch")"

# --- busy_host, seen from outside: what it says that it does is what the kernel counts

# A pair's round trip is two switches; each of its 8 processes gives up the CPU once for each.
"$W/busy_host" --seconds 60 --processes 50 --switches 2000 --execs 20 >/dev/null &
busy=$!
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
asleep() { # 50 sleepers, 4 pairs, the one that execs
	local n=0 p
	for p in $(children $busy); do n=$((n + 1)); done
	[ $n = 55 ]
}
for ((i = 0; i < 200; i++)); do asleep && break; sleep 0.05; done
asleep
holds $? "busy_host: 50 sleepers, 4 pairs and the one that execs" "$(children $busy | wc -w) children"
# voluntary switches of all its processes
switched() {
	local p c
	for p in $(children $busy); do
		for c in $p $(children "$p"); do
			sed -n 's/^voluntary_ctxt_switches:\t//p' "/proc/$c/status" 2>/dev/null
		done
	done | awk '{ s += $1 } END { print s + 0 }'
}
from=${EPOCHREALTIME/./} before=$(switched)
sleep 2 # the span that is measured
after=$(switched) us=$((${EPOCHREALTIME/./} - from))
rate=$(((after - before) * 1000000 / us))
[ $rate -ge 1000 ] && [ $rate -le 4000 ]
holds $? "busy_host: 2,000 switches a second are as many for the kernel, within a factor of 2" "$rate"
sleepers=$(children $busy)
kill $busy
wait $busy 2>/dev/null
for ((i = 0; i < 200; i++)); do
	left=$(for p in $sleepers; do [[ $(readlink "/proc/$p/exe") == */busy_host ]] && echo "$p"; done)
	[ -z "$left" ] && break
	sleep 0.05
done
[ -z "$left" ]
holds $? "busy_host: its processes end with it" "$left"

# --- stacks by frame pointers, seen from outside

for run in "cpu_split --rounds 200" "tail_noreturn --chunks 20000"; do
	# shellcheck disable=SC2086
	python3 tests/e2e/workloads_walk.py "$W" $run >"$scratch/walk" 2>&1
	case $? in
	0) ok "$run: $(cat "$scratch/walk")" ;;
	77) echo "skip stacks of ${run%% *}: $(cat "$scratch/walk")" ;;
	*) not_ok "stacks of ${run%% *}" "$(tail -n 1 "$scratch/walk")" ;;
	esac
done

# --- proportions by instruction

if ! command -v valgrind >/dev/null || ! command -v callgrind_annotate >/dev/null; then
	echo "skip proportions by instruction: valgrind is not installed"
	exit $failed
fi
# shares WORKLOAD ARGS... : "FUNCTION INSTRUCTIONS" of the run, self
counts() {
	valgrind --tool=callgrind --callgrind-out-file="$scratch/cg" "$W/$1" "${@:2}" >/dev/null 2>"$scratch/vg" ||
		return 1
	callgrind_annotate --threshold=100 "$scratch/cg" | sed -nE 's/^ *([0-9,]+) .*:([A-Za-z_0-9]+)( .*)?$/\2 \1/p' |
		tr -d ','
}
# judge NAME FUNCTION=SHARE... : shares of their sum, in tenths of a percent, within 0.1 %
judge() {
	local name=$1
	shift
	awk -v want="$*" '{ n[$1] += $2 }
		END { k = split(want, w, " "); for (i = 1; i <= k; i++) { split(w[i], p, "="); total += n[p[1]] }
		      for (i = 1; i <= k; i++) { split(w[i], p, "="); s = total ? 100 * n[p[1]] / total : 0
			printf "%s %.3f%% ", p[1], s; if (s < p[2] - 0.1 || s > p[2] + 0.1) bad = 1 }
		      exit bad }' "$scratch/counts" >"$scratch/judged"
	holds $? "$name" "$(cat "$scratch/judged")"
}
counts cpu_split --rounds 2 --chunk 10000 >"$scratch/counts"
holds $? "callgrind runs cpu_split" "$(tail -n 1 "$scratch/vg")"
judge "cpu_split: 70/20/10 % by instruction" split_heavy=70 split_medium=20 split_light=10
awk '$1 == "split_light" { exit !($2 >= 11 * 100000 && $2 <= 11.01 * 100000) }' "$scratch/counts"
holds $? "cpu_split: 11 instructions an iteration by callgrind" "$(grep split_light "$scratch/counts")"
counts lock_convoy --ops 10 --hold-work 20000 --outside-work 10000 >"$scratch/counts"
holds $? "callgrind runs lock_convoy" "$(tail -n 1 "$scratch/vg")"
judge "lock_convoy: 2:1 by instruction" critical_work=66.6667 outside_work=33.3333
exit $failed
