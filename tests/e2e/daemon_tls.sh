#!/bin/bash
# daemon_tls.sh [BUILD] - agent and backend over real TLS and through proxies, on loopback: who is believed, and
# whether the one who is not is told why in words that lead to the fault. Needs root, because the agent does.
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
# In memory, where that is there: nothing here is about disks, and some are slow to sync.
T=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) || exit 3
agent="" backend="" proxy=""
cleanup() {
	for p in $agent $backend $proxy; do kill -9 "$p" 2>/dev/null; done
	rm -rf "$T"
}
trap cleanup EXIT
failed=0
ok() { echo "ok $*"; }
not_ok() { failed=1; echo "not ok $1: $2"; }
holds() { if [ "$1" = 0 ]; then ok "$2"; else not_ok "$2" "$3"; fi; } # $? NAME WHY
until_true() { # SECONDS COMMAND... : asks again until it holds
	local deadline=$((SECONDS + $1))
	shift
	until "$@" 2>/dev/null; do
		[ $SECONDS -lt $deadline ] || return 1
		sleep 0.05 # files and curl's answers have no event to wait for
	done
	return 0
}
if ! command -v openssl >/dev/null || [ "$(id -u)" != 0 ]; then
	echo "skip daemon over TLS: needs openssl and root"
	exit 0
fi
unset http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY all_proxy

# --- two CAs and what they sign

ca() { # NAME
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$1" -keyout "$T/$1.key" \
		-out "$T/$1.pem" 2>/dev/null
}
cert() { # NAME CA DAYS EXTENSIONS
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$T/$1.key" -out "$T/$1.csr" 2>/dev/null
	openssl x509 -req -in "$T/$1.csr" -CA "$T/$2.pem" -CAkey "$T/$2.key" -CAcreateserial -days "$3" \
		-extfile <(printf '%b' "$4") -out "$T/$1.pem" 2>/dev/null
}
here='subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n'
ca ours && ca theirs && cert server ours 2 "$here" && cert expired ours -1 "$here" &&
	cert elsewhere ours 2 'subjectAltName=DNS:elsewhere.example\n' &&
	cert client ours 2 'extendedKeyUsage=clientAuth\n' && cert stranger theirs 2 'extendedKeyUsage=clientAuth\n'
holds $? "certificates are made" "openssl failed"

# --- programs

start_backend() { # CERT ARG... ; CERT "" is plain HTTP; listens on the port of the time before
	local i name=$1 tls=()
	shift
	[ -z "$name" ] || tls=(--tls-cert "$T/$name.pem" --tls-key "$T/$name.key")
	: >"$T/backend.log" # before the child gets there
	"$B/flame-backend" --data "$T/data" --listen "127.0.0.1:${port:-0}" "${tls[@]}" "$@" 2>"$T/backend.log" &
	backend=$!
	until_true 60 grep -q action=listen "$T/backend.log"
	port=$(sed -n 's/.*action=listen .*port=\([0-9]*\).*/\1/p' "$T/backend.log")
	[ -n "$port" ] || { not_ok "the backend starts" "$(tail -n 2 "$T/backend.log")"; exit 1; }
}
end() { # PID : by SIGTERM
	kill "$1"
	wait "$1" 2>/dev/null
}
restart_backend() {
	end "$backend"
	start_backend "$@"
}
start_agent() { # URL ARG...
	: >"$T/agent.log"
	"$B/flame-agent" daemon --state-dir "$T/state" --host h-tls --backend "$1" --heartbeat 200ms "${@:2}" 2>"$T/agent.log" &
	agent=$!
}
stop_agent() {
	end "$agent"
	agent=""
}
ask() { curl -s --noproxy '*' --cacert "$T/ours.pem" --cert "$T/client.pem" --key "$T/client.key" "$@"; }
status_says() { grep -qF -- "$1" "$T/state/status.json"; }
log_says() { grep -qE -- "$1" "$T/agent.log"; }
# What the log says of the last heartbeat that failed.
why() { sed -n 's/.*action="send a heartbeat".* why="\(.*\)"$/\1/p' "$T/agent.log" | tail -n 1; }
hosts() { ask "https://localhost:$port/api/v1/hosts"; }
# The host is there, and what it says of itself holds TEXT.
host_says() { hosts | grep -qF -- "$1"; }
host_is_there() { host_says '"host":"h-tls"'; }
# refused NAME PATTERN : log and status.json give the same reason, no host arrived
refused() {
	local text
	until_true 20 log_says "why=\".*$2"
	holds $? "$1: the log says why" "$(tail -n 2 "$T/agent.log")"
	text=$(why | sed 's/"/\\"/g') # as JSON
	until_true 5 status_says "$text"
	holds $? "$1: status.json says the same" "$text is not in $(cat "$T/state/status.json")"
}
forget_hosts() {
	end "$backend"
	rm -rf "$T/data"
}

# --- whom the agent believes

port=""
start_backend server
url=https://127.0.0.1:$port
start_agent "$url" --ca-file "$T/ours.pem"
until_true 20 host_is_there
holds $? "a certificate of the given CA is trusted" "$(tail -n 2 "$T/agent.log")"
until_true 5 status_says '"backend":"ok"'
holds $? "status.json says ok" "$(cat "$T/state/status.json")"
stop_agent

