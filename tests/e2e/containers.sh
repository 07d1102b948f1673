#!/bin/bash
# containers.sh [BUILD] - cgroups, filters and names of containers on this kernel. Runtimes are played by
# containers_runtime.js, and one is real where containerd is installed. Needs root; skips what is not here.
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
A=$B/flame-agent
W=$B/workloads
T=$(mktemp -d) || exit 3
bg=() groups=() made_run=""
cleanup() {
	for p in "${bg[@]}"; do kill "$p" 2>/dev/null; done
	wait "${bg[@]}" 2>/dev/null
	for g in "${groups[@]}"; do
		local deadline=$((SECONDS + 10))
		until find "$g" -depth -type d -exec rmdir {} + 2>/dev/null || [ ! -d "$g" ] || [ $SECONDS -ge $deadline ]; do sleep 0.05; done
	done
	rm -rf "$T" ${made_run:+"$made_run"}
}
trap cleanup EXIT
failed=0
ok() { echo "ok $*"; }
not_ok() { failed=1; echo "not ok $1: $2"; }
# holds $? NAME WHY : judges the command before it
holds() { if [ "$1" = 0 ]; then ok "$2"; else not_ok "$2" "$3"; fi; }
judge() { # NAME ARG... : containers_judge.py says why it does not hold
	local name=$1 why
	shift
	why=$(python3 tests/e2e/containers_judge.py "$@" 2>&1)
	holds $? "$name" "$(tail -n 1 <<<"$why")"
}
until_true() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" 2>/dev/null; do
		[ $SECONDS -lt $deadline ] || return 1
		sleep 0.05
	done
	return 0
}
record() { # ARG... : into a.pb.gz; its code in $code, what it says in a.err
	rm -f "$T/a.pb.gz"
	"$A" record -q -d 600ms -F 499 -o "$T/a.pb.gz" --container-runtime off "$@" 2>"$T/a.err"
	code=$?
}
busy() { # DIRECTORY : cpu_split in that cgroup; sets $pid
	sh -c 'echo $$ >"$1/cgroup.procs" && exec "$2" --seconds 300' sh "$1" "$W/cpu_split" >/dev/null 2>&1 &
	pid=$!
	bg+=("$pid")
	until_true 5 grep -qs cpu_split "/proc/$pid/comm"
}
make_group() { # MOUNT ID : sets $group, of a container; false: it cannot be made
	group=$1/flame-e2e-$$/docker-$2.scope
	mkdir -p "$group" 2>/dev/null || return 1
	groups+=("$1/flame-e2e-$$")
}
# mount_of TYPE [OPTION] : where it is mounted
mount_of() {
	awk -v t="$1" -v o="${2:-}" '{ for (i = 7; i <= NF && $i != "-"; i++); if ($(i + 1) == t && (o == "" || ("," $(i + 3) ",") ~ ("," o ","))) { print $5; exit } }' /proc/self/mountinfo
}

if ! "$A" record -q -d 50ms -o "$T/probe.folded" 2>"$T/probe.err"; then
	echo "skip containers: $(head -n 1 "$T/probe.err")"
	exit 0
fi
id=$(printf '%032x%032x' $$ 11) id_v1=$(printf '%032x%032x' $$ 22)
v2=$(mount_of cgroup2) memory=$(mount_of cgroup memory)

# --- cgroups of version 2 and of one controller of version 1

"$W/cpu_split" --seconds 300 >/dev/null &
outside=$!
bg+=("$outside")
inside=""
if [ -n "$v2" ] && make_group "$v2" "$id"; then
	busy "$group"
	inside=$pid
	record
	judge "A23: a container in cgroup2 has its id" labels "$T/a.pb.gz" "$inside" "container=${id:0:12}" "cgroup=${group#"$v2"}" service=cpu_split -container_name
	judge "A23: what is in no container has none" labels "$T/a.pb.gz" "$outside" -container
	record --exclude-container "$id"
	judge "a container is left out" pids "$T/a.pb.gz" "-$inside" "+$outside"
	record --comm cpu_split --exclude-cgroup "/flame-e2e-$$"
	judge "a cgroup is left out with all below it" pids "$T/a.pb.gz" "-$inside" "+$outside"
	record --cgroup "/flame-e2e-$$" --exclude-pid "$inside"
	holds $((code == 3 ? 0 : 1)) "what is asked for and left out is out" "exit $code, $(cat "$T/a.err")"
