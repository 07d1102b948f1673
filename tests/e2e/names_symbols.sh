#!/bin/bash
# names_symbols.sh [BUILD] - names that `flame-agent record` gives to programs made to mislead it.
#
# Rows of group B of the hard cases: stripped programs with and without their debug files, symbols without size, names
# that explode, calls that do not return, PLT slots, static and musl programs, BPF programs, hidden kernel symbols. Each
# program spins in functions that its source names; names_symbols.py says for each which stacks are right. Compiles
# with gcc and binutils into a directory of its own; needs root, as record.sh does.
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
A=$B/flame-agent
T=$(mktemp -d) || exit 3
bg=() restrict=
cleanup() {
	for p in "${bg[@]}"; do kill -KILL "$p" 2>/dev/null; done
	wait 2>/dev/null
	mountpoint -q "$T/bpf" && umount "$T/bpf"
	[ -z "$restrict" ] || echo "$restrict" >/proc/sys/kernel/kptr_restrict
	rm -rf "$T"
}
trap cleanup EXIT
failed=0
# holds $? NAME WHY : judges the command before it
holds() { if [ "$1" = 0 ]; then echo "ok $2"; else failed=1 && echo "not ok $2: $3"; fi; }

if ! why=$("$A" record -q -d 1ms -o "$T/probe.folded" 2>&1); then
	echo "skip names of programs made to mislead: $why"
	exit 0
fi

# --- the programs: $T/ID, run as ID

C="gcc -O1 -fno-omit-frame-pointer -fno-toplevel-reorder -fcf-protection=none -w"
cat >"$T/noreturn.c" <<'C'
volatile unsigned long x;
__attribute__((noinline)) void leaf(void){ for(int i=0;i<1000000;i++) x++; }
__attribute__((noinline,noreturn)) void spin(void){ for(;;){ leaf(); x--; } }
__attribute__((noinline,noreturn)) void real_caller(void){ spin(); }
__attribute__((noinline)) void innocent_next(void){ x+=7; }
int main(int c,char**v){ if(c>5) innocent_next(); real_caller(); }
C
cat >"$T/hidden.c" <<'C'
volatile unsigned long x;
__attribute__((noinline)) void exported_fn(void){ x++; }
static __attribute__((noinline)) void hidden_hot(void){ for(;;) x++; }
int main(void){ exported_fn(); hidden_hot(); }
C
# Another build of it, in which the hot function's place belongs to another.
sed 's/^static/__attribute__((noinline)) void wrong_name(void){ for(int i=0;i<99;i++) x+=i; x*=3; x-=5; }\n&/' "$T/hidden.c" >"$T/other.c"
cat >"$T/asm.S" <<'C'
	.text
	.globl asm_before
	.type asm_before, @function
asm_before: ret
	.size asm_before, 1
	.globl asm_hot
asm_hot: incq counter(%rip)
	jmp asm_hot
	.section .text.later, "ax"
	.globl asm_later
asm_later: ret
	.bss
counter: .quad 0
	.section .note.GNU-stack, ""
C
echo 'void asm_hot(void); int main(void){ asm_hot(); }' >"$T/asm_main.c"
cat >"$T/inlined.cc" <<'C'
volatile unsigned long x;
namespace deep {
static inline __attribute__((always_inline)) void innie(int n){ for(int i=0;i<n;i++) x=x*31+i; }
static inline __attribute__((always_inline)) void middle(int n){ innie(n); innie(n/2); }
struct outie { __attribute__((noinline)) void run(int n){ middle(n); x++; } };
}
int main(){ deep::outie o; for(;;) o.run(100000); }
C
python3 - >"$T/bomb.cc" <<'C'
print("template<class A,class B> struct P{}; using P0=P<int,int>;")
for i in range(20): print(f"using P{i+1}=P<P{i},P{i}>;")
print("volatile unsigned long x; __attribute__((noinline)) void blow(P20*){for(;;)x++;} int main(){blow(0);}")
C
cat >"$T/pieces.c" <<'C'
volatile unsigned long x;
#define PIECE(f, symbol) __attribute__((noinline)) void f(void) __asm__(symbol); void f(void){ for(int i=0;i<500000;i++) x++; }
PIECE(a, "c_work.part.0") PIECE(b, "c_work.isra.0.cold") PIECE(c, "_ZN3cxx4workEi.constprop.0") PIECE(d, "_ZN3cxx4workEi.llvm.8529742")
PIECE(e, "_RNvC5rusty4work.llvm.9D1C9369") PIECE(f, "_ZN6legacy4work17h0123456789abcdefE") PIECE(g, "_ZN6legacy4work17hfedcba9876543210E")
int main(void){ for(;;){ a(); b(); c(); d(); e(); f(); g(); } }
C
echo 'int tiny(int i){ return i; }' >"$T/tiny.c"
echo 'int tiny(int); volatile int n; __attribute__((noinline)) void calls_tiny(void){ for(int i=0;i<1000000;i++) n=tiny(i); } int main(void){ for(;;) calls_tiny(); }' >"$T/plt.c"

