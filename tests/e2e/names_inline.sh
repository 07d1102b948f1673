#!/bin/bash
# names_inline.sh [BUILD] - a -O3 -g C++ program's inlined functions and lines, in the profile that people get.
#
# The program is tests/unit/agent/dwarf_fixture_source.cpp: two functions inlined into a third, and the third into none.
set -u
cd "$(dirname "$0")/../.." || exit 3
A=${1:-build}/flame-agent
SOURCE=tests/unit/agent/dwarf_fixture_source.cpp
T=$(mktemp -d) || exit 3
trap 'rm -rf "$T"' EXIT

if ! why=$("$A" record -q -d 1ms -o "$T/probe.folded" 2>&1); then
	echo "skip inlined functions: $why"
	exit 0
fi
holds() { # STATUS WHAT DETAIL
	if [ "$1" = 0 ]; then echo "ok $2"; else echo "not ok $2: $3"; fi
}
# Leaves $T/NAME.pb.gz, and in $T/NAME.stacks a line a stack, up to main.
record() { # NAME PROGRAM OPTION...
	local name=$1 program=$2 pid
	shift 2
	"$program" &
	pid=$!
	timeout 60 "$A" record -q -d 2 -F 499 -p $pid -o "$T/$name.pb.gz" --summary "$T/$name.json" "$@"
	kill $pid
	wait $pid 2>/dev/null
	tests/e2e/names_inline_stacks.py "$T/$name.pb.gz" "$T/$name.json" >"$T/$name.stacks"
}
stacks() { # NAME
	cat "$T/$1.stacks"
}

g++ -O3 -g -DFIXTURE_MAIN $SOURCE -o "$T/program" || exit 3
strip -g -o "$T/stripped" "$T/program"
line() { grep -n "mark: $1" $SOURCE | cut -d: -f1; }
f=dwarf_fixture_source.cpp
want="fixture::innie $f:$(line innie);fixture::worker::middle $f:$(line middle);outie $f:$(line outie);main $f:$(line main)"

record by_line "$T/program"
share=$(stacks by_line | awk -v want="$want" '
	{ value = $1; sub(/^[^ ]+ /, ""); gsub(/ const/, ""); gsub(/\(\)/, "") }
	/;main / { all += value }
	$0 == want { good += value }
	END { printf "%d", all ? 100 * good / all : 0 }')
# The loop has further instructions, of other lines.
[ "$share" -ge 40 ]
holds $? "B8: the whole chain, innermost first, each with its file and line" "$share % of $(stacks by_line | head -n 3)"

record by_function "$T/program" --lines function
record stripped "$T/stripped"
for name in by_line by_function stripped; do
	why=$(stacks $name | grep '^sum')
	[ "$why" = "sum equal" ]
	holds $? "B8: each sample is in the profile once ($name)" "$why"
done
# Whatever lies above the program's frames, without its lines no stack is there twice.
twice() { stacks "$1" | grep ';main ' | sed -E 's/^[0-9]+ //; s/:[0-9]+(;|$)/\1/g' | sort | uniq -d | grep -c .; }
[ "$(twice by_line)" -ge 1 ] && [ "$(twice by_function)" = 0 ]
holds $? "stacks that differ only in the line are one with --lines function" "$(stacks by_function | head -n 6)"
! stacks stripped | grep -q innie && stacks stripped | grep -q 'outie;main'
holds $? "without debug information the names of symbols stay" "$(stacks stripped | head -n 3)"

if command -v go >/dev/null; then
	go tool pprof -traces -lines "$T/by_line.pb.gz" >"$T/traces" 2>&1
	grep -A 3 "fixture::innie .*:$(line innie)" "$T/traces" | tr -s ' ' | grep -q "outie .*:$(line outie)"
	holds $? "go tool pprof shows the chain with its lines" "$(grep -A 4 -m 1 innie "$T/traces")"
else
	echo "skip go tool pprof shows the chain: go is not installed"
fi
