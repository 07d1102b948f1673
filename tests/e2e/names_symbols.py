#!/usr/bin/env python3
"""What names_symbols.sh asks about its programs.

names_symbols.py judge FOLDED ID... a line a program: whether its stacks are what its source says; exits 1 if one is not
names_symbols.py hidden FOLDED      stacks of dd while kernel symbols are hidden
names_symbols.py listen PORT CALLS  a server that is asked nothing: its port to PORT, who calls to CALLS
names_symbols.py bpf FILE           a BPF program that is worth seeing, as assembly
"""
import re
import socket
import sys

HIDDEN = r"\[%s\+0x[0-9a-f]+\]"
NORETURN = ["main", "real_caller", "spin", "leaf"]
BY_DEBUG = ["main", "hidden_hot"]
# ID: (property, functions root first, each a pattern; what must never stand there)
CASES = {
    "B1": ("the caller of a function that does not return is named", NORETURN, "innocent_next"),
    "B3": ("a stripped function is not blamed on an exported one", [HIDDEN % "B3"], "exported_fn"),
    "B4": ("assembly without size is named", ["asm_hot"], "asm_before|asm_later"),
    "B11id": ("a stripped program is named by the debug file of its build ID", BY_DEBUG, r"exported_fn|\[B11"),
    "B11link": ("a stripped program is named by the debug file in .debug/", BY_DEBUG, r"exported_fn|\[B11"),
    "B11tree": ("a stripped program is named by the debug file below the debug directory", BY_DEBUG, r"exported_fn|\[B11"),
    "B11inline": ("inlined functions of a stripped -O3 program come from its debug file",
                  ["main", r"deep::outie::run\(int\)", r"deep::middle(\(int\))?", r"deep::innie(\(int\))?"], r"\[B11"),
    "B12id": ("a debug file with another build ID is refused", [HIDDEN % "B12id"], "wrong_name|hidden_hot|main|exported_fn"),
    "B12none": ("a debug file with another CRC is refused", [HIDDEN % "B12none"], "wrong_name|hidden_hot|main|exported_fn"),
    "B15mini": ("a stripped program is named by .gnu_debugdata", BY_DEBUG, r"exported_fn|\[B15"),
    "B16": ("a name of 17 MB stays short", ["main", "_Z4blow.*"], r".{5000}"),
    "B17": ("pieces and manglings are one name each", ["main", r"c_work|cxx::work\(int\)|rusty::work|legacy::work"], r".*(\.|clone|17h|_ZN|_R)"),
    "B23": ("PLT slots are named after what they call", ["main", "calls_tiny"], r"\[B23"),
    "B27": ("a static-pie program is named", NORETURN, r"innocent_next|\[B27"),
    "B28": ("a musl program is named", NORETURN, r"innocent_next|\[B28\+"),
    "B28static": ("a static musl program is named", NORETURN, r"innocent_next|\[B28"),
}
# What must be there, too: every name of a case that has several.
ALL_OF = {
    "B17": [r"c_work", r"cxx::work\(int\)", r"rusty::work", r"legacy::work"],
    "B23": [r"tiny@plt", r"tiny"],
}
SHARE = 0.97  # of a program's time; the rest is its start


# Where a stack goes on in the kernel.
ENTRY = re.compile(r"\[kernel\]|entry_|asm_(sysvec|exc|common)|ret_from_fork|error_entry")


def stacks(path):
    """(process, its own frames root first, value)"""
    with open(path, encoding="utf-8") as f:
        for line in f:
            stack, value = line.rstrip("\n").rsplit(" ", 1)
            frames = stack.split(";")
            own = next((i for i, x in enumerate(frames) if i and ENTRY.match(x)), len(frames))
            yield frames[0], frames[1:own], int(value)


def holds_in_order(frames, wanted):
    at = 0
    for frame in frames:
        if at < len(wanted) and re.fullmatch(wanted[at], frame):
            at += 1
    return at == len(wanted)


def judge_one(case, all_stacks):
    _, wanted, never = CASES[case]
    total = good = 0
    seen = set()
    bad = {}
    for comm, frames, value in all_stacks:
        if comm != case or not frames:
            continue
        total += value
        seen.update(frames)
        wrong = [x for x in frames if re.match(never, x)]
        assert not wrong, "%s stands in %s" % (wrong[0], ";".join(frames))
        if holds_in_order(frames, wanted):
            good += value
        else:
            bad[";".join(frames)] = value
    assert total > 0, "it has no sample"
    assert good >= SHARE * total, "%.3f of its time is right; most of the rest: %s" % (
        good / total, max(bad, key=bad.get))
    for pattern in ALL_OF.get(case, []):
        assert any(re.fullmatch(pattern, x) for x in seen), "no %s in %s" % (pattern, sorted(seen))


def judge(path, *cases):
    all_stacks = list(stacks(path))
    failed = 0
    for case in cases:
        name = "%s: %s" % (re.match(r"B\d+", case).group(), CASES[case][0])
        try:
            judge_one(case, all_stacks)
            print("ok " + name)
        except AssertionError as e:
            failed = 1
            print("not ok %s: %s" % (name, e))
    sys.exit(failed)


def hidden(path):
    user = kernel = 0
    with open(path, encoding="utf-8") as f:
        for line in f:
            frames = line.rsplit(" ", 1)[0].split(";")
            kernel += any(ENTRY.match(x) for x in frames[1:])
            user += len(frames) > 1 and any(x in ("read", "write", "__libc_read", "__libc_write") or x.startswith("[dd")
                                            for x in frames)
    assert kernel > 0, "no stack of dd has a frame in the kernel"
    assert user > 0, "no stack of dd has its own frames"


def listen(port_file, calls_file):
    s = socket.create_server(("127.0.0.1", 0))
    with open(port_file, "w", encoding="utf-8") as f:
        f.write(str(s.getsockname()[1]))
    while True:
        c, _ = s.accept()
        with open(calls_file, "ab") as f:
            f.write(c.recv(200) + b"\n")


def bpf(path):
    with open(path, "w", encoding="utf-8") as f:
        f.write('.section socket, "ax"\n.globl late_spin\n.type late_spin, @function\nlate_spin:\n')
        f.write("r0 = 1\n" + "r0 *= 3\nr0 += 7\n" * 400 + "r0 = 0\nexit\n.size late_spin, . - late_spin\n")
        f.write('.section license, "aw"\n.globl _license\n.type _license, @object\n_license:\n.string "GPL"\n.size _license, 4\n')


def main():
    what, args = sys.argv[1], sys.argv[2:]
    {"judge": judge, "hidden": hidden, "listen": listen, "bpf": bpf}[what](*args)


try:
    main()
except AssertionError as e:
    sys.exit(str(e))
