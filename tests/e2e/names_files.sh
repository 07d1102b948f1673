#!/bin/bash
# names_files.sh [BUILD] - a function is named and walked by the file that is mapped, whatever its path says.
#
# Programs of names_files.c run in every way in which path and file part: deleted, replaced, hidden by a mount, below another
# root, without a path at all. Where the agent could be misled there is a file with the same code under the name wrong_*.
# No program keeps a frame pointer, so a stack that is whole was walked by the right file's tables. All are recorded twice:
# with all rights, and with those of flame-agent.service without CAP_CHECKPOINT_RESTORE, when only paths are left.
# Lines carry ids of hard cases, see tests/README.md.
set -u
cd "$(dirname "$0")/../.." || exit 3
A=$(realpath "${1:-build}")/flame-agent
SRC=$PWD/tests/e2e/names_files.c
T=$(mktemp -d) || exit 3
bg=()
mounts=()
cleanup() {
	for p in "${bg[@]}"; do kill -KILL "$p" 2>/dev/null; done
	wait 2>/dev/null
	for m in "${mounts[@]}"; do umount "$m"; done
	rm -rf "$T"
}
trap cleanup EXIT
failed=0
# holds $? NAME WHY : judges the command before it
holds() { if [ "$1" = 0 ]; then echo "ok $2"; else failed=1 && echo "not ok $2: $3"; fi; }

if ! why=$("$A" record -q -d 1ms -o "$T/probe.folded" 2>&1); then
	echo "skip files of programs: $why"
	exit 0
fi
build() { # FILE NAME PAD FLAG...
	local to=$1 name=$2 pad=$3
	shift 3
	gcc -O2 -fomit-frame-pointer -DNAME="$name" -DPAD="$pad" -o "$to" "$SRC" "$@" || exit 3
}
mkfifo "$T/go" "$T/said" "$T/again"
exec 3<>"$T/go" 4<>"$T/said" 5<>"$T/again"
started=0
# launch COMMAND... : a program that says up
launch() {
	"$@" &
	bg+=($!)
	started=$((started + 1))
}
heard() { # WORD COUNT
	local word n=0
	while [ $n -lt "$2" ]; do
		read -r -t 120 -u 4 word || { echo "not ok programs: $n of $2 said $1"; exit 1; }
		[ "$word" = "$1" ] || { echo "not ok programs: $word where $1 was expected"; exit 1; }
		n=$((n + 1))
	done
}

