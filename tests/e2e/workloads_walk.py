"""workloads_walk.py DIR NAME [ARGS] - stop a running workload at many places and walk its stack by frame pointers.

Every stop in the workload's own code must give the whole chain up to main. Exit 77 where ptrace is refused.
"""
import collections
import ctypes
import os
import re
import struct
import subprocess
import sys
import time

STOPS = 40
CHAINS = {
    "cpu_split": re.compile(r"main run( path_[ab]( split_(heavy|medium|light))?)?"),
    "tail_noreturn": re.compile(r"main real_caller burn_noreturn"),
}
LEAVES = {"cpu_split": "split_", "tail_noreturn": "burn_noreturn"}
PTRACE_GETREGS, PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_CONT, PTRACE_KILL = 12, 0x4206, 0x4207, 7, 8
RBP, RIP = 4, 16  # words of user_regs_struct, x86-64

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, pid, data=None):
    if libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def symbols(path):
    out = subprocess.run(["nm", "-S", path], check=True, capture_output=True, text=True).stdout
    return [(int(f[0], 16), int(f[1], 16), f[3]) for f in map(str.split, out.splitlines()) if len(f) == 4]


def name(table, address):
    return next((n for start, size, n in table if start <= address < start + size), None)


def chain(pid, table, base):
    regs = (ctypes.c_uint64 * 27)()
    ptrace(PTRACE_GETREGS, pid, ctypes.cast(regs, ctypes.c_void_p))
    names = [name(table, regs[RIP] - base)]
    if names[0] is None:
        return None  # in libc or the kernel's vDSO
    rbp = regs[RBP]
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        while names[-1] != "main" and len(names) < 16:
            mem.seek(rbp)
            rbp, ret = struct.unpack("<QQ", mem.read(16))
            names.append(name(table, ret - 1 - base))
            if names[-1] is None:
                break
    return " ".join(str(n).removesuffix(".cold") for n in reversed(names))


def main(directory, workload, *args):
    path = os.path.realpath(f"{directory}/{workload}")
    table = symbols(path)
    child = subprocess.Popen([path, *args], stdout=subprocess.DEVNULL)
    seen = collections.Counter()
    try:
        try:
            ptrace(PTRACE_SEIZE, child.pid)
        except OSError as e:
            print(f"ptrace is refused: {e}")
            return 77
        for _ in range(20 * STOPS):
            time.sleep(0.003)  # only spreads the stops over the run; nothing is waited for
            ptrace(PTRACE_INTERRUPT, child.pid)
            _, status = os.waitpid(child.pid, 0)
            if not os.WIFSTOPPED(status):
                child.returncode = status
                print("the workload ended too early")
                return 1
            with open(f"/proc/{child.pid}/maps", encoding="ascii", errors="replace") as maps:
                base = next((int(m.split("-")[0], 16) for m in maps if m.rstrip().endswith(path)), None)
            found = chain(child.pid, table, base) if base else None
            if found and LEAVES[workload] in found:
                seen[found] += 1
            elif found and not found.startswith("main"):
                print(f"broken chain: {found}")
                return 1
            if sum(seen.values()) >= STOPS:
                break
            ptrace(PTRACE_CONT, child.pid)
    finally:
        if child.returncode is None:
            child.kill()
            child.wait()
    bad = [c for c in seen if not CHAINS[workload].fullmatch(c)]
    if bad or sum(seen.values()) < STOPS:
        print(f"of {sum(seen.values())} stacks not as built: {bad}")
        return 1
    print(f"{sum(seen.values())} stacks whole up to main")
    return 0


sys.exit(main(*sys.argv[1:]))