made() { "$@" 2>"$T/made.err" || { holds 1 "the programs are made" "$* : $(head -n 2 "$T/made.err")"; exit 1; }; }
split() { # ID DEBUGFILE : names go to DEBUGFILE; a link of its name stays
	mkdir -p "$(dirname "$2")"
	made objcopy --only-keep-debug "$T/$1" "$2"
	made strip "$T/$1"
	made objcopy --add-gnu-debuglink="$2" "$T/$1"
}
by_id() { # FILE : its build ID as a path
	local id
	id=$(readelf -nW "$1" | sed -n 's/.*Build ID: *//p' | head -n 1)
	echo "$T/debug/.build-id/${id:0:2}/${id:2}.debug"
}
made $C -falign-functions=1 -o "$T/B1" "$T/noreturn.c"
made $C -rdynamic -s -o "$T/B3" "$T/hidden.c"
made gcc -o "$T/B4" "$T/asm.S" "$T/asm_main.c"
made $C -g -Wl,--build-id=sha1 -o "$T/B11id" "$T/hidden.c"
split B11id "$(by_id "$T/B11id")"
made $C -g -Wl,--build-id=none -o "$T/B11link" "$T/hidden.c"
split B11link "$T/.debug/B11link.debug"
made $C -g -Wl,--build-id=none -o "$T/B11tree" "$T/hidden.c"
split B11tree "$T/debug$T/B11tree.debug"
made g++ -O3 -g -Wl,--build-id=sha1 -w -o "$T/B11inline" "$T/inlined.cc"
split B11inline "$(by_id "$T/B11inline")"
for build in id none; do
	[ $build = id ] && how=uuid || how=none
	made $C -g -Wl,--build-id=$how -o "$T/B12$build" "$T/hidden.c"
	split B12$build "$T/.debug/B12$build.debug"
	made $C -g -Wl,--build-id=$how -o "$T/other" "$T/other.c"
	made objcopy --only-keep-debug "$T/other" "$T/.debug/B12$build.debug"
done
made $C -o "$T/B15mini" "$T/hidden.c"
nm "$T/B15mini" --format=posix --defined-only | awk '$2 ~ /[tT]/ { print $1 }' >"$T/keep"
made objcopy -S --remove-section .comment --keep-symbols="$T/keep" --only-keep-debug "$T/B15mini" "$T/mini"
if command -v xz >/dev/null; then
	made xz -f "$T/mini"
	made strip "$T/B15mini"
	made objcopy --add-section .gnu_debugdata="$T/mini.xz" "$T/B15mini"
else
	rm "$T/B15mini"
	echo "skip B15: a stripped program is named by .gnu_debugdata: xz is not installed"
fi
made g++ -O1 -o "$T/B16" "$T/bomb.cc"
made $C -o "$T/B17" "$T/pieces.c"
made $C -shared -fPIC -o "$T/libtiny.so" "$T/tiny.c"
made $C -fno-pie -no-pie -Wl,-z,lazy -o "$T/B23" "$T/plt.c" -L"$T" -ltiny -Wl,-rpath,"$T"
made $C -static-pie -o "$T/B27" "$T/noreturn.c"
if command -v musl-gcc >/dev/null; then
	made musl-gcc -O1 -fno-omit-frame-pointer -w -o "$T/B28" "$T/noreturn.c"
	made musl-gcc -O1 -fno-omit-frame-pointer -static -w -o "$T/B28static" "$T/noreturn.c"
else
	echo "skip B28: musl programs are named: musl-gcc is not installed (musl-tools)"
fi

