#!/bin/bash
# Go programs: names_go.sh BUILD. Stripped, by Go's own and by GNU's linker, with every Go that is here; by the first one
# position-independent and without section headers, too: each function has its name, its inlined calls and its callers (names_go_judge.py
# has them from the source). Then what the runtime does on other stacks, and C and back.
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
seconds=${NAMES_GO_SECONDS:-2}
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT
failed=0
skip() { echo "skip $1: $2"; }
judge() { # NAME MODE PROGRAM CUT_PERCENT
	local name=$1 mode=$2 program=$3 arguments=()
	[ "$mode" = PLAIN ] || arguments=(all)
	"$B/flame-agent" record -d "$seconds" -F 997 --comm "${program##*/}" -o "$scratch/folded.folded" \
		>"$scratch/log" 2>&1 &
	local recorder=$!
	# Until the recorder has ended; the program outlives no failure by more than its own end.
	"$program" $((seconds + 4)) "${arguments[@]+"${arguments[@]}"}" >/dev/null 2>&1 &
	local target=$!
	wait "$recorder"
	local rc=$?
	kill "$target" 2>/dev/null
	wait "$target" 2>/dev/null
	if [ "$rc" != 0 ]; then
		failed=1
		echo "not ok $name: record ended with $rc: $(tail -n 1 "$scratch/log")"
	elif ! python3 tests/e2e/names_go_judge.py "$mode" "$scratch/folded.folded" "$4" >"$scratch/verdict"; then
		failed=1
		echo "not ok $name: $(head -n 3 "$scratch/verdict" | tr '\n' ' ')"
	else
		echo "ok $name: $(tail -n 1 "$scratch/verdict")"
	fi
}

if ! command -v python3 >/dev/null; then
	skip names_go "no python3"
	exit 0
fi
gos=()
for go in "$(command -v go)" /usr/lib/go-*/bin/go; do
	[ -x "$go" ] && go=$(readlink -f "$go") && [[ " ${gos[*]-} " != *" $go "* ]] && gos+=("$go")
done
if [ ${#gos[@]} = 0 ]; then
	skip names_go "no go"
	exit 0
fi
export GOENV=off GOFLAGS=-trimpath GOTOOLCHAIN=local GO111MODULE=on GOCACHE="${GOCACHE:-$PWD/$B/go-cache}"

# The table that pread finds, and no header that says where.
without_sections() { # FROM TO: e_shoff, e_shnum and e_shstrndx become 0
	cp "$1" "$2" && printf '\0\0\0\0\0\0\0\0' | dd of="$2" bs=1 seek=40 conv=notrunc status=none &&
		printf '\0\0\0\0' | dd of="$2" bs=1 seek=60 conv=notrunc status=none
}
for go in "${gos[@]}"; do
	version=$("$go" env GOVERSION)
	build() { # OUT CGO OPTIONS...
		local out=$1 cgo=$2
		shift 2
		(cd tests/e2e/names_go && CGO_ENABLED=$cgo "$go" build -o "$scratch/$out" "$@" .) >"$scratch/log" 2>&1
	}
	case $version in
	go1.1[0-7]*) skip "names_go $version" "the program is generic"; continue ;;
	esac
	if ! build plain 0 -ldflags "-s -w"; then
		skip "names_go $version" "it does not build: $(tail -n 1 "$scratch/log")"
		continue
	fi
	judge "B6 B29: $version, stripped" PLAIN "$scratch/plain" 1
	# The first samples in each 64 KB of the runtime wait for its table, with a copy of the one stack they are on.
	judge "B7: $version, other stacks of the runtime" STACKS "$scratch/plain" 3
	form=()
	if [ "$go" = "${gos[0]}" ]; then
		form=(-buildmode=pie)
		without_sections "$scratch/plain" "$scratch/bare"
		judge "B6: $version, without section headers" PLAIN "$scratch/bare" 1
		if build pie 0 -buildmode=pie -ldflags "-s -w"; then
			judge "B6: $version, stripped and position-independent" PLAIN "$scratch/pie" 1
		else
			skip "B6 $version -buildmode=pie" "$(tail -n 1 "$scratch/log")"
		fi
	fi
	if ! command -v gcc >/dev/null; then
		skip "B6 $version with C" "no gcc"
	elif build withc 1 "${form[@]+"${form[@]}"}" -ldflags "-s -w -linkmode=external"; then
		strip "$scratch/withc"
		judge "B6: $version, linked by GNU ld, C and back" CGO "$scratch/withc" 3
	else
		skip "B6 $version with C" "$(tail -n 1 "$scratch/log")"
	fi
done

# A version that does not exist: no name, and it is counted.
go=${gos[0]}
if (cd tests/e2e/names_go && CGO_ENABLED=0 "$go" build -ldflags "-s -w" -o "$scratch/newer" .) >/dev/null 2>&1 &&
	python3 - "$scratch/newer" <<-'END'
		import sys
		path = sys.argv[1]
		data = bytearray(open(path, "rb").read())
		for magic in (b"\xfa", b"\xf0", b"\xf1"):
		    at = data.find(magic + b"\xff\xff\xff\0\0\1\x08")
		    if at >= 0:
		        data[at] = 0xE7
		        open(path, "wb").write(data)
		        sys.exit(0)
		sys.exit(1)
	END
then
	# Its own runtime does not care: it compares the magic only at its start, and then ends.
	"$B/flame-agent" record -d 1 -F 997 --comm newer -o "$scratch/newer.folded" >"$scratch/log" 2>&1 &
	recorder=$!
	for i in $(seq 200); do "$scratch/newer" 1 >/dev/null 2>&1; kill -0 "$recorder" 2>/dev/null || break; done
	wait "$recorder"
	if [ ! -s "$scratch/newer.folded" ]; then
		skip "B7 an unknown version" "it ended before it was sampled"
	elif grep -q 'main\.\|runtime\.' "$scratch/newer.folded"; then
		failed=1
		echo "not ok B7: a table of an unknown version gives no name: $(grep -m 1 'main\.\|runtime\.' "$scratch/newer.folded")"
	elif ! grep -q "of no known version" "$scratch/log"; then
		failed=1
		echo "not ok B7: a table of an unknown version is counted: $(grep symbols "$scratch/log")"
	else
		echo "ok B7: a table of an unknown version gives no name and is counted"
	fi
fi
exit $failed
