#!/bin/bash
# daemon.sh [BUILD] - `flame-agent daemon` on this kernel against a backend that does what it is told
# (daemon_backend.py). The judging of what arrived is in daemon_judge.py. Needs root; skips what the kernel lacks.
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
A=$B/flame-agent
W=$B/workloads
T=$(mktemp -d) || exit 3
bg=() agent="" backend="" port=0 cg=""
cleanup() {
	for p in "${bg[@]}"; do kill "$p" 2>/dev/null; done
	[ -z "$cg" ] || remove_cgroups
	[ -z "$agent" ] || kill -9 "$agent" 2>/dev/null
	rm -rf "$T"
}
# A cgroup can be removed when the last process in it has ended.
remove_cgroups() {
	local deadline=$((SECONDS + 10))
	until find "$cg" -depth -type d -exec rmdir {} + 2>/dev/null || [ ! -d "$cg" ] || [ $SECONDS -ge $deadline ]; do sleep 0.05; done
}
trap cleanup EXIT
failed=0
ok() { echo "ok $*"; }
not_ok() { failed=1; echo "not ok $1: $2"; }
# holds $? NAME WHY : judges the command before it
holds() { if [ "$1" = 0 ]; then ok "$2"; else not_ok "$2" "$3"; fi; }
judge() { # NAME ARG... : daemon_judge.py says why it does not hold
	local name=$1 why
	shift
	why=$(python3 tests/e2e/daemon_judge.py "$@" 2>&1)
	holds $? "$name" "$why"
}
# until_true SECONDS COMMAND... : asks again until it holds
until_true() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" 2>/dev/null; do
		[ $SECONDS -lt $deadline ] || return 1
		sleep 0.05
	done
	return 0
}
say_mode() { echo "$1" >"$T/be/mode.new" && mv "$T/be/mode.new" "$T/be/mode"; }
say_commands() { echo "$1" >"$T/be/c.new" && mv "$T/be/c.new" "$T/be/commands.json"; }
acked() { grep -qE "^$1 $2" "$T/be/acks"; }
count() { find "$T/be/push" -name "*.$1" | wc -l; }
came() { [ "$(count "$1")" -ge "$2" ]; }
spooled() { [ "$(find "$T/state/spool" -name '*.push' | wc -l)" -ge "$1" ]; }
empty_spool() { [ "$(find "$T/state/spool" -name '*.push' | wc -l)" = 0 ]; }
ended() { ! kill -0 "$1" 2>/dev/null; }
start_backend() {
	mkdir -p "$T/be"
	rm -f "$T/be/port"
	python3 tests/e2e/daemon_backend.py "$T/be" "$port" 2>"$T/be.err" &
	backend=$!
	bg+=("$backend")
	until_true 20 test -s "$T/be/port" || { not_ok "the test's backend starts" "$(cat "$T/be.err")"; exit 1; }
	port=$(cat "$T/be/port")
}
stop_backend() {
	kill "$backend"
	wait "$backend" 2>/dev/null
}
# start_agent ARG... : sets $agent
start_agent() {
	"$A" daemon --backend "http://127.0.0.1:$port" --state-dir "$T/state" --heartbeat 300ms --window 2s \
		--frequency 997 --host h1 "$@" 2>>"$T/agent.log" &
	agent=$!
}
# stop_agent : SIGTERM; sets $code and $took (ms)
stop_agent() {
	local from=${EPOCHREALTIME/./}
	kill -TERM "$agent"
	wait "$agent"
	code=$?
	took=$(((${EPOCHREALTIME/./} - from) / 1000))
	agent=""
}
beats() { wc -l <"$T/be/heartbeats" 2>/dev/null || echo 0; }
more_beats() { [ "$(beats)" -gt "$1" ]; }
next_beat() { local n; n=$(beats); until_true 10 more_beats "$n"; }

# --- refused at the start

