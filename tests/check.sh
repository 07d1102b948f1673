#!/bin/bash
# check.sh BUILD - what `make check` runs. Prints one line a check and ends with "N passed, N failed, N skipped";
# the counts stand in BUILD/check/counts for .ci/run. Exit 1 when something failed.
#
# Scripts under tests/e2e print "ok NAME", "not ok NAME: why" or "skip NAME: why"; Criterion prints a synthesis
# line; both are counted case by case. Logs stay in BUILD/check/.
set -u
cd "$(dirname "$0")/.." || exit 3
B=${1:-build}
logs=$B/check
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
mkdir -p "$logs"
passed=0 failed=0 skipped=0
skips=() failures=()

say() { printf '%-9s %-34s %s\n' "$1" "$2" "${3:-}"; }
pass() { passed=$((passed + 1)); say passed "$@"; }
fail() { failed=$((failed + 1)); failures+=("$1: ${2:-}"); say FAILED "$@"; }
skip() { skipped=$((skipped + 1)); skips+=("$1: ${2:-}"); say SKIP "$@"; }

# step NAME COMMAND... : a check that either holds or not
step() {
	local name=$1 log="$logs/${1//[^a-z0-9-]/_}.log" start=$SECONDS
	shift
	if "$@" >"$log" 2>&1; then
		pass "$name" "$((SECONDS - start)) s"
	else
		fail "$name" "see $log"
		tail -n 25 "$log"
	fi
}

unit() {
	local name=$1 bin=$2 log="$logs/${1//[^a-z0-9-]/_}.log" line rc=0
	timeout 600 "$bin" --jobs 2 >"$log" 2>&1 || rc=$?
	line=$(grep -aE 'Tested: .*Passing: ' "$log" | tail -n 1 | sed 's/\x1b\[[0-9;]*m//g')
	local ok bad crashed
	ok=$(sed -n 's/.*Passing: *\([0-9]*\).*/\1/p' <<<"$line")
	bad=$(sed -n 's/.*Failing: *\([0-9]*\).*/\1/p' <<<"$line")
	crashed=$(sed -n 's/.*Crashing: *\([0-9]*\).*/\1/p' <<<"$line")
	if [ -z "$line" ] || [ "${ok:-0}" = 0 ]; then
		fail "$name" "no test ran (exit $rc), see $log"
		tail -n 15 "$log"
		return
	fi
	passed=$((passed + ok))
	failed=$((failed + ${bad:-0} + ${crashed:-0}))
	if [ "$rc" = 0 ]; then
		say passed "$name" "$ok tests"
	else
		say FAILED "$name" "$bad failed, $crashed crashed, see $log"
		failures+=("$name: $(grep -aoE '(FAIL|CRASH)[^:]*: .*' "$log" | head -n 3 | tr '\n' ' ')")
		grep -aE 'FAIL|CRASH|Assert' "$log" | head -n 20
		[ "${bad:-0}${crashed:-0}" != 00 ] || failed=$((failed + 1))
	fi
}

script() {
	local name=$1 log="$logs/${1//[^a-z0-9-]/_}.log" rc=0
	shift
	timeout 900 "$@" >"$log" 2>&1 || rc=$?
	local any=0
	while IFS= read -r line; do
		any=1
		case $line in
		"ok "*) pass "$name: ${line#ok }" ;;
		"not ok "*) fail "$name: ${line#not ok }" "see $log" ;;
		"skip "*) skip "$name: ${line#skip }" ;;
		esac
	done < <(grep -aE '^(ok|not ok|skip) ' "$log")
	if [ $any = 0 ] || { [ $rc != 0 ] && ! grep -aq '^not ok ' "$log"; }; then
		fail "$name" "exit $rc, see $log"
		tail -n 15 "$log"
	fi
}

make_q() { make --no-print-directory "$@"; }

step "build" make_q all
step "build tests" make_q check-unit
step "build fuzz replays" make_q check-fuzz
for bin in "$B"/tests/unit-*; do unit "unit ${bin##*unit-}" "$bin"; done
for bin in "$B"/san/tests/unit-*; do unit "unit ${bin##*unit-} asan+ubsan" "$bin"; done
for src in tests/fuzz/*_fuzz.c; do
	n=$(basename "$src" _fuzz.c)
	step "fuzz corpus $n" timeout 300 "$B/san/tests/${n}_fuzz" "tests/fuzz/corpus/$n"
done
step "lint" make_q lint
step "second make does nothing" bash -c "make --no-print-directory all | grep -vE 'Nothing to be done|^$' && exit 1 || exit 0"
step "header rebuilds its users only" tests/rebuild.sh "$B"
step "two builds of the image are the same" vm-images/test-reproducible.sh
for e2e in tests/e2e/*.sh; do
	script "$(basename "$e2e" .sh)" "$e2e" "$B"
done

for s in ${skips+"${skips[@]}"}; do echo "skipped: $s"; done
# Once more at the end, which is what remains of a long log; .ci/run repeats it at its own.
: >"$logs/failures"
for f in ${failures+"${failures[@]}"}; do echo "FAIL: $f"; done | tee "$logs/failures"
echo "$passed $failed $skipped" >"$logs/counts"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