else
	echo "skip filters by cgroup2: no writable cgroup2 mount"
fi
if [ -n "$memory" ] && make_group "$memory" "$id_v1"; then
	busy "$group"
	inside_v1=$pid
	record
	judge "A23: a container that only one version 1 controller knows has its id" labels "$T/a.pb.gz" "$inside_v1" "container=${id_v1:0:12}" "cgroup=${group#"$memory"}"
	record --container "${id_v1:0:62}"
	judge "a version 1 container is filtered in the kernel" pids "$T/a.pb.gz" "+$inside_v1" "-$outside"
	record --comm cpu_split --exclude-cgroup "$group"
	judge "and left out by its path with the mount" pids "$T/a.pb.gz" "-$inside_v1" "+$outside"
	if [ -n "$inside" ]; then
		record --container "$id" --container "$id_v1"
		judge "containers of both versions in one filter" pids "$T/a.pb.gz" "+$inside_v1" "+$inside" "-$outside"
	fi
else
	echo "skip A23, filters by version 1: no writable memory controller"
fi

# --- other kinds

record --exclude-comm cpu_split
judge "a name is left out" pids "$T/a.pb.gz" "-$outside"
grep -qs . "$T/a.pb.gz" || not_ok "a name is left out" "exit $code"
record --comm cpu_split --exclude-pid "$outside"
judge "a process is left out" pids "$T/a.pb.gz" "-$outside" ${inside:+"+$inside"}
cp "$W/cpu_split" "$T/as_nobody" && chmod 755 "$T" "$T/as_nobody"
python3 -c 'import os,sys; os.setgid(65534); os.setuid(65534); os.execv(sys.argv[1], sys.argv[1:])' "$T/as_nobody" --seconds 300 >/dev/null &
nobody=$!
bg+=("$nobody")
until_true 5 grep -qs as_nobody "/proc/$nobody/comm"
record --user 65534
judge "a user by its number" pids "$T/a.pb.gz" "+$nobody" "-$outside"
record --user nobody --summary "$T/a.json"
judge "a user by its name" pids "$T/a.pb.gz" "+$nobody" "-$outside"
python3 -c 'import json,sys; s = json.load(open(sys.argv[1])); assert s["samples_filtered"] > 0 and s["weight_filtered_ns"] > 0
assert int(sys.argv[2]) not in set(t["tgid"] for t in s["ledger"])' "$T/a.json" "$outside" 2>"$T/a.why"
holds $? "what was filtered is counted, and not in the ledger" "$(tail -n 1 "$T/a.why")"
record --exclude-user root
judge "a user is left out" pids "$T/a.pb.gz" "+$nobody" "-$outside"
record --user no-such-user
[ "$code" = 1 ] && grep -q "user 'no-such-user' is not known here" "$T/a.err"
holds $? "a user that is not there is named" "exit $code, $(cat "$T/a.err")"
record --comm no-such-name
[ "$code" = 3 ] && grep -q 'no process matched the filter' "$T/a.err" && [ -s "$T/a.pb.gz" ]
holds $? "a filter that matched nothing says so, and exits 3" "exit $code, $(cat "$T/a.err")"
sleep 300 &
idle=$!
bg+=("$idle")
record --pid "$idle"
[ "$code" = 0 ] && grep -q 'what matched the filter did not run' "$T/a.err"
holds $? "what matched and slept is no failure" "exit $code, $(cat "$T/a.err")"

# argv and name overwritten, as setproctitle does
cat >"$T/title.py" <<'EOF'
import ctypes, time
libc = ctypes.CDLL(None)
libc.prctl(15, b"gunicorn: w\xff", 0, 0, 0)
end = time.monotonic() + 300
while time.monotonic() < end:
    pass
