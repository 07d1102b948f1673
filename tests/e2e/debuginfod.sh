#!/bin/bash
# debuginfod.sh [BUILD] - debug files that are fetched by build ID, from servers that are kind, slow, wrong and endless.
#
# Row B13 of the hard cases. A stripped program spins in a function that only its debug file names; debuginfod.py serves
# that file. A recording ends before what it missed is fetched, so the next one has the names; who fetches holds the lock
# of the directory, by which the test knows when that is over. Needs root, as record.sh does.
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
A=$B/flame-agent
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

if ! why=$("$A" record -q -d 1ms -o "$T/probe.folded" 2>&1); then
	echo "skip B13: debug files are fetched from servers that are named: $why"
	exit 0
fi

cat >"$T/hidden.c" <<'C'
volatile unsigned long x;
__attribute__((noinline)) void exported_fn(void){ x++; }
static __attribute__((noinline)) void hidden_hot(void){ for(;;) x++; }
int main(void){ exported_fn(); hidden_hot(); }
C
made() { "$@" 2>"$T/made.err" || { holds 1 "B13: the program is made" "$* : $(head -n 2 "$T/made.err")"; exit 1; }; }
C="gcc -O1 -g -fno-omit-frame-pointer -w"
made $C -Wl,--build-id=sha1 -o "$T/hidden" "$T/hidden.c"
made $C -Wl,--build-id=uuid -o "$T/wrong" "$T/hidden.c"
id=$(readelf -nW "$T/hidden" | sed -n 's/.*Build ID: *//p' | head -n 1)
made objcopy --only-keep-debug "$T/hidden" "$T/$id"
made objcopy --only-keep-debug "$T/wrong" "$T/other"
made strip "$T/hidden"

python3 tests/e2e/debuginfod.py "$T" &
bg+=($!)
until [ -s "$T/port" ]; do kill -0 "${bg[0]}" 2>/dev/null || break; done
url=http://127.0.0.1:$(cat "$T/port")
nice -n 5 "$T/hidden" &
hidden=$!
bg+=($hidden)

# record CASE ARG... : into $T/CASE.folded, with a cache of the case's own
record() {
	local case=$1
	shift
	XDG_CACHE_HOME="$T/cache-$case" "$A" record -q -d 1s -F 199 -p $hidden -o "$T/$case.folded" "$@" 2>>"$T/$case.err"
}
# fetched CASE : when nobody fetches for it any more
fetched() { flock -w 45 "$T/cache-$1/flame-agent/debug" true; }
named() { grep -q 'hidden_hot' "$T/$1.folded"; }
calls() { grep -c "^/$1/.*/$id/debuginfo" "$T/calls" 2>/dev/null; }
stored() { find "$T/cache-$1" -path '*.build-id/*' -type f; }

# The one that never answers goes first: its half minute passes while the others are tried.
start=$(date +%s%N)
record hang --debuginfod-url "$url/hang"
holds $? "B13: a recording succeeds although the server never answers" "$(cat "$T/hang.err")"
took=$((($(date +%s%N) - start) / 1000000))
[ $took -lt 8000 ]
holds $? "B13: a recording does not wait for a server that never answers" "$took ms"

DEBUGINFOD_URLS="$url/environment" record environment
DEBUGINFOD_URLS="$url/environment" record environment
! grep -qs environment "$T/calls" && [ ! -e "$T/cache-environment" ]
holds $? "B13: DEBUGINFOD_URLS names no server" "$(cat "$T/calls")"

DEBUGINFOD_URLS="$url/environment" record good --debuginfod-url "$url/none" --debuginfod-url "$url/good/"
! named good && fetched good && [ "$(calls good)" = 1 ]
holds $? "B13: a debug file that is missing is fetched after the recording" "$(cat "$T/good.err" "$T/calls")"
record good --debuginfod-url "$url/none" --debuginfod-url "$url/good/"
named good
holds $? "B13: the next recording has the names of a fetched debug file" "$(cat "$T/good.folded" "$T/good.err")"
fetched good
[ "$(calls good)" = 1 ] && [ "$(calls none)" = 1 ]
holds $? "B13: what was fetched is not asked for again" "$(cat "$T/calls")"

record other --debuginfod-url "$url/other" && fetched other
[ -n "$(stored other)" ] && record other --debuginfod-url "$url/other" && ! named other
holds $? "B13: a fetched file of another build is refused" "$(cat "$T/other.folded" "$T/other.err")"
fetched other
[ "$(calls other)" = 1 ]
holds $? "B13: a server with another build is not asked again at once" "$(cat "$T/calls")"

record none --debuginfod-url "$url/none" && fetched none
before=$(calls none)
record none --debuginfod-url "$url/none" && fetched none
[ "$before" = 2 ] && [ "$(calls none)" = 2 ]
holds $? "B13: what no server has is not asked for again" "before=$before $(cat "$T/calls")"

# The limit of 512 MB is lowered by the one on files.
start=$(date +%s)
(ulimit -f 4096 && record endless --debuginfod-url "$url/endless") && fetched endless
[ "$(calls endless)" = 1 ] && [ $(($(date +%s) - start)) -lt 20 ] && [ -z "$(stored endless)" ]
holds $? "B13: a file without end is given up and not kept" "$(stored endless; cat "$T/calls")"

record hops --debuginfod-url "$url/hops/3" && fetched hops
[ -n "$(stored hops)" ]
holds $? "B13: three redirects are followed" "$(cat "$T/calls")"
record many --debuginfod-url "$url/hops/4" && fetched many
[ "$(calls hops/4)" = 1 ] && [ "$(calls hops/1)" = 2 ] && [ -z "$(stored many)" ]
holds $? "B13: a fourth redirect is not followed" "$(cat "$T/calls")"
record file --debuginfod-url "$url/file" && fetched file
[ "$(calls file)" = 1 ] && [ -z "$(stored file)" ]
holds $? "B13: a redirect to a file is not followed" "$(stored file)"

fetched hang
holds $? "B13: a server that never answers is given up in half a minute" "it is still asked"
record hang --debuginfod-url "$url/hang" && fetched hang
[ "$(calls hang)" = 1 ]
holds $? "B13: a server that never answered is not asked again" "$(cat "$T/calls")"
exit $failed
