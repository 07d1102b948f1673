#!/bin/bash
# unwind_differential.sh [BUILD] - does our unwinder see the frames that libdw sees, in the programs people run?
#
# A case passes when 99.9 % of the frames agree; unwind_differential.c says how they are counted. UNWIND_SECONDS (2) is
# how long a program is watched, UNWIND_SAMPLES (5000) how many stacks are compared at most. Every stack has the same
# registers and memory for both walkers. What is counted apart, by class, at most 5 % of a target's frames:
#
#   lazy     while _dl_fixup of ld.so has not pushed rbx or has popped it, on which the frame of its caller, the
#            resolver, hangs: libdw ends there. We take what is in rbx's slot: the right word after the pop, an older
#            one before the push. LD_BIND_NOT makes every call go there; else it is a matter of a program's start.
#   clone    a thread that stands behind the system call of clone3 or vfork: the call is the last instruction that
#            libc's CFI knows. libdw looks it up as it is and finds nothing or follows a stale rbp; we look up the
#            call, and find the first frame of the new thread, or the parent's whole stack.
#   signal   the first instruction of a signal handler that ended a system call, before it has run: the kernel still
#            says "in a system call", and we look up the byte before. A state of some instructions inside the kernel.
#
#   no code  libdw follows a frame pointer to an address in no executable mapping, where there is no CFI; we do not.
#   go       we read Go's own table, which knows where the runtime changes stacks (agent/cfi_go.c). Its CFI does not:
#            libdw takes the stack at hand for the one that was entered on, takes a caller that is no code, or goes on behind mcall,
#            which begins a stack; or ends where we reach the goroutine's first function.
#
# Where generated code keeps no frame pointer (stubs of HotSpot) or a section has no CFI (.init, crtstuff.c) both end at
# the same frame; the log says so. Go runs without asynchronous preemption: libdw does not know Go's signal restorer and
# ends there, where we go on.
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
T=$B/tests
seconds=${UNWIND_SECONDS:-2} samples=${UNWIND_SAMPLES:-5000} seed=${UNWIND_SEED:-1}
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT
failed=0
skip() { echo "skip $1: $2"; }
make --no-print-directory -s "$T/unwind_differential" "$T/unwind_differential_cxx" ||
	{ echo "not ok unwind differential: it does not build"; exit 1; }
"$T/unwind_differential" --name probe --seconds 5 --samples 1 -- sleep 5 >"$scratch/log" 2>&1
if [ $? = 2 ]; then
	skip "unwind differential" "no program can be traced here: $(tail -n 1 "$scratch/log")"
	exit 0
fi

lazy=(--allow 'libdw ended (root) in ld-linux')
clone=(--allow 'libdw ended (No DWARF information found) in libc.so.6' --allow 'ours ended (root) in libc.so.6')
go=(--apart 2 --allow 'ours ended (no_mapping) in no mapping'
	--allow 'ours ended (root) in unwind_differential_go'
	--allow 'libdw alone left code, ours reached the first frame, in unwind_differential_go'
	--allow 'libdw ended (root) in unwind_differential_go, ours went on to the first frame')

# agrees NAME [--allow CLASS]... -- PROGRAM...
agrees() {
	local name=$1 options=()
	shift
	while [ "$1" != -- ]; do options+=("$1"); shift; done
	# 60 s: nothing here waits for the traced program longer than a few milliseconds
	timeout 60 "$T/unwind_differential" --name "$name" --allow 'libdw alone went on to no code' --seconds "$seconds" \
		--samples "$samples" --steps 60 --seed "$seed" ${options+"${options[@]}"} "$@" >"$scratch/log" 2>&1
	local rc=$?
	cat "$scratch/log"
	case $rc in
	0) echo "ok $name: $(sed -n "s/^$name: //p" "$scratch/log")" ;;
	*) failed=1; echo "not ok $name: exit $rc, $(sed -n "s/^$name: //p" "$scratch/log")" ;;
	esac
}