# Each of these starts one program or more; the name of its process says which.
start_a1() { # deleted, and another program in its place
	build "$T/a1" a1 5
	launch "$T/a1" a1 && heard up 1
	rm "$T/a1"
	build "$T/a1" wrong 41
}
start_a2() { # its library replaced
	build "$T/liba2.so" a2 5 -DPART=1 -fPIC -shared
	build "$T/a2" a2 5 -DPART=2 "$T/liba2.so"
	launch "$T/a2" a2 && heard up 1
	build "$T/wrong.so" wrong 41 -DPART=1 -fPIC -shared
	mv "$T/wrong.so" "$T/liba2.so"
}
start_a3() { # the same path inside and outside of a mount namespace, two files
	unshare -m true 2>/dev/null || { why="no mount namespace can be made here" && return; }
	build "$T/inside" a3in 5
	build "$T/a3" a3out 41
	launch unshare -m sh -c "mount --bind '$T/inside' '$T/a3' && exec '$T/a3' a3in"
	launch "$T/a3" a3out
	heard up 2
}
start_a4() { # below another root, where libraries are links; then one link leads to a file of the host
	local root=$T/root f
	mkdir -p "$root$T/real" "$root/bin" "$T/real" || exit 3
	for f in x y; do
		build "$T/lib$f.so" "a4$f" 5 -DPART=1 -fPIC -shared
		build "$root/bin/a4$f" "a4$f" 5 -DPART=2 "$T/lib$f.so"
		mv "$T/lib$f.so" "$root$T/real/lib$f.so"
		ln -s "$T/real/lib$f.so" "$root$T/lib$f.so"
		build "$T/real/lib$f.so" wrong 41 -DPART=1 -fPIC -shared
	done
	for f in $(ldd /bin/true | grep -o '/[^ ]*'); do
		mkdir -p "$root$(dirname "$f")" && cp -L "$f" "$root$f" || exit 3
	done
	launch chroot "$root" /bin/a4x a4x
	launch chroot "$root" /bin/a4y a4y
	heard up 2
	build "$T/secret" wrong 41 -DPART=1 -fPIC -shared
	ln -sf "$T/secret" "$root$T/real/libx.so"
}
start_a11() { # text whose address is not its offset, and two segments of it
	command -v ld.lld >/dev/null || { why="no lld" && return; }
	build "$T/a11" a11 5 -fuse-ld=lld
	build "$T/a11two" a11two 5 -fuse-ld=lld "-DWHERE=\"awx\""
	launch "$T/a11" a11
	launch "$T/a11two" a11two
	heard up 2
}
start_a13() { # every odd character in the path
	local dir="$T/sp ace"
	mkdir "$dir"
	build "$dir/a13" a13 5
	mv "$dir/a13" "$dir/my
bin \\012 (deleted)"
	launch "$dir/my
bin \\012 (deleted)" a13 && heard up 1
}
start_a15() { # no file at all
	build "$T/a15" a15 5
	launch python3 -c 'import os, sys
f = os.memfd_create("a15", 0)
os.write(f, open(sys.argv[1], "rb").read())
os.execve(f, ["a15", "a15"], {})' "$T/a15" && heard up 1
	rm "$T/a15"
}
start_a19() { # a caller that is in no mapping
	[ "$(uname -m)" = x86_64 ] || { why="its function is x86-64" && return; }
	build "$T/a19" a19 5 -DLOST
	launch "$T/a19" a19 && heard up 1
}
start_a16() { # a library at an offset in a file that is none, and behind a program
	local code
	build "$T/a16.so" a16 5 -DPART=1 -fPIC -shared -Wl,-z,noseparate-code
	build "$T/a16" a16 5 -DPART=3
	build "$T/wrong16" wrong 5 -Wl,-z,noseparate-code
	truncate -s %4096 "$T/wrong16"
	{ head -c 4096 /dev/zero && cat "$T/a16.so"; } >"$T/pack.pad"
	cat "$T/wrong16" "$T/a16.so" >"$T/pack.exe"
	code=$(nm -D "$T/a16.so" | awk '$3 == "a16_outer" { print $1 }')
	launch env PACK="$T/pack.pad" PACK_START=4096 CODE="$code" "$T/a16" a16pad
	launch env PACK="$T/pack.exe" PACK_START="$(stat -c %s "$T/wrong16")" CODE="$code" "$T/a16" a16exe
	heard up 2
}
start_a24() { # on an overlay: the mapping's device is not the file's
	mkdir "$T/lower" "$T/upper" "$T/work" "$T/merged"
	build "$T/lower/a24" wrong 41
	build "$T/upper/a24" a24 5
	unshare -m mount -t overlay overlay -o "lowerdir=$T/lower,upperdir=$T/upper,workdir=$T/work" "$T/merged" 2>/dev/null ||
		{ why="no overlay on this kernel, or below $T" && return; }
	launch unshare -m sh -c "mount -t overlay overlay -o 'lowerdir=$T/lower,upperdir=$T/upper,workdir=$T/work' '$T/merged' &&
		exec '$T/merged/a24' a24" && heard up 1
}
start_a24b() { # on a subvolume of btrfs, likewise
	command -v mkfs.btrfs >/dev/null || { why="no mkfs.btrfs" && return; }
	truncate -s 128M "$T/btrfs" && mkfs.btrfs -q "$T/btrfs" && mkdir "$T/volume" && mount -o loop "$T/btrfs" "$T/volume" 2>/dev/null ||
		{ why="no btrfs on this kernel, or no loop device" && return; }
	mounts+=("$T/volume")
	btrfs -q subvolume create "$T/volume/sub" || exit 3
	build "$T/volume/sub/a24b" a24b 5
	launch "$T/volume/sub/a24b" a24b && heard up 1
}
start_remap() { # text that is memory now; the last one's is not text
	[ "$(uname -m)" = x86_64 ] || { why="filler() is x86-64" && return; }
	build "$T/remap1" remap1 5 -DREMAP=1 -Wl,-z,noseparate-code
	build "$T/remap2" remap2 5 -DREMAP=2
	build "$T/remap3" remap3 5 -DREMAP=3
	launch "$T/remap1" remap1
	launch "$T/remap2" remap2
	launch "$T/remap3" remap3
	heard up 3
}
declare -A ran
for id in a1 a2 a3 a4 a11 a13 a15 a16 a19 a24 a24b remap; do
	why=
	"start_$id"
	[ -z "$why" ] && ran[$id]=1 || echo "skip ${id^^}: $why"