# --- one recording of all of them; whoever asks the network for debug files is heard

python3 tests/e2e/names_symbols.py listen "$T/port" "$T/calls" &
bg+=($!)
until [ -s "$T/port" ]; do kill -0 "${bg[0]}" 2>/dev/null || break; done
ids=()
for id in B1 B3 B4 B11id B11link B11tree B11inline B12id B12none B15mini B16 B17 B23 B27 B28 B28static; do
	[ -x "$T/$id" ] || continue
	nice -n 5 "$T/$id" &
	bg+=($!)
	ids+=($id)
done
DEBUGINFOD_URLS="http://127.0.0.1:$(cat "$T/port")" "$A" record -q -d 12s -F 499 --debug-dir "$T/debug" \
	--debug-dir /usr/lib/debug -o "$T/all.folded" --summary "$T/all.json" 2>"$T/all.err"
holds $? "programs made to mislead are recorded" "$(cat "$T/all.err")"
python3 tests/e2e/names_symbols.py judge "$T/all.folded" "${ids[@]}" || failed=1
[ ! -e "$T/calls" ]
holds $? "B13: nobody is asked for debug files, whatever DEBUGINFOD_URLS says" "$(cat "$T/calls" 2>&1)"
for p in "${bg[@]:1}"; do kill -KILL "$p" 2>/dev/null; done
wait "${bg[@]:1}" 2>/dev/null
bg=("${bg[0]}")

# --- the kernel's side

# A program that is loaded after the first window began, and keeps the kernel busy.
if command -v bpftool >/dev/null && made python3 tests/e2e/names_symbols.py bpf "$T/late.s" &&
	clang -target bpf -g -c "$T/late.s" -o "$T/late.o" 2>"$T/bpf.err"; then
	mkfifo "$T/ready"
	"$A" record -q -d 60s -F 499 -o "$T/bpf.folded" --ready-fd 9 9>"$T/ready" 2>>"$T/bpf.err" &
	agent=$!
	bg+=($agent)
	read -r -n 1 -t 30 ready <"$T/ready"
	head -c 64 /dev/zero >"$T/packet"
	mkdir "$T/bpf"
	pin=$T/bpf/late
	if mount -t bpf none "$T/bpf" 2>>"$T/bpf.err" && bpftool prog load "$T/late.o" "$pin" type socket 2>>"$T/bpf.err"; then
		bpftool prog run pinned "$pin" data_in "$T/packet" repeat 3000000 >/dev/null 2>>"$T/bpf.err"
		kill -INT $agent
		wait $agent
		grep -qE 'bpftool;.*bpf_prog_[0-9a-f]+_late_spin' "$T/bpf.folded"
		holds $? "B21: a BPF program that was loaded after the start is named" "$(grep -o 'bpftool;.*' "$T/bpf.folded" | head -n 2; cat "$T/bpf.err")"
	else
		kill -INT $agent
		wait $agent
		echo "skip B21: a BPF program that was loaded after the start is named: $(head -n 1 "$T/bpf.err")"
	fi
else
	echo "skip B21: a BPF program that was loaded after the start is named: bpftool or clang is missing"
fi

before=$(cat /proc/sys/kernel/kptr_restrict)
if echo 2 >/proc/sys/kernel/kptr_restrict 2>/dev/null; then
	restrict=$before
	dd if=/dev/zero of=/dev/null bs=64k status=none &
	dd=$!
	bg+=($dd)
	"$A" record -q -d 2s -F 499 -p $dd -o "$T/dd.folded" --summary "$T/dd.json" 2>"$T/dd.err"
	holds $? "B19: with hidden kernel symbols it records" "$(cat "$T/dd.err")"
	kill -KILL $dd
	wait $dd 2>/dev/null
	echo "$before" >/proc/sys/kernel/kptr_restrict && restrict=
	why=$(python3 tests/e2e/names_symbols.py hidden "$T/dd.folded" 2>&1)
	holds $? "B19: hidden kernel symbols cost their names at most, never the user's part" "$why"
	[ "$(grep -c kptr_restrict "$T/dd.err")" -le 1 ]
	holds $? "B19: hidden kernel symbols are told of once at most" "$(cat "$T/dd.err")"
else
	echo "skip B19: kernel symbols are hidden: kernel.kptr_restrict cannot be set"
fi
exit $failed