EOF
python3 "$T/title.py" &
titled=$!
bg+=("$titled")
until_true 5 grep -aqs gunicorn "/proc/$titled/comm"
record --pid "$titled"
judge "E10: a process that calls itself something else is its executable's service" labels "$T/a.pb.gz" "$titled" "service=$(basename "$(readlink "/proc/$titled/exe")")"
kill "$titled" "$nobody" "$idle"

# --- runtimes

if [ -z "$inside" ]; then
	echo "skip names of containers: no writable cgroup2 mount"
	exit $failed
fi
runtime=""
start_runtime() { # MODE : sets $runtime, $dir; the socket is $dir/s
	dir=$T/$1
	mkdir -p "$dir"
	rm -f "$dir/s" "$dir/ready" "$dir/asked"
	python3 tests/e2e/containers_cri.py answers "$dir" "$id" "$(printf '%032x%032x' $$ 33)"
	cat >"$dir/docker.json" <<-EOF
		[{"Id":"$id","Names":["/shop-web-1"],"Image":"web:7","Labels":{"com.docker.compose.project":"shop","com.docker.compose.service":"front"}}]
	EOF
	node tests/e2e/containers_runtime.js "$1" "$dir/s" "$dir" 2>"$dir/err" &
	runtime=$!
	bg+=("$runtime")
	until_true 10 test -e "$dir/ready" || not_ok "the test's runtime starts" "$(tail -n 1 "$dir/err")"
}
stop_runtime() { kill "$runtime" && wait "$runtime" 2>/dev/null; }
named() { record --container "$id" --container-runtime "$dir/s" -d 2s; } # time for the answer

start_runtime cri
named
judge "CRI names container, pod, namespace, image and workload" labels "$T/a.pb.gz" "$inside" container_name=main pod=web-5d4f8c7b9f-x2x4z namespace=prod image=shop/web:7 workload=web
judge "a Kubernetes workload is the service" labels "$T/a.pb.gz" "$inside" service=web
[ "$(wc -l <"$dir/asked")" = 2 ]
holds $? "one question for a window" "$(cat "$dir/asked")"
ln -s "$dir/s" "$dir/link"
record --container "$id" --container-runtime "$dir/link"
judge "a socket behind a symbolic link is not used" labels "$T/a.pb.gz" "$inside" "container=${id:0:12}" -container_name
grep -q 'action="ask the runtime"' "$T/a.err"
holds $? "and that is said" "$(cat "$T/a.err")"
chown 65534 "$dir/s"
named
judge "a socket that is not root's is not used" labels "$T/a.pb.gz" "$inside" "container=${id:0:12}" -container_name
stop_runtime
start_runtime old
named
judge "CRI v1alpha2 is asked where v1 is not there" labels "$T/a.pb.gz" "$inside" container_name=main service=web
stop_runtime
start_runtime docker
named
judge "Docker names container, image and Compose's project and service" labels "$T/a.pb.gz" "$inside" container_name=shop-web-1 image=web:7 compose_project=shop workload=front service=front -pod
stop_runtime
for mode in hang garbage huge lie; do
	start_runtime $mode
	from=${EPOCHREALTIME/./}
	named
	took=$(((${EPOCHREALTIME/./} - from) / 1000))
	judge "a runtime that is $mode costs labels only" labels "$T/a.pb.gz" "$inside" "container=${id:0:12}" service=cpu_split -container_name
	[ $took -lt 8000 ] && [ "$code" = 0 ]
	holds $? "and the window takes its time ($mode)" "$took ms, exit $code"
	stop_runtime
done

# --- the daemon: labels arrive, answers are kept