refused() { # NAME TEXT ARG...
	local name=$1 text=$2 out rc
	shift 2
	out=$(timeout 20 "$A" daemon --state-dir "$T/refused" "$@" 2>&1)
	rc=$?
	[ "$rc" = 2 ] && grep -qF -- "$text" <<<"$out" && [ "$(wc -l <<<"$out")" = 1 ]
	holds $? "daemon refuses $name" "exit $rc, said: $out"
}
printf '# comment\n\nfrequenzy = 9\n' >"$T/key.conf"
printf 'host = h\ntoken-file = %s/none\n' "$T" >"$T/token.conf"
printf 'backend = http://192.0.2.1:4040\n' >"$T/plain.conf"
refused "an unknown key, with file and line" "$T/key.conf:3: unknown key 'frequenzy'; did you mean 'frequency'?" --config "$T/key.conf"
refused "an unreadable token, with file and line" "$T/token.conf:2: token-file: '$T/none': No such file" --config "$T/token.conf"
refused "a config file that does not exist" "$T/none.conf" --config "$T/none.conf"
refused "plain HTTP to another host" "plain.conf:1: backend:" --config "$T/plain.conf"
[ ! -e "$T/refused" ]
holds $? "a refused daemon leaves nothing behind" "$(ls -d "$T/refused"* 2>&1)"

# --- dormant