done

judge() { # NAME SCRIPT-ARG...
	local name=$1 why
	shift
	why=$(python3 tests/e2e/names_files.py "$@" 2>&1)
	holds $? "$name" "$why"
}
# record FOLDED FD COMMAND... : all programs work one round, to be released through FD, while the agent COMMAND records
record() {
	local to=$1 fd=$2 ready agent i
	shift 2
	mkfifo "$to.ready"
	timeout 240 "$@" record -q -d 200s -F 499 --stacks-max 131072 -o "$to" --ready-fd 9 9>"$to.ready" &
	agent=$!
	bg+=($agent)
	read -r -n 1 -t 60 ready <"$to.ready"
	printf '%*s' $started "" >&"$fd"
	heard "done" $started
	if [ "$fd" = 3 ]; then
		for i in 1 2 3; do
			"$T/a5" a5 once &
			heard up 1
			printf x >&"$fd"
			heard "done" 1
			wait $!
		done
	fi
	kill -INT $agent
	wait $agent
	holds $? "the recording ${to##*/}" "exit $?"
}

build "$T/a5" a5 5 -pie -fPIE
record "$T/all.folded" 3 "$A"
has() { [ -n "${ran[$1]:-}" ]; }
F=$T/all.folded
has a1 && judge "A1: deleted and replaced, a program is itself" named "$F" a1 a1
has a2 && judge "A2: a replaced library is the one that is mapped" named "$F" a2 a2
has a3 && judge "A3: the file inside of a mount namespace" named "$F" a3in a3in
has a3 && judge "A3: the file outside, at the same path" named "$F" a3out a3out
has a4 && judge "A4: a library behind an absolute link in a chroot" named "$F" a4y a4y
has a4 && judge "A4: a library whose link leads to the host by now" named "$F" a4x a4x
judge "A5: one PIE, three times at three addresses" named "$F" a5 a5
has a11 && judge "A11: text whose address is not its offset" named "$F" a11 a11
has a11 && judge "A11: a second executable segment" named "$F" a11two a11two
has a13 && judge "A13: a path with space, newline and (deleted)" named "$F" a13 a13
has a15 && judge "A15: an executable that is a memfd" named "$F" a15 a15
has a16 && judge "A16: a library in a file that is no ELF file" packed "$F" a16pad a16
has a16 && judge "A16: a library behind a program in its file" packed "$F" a16exe a16
has a24 && judge "A24: a program on an overlay" named "$F" a24 a24
has a24b && judge "A24: a program on a btrfs subvolume" named "$F" a24b a24b
has a19 && judge "A19: an address in no mapping belongs to no file" lost "$F" a19 a19
has remap && judge "remapped text: a page of it in anonymous memory" named "$F" remap1 remap1
has remap && judge "remapped text: all of it in anonymous memory" named "$F" remap2 remap2
has remap && judge "remapped text: generated code in its place is generated" generated "$F" remap3

