#!/bin/bash
# process_life.sh [BUILD] - processes that come and go, change, or are many: named as what they are, at a bounded cost.
#
# Programs of process_life.c run while the agent records. Each has a function that no other has, so a name under the wrong
# process shows. Lines carry ids of hard cases, see tests/README.md.
set -u
cd "$(dirname "$0")/../.." || exit 3
A=${1:-build}/flame-agent
SRC=tests/e2e/process_life.c
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
# named RECORDING COMM HOT SHARE TEXT [FUNCTION] : it may have FUNCTION, too
named() {
	local said
	said=$(python3 tests/e2e/process_life.py "$T/$1.folded" "$2" "$3" "$4" "${6:-}")
	holds $? "$5" "$said"
}
field() { python3 -c 'import json, sys
v = json.load(open(sys.argv[1]))
for k in sys.argv[2:]: v = v[k]
print(int(v))' "$@"; }

if ! why=$("$A" record -q -d 1ms -o "$T/probe.folded" 2>&1); then
	echo "skip life of processes: $why"
	exit 0
fi
for name in brief hundred first second red blue child late orphan images many storm; do
	gcc -O2 -fomit-frame-pointer -DHOT=${name}_hot -o "$T/$name" $SRC -lpthread -ldl || exit 3
done
gcc -O2 -fomit-frame-pointer -DLIBRARY -DHOT=library_hot -fPIC -shared -o "$T/late.so" $SRC || exit 3

mkfifo "$T/ready" "$T/said"
exec 6<>"$T/said"
under=()
# begin NAME OPTION... : a recording, which end ends
begin() {
	local to=$1
	shift
	timeout 300 "${under[@]}" "$A" record -q -d 200 -o "$T/$to.folded" --summary "$T/$to.json" "$@" --ready-fd 9 9>"$T/ready" &
	agent=$!
	bg+=($agent)
	head -c 1 "$T/ready" >"$T/is_ready"
}
end() { kill -INT "$agent" && wait "$agent"; }

# --- short lives, changes of image, one number for two
begin all -F 499
"$T/storm" every 20 150 "$T/brief" spin 0.002 &
storms=($!)
"$T/storm" every 200 15 "$T/hundred" spin 0.1 &
storms+=($!)
"$T/child" fork 60 0.004 &
storms+=($!)
for ((i = 0; i < 15; i++)); do "$T/first" spin 0.01 "$T/second" spin 0.01 || failed=1; done
"$T/late" library 0.3 "$T/late.so" || failed=1
"$T/orphan" orphan 0.4 || failed=1
"$T/images" images 20 0.01 || failed=1
wait "${storms[@]}"
"$T/storm" reuse 15 0.01 "$T/red" "$T/blue" >"$T/reused" || failed=1
end
holds $? "all of them were recorded" "the recording failed"

named all hundred hundred_hot 0.001 "A8: programs of 100 ms are named"
named all brief brief_hot 0.02 "A8: programs of 2 ms are named"
named all child child_hot 0.005 "A8: children that never call exec are named"
named all first first_hot 0.01 "A7: before exec a process is what it was"
named all second second_hot 0.01 "A7: after exec it is the new program"
named all late library_hot 0.01 "A10: a library that was loaded later is named" late_hot
named all orphan orphan_hot 0.005 "a process whose main thread has ended is named"
named all images images_hot 0.01 "I6: processes whose threads call exec are named"
if [ "$(cat "$T/reused")" -gt 2 ]; then
	named all red red_hot 0.01 "A6: the first process of a number is itself"
	named all blue blue_hot 0.01 "A6: the second process of a number is itself"
else
	echo "skip A6 a number used twice: $(cat "$T/reused") of 15 times"
fi

# --- many
"$T/many" sleepers 2000 >"$T/said" &
sleepers=$!
bg+=($sleepers)
while read -r -t 60 -u 6 pid && [ "$pid" != all ]; do echo "$pid"; done >"$T/sleepers"
under=(strace -f -qq -e trace=file,openat2 -o "$T/opened")
command -v strace >/dev/null || under=()
begin sleepers -F 99
"$T/first" spin 0.5
end
holds $? "I11: a recording beside 2,000 processes" "it failed"
opened=0
[ ${#under[@]} -eq 0 ] || opened=$(grep -oE '"/proc/[0-9]+' "$T/opened" | tr -dc '0-9\n' | sort -u | grep -Fxc -f "$T/sleepers")
if [ ${#under[@]} -eq 0 ]; then
	echo "skip I14 nothing of a sleeper is opened: no strace here"
else
	[ "$opened" = 0 ]
	holds $? "I14: of 2,000 sleepers nothing is opened" "of $opened"
fi
under=()
[ "$(field "$T/sleepers.json" own rss_peak_bytes)" -lt 60000000 ]
holds $? "I11: memory is that of what was sampled" "$(field "$T/sleepers.json" own rss_peak_bytes) bytes"
{ kill -KILL $sleepers; wait $sleepers; } 2>/dev/null

# --- 60,000 mappings, a fork storm, full maps
begin areas -F 499
"$T/images" areas 60000 3
end
named areas images images_hot 0.005 "A18: a process with 60,000 mappings is named"
window=$(field "$T/areas.json" window_ns)
own=$(field "$T/areas.json" own cpu_window_ns)
[ $((own * 10)) -lt "$window" ]
holds $? "A18: the agent takes less than a tenth of a CPU" "$own ns of $window"

begin storm -F 99
"$T/storm" every 1 4000 /bin/true
end
holds $? "I5: a recording in a fork storm" "it failed"
window=$(field "$T/storm.json" window_ns)
own=$(field "$T/storm.json" own cpu_window_ns)
[ $((own * 5)) -lt "$window" ]
holds $? "I5: 4,000 processes cost the agent less than 200 ms a second" "$own ns of $window"
[ "$(field "$T/storm.json" own rss_peak_bytes)" -lt 80000000 ]
holds $? "I5: memory is bounded" "$(field "$T/storm.json" own rss_peak_bytes) bytes"

begin full -F 997 --stacks-max 64 --threads-max 64
"$T/storm" every 5 200 "$T/brief" spin 0.002
"$T/hundred" spin 0.3
end 2>"$T/full.log"
holds $? "I6: a recording whose maps are full" "it failed"
[ "$(field "$T/full.json" losses map_full samples)" -gt 0 ] && grep -q '^\[lost: too many stacks\]' "$T/full.folded"
holds $? "I6: what found no room is counted and in the graph" "it is not"

# --- what is no process, or not to be seen
begin kernel -F 499
dd if=/dev/zero of="$T/file" bs=64k count=2000 oflag=direct conv=fsync 2>"$T/dd.log" || dd if=/dev/zero of="$T/file" bs=64k count=2000 conv=fsync 2>"$T/dd.log"
end
awk -F';' '$1 ~ /^(kworker|ksoftirqd|rcu_|kswapd|jbd2|migration|kthreadd|kcompactd)/ {
		n++
		if ($0 ~ /;\[/) { bad++; line = $0 } }
	END { if (bad) print line; exit bad > 0 || n == 0 ? 1 : 0 }' "$T"/{kernel,all,storm,areas}.folded >"$T/kthreads"
case $?:$(wc -l <"$T/kthreads") in
0:*) echo "ok A21: kernel threads have their stacks and no user part" ;;
*:0) echo "skip A21 kernel threads: none ran" ;;
*) holds 1 "A21: kernel threads have their stacks and no user part" "$(cat "$T/kthreads")" ;;
esac

if unshare -m sh -c 'mount -t proc -o hidepid=2 proc /proc' 2>/dev/null; then
	under=(unshare -m sh -c "mount -t proc -o hidepid=2 proc /proc && exec \"\$@\"" -)
	begin hidden -F 499
	setpriv --reuid 65534 --clear-groups "$T/hundred" spin 0.3
	"$T/storm" every 5 50 /bin/true
	end
	holds $? "A20: a recording where /proc hides processes, and some end at any moment" "it failed"
	named hidden hundred hundred_hot 0.005 "A20: a process that others cannot see is named"
	under=()
else
	echo "skip A20 hidden processes: no /proc can be mounted here"
fi

if unshare -pf --mount-proc true 2>/dev/null; then
	said=$(unshare -pf --mount-proc "$A" record -q -d 10ms -o "$T/inside.folded" 2>&1)
	[ $? = 1 ] && [ "$(wc -l <<<"$said")" = 1 ] && grep -q "host's PID namespace" <<<"$said"
	holds $? "A22: inside a PID namespace the agent refuses, and says why in one line" "$said"
else
	echo "skip A22 inside a PID namespace: none can be made here"
fi

exit $failed