# A comparison that finds no fault would agree with anything.
"$T/unwind_differential" --name fault --fault --seconds "$seconds" --samples 1000 -- \
	/bin/bash -c 'while :; do :; done' >"$scratch/log" 2>&1
if [ $? = 1 ]; then
	echo "ok a wrong rule is noticed: $(sed -n 's/^fault: //p' "$scratch/log")"
else
	failed=1
	echo "not ok a wrong rule is noticed: $(sed -n 's/^fault: //p' "$scratch/log")"
fi

W=$B/workloads
agrees chain_nofp "${lazy[@]}" -- "$W/chain_nofp" --chunks 1000000 --chunk 200
agrees chain_static_pie -- "$W/chain_static_pie" --chunks 1000000 --chunk 200
agrees recursion "${lazy[@]}" -- "$W/recursion" --chunks 1000000 --chunk 200
agrees libc_calls "${lazy[@]}" "${clone[@]}" -- "$W/libc_calls" --sorts 100000 --chunk 10
agrees late_library "${lazy[@]}" -- "$W/late_library" --chunks 30000 --chunk 200
agrees signal_middle "${lazy[@]}" -- "$W/signal_middle" --chunks 1000000 --interval-us 1000 --handler-chunk 2000
agrees libstdc++ "${lazy[@]}" -- "$T/unwind_differential_cxx"
LD_BIND_NOT=1 agrees "lazy binding" "${lazy[@]}" -- "$T/unwind_differential_cxx"
agrees bash "${lazy[@]}" -- /bin/bash -c 'i=0; while :; do i=$((i + 1)); a[i % 100]="x${a[i * 7 % 100]:0:20}"
	case ${a[3]} in *xx*) b=${a[4]//x/y} ;; esac; [[ $b =~ y+ ]]; printf -v s "%05d" $i; done'

if [ -x /usr/bin/python3 ]; then
	cat >"$scratch/work.py" <<-END
		import hashlib, json, re
		i = 0
		while True:
		    i += 1
		    words = sorted((str(k * 7919 % 1000) for k in range(200)), key=lambda s: (len(s), s))
		    x = json.loads(json.dumps({"a": words, "b": [1.5 * i]}))
		    re.sub("([0-9])", r"x\\\\1", " ".join(x["a"]))
		    hashlib.sha256(str(x).encode()).hexdigest()
	END
	agrees python3 "${lazy[@]}" "${clone[@]}" -- /usr/bin/python3 "$scratch/work.py"
else
	skip python3 "no /usr/bin/python3"
fi
if command -v openssl >/dev/null; then
	agrees libcrypto "${lazy[@]}" -- openssl speed -seconds 1 sha256 rsa2048 aes-128-cbc ecdsap256
	# Older processors' code: bn_mul_mont, whose CFA is *(rsp + 8 * r9 + 8) + 8.
	OPENSSL_ia32cap=0 agrees "libcrypto without extensions" "${lazy[@]}" -- openssl speed -seconds 1 rsa2048 sha1
else
	skip libcrypto "no openssl"
fi
if command -v node >/dev/null; then
	agrees node "${lazy[@]}" "${clone[@]}" -- node -e '
		function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2); }
		for (;;) { f(15); JSON.parse(JSON.stringify({ a: [1, 2, 3].map(x => String(x)) }));
			"abcabc".replace(/b(c)/g, "$1"); [5, 3, 1, 2].sort((a, b) => a - b); }'
else
	skip node "not installed"
fi
# A program of the runtime itself: a compiler need not be there.
if command -v keytool >/dev/null; then
	agrees libjvm "${lazy[@]}" "${clone[@]}" -- keytool -genkeypair -alias a -keyalg RSA -keysize 16384 -dname CN=a \
		-storepass changeit -keystore "$scratch/keys"
else
	skip libjvm "no Java runtime"
fi
if command -v go >/dev/null && make --no-print-directory -s "$T/unwind_differential_go"; then
	GODEBUG=asyncpreemptoff=1 agrees go "${go[@]}" -- "$T/unwind_differential_go"
else
	skip go "no go, or it cannot build"
fi
exit $failed