# The second round, with the rights of a service that may not read map_files: what is left is paths, and /proc/PID/exe.
if setpriv --bounding-set=-sys_admin,-checkpoint_restore "$A" record -q -d 1ms -o "$T/probe.folded" 2>/dev/null; then
	F=$T/paths.folded
	if has a4; then # whose libraries are links to these, seen from the host
		mkfifo "$T/watch" "$T/watched"
		python3 tests/e2e/names_files.py watch "$T/secret" "$T/real/libx.so" "$T/real/liby.so" <"$T/watch" >"$T/watched" 2>"$T/opened" &
		watch=$!
		exec 6>"$T/watch"
		read -r -t 30 why <"$T/watched"
	fi
	record "$F" 5 setpriv --bounding-set=-sys_admin,-checkpoint_restore "$A"
	has a1 && judge "A1: the same without map_files" named "$F" a1 a1
	has a2 && judge "A2: without map_files nothing of the other library" honest "$F" a2
	has a3 && judge "A3: the same without map_files, inside" named "$F" a3in a3in
	has a3 && judge "A3: the same without map_files, outside" named "$F" a3out a3out
	has a4 && judge "A4: the same without map_files" named "$F" a4y a4y
	has a4 && judge "A4: a link to a file of the host leads nowhere" honest "$F" a4x
	if has a4; then
		exec 6>&-
		wait $watch
		holds $? "A4: no file of the host was opened for it" "$(cat "$T/opened")"
	fi
	has a24 && judge "A24: the same without map_files, overlay" named "$F" a24 a24
	has a24b && judge "A24: the same without map_files, btrfs" named "$F" a24b a24b
	has remap && judge "remapped text: the same without map_files" named "$F" remap2 remap2
	has a15 && judge "A15: the same without map_files" named "$F" a15 a15
else
	echo "skip without map_files: recording wants CAP_SYS_ADMIN on this kernel"
fi

# A program that really does so; it says go on when its text is where it will stay.
remapped_node() {
	local node ready agent
	command -v node >/dev/null || { echo "skip remapped text of node: no node" && return; }
	mkfifo "$T/node.up" "$T/node.ready" "$T/node.go"
	node --use-largepages=on -e 'const fs = require("fs"), s = JSON.stringify(Array.from({length: 2000}, (_, i) => ({a: i, b: "x" + i})));
fs.writeSync(1, "up\n");
fs.readFileSync(0);
const end = process.cpuUsage().user + 4e5;
while (process.cpuUsage().user < end) JSON.parse(s);
fs.writeSync(1, "done\n");
fs.readFileSync("/dev/stdin");' >&4 2>"$T/node.err" <"$T/node.go" &
	node=$!
	bg+=($node)
	exec 7>"$T/node.go"
	heard up 1
	if ! awk -v exe="$(realpath "$(command -v node)")" '$2 == "r-xp" { if (anon && $6 == exe) found = 1; anon = $6 == "" && was == exe; was = $6 }
		END { exit !found }' "/proc/$node/maps"; then
		echo "skip remapped text of node: it stayed where it was: $(head -n 1 "$T/node.err")"
		return
	fi
	"$A" record -q -d 120s -F 499 -p $node -o "$T/node.folded" --ready-fd 9 9>"$T/node.ready" 7>&- &
	agent=$!
	bg+=($agent)
	read -r -n 1 -t 60 ready <"$T/node.ready"
	exec 7>&-
	heard "done" 1
	kill -INT $agent
	wait $agent
	judge "remapped text: node on huge pages" json "$T/node.folded" node
}
remapped_node

# Where the agent writes somebody else may have put links.
echo precious >"$T/victim"
for f in out.folded sum.json lock; do ln -s "$T/victim" "$T/$f"; done
"$A" record -q -d 1ms -o "$T/out.folded" --summary "$T/sum.json" 2>"$T/err"
holds $? "A4: a recording over planted links is written" "$(cat "$T/err")"
timeout 60 "$A" daemon --state-dir "$T" --backend http://127.0.0.1:9 >"$T/err" 2>&1
[ $? = 1 ]
holds $? "A4: a daemon refuses a lock that is a link" "$(cat "$T/err")"
[ "$(cat "$T/victim")" = precious ] && [ -f "$T/out.folded" ] && [ ! -L "$T/out.folded" ] && [ ! -L "$T/sum.json" ]
holds $? "A4: what planted links lead to stays as it was" "$(ls -l "$T/victim" "$T/out.folded" "$T/sum.json")"
exit $failed
