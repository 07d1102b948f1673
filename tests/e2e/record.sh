#!/bin/bash
# record.sh [BUILD] - `flame-agent record` on this kernel, against what the workloads say they did.
#
# The judging of numbers is in record_judge.py. Needs root (or the capabilities the agent asks for); where the
# kernel does not offer what the agent needs, everything is skipped with the agent's own message.
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
A=$B/flame-agent
W=$B/workloads
T=$(mktemp -d) || exit 3
bg=()
cleanup() {
	for p in "${bg[@]}"; do kill "$p" 2>/dev/null; done
	rm -rf "$T"
}
trap cleanup EXIT
failed=0
ok() { echo "ok $*"; }
not_ok() { failed=1; echo "not ok $1: $2"; }
# holds $? NAME WHY : judges the command before it
holds() { if [ "$1" = 0 ]; then ok "$2"; else not_ok "$2" "$3"; fi; }
judge() { # NAME ARG... : record_judge.py says why it does not hold
	local name=$1 why
	shift
	why=$(python3 tests/e2e/record_judge.py "$@" 2>&1)
	holds $? "$name" "$why"
}

# --- refused before sampling starts

refused() { # NAME CODE TEXT ARG...
	local name=$1 code=$2 text=$3 out rc
	shift 3
	out=$(timeout 20 "$A" record -q -d 1ms "$@" 2>&1)
	rc=$?
	[ "$rc" = "$code" ] && grep -qF -- "$text" <<<"$out"
	holds $? "record refuses $name" "exit $rc, said: $out"
}
refused "0 Hz" 2 "1..10000" -F 0 -o "$T/x.svg"
refused "a million Hz" 2 "1..10000" -F 1000000 -o "$T/x.svg"
refused "an unknown suffix" 2 "must end in .svg" -o "$T/x.png"
refused "a PID that does not exist" 1 "does not exist" -p 4194303 -o "$T/x.svg"
refused "a directory that does not exist" 1 "cannot be written" -o "$T/none/x.svg"
mkdir "$T/dir.svg"
refused "a directory as output" 1 "not a regular file" -o "$T/dir.svg"
refused "an unwritable summary" 1 "cannot be written" -o "$T/x.svg" --summary "$T/none/s.json"
refused "one file for profile and summary" 2 "give two files" -o "$T/x.svg" --summary "$T/x.svg"
refused "a ready descriptor that is not open" 1 "not open for writing" -o "$T/x.svg" --ready-fd 77
refused "an operand" 2 "no operand" -o "$T/x.svg" more
[ ! -e "$T/x.svg" ]
holds $? "a refused recording leaves no file" "$T/x.svg exists"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	out=$(setpriv --reuid 65534 --clear-groups "$A" record -d 1ms -o /tmp/x.svg 2>&1)
	[ $? = 1 ] && grep -q 'missing capability CAP_BPF' <<<"$out" && [ "$(wc -l <<<"$out")" = 1 ]
	holds $? "a missing capability is named in one line" "$out"
else
	echo "skip a missing capability is named in one line: needs root and setpriv"
fi
if unshare -pf --mount-proc true 2>/dev/null; then
	out=$(unshare -pf --mount-proc "$A" record -d 1ms -o "$T/x.svg" 2>&1)
	[ $? = 1 ] && grep -q 'PID namespace' <<<"$out"
	holds $? "a foreign PID namespace is named" "$out"
else
	echo "skip a foreign PID namespace is named: unshare is not permitted"
fi

# --- what follows samples for real

if ! why=$("$A" record -q -d 1ms -o "$T/probe.folded" 2>&1); then
	echo "skip sampling on this kernel: $why"
	exit $failed
fi

