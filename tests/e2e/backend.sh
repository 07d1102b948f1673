#!/bin/bash
# backend.sh [BUILD] - flame-backend over real sockets: good peers, hostile ones, kill -9.
#
# The peer is backend_peer.py, which shares no code with ours. Everything is on loopback.
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
A=$B/flame-backend
T=$(mktemp -d) || exit 3
pid=
cleanup() {
	[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null
	rm -rf "$T"
}
trap cleanup EXIT
failed=0
ok() { echo "ok $*"; }
not_ok() { failed=1; echo "not ok $1: $2"; }
holds() { if [ "$1" = 0 ]; then ok "$2"; else not_ok "$2" "$3"; fi; } # $? NAME WHY

ulimit -n 8192 2>/dev/null

# start DATA ARG... : sets pid and port; the log line says where it listens
start() {
	local data=$1 i
	shift
	: >"$T/log" # before the child gets there: the last start's port stands in it
	"$A" --data "$data" --listen 127.0.0.1:0 "$@" >"$T/log" 2>&1 &
	pid=$!
	port=
	for ((i = 0; i < 200; i++)); do
		port=$(sed -n 's/.*action=listen .*port=\([0-9]*\).*/\1/p' "$T/log")
		[ -n "$port" ] && return 0
		kill -0 "$pid" 2>/dev/null || break
		read -rt 0.05 <> <(:) # the log has no event to wait for
	done
	not_ok "flame-backend starts" "$(tail -n 3 "$T/log")"
	exit 1
}
stop() { # NAME: SIGTERM, must end by itself
	kill -TERM "$pid"
	timeout 15 tail --pid="$pid" -f /dev/null
	holds $? "$1" "still runs 15 s after SIGTERM"
	wait "$pid" 2>/dev/null
	pid=
}
peer() { timeout 120 python3 tests/e2e/backend_peer.py "$@" 2>&1; }
does() { # NAME COMMAND ARG...
	local name=$1 out
	shift
	out=$(peer "$@")
	holds $? "$name" "$out"
}

# --- what refuses to start

refuses() { # NAME TEXT ARG...
	local name=$1 text=$2 out rc
	shift 2
	out=$(timeout 10 "$A" "$@" 2>&1)
	rc=$?
	[ $rc != 0 ] && [ $rc != 124 ] && [ "$(wc -l <<<"$out")" = 1 ] && grep -qF -- "$text" <<<"$out"
	holds $? "$name" "exit $rc, said: $out"
}
refuses "beyond loopback: no start without TLS and tokens" "needs --tls-cert" --data "$T/open" --listen 0.0.0.0:0
refuses "a wrong option is named" "--dta" --dta "$T/w"
refuses "a port without an address is not called exposed" "'4040' is not ADDRESS:PORT" --data "$T/w" --listen 4040
refuses "a word too many is named" "no command 'serve'" serve --data "$T/w"
refuses "a wrong address is named" "'localhost:x' is not" --data "$T/w" --listen localhost:x
printf 'retention = 7d\nfrob = 1\n' >"$T/conf"
refuses "a wrong config value is named with its line" "conf:1" --data "$T/w" --config "$T/conf"

# --- without tokens, on loopback

start "$T/data" --idle-timeout 5s --commit-interval 5ms --wanted-version 9.9
grep -q 'tokens=none' "$T/log"
holds $? "without tokens the log says so" "$(cat "$T/log")"
refuses "a second instance ends with a message" "$T/data" --data "$T/data" --listen 127.0.0.1:0
does "a push is answered as push.v1 says" reply "$port"
does "push" push "$port" shop w1
does "the same id again is a success" push "$port" shop w1
out=$(peer folded "$port" service=shop)
[ "$out" = $'main;idle loop\\x3bx 100\nmain;work 200\nmain;work;hash 700' ]
holds $? "the flame graph is what was pushed, once" "$out"
does "JSON, SVG, pprof and timeline agree" formats "$port"
does "the wanted version reaches agents, hosts come in pages" hosts "$port" 9.9
does "requests become commands, acknowledgements their state" commands "$port"
does "a push as JSON is a push" json "$port"
does "malformed pushes get 400 or 415" malformed "$port"
does "a push with one bad profile stores nothing" all_or_nothing "$port"
does "1 GiB of zeros in 1 MB gets 413 and no memory" bomb "$port" "$pid"
does "10 MB of labels get 400" labels "$port"
does "bodies over the limit get 413" too_large "$port"
does "JSON 10,000 deep gets 400" deep "$port"
does "names are text, never paths" names "$port" "$T/data"
does "times out of reason are clamped, skew is shown" times "$port"
does "wrong queries get 400, unknown ids 404" queries "$port"
does "other sites are refused" sites "$port"
does "1,000 idle connections do not block a push" idle "$port" 1000
does "3,500 idle connections do not block a push" idle "$port" 3500
does "1,000 slow requests do not block a push" slow "$port" 1000
does "slow and idle connections are closed" loris "$port" 5
does "memory stays flat" flat "$port" "$pid"
curl -s "http://127.0.0.1:$port/metrics" | grep -q '^flame_store_duplicates_total [1-9]'
holds $? "metrics count duplicates" "$(curl -s "http://127.0.0.1:$port/metrics" | grep duplicates)"

# --- killed, what was acknowledged is there

: >"$T/acked"
peer many "$port" 100000 0 >>"$T/acked" &
writer=$!
while [ "$(wc -l <"$T/acked")" -lt 30 ] && kill -0 $writer 2>/dev/null; do read -rt 0.05 <> <(:); done
kill -9 "$pid"
wait "$pid" 2>/dev/null
pid=
wait $writer
out=$("$A" verify "$T/data")
holds $? "verify is clean after SIGKILL" "$out"
start "$T/data"
peer folded "$port" 'service=many' | sed -n 's/^main;f\([0-9]*\) 1$/many-\1/p' | sort >"$T/stored"
missing=$(sort "$T/acked" | comm -23 - "$T/stored" | wc -l)
[ "$missing" = 0 ] && [ "$(wc -l <"$T/acked")" -ge 30 ]
holds $? "what was acknowledged before SIGKILL is there" "$missing of $(wc -l <"$T/acked") are missing"
does "after the restart the ids are still known" push "$port" shop w1
out=$(peer folded "$port" service=shop)
grep -q '^main;work;hash 700$' <<<"$out"
holds $? "a retry across a restart is not doubled" "$out"
stop "SIGTERM ends it"

# --- tokens

for s in ingest read control admin; do
	eval "$s=\$(\"\$A\" token create --data \"\$T/data\" --scope $s --name t-$s)"
done
[ "$("$A" token list --data "$T/data" | cut -d' ' -f2 | sort | tr '\n' ' ')" = "admin control ingest read " ]
holds $? "token list shows scopes" "$("$A" token list --data "$T/data")"
! grep -rqF -- "$admin" "$T/data"
holds $? "tokens are not stored" "found in $T/data"
refuses "a token's name is taken once" "already" token create --data "$T/data" --scope read --name t-read
start "$T/data"
does "with tokens, none gets 401" auth "$port"
FLAME_TOKEN=wrong does "a wrong token gets 401" auth "$port"
FLAME_TOKEN=$ingest WANT=403 WANT_PUSH=200 does "an ingest token pushes and reads nothing" auth "$port"
FLAME_TOKEN=$read does "a read token reads" folded "$port" service=shop
FLAME_TOKEN=$admin does "an admin token does everything" reply "$port"
"$A" token revoke --data "$T/data" --name t-read
for ((i = 0; i < 100; i++)); do # within a second or so
	code=$(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $read" "http://127.0.0.1:$port/api/v1/hosts")
	[ "$code" = 401 ] && break
	read -rt 0.05 <> <(:)
done
[ "$code" = 401 ]
holds $? "a revoked token is refused without a restart" "$code"
! grep -qF -e "$ingest" -e "$read" -e "$admin" "$T/log"
holds $? "no token in the log" "$(cat "$T/log")"
stop "SIGTERM ends it with tokens, too"

# --- TLS

if command -v certtool >/dev/null || command -v openssl >/dev/null; then
	if command -v openssl >/dev/null; then
		openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
			-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$T/key" -out "$T/cert" 2>/dev/null
	else
		certtool --generate-privkey --key-type ecdsa --outfile "$T/key" 2>/dev/null
		printf 'cn = localhost\ndns_name = localhost\nip_address = 127.0.0.1\ntls_www_server\ntls_www_client\nca\nsigning_key\n' >"$T/tmpl"
		certtool --generate-self-signed --load-privkey "$T/key" --template "$T/tmpl" --outfile "$T/cert" 2>/dev/null
	fi
	start "$T/data" --tls-cert "$T/cert" --tls-key "$T/key"
	tls() { curl -s -o /dev/null -w '%{http_code}' --cacert "$T/cert" -H "Authorization: Bearer $admin" "$@" "https://localhost:$port/api/v1/hosts"; }
	out=$(tls)
	[ "$out" = 200 ]
	holds $? "TLS with a private CA" "$out"
	out=$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/healthz")
	[ "$out" != 200 ]
	holds $? "plain HTTP is not answered on the TLS port" "$out"
	stop "SIGTERM ends it with TLS, too"
	start "$T/data" --tls-cert "$T/cert" --tls-key "$T/key" --tls-client-ca "$T/cert"
	out="$(tls) $(tls --cert "$T/cert" --key "$T/key")"
	[ "$out" = "403 200" ]
	holds $? "with a client CA, only its certificates pass" "$out"
	stop "SIGTERM ends it with a client CA, too"
	refuses "a wrong key is refused" "belong together" --data "$T/data" --tls-cert "$T/cert" --tls-key "$T/cert"
else
	echo "skip TLS: neither openssl nor certtool is installed"
fi
exit $failed