# The kernel's programs and maps that processes hold, as "prog ID" and "map ID" lines.
held_by() {
	local p
	for p in "$@"; do sed -n 's/^\(prog\|map\)_id:\t/\1 /p' /proc/"$p"/fdinfo/* 2>/dev/null; done | sort -u
}
recorders() { pgrep -P "$agent"; }
hold_some() { held_by $(recorders) >"$T/held"; [ "$(grep -c prog "$T/held")" -ge 3 ] && [ "$(grep -c map "$T/held")" -ge 5 ]; }
# They are freed a moment after the last descriptor is closed.
all_gone() {
	local deadline=$((SECONDS + 10)) kind id
	while read -r kind id; do
		while bpftool "$kind" show id "$id" >/dev/null 2>&1; do [ $SECONDS -lt $deadline ] || return 1; done
	done
}
start_backend
start_agent
until_true 10 test -s "$T/be/heartbeats"
holds $? "a heartbeat arrives" "$(cat "$T/agent.log")"
judge "a dormant heartbeat says so" heartbeat "$T/be" schema=flame-heartbeat/1 host=h1 state=dormant state_text= spool.windows=0
next_beat
[ -z "$(held_by "$agent")" ] && [ -z "$(recorders)" ]
holds $? "dormant has no BPF object" "$(held_by $agent)"
! readlink /proc/$agent/fd/* | grep -q 'perf_event'
holds $? "dormant has no perf event" "$(readlink /proc/$agent/fd/*)"
[ "$(ls /proc/$agent/task | wc -l)" = 1 ]
holds $? "dormant is one thread" "$(ls /proc/$agent/task)"
rss=$(awk '/^RssAnon/ { print $2 }' /proc/$agent/status)
[ "$rss" -lt 4096 ]
holds $? "dormant needs less than 4 MB of its own" "$rss KB"
rss=$(awk '/^VmRSS/ { print $2 }' /proc/$agent/status)
[ "$rss" -lt 10240 ]
holds $? "and less than 10 MB with all it shares" "$rss KB"

# --- a second one

out=$("$A" daemon --backend "http://127.0.0.1:$port" --state-dir "$T/state" 2>&1)
rc=$?
[ $rc = 0 ] && grep -q "another one runs with state directory $T/state (process $agent)" <<<"$out"
holds $? "a second daemon ends with a message" "exit $rc, said: $out"

if ! why=$("$A" record -q -d 1ms -o "$T/probe.folded" 2>&1); then
	echo "skip recording on this kernel: $why"
	stop_agent
	exit $failed
fi

# --- a command

"$W/cpu_split" --seconds 2 --truth "$T/truth" >/dev/null &
split=$!
bg+=("$split")
say_commands '[{"id":"c1","kind":"start","view":"cpu","frequency_hz":997,"duration_s":6,"pids":[],"comms":[],"cgroups":[],"deadline_unix_ms":0}]'
until_true 10 acked c1 running
holds $? "a start command is acknowledged when it runs" "$(tail -n 3 "$T/be/acks")"
until_true 10 hold_some
holds $? "a recording's programs and maps are seen in its process" "$(cat "$T/held")"
wait $split
"$W/cpu_split" --seconds 1 --truth "$T/truth" >/dev/null
until_true 15 acked c1 done
holds $? "its completion is told" "$(tail -n 3 "$T/agent.log")"
until_true 10 came ok 3
judge "its windows follow each other" windows "$T/be" 3 2
judge "every series says where it comes from" labels "$T/be" h1
judge "the profile has the workload's shares under its service" shares "$T/be" "$T/truth"
until_true 5 empty_spool
holds $? "the spool is empty afterwards" "$(ls "$T/state/spool")"
next_beat
judge "and it is dormant again" heartbeat "$T/be" state=dormant spool.windows=0
[ -z "$(held_by "$agent")" ] && [ -z "$(recorders)" ]
holds $? "with nothing loaded and no process left" "$(held_by "$agent") $(recorders)"
all_gone <"$T/held"
holds $? "what it had loaded is gone" "of $(tr '\n' ' ' <"$T/held")"

# --- it comes again

n=$(count ok)
for _ in 1 2 3; do next_beat; done
[ "$(count ok)" = "$n" ] && [ "$(grep -c 'action="start a recording" id=c1' "$T/agent.log")" = 1 ]
holds $? "a command delivered again is not run again" "$(grep -c 'start a recording' "$T/agent.log") starts"
stop_agent
[ $code = 0 ] && [ "$took" -lt 5000 ]
holds $? "SIGTERM ends a dormant daemon within 5 s" "exit $code after $took ms"
: >"$T/be/acks"
start_agent
until_true 10 acked c1 done
holds $? "a command delivered after a restart is acknowledged" "$(tail -n 3 "$T/be/acks")"
next_beat
[ "$(grep -c 'action="start a recording" id=c1' "$T/agent.log")" = 1 ]
holds $? "and is not run again" "$(grep 'start a recording' "$T/agent.log")"

# --- commands that cannot be run

say_commands '[{"id":"p1","kind":"start","pids":[4194303],"duration_s":1},{"id":"f1","kind":"start","frequency_hz":1000000},
	{"id":"v1","kind":"start","view":"wall"},{"id":"d1","kind":"start","deadline_unix_ms":1000},{"id":"../../x","kind":"start"},
	{"id":"s1","kind":"stop","target":"nobody"}]'
until_true 10 acked p1 'failed process 4194303 does not exist'
holds $? "a process that does not exist fails with its number" "$(grep p1 "$T/be/acks" | tail -n 2)"
until_true 10 acked f1 'failed frequency_hz'
holds $? "an absurd frequency fails by name" "$(grep f1 "$T/be/acks")"
acked v1 'failed .*view' && acked d1 'failed came after its deadline' && acked s1 'done nothing to stop'
holds $? "an unknown view, a deadline passed and a stop of nothing are answered" "$(tail -n 3 "$T/be/acks")"
say_commands '[]'

# --- continuous, stopped by a command

stop_agent
rm -f "$T"/be/push/*
say_commands '[{"id":"k1","kind":"start","duration_s":0,"comms":["cpu_split"]}]'
"$W/cpu_split" --seconds 60 >/dev/null &
bg+=($!)
start_agent --window-continuous 2s
until_true 15 came ok 3
judge "continuous windows end at full multiples in UTC" aligned "$T/be" 2
{ kill -9 "$agent"; wait "$agent"; } 2>/dev/null
n=$(count ok)
start_agent --window-continuous 2s
until_true 15 came ok $((n + 1))
holds $? "a continuous command goes on after kill -9" "$(tail -n 5 "$T/agent.log")"
say_commands '[{"id":"k1","kind":"start","duration_s":0,"comms":["cpu_split"]},{"id":"k2","kind":"stop","target":"k1"}]'
until_true 10 acked k1 'cancelled stopped by k2'
holds $? "a stop command cancels it" "$(tail -n 3 "$T/be/acks")"
acked k2 'done stopped'
holds $? "and is done itself" "$(grep k2 "$T/be/acks")"
say_commands '[]'
stop_agent

# --- changed while it runs

rm -f "$T"/be/push/*
G1='{"id":"g1","kind":"start","frequency_hz":997,"duration_s":0,"comms":["cpu_split"]}'
g2='{"id":"g2","kind":"change","target":"g1","frequency_hz":499,"duration_s":0,"comms":["cpu_split"]}'
say_commands "[$G1]"
start_agent --window-continuous 2s --cpu-limit 100
until_true 15 came ok 1
say_commands "[$G1,$g2]"
until_true 10 acked g2 running
holds $? "a change is acknowledged when it waits for its window" "$(tail -n 3 "$T/be/acks")"
until_true 15 acked g2 done
holds $? "and done when the first window by it came out" "$(tail -n 3 "$T/be/acks")"
n=$(count ok)
until_true 15 came ok $((n + 1))
judge "the rate changes at a window's boundary" rates "$T/be" 997 499
say_commands "[$G1,$g2,{\"id\":\"g3\",\"kind\":\"change\",\"target\":\"g1\",\"pids\":[4194303]},
	{\"id\":\"g4\",\"kind\":\"change\",\"target\":\"nobody\"}]"
until_true 15 acked g3 'failed process 4194303 does not exist'
holds $? "a change that cannot be recorded fails with its reason" "$(tail -n 3 "$T/be/acks")"
acked g4 'failed nothing to change'
holds $? "and so does one of a recording that does not run" "$(grep g4 "$T/be/acks")"
n=$(count ok)
until_true 15 came ok $((n + 2))
judge "the recording goes on as before it" rates "$T/be" 997 499
[ "$(grep -c 'action="change a recording" recording=g1 change=g2' "$T/agent.log")" = 1 ]
holds $? "a change delivered again is not made again" "$(grep 'change a recording' "$T/agent.log")"
{ kill -9 "$agent"; wait "$agent"; } 2>/dev/null
n=$(count ok)
start_agent --window-continuous 2s --cpu-limit 100
until_true 15 came ok $((n + 1))
judge "after kill -9 it goes on as it was changed" rates "$T/be" 997 499
say_commands "[$G1,$g2,{\"id\":\"g5\",\"kind\":\"change\",\"target\":\"g1\",\"duration_s\":1}]"
until_true 15 acked g5 done
until_true 15 acked g1 'done windows='
holds $? "a duration that is over ends it at the next boundary" "$(tail -n 3 "$T/be/acks")"
say_commands '[]'
stop_agent

# --- cancelled in the last window

start_agent --window 60s
say_commands '[{"id":"l1","kind":"start","duration_s":30}]'
until_true 10 hold_some
until_true 10 acked l1 running
say_commands '[{"id":"l1","kind":"start","duration_s":30},{"id":"l2","kind":"stop","target":"l1"}]'
until_true 10 acked l1 'cancelled stopped by l2'
holds $? "what is stopped in its last window is cancelled, not done" "$(grep '^l1' "$T/be/acks")"
stop_agent

# --- a host that does not keep up

start_agent --window 1s
say_commands '[{"id":"w1","kind":"start","duration_s":12,"frequency_hz":49}]'
until_true 10 acked w1 running
# Those that sample already: half a second after their start, for one second.
halt_recorders() {
	local p
	for p in $(recorders); do [ "$(ps -o etimes= -p "$p")" -lt 1 ] || kill -STOP "$p"; done
	grep -q 'action="start a window" recording=w1 skipped=' "$T/agent.log"
}
until_true 15 halt_recorders
holds $? "a window for which no process is free is skipped" "$(tail -n 3 "$T/agent.log")"
until_true 10 sh -c "tail -n 1 '$T/be/heartbeats' | grep -q '\"windows_dropped\": [1-9]'"
holds $? "and the backend is told of it" "$(tail -n 1 "$T/be/heartbeats")"
go_on() { kill -CONT $(recorders); acked w1 '(done|failed .*;) windows=[1-9][0-9]* samples=[0-9]* skipped=[1-9]'; }
until_true 30 go_on
holds $? "and counted when the recording ends, which has the others" "$(grep '^w1' "$T/be/acks" | tail -n 1)"
say_commands '[]'
stop_agent

# --- filters

mount=$(awk '/ - cgroup2 / { print $5; exit }' /proc/self/mountinfo)
if [ -n "$mount" ] && mkdir "$mount/flame-e2e-$$" 2>/dev/null; then
	cg=$mount/flame-e2e-$$
	id=$(printf '%064x' $$)
	mkdir "$cg/web.service" "$cg/docker-$id.scope"
	for dir in web.service "docker-$id.scope"; do
		sh -c 'echo $$ >"$1/cgroup.procs"; exec "$2" --seconds 60' sh "$cg/$dir" "$W/cpu_split" >/dev/null &
		bg+=($!)
	done
	start_agent --service-rule 'cgroup:/flame-e2e-*/docker-*=ruled'
	# filtered ID JSON : starts with the filter, waits for its end
	filtered() {
		rm -f "$T"/be/push/*
		say_commands "[{\"id\":\"$1\",\"kind\":\"start\",\"duration_s\":2,$2}]"
		until_true 15 acked "$1" '(done|failed)'
		until_true 5 empty_spool
	}
	filtered x1 "\"cgroups\":[\"/flame-e2e-$$/web.service\"]"
	judge "a cgroup is filtered, and its unit is the service" only "$T/be" web comm=cpu_split "cgroup=/flame-e2e-$$/web.service" "/web.service"
	filtered x2 "\"cgroups\":[\"$(stat -c %i "$cg/web.service")\"],\"comms\":[\"cpu_split\",\"other\"]"
	judge "a cgroup by its id and a name together" only "$T/be" web comm=cpu_split "cgroup=/flame-e2e-$$/web.service" '"comms":["cpu_split","other"]'
	filtered x3 "\"containers\":[\"$(printf %.61s "$id")\"]"
	judge "a container by the beginning of its id, its service by a rule" only "$T/be" ruled "container=${id:0:12}" '"containers":'
	filtered x4 "\"cgroups\":[\"/flame-e2e-$$\"],\"comms\":[\"nobody\"]"
	acked x4 'done windows=0' && [ "$(count ok)" = 0 ]
	holds $? "kinds of filters are combined by AND" "$(grep x4 "$T/be/acks"), $(count ok) pushes"
	filtered x5 '"cgroups":["/no/such"]'
	acked x5 "failed cgroup '/no/such' does not exist"
	holds $? "a cgroup that does not exist fails by name" "$(grep x5 "$T/be/acks")"
	filtered x6 '"containers":["abcdefabcdef"]'
	acked x6 "failed no container here has an id that begins with 'abcdefabcdef'"
	holds $? "and a container, too" "$(grep x6 "$T/be/acks")"
	say_commands '[]'
	stop_agent
	"$A" record -q -d 1s -F 997 --comm cpu_split --container "${id:0:62}" -o "$T/f.folded" --summary "$T/f.json" && [ -s "$T/f.folded" ] && ! grep -qv '^cpu_split;' "$T/f.folded"
	holds $? "record has the same filters" "$(head -n 3 "$T/f.folded")"
	python3 -c 'import json,sys; s = json.load(open(sys.argv[1])); l = s["ledger"]
assert len(set(t["tgid"] for t in l)) == 1, l
assert abs(s["deviation_sigmas"]) < 5, s["deviation_sigmas"]' "$T/f.json" 2>"$T/f.why"
	holds $? "and its ledger is of the filtered process alone" "$(tail -n 1 "$T/f.why")"
else
	echo "skip filters by cgroup: no writable cgroup2 mount"
fi

# --- the backend is down, refuses, fails, cuts

rm -f "$T"/be/push/*
start_agent --continuous --window-continuous 1s
until_true 10 came ok 1
stop_backend
until_true 15 spooled 3
holds $? "windows wait in the spool while the backend is down" "$(ls "$T/state/spool")"
until_true 5 grep -qiE '"backend":"[^"]*connect' "$T/state/status.json"
holds $? "status.json says why the backend is not reached" "$(cat "$T/state/status.json")"
start_backend
say_mode ok
until_true 40 came ok 6
judge "they arrive oldest first, each once" ordered "$T/be" 6
for how in 500 429 cut; do
	say_mode "$how"
	until_true 15 came "$how" 1
	say_mode ok
	n=$(count ok)
	until_true 20 came ok $((n + 2))
	judge "what was answered with $how comes again and is taken" retried "$T/be" "$how"
done
say_mode 400
until_true 15 came 400 1
say_mode ok
n=$(count ok)
until_true 15 came ok $((n + 2))
holds $? "a refused window does not block those behind it" "$(count ok) after $n"
grep -q 'action="drop a window that the backend refuses"' "$T/agent.log"
holds $? "and its loss is logged" "$(tail -n 3 "$T/agent.log")"
until_true 10 sh -c "tail -n 1 '$T/be/heartbeats' | grep -q '\"windows_dropped\": [1-9]'"
holds $? "and counted" "$(tail -n 1 "$T/be/heartbeats")"

# --- the end while it records

stop_agent
start_agent --continuous --window-continuous 1h
until_true 20 hold_some
sleep 2 # of the hour are recorded
until_true 5 empty_spool
n=$(count ok)
stop_agent
[ $code = 0 ] && [ "$took" -lt 5000 ]
holds $? "SIGTERM ends a recording daemon within 5 s" "exit $code after $took ms"
[ "$(count ok)" -gt "$n" ] && empty_spool
holds $? "and its last window was sent" "$(count ok) after $n in $took ms, $(tail -n 4 "$T/agent.log")"
stop_backend
rm -f "$T"/be/push/*
start_agent --continuous --window-continuous 1s --spool-windows 3
until_true 15 spooled 3
until_true 10 grep -q 'area=daemon action=start' "$T/agent.log"
for _ in 1 2 3; do
	first=$(ls "$T/state/spool" | head -n 1)
	until_true 10 test ! -e "$T/state/spool/$first"
done
[ "$(ls "$T"/state/spool/*.push | wc -l)" -le 3 ]
holds $? "a full spool drops the oldest" "$(ls "$T/state/spool")"
stop_agent
[ $code = 0 ] && [ "$took" -lt 5000 ]
holds $? "SIGTERM ends within 5 s with the backend down" "exit $code after $took ms"
spooled 1
holds $? "and keeps what was not sent" "$(ls "$T/state/spool")"
start_backend
start_agent
until_true 15 empty_spool
holds $? "the next start sends it" "$(ls "$T/state/spool")"
stop_agent

# --- TLS

if command -v openssl >/dev/null; then
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=flame -addext subjectAltName=IP:127.0.0.1 \
		-keyout "$T/key.pem" -out "$T/cert.pem" 2>/dev/null
	cat "$T/key.pem" "$T/cert.pem" >"$T/both.pem"
	python3 tests/e2e/daemon_backend.py "$T/tls" 0 "$T/both.pem" 2>"$T/tls.err" &
	bg+=($!)
	until_true 20 test -s "$T/tls/port"
	tls() { # ARG...
		: >"$T/tls.log" # before the child gets there
		"$A" daemon --backend "https://127.0.0.1:$(cat "$T/tls/port")" --state-dir "$T/state" --heartbeat 300ms "$@" 2>"$T/tls.log" &
		agent=$!
	}
	tls
	until_true 10 grep -q 'certificate verification failed' "$T/tls.log"
	holds $? "an untrusted certificate is refused with TLS's own words" "$(cat "$T/tls.log")"
	until_true 5 grep -q 'certificate verification failed' "$T/state/status.json"
	holds $? "which stand in status.json, too" "$(cat "$T/state/status.json")"
	[ ! -s "$T/tls/heartbeats" ]
	holds $? "and nothing was sent" "$(cat "$T/tls/heartbeats" 2>/dev/null)"
	stop_agent
	tls --ca-file "$T/cert.pem"
	until_true 10 test -s "$T/tls/heartbeats"
	holds $? "a private CA is trusted" "$(cat "$T/tls.log")"
	stop_agent
else
	echo "skip TLS: no openssl to make a certificate"
fi
exit $failed