# The kernel's programs and maps that an agent holds, as "prog ID" and "map ID" lines.
held_by() {
	sed -n 's/^\(prog\|map\)_id:\t/\1 /p' /proc/"$1"/fdinfo/* 2>/dev/null | sort -u
}
# They are freed a moment after the last descriptor is closed.
all_gone() {
	local deadline=$((SECONDS + 10)) kind id
	while read -r kind id; do
		while bpftool "$kind" show id "$id" >/dev/null 2>&1; do [ $SECONDS -lt $deadline ] || return 1; done
	done
}

# start NAME ARG... : records in the background until every CPU is sampled; sets $agent
start() {
	local name=$1
	shift
	mkfifo "$T/$name.ready"
	"$A" record -q -o "$T/$name" --summary "$T/$name.json" --ready-fd 9 "$@" 9>"$T/$name.ready" 2>"$T/$name.err" &
	agent=$!
	bg+=("$agent")
	if ! read -r -n 1 -t 30 ready <"$T/$name.ready" || [ "$ready" != R ]; then
		not_ok "record starts ($name)" "$(cat "$T/$name.err")"
		return 1
	fi
}

# --- unwind tables

out=$("$A" __verify 2>"$T/verify.err")
holds $? "every kernel program loads, with tables and without, below 500000 instructions" "$out $(cat "$T/verify.err")"
[ "$(grep -cE '^(cfi on_sample|fp on_sample_fp) [1-9]' <<<"$out")" = 2 ] && grep -qE '^cfi resume [1-9]' <<<"$out"
holds $? "the verifier's work is printed for each program" "$out"
for unwind in cfi fp; do
	start chain.$unwind.folded -d 120s -F 997 --unwind $unwind && "$W/chain_nofp" --chunks 3000 >/dev/null
	kill -INT "$agent"
	wait "$agent"
	judge "no sample is lost (--unwind $unwind)" losses "$T/chain.$unwind.folded.json"
	judge "stacks sum to the ledger (--unwind $unwind)" sums "$T/chain.$unwind.folded.json"
done
judge "tables reach main through functions without frame pointers" whole "$T/chain.cfi.folded" chain_nofp 0.97
! python3 tests/e2e/record_judge.py whole "$T/chain.fp.folded" chain_nofp 0.5 >/dev/null 2>&1
holds $? "frame pointers alone do not" "they did"

# --- a process in the middle of its exit has no memory any more that could be walked

start exit.folded -d 120s -F 997 &&
	for _ in 1 2 3; do python3 -c 'import os; b = bytearray(b"x") * (256 << 20); os._exit(0)'; done
kill -INT "$agent"
wait "$agent"
torn=$(grep -E '^python3;.*;exit_mmap;' "$T/exit.folded")
[ -n "$torn" ] && ! grep -qE 'truncated|unknown|;_exit;' <<<"$torn" && ! grep -qvE '^python3;[a-z0-9_]*(syscall|SYSCALL|sync)' <<<"$torn"
holds $? "a process that takes its memory apart has kernel frames only" "${torn:-no sample in exit_mmap}"

# --- a workload wholly inside the window; the window ends by SIGINT

start split.folded -d 120s -F 997 &&
	"$W/cpu_split" --seconds 3 --truth "$T/split.truth" >/dev/null
held_by "$agent" >"$T/held"
kill -INT "$agent"
wait "$agent"
holds $? "SIGINT ends the window and writes the profile" "$(cat "$T/split.folded.err")"
judge "shares of the functions are the truth's, within 4 sigma" shares "$T/split.folded" "$T/split.folded.json" "$T/split.truth"
judge "callers are the truth's" callers "$T/split.folded" "$T/split.truth"
judge "the ledger is schedstat (cpu_split)" ledger "$T/split.folded.json" "$T/split.truth"
judge "stacks sum to the ledger" sums "$T/split.folded.json"
judge "no sample is lost" losses "$T/split.folded.json"
judge "on every CPU weights add up to the window" window "$T/split.folded.json"

# The workers sleep when the window ends and only then is their schedstat read: what a thread does
# after it has read its own account takes microseconds, or on a host that lends its CPUs to others any time.
mkfifo "$T/convoy.in" "$T/convoy.out"
start convoy.folded -d 120s -F 997
"$W/lock_convoy" --stay 1 --truth "$T/convoy.truth" <"$T/convoy.in" >"$T/convoy.out" &
convoy=$!
bg+=("$convoy")
exec 7>"$T/convoy.in" 8<"$T/convoy.out"
read -r -t 60 stays <&8
kill -TERM "$agent"
wait "$agent"
holds $? "SIGTERM ends the window and writes the profile" "$(cat "$T/convoy.folded.err")"
exec 7>&-
wait "$convoy"
holds $? "the workers stay until they are told ($stays)" "exit $?"
exec 8<&-
judge "the ledger is schedstat (lock_convoy)" ledger "$T/convoy.folded.json" "$T/convoy.truth" workers

[ "$(grep -c prog "$T/held")" -ge 3 ] && [ "$(grep -c map "$T/held")" -ge 5 ]
holds $? "the agent's programs and maps are seen while it runs" "$(cat "$T/held")"
all_gone <"$T/held"
holds $? "nothing stays loaded" "of $(tr '\n' ' ' <"$T/held")"

out=$("$A" recrod 2>&1)
[ $? = 2 ] && grep -q "no command 'recrod'" <<<"$out" && [ "$(wc -l <<<"$out")" = 1 ]
holds $? "an unknown command is named in one line" "$out"
mkfifo "$T/fds.ready"
"$A" record -q -d 120s -o "$T/fds.folded" --ready-fd 9 9>"$T/fds.ready" <&- >&- 2>&- &
agent=$!
bg+=("$agent")
read -r -n 1 -t 30 ready <"$T/fds.ready"
[ "$(readlink "/proc/$agent/fd/0" "/proc/$agent/fd/1" "/proc/$agent/fd/2" | sort -u)" = /dev/null ]
holds $? "no file of the agent takes the place of a closed standard descriptor" "$(ls -l "/proc/$agent/fd")"
kill -TERM "$agent"
wait "$agent"

# --- what ends it early, or takes its outputs away

start hup.folded -d 120s
kill -HUP "$agent"
wait "$agent"
holds $? "SIGHUP ends the window and writes the profile" "$(cat "$T/hup.folded.err")"
"$B"/workloads/cpu_split --seconds 3 >/dev/null & # an idle machine has no samples to write
bg+=($!)
(trap '' HUP && exec "$A" record -q -d 1s -o "$T/nohup.folded" --ready-fd 9 9>"$T/nohup.ready") &
agent=$!
bg+=("$agent")
until [ -s "$T/nohup.ready" ]; do kill -0 "$agent" 2>/dev/null || break; done
kill -HUP "$agent"
wait "$agent" && [ -s "$T/nohup.folded" ]
holds $? "under nohup SIGHUP ends nothing" "exit $?"
"$A" record -d 50ms -o "$T/shut.folded" --summary "$T/shut.json" <&- >&- 2>&- && [ -s "$T/shut.json" ]
holds $? "closed standard descriptors harm no file" "exit $?"
"$A" record -d 50ms -o "$T/gone.folded" --summary "$T/gone.json" >/dev/full 2>"$T/gone.err" &&
	[ -s "$T/gone.json" ] && grep -q 'print the summary' "$T/gone.err"
holds $? "a full stdout is told, and the files are written" "$(cat "$T/gone.err")"
! (ulimit -f 2 && "$A" record -q -d 50ms -o "$T/limit.svg" 2>"$T/limit.err") && grep -q 'File too large' "$T/limit.err" &&
	[ -z "$(ls "$T"/limit.svg* 2>/dev/null)" ]
holds $? "a limit on file sizes is told and leaves nothing" "$(cat "$T/limit.err"; ls "$T")"
if mkdir "$T/small" && mount -t tmpfs -o size=8k none "$T/small" 2>/dev/null; then
	echo before >"$T/small/x.svg"
	! "$A" record -q -d 50ms -o "$T/small/x.svg" 2>"$T/small.err" && grep -q 'No space left' "$T/small.err" &&
		[ "$(cat "$T/small/"*)" = before ]
	holds $? "a full disk is told and leaves the file that was there" "$(cat "$T/small.err"; ls "$T/small")"
	umount "$T/small"
else
	echo "skip a full disk is told and leaves the file that was there: mount is not permitted"
fi
sleep 60 &
sleeper=$!
bg+=("$sleeper")
"$A" record -q -d 50ms -p "$sleeper" -o "$T/idle.svg" 2>"$T/idle.err" && grep -q 'did not run' "$T/idle.err" &&
	xmllint --noout "$T/idle.svg"
holds $? "a process that does not run gives an empty graph and a hint" "$(cat "$T/idle.err")"

# --- more stacks than there is room for

"$B"/workloads/cpu_split --threads 8 --seconds 3 >/dev/null & # more stacks than 64 on an idle machine, too
bg+=($!)
"$A" record -q -d 1s -F 4999 --tid --stacks-max 64 -o "$T/full.folded" --summary "$T/full.json" 2>"$T/full.err"
holds $? "record with too many stacks" "$(cat "$T/full.err")"
judge "lost samples are counted, shown, and in the sum" lost "$T/full.folded" "$T/full.json"

# --- outputs

"$W/cpu_split" --seconds 60 >/dev/null &
split=$!
bg+=("$split")
"$A" record -d 5 -F 199 -o "$T/a.svg" >"$T/a.out" 2>"$T/a.err"
holds $? "record -d 5 -o a.svg" "$(cat "$T/a.err")"
for what in samples ledger losses 'own CPU' 'own memory' cpu-clock; do
	grep -q "$what" "$T/a.out"
	holds $? "the summary tells of $what" "$(cat "$T/a.out")"
done
xmllint --noout "$T/a.svg" 2>"$T/xmllint"
holds $? "the svg is well-formed" "$(head -n 3 "$T/xmllint")"
grep -q split_heavy "$T/a.svg"
holds $? "the svg shows split_heavy" "not found"
! grep -oE '(href|src)="?(https?:)?//[^"]*' "$T/a.svg" >"$T/links"
holds $? "the svg loads nothing" "$(head -n 3 "$T/links")"
"$A" record -q -d 1 -F 499 -p "$split" -o "$T/p.pb.gz" --summary "$T/p.json"
judge "-p records that process only" only "$T/p.json" "$split"
if command -v go >/dev/null; then
	go tool pprof -top "$T/p.pb.gz" >"$T/top" 2>&1 && grep -q split_heavy "$T/top"
	holds $? "go tool pprof opens the profile" "$(head -n 5 "$T/top")"
else
	echo "skip go tool pprof opens the profile: go is not installed"
fi
kill "$split"
wait "$split" 2>/dev/null

# --- hostile names

hostile() { # NAME ESCAPED : a process of that name appears under ESCAPED in folded, as text in svg
	[ -e "$T/$1" ] || cp "$W/cpu_split" "$T/$1" || return 1
	"$T/$1" --seconds 60 >/dev/null &
	local p=$!
	bg+=("$p")
	"$A" record -q -d 1 -F 499 -p "$p" -o "$T/h.folded" && "$A" record -q -d 1 -F 499 -p "$p" -o "$T/h.svg" &&
		grep -qaF -- "$2;" "$T/h.folded" && xmllint --noout "$T/h.svg" && ! grep -qa '<svg onload' "$T/h.svg"
	local rc=$?
	kill "$p"
	wait "$p" 2>/dev/null
	return $rc
}
hostile '<svg onload=a>' '<svg onload=a>'
holds $? "a process named <svg onload=a> is text" "$(head -c 300 "$T/h.folded")"
hostile 'a;b c"' 'a\x3bb c"'
holds $? "a process named a;b c\" is text" "$(head -c 300 "$T/h.folded")"
hostile $'bad\xff\xfename' $'bad\xef\xbf\xbd\xef\xbf\xbdname'
holds $? "a process name of invalid UTF-8 is repaired" "$(head -c 300 "$T/h.folded")"

symbol=$(nm "$W/cpu_split" | sed -n 's/.* [tT] \(.*split_heavy.*\)/\1/p' | head -n 1)
big=$(printf 'B%.0s' {1..10240})
objcopy --redefine-sym "$symbol=<svg onload=b>;\"$big"$'\xff' "$W/cpu_split" "$T/symbols" &&
	hostile symbols symbols && grep -qaF '<svg onload=b>\x3b"BBBB' "$T/h.folded"
holds $? "a function named <svg onload=b>;\" and 10 KB more is text" "$(cut -c 1-150 "$T/h.folded" | head -n 3)"

# --- start and stop again and again; without malloc's per-thread cache the heap's size is exact

export GLIBC_TUNABLES=glibc.malloc.tcache_count=0

"$A" record -q -d 50ms --repeat 12 -o "$T/r.folded" --summary "$T/r.json"
holds $? "record --repeat 12" "exit $?"
judge "12 windows leave the memory as it was" memory "$T/r.json"

# --- the seam for seeded faults

FLAME_FAULT=drop10 "$A" record -q -d 50ms -o "$T/f.folded" --summary "$T/f.json" && ! grep -q '"fault"' "$T/f.json"
holds $? "the shipped agent has no faults" "it took FLAME_FAULT"
if [ -x "$B/flame-agent-faulty" ]; then
	! FLAME_FAULT=nonsense "$B/flame-agent-faulty" record -q -d 50ms -o "$T/f.folded" 2>"$T/f.err" &&
		grep -q 'names no fault' "$T/f.err"
	holds $? "an unknown fault is refused" "$(cat "$T/f.err")"
	FLAME_FAULT=leak "$B/flame-agent-faulty" record -q -d 50ms --repeat 12 -o "$T/l.folded" --summary "$T/l.json"
	judge "the leak fault shows in memory per window" leak "$T/l.json"
fi

exit $failed