start_runtime cri
mkdir -p "$T/be"
python3 tests/e2e/daemon_backend.py "$T/be" 0 2>"$T/be.err" &
bg+=($!)
until_true 20 test -s "$T/be/port" || not_ok "the test's backend starts" "$(cat "$T/be.err")"
echo "[{\"id\":\"c1\",\"kind\":\"start\",\"duration_s\":9,\"containers\":[\"$id\"],\"exclude_comms\":[\"sh\"],\"users\":[\"root\"]}]" >"$T/be/c.new" && mv "$T/be/c.new" "$T/be/commands.json"
"$A" daemon --backend "http://127.0.0.1:$(cat "$T/be/port")" --state-dir "$T/state" --heartbeat 300ms --window 3s --frequency 499 --host h1 \
	--container-runtime "$dir/s" 2>"$T/agent.log" &
agent=$!
bg+=("$agent")
until_true 30 grep -qE '^c1 (done|failed)' "$T/be/acks"
asked=$(wc -l <"$dir/asked")
sed 's/"c1"/"c2"/; s/"duration_s":9/"duration_s":3/' "$T/be/commands.json" >"$T/be/c.new" && mv "$T/be/c.new" "$T/be/commands.json"
until_true 40 grep -qE '^c2 (done|failed)' "$T/be/acks"
until_true 10 test -z "$(find "$T/state/spool" -name '*.push')"
kill "$agent" && wait "$agent"
why=$(python3 tests/e2e/daemon_judge.py only "$T/be" web container_name=main namespace=prod pod=web-5d4f8c7b9f-x2x4z '"exclude_comms":["sh"]' '"users":["root"]' 2>&1)
holds $? "names and filters reach the backend, the workload as series" "$(tail -n 1 <<<"$why"), $(cat "$T/be/acks"), $(tail -n 2 "$T/agent.log")"
[ "$(wc -l <"$dir/asked")" = "$asked" ] && grep -q "^$id" "$T/state/containers" && grep -q '^c2 done' "$T/be/acks"
holds $? "what was answered is kept for later windows" "$asked questions, then $(wc -l <"$dir/asked"); $(tail -n 1 "$T/be/acks")"
stop_runtime

# --- a real one

for tool in containerd ctr runc curl; do
	if ! command -v $tool >/dev/null; then
		echo "skip names from containerd: no $tool here"
		exit $failed
	fi
done
cat >"$T/containerd.toml" <<-EOF
	version = 2
	root = "$T/lib"
	state = "$T/run"
	[grpc]
	address = "$T/c.sock"
	[plugins."io.containerd.grpc.v1.cri"]
	sandbox_image = "localhost/flame:1"
	disable_apparmor = true
	restrict_oom_score_adj = true
	[plugins."io.containerd.grpc.v1.cri".containerd]
	snapshotter = "native"
	[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
	runtime_type = "io.containerd.runc.v2"
EOF
[ -e /run/containerd ] || made_run=/run/containerd # of its shims, wherever its state is
containerd --config "$T/containerd.toml" >"$T/containerd.log" 2>&1 &
bg+=($!)
until_true 20 ctr -a "$T/c.sock" version >/dev/null
cri() { python3 tests/e2e/containers_cri.py "$@" 2>"$T/cri.err"; }
if cri image localhost/flame:1 "$W/chain_static_pie" "$T/image.tar" && ctr -a "$T/c.sock" -n k8s.io images import "$T/image.tar" >/dev/null 2>"$T/cri.err" &&
	made=$(cri run "$T/c.sock" localhost/flame:1 web-5d4f8c7b9f-x2x4z 5d4f8c7b9f); then
	real=${made#* }
	record --container-runtime "$T/c.sock" -d 2s
	real_pid=$(grep -ls "$real" /proc/[0-9]*/cgroup | head -n 1 | tr -dc 0-9)
	judge "containerd names a pod's container" labels "$T/a.pb.gz" "$real_pid" "container=${real:0:12}" container_name=main pod=web-5d4f8c7b9f-x2x4z namespace=prod workload=web service=web image=localhost/flame:1
	cri remove "$T/c.sock" "${made% *}" || not_ok "the pod is removed" "$(tail -n 1 "$T/cri.err")"
else
	echo "skip names from containerd: it makes no container here: $(tail -n 1 "$T/cri.err" | cut -c1-300 | tr '\n' ' ')"
fi
exit $failed