forget_hosts
start_backend server
start_agent "$url" --ca-file "$T/theirs.pem"
refused "another CA" 'certificate verification failed'
[ "$(hosts)" = "[]" ]
holds $? "another CA: nothing was sent" "$(hosts)"
stop_agent
start_agent "$url"
refused "no CA given: the system's do not know ours" 'certificate verification failed'
stop_agent
restart_backend expired
start_agent "$url" --ca-file "$T/ours.pem" --heartbeat 3s
refused "an expired certificate" 'it has expired'
restart_backend server # which the agent that runs finds again
until_true 20 host_says '"state_text":"heartbeats were lost: ' && host_says "heartbeats were lost: $(why)"
holds $? "the first heartbeat after it tells the backend what was in the way" "$(why) is not in $(hosts)"
until_true 20 status_says '"backend":"ok"'
holds $? "and status.json is ok again" "$(cat "$T/state/status.json")"
stop_agent
restart_backend elsewhere
start_agent "$url" --ca-file "$T/ours.pem"
refused "another host's certificate" "(does not match|not match|name)"
stop_agent

# --- whom the backend believes

forget_hosts
token=$("$B/flame-backend" token create --data "$T/data" --scope read --name reader)
auth=(-H "Authorization: Bearer $token")
hosts() { ask "${auth[@]}" "https://localhost:$port/api/v1/hosts"; }
start_backend server --tls-client-ca "$T/ours.pem"
start_agent "$url" --ca-file "$T/ours.pem"
refused "no client certificate" 'client certificate'
stop_agent
start_agent "$url" --ca-file "$T/ours.pem" --cert-file "$T/stranger.pem" --key-file "$T/stranger.key"
refused "another CA's client certificate" '(client certificate|[Cc]ertificate|alert)'
stop_agent
start_agent "$url" --ca-file "$T/ours.pem" --cert-file "$T/server.pem" --key-file "$T/server.key"
refused "a server's certificate is no client's" 'client certificate'
stop_agent
[ "$(hosts)" = "[]" ]
holds $? "and nothing of them was taken" "$(hosts)"
start_agent "$url" --ca-file "$T/ours.pem" --cert-file "$T/client.pem" --key-file "$T/client.key"
until_true 20 host_is_there
holds $? "a client certificate stands for an ingest token" "$(tail -n 2 "$T/agent.log")"
stop_agent
code=$(ask -o "$T/out" -w '%{http_code}' "https://localhost:$port/api/v1/hosts")
[ "$code" = 401 ]
holds $? "but for none that reads" "$code $(cat "$T/out")"
cat "$T/client.key" "$T/client.pem" >"$T/both.pem"
start_agent "$url" --ca-file "$T/ours.pem" --cert-file "$T/both.pem"
until_true 20 status_says '"backend":"ok"'
holds $? "certificate and key may be in one file" "$(tail -n 2 "$T/agent.log")"
stop_agent

# --- proxies

start_proxy() { # ok|refuse
	rm -f "$T/proxy.port"
	: >"$T/proxy.seen"
	python3 tests/e2e/daemon_tls_proxy.py "$T" "$1" 2>"$T/proxy.err" &
	proxy=$!
	until_true 20 test -s "$T/proxy.port"
	proxied=http://127.0.0.1:$(cat "$T/proxy.port")
}
seen() { grep -qE "^$1" "$T/proxy.seen"; }
forget_hosts
hosts() { ask "https://localhost:$port/api/v1/hosts"; }
start_backend server
start_proxy ok
https_proxy=$proxied start_agent "$url" --ca-file "$T/ours.pem"
until_true 20 host_is_there && seen "CONNECT 127.0.0.1:$port "
holds $? "https_proxy: the heartbeat goes through CONNECT" "$(cat "$T/proxy.seen") $(tail -n 2 "$T/agent.log")"
! grep -q 'POST' "$T/proxy.seen"
holds $? "and the proxy reads nothing of it" "$(cat "$T/proxy.seen")"
stop_agent
: >"$T/proxy.seen"
https_proxy=$proxied no_proxy=127.0.0.1 start_agent "$url" --ca-file "$T/ours.pem"
until_true 20 status_says '"backend":"ok"' && [ ! -s "$T/proxy.seen" ]
holds $? "no_proxy is honoured" "$(cat "$T/proxy.seen") $(tail -n 2 "$T/agent.log")"
stop_agent
https_proxy=$proxied start_agent "$url" --ca-file "$T/theirs.pem"
refused "a proxy does not switch verification off" 'certificate verification failed'
stop_agent
end "$proxy"
start_proxy refuse
https_proxy=$proxied start_agent "$url" --ca-file "$T/ours.pem"
refused "a proxy that refuses" '(proxy|CONNECT).*403|403.*(proxy|CONNECT)'
stop_agent
end "$proxy"
https_proxy=$proxied start_agent "$url" --ca-file "$T/ours.pem"
refused "a proxy that is not there" "Failed to connect to 127.0.0.1 port ${proxied##*:}"
stop_agent
forget_hosts
start_backend ""
hosts() { curl -s --noproxy '*' "http://127.0.0.1:$port/api/v1/hosts"; }
start_proxy ok
http_proxy=$proxied start_agent "http://127.0.0.1:$port"
until_true 20 host_is_there && seen "POST http://127.0.0.1:$port/api/v1/heartbeat "
holds $? "http_proxy: the heartbeat goes through it" "$(cat "$T/proxy.seen") $(tail -n 2 "$T/agent.log")"
stop_agent
end "$proxy"
proxy=""
end "$backend"
backend=""
exit $failed
