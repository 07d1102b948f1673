#!/bin/bash
# run.sh BUILD SECONDS - the store's crowd and the whole backend under ThreadSanitizer, each for SECONDS.
# BUILD is the tree of `make SAN=thread`. No suppressions. Exit 1 at the first report.
set -u
cd "$(dirname "$0")/../.." || exit 3
B=$1 seconds=${2:-5}
T=$(mktemp -d) || exit 3
pid=
cleanup() {
	[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null
	rm -rf "$T"
}
trap cleanup EXIT
export TSAN_OPTIONS="halt_on_error=1 exitcode=66 log_path=$T/report"
die() {
	echo "tsan: $*" >&2
	cat "$T"/report* "$T/log" 2>/dev/null | head -n 60 >&2
	exit 1
}
"$B/tests/tsan-crowd" "$seconds" "$T/store" || die "the store's crowd"
"$B/flame-backend" --data "$T/data" --listen 127.0.0.1:0 --commit-interval 5ms >"$T/log" 2>&1 &
pid=$!
port=
for ((i = 0; i < 400 && ${#port} == 0; i++)); do
	port=$(sed -n 's/.*action=listen .*port=\([0-9]*\).*/\1/p' "$T/log")
	kill -0 "$pid" 2>/dev/null || break
	read -rt 0.05 <> <(:) # the log has no event to wait for
done
[ -n "$port" ] || die "the backend did not start"
timeout $((seconds + 120)) python3 tests/e2e/backend_peer.py crowd "$port" "$seconds" || die "the backend's crowd"
kill -TERM "$pid"
wait "$pid"
rc=$?
pid=
[ $rc = 0 ] || die "the backend ended with $rc"
[ -z "$(ls "$T"/report* 2>/dev/null)" ] || die "reports"
