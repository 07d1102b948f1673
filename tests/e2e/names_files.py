#!/usr/bin/env python3
"""What a recording says of the programs of names_files.sh; exits 1 and says why when it does not hold.

names_files.py named FOLDED COMM NAME    its stacks are whole, from _start through main and work to NAME_outer and NAME_hot
names_files.py lost FOLDED COMM NAME     above the function lost is nothing: it has no caller
names_files.py generated FOLDED COMM     its code has no name
names_files.py packed FOLDED COMM NAME   what burns is NAME_hot, or says only in which file it is
names_files.py json FOLDED COMM          most of it is V8's parser of JSON, called from main
names_files.py watch FILE...             says ready; at the end of its input, whether one of the files was opened
names_files.py honest FOLDED COMM        whatever is not known, nothing of another file is in its stacks
"""
import ctypes
import os
import select
import struct
import sys

IN_OPEN = 0x20
SAMPLED_NS = 0.2e9  # of 0.3 s that each program uses


def all_stacks(path, comm):
    found = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            stack, ns = line.rsplit(" ", 1)
            frames = stack.split(";")
            if frames[0] == comm:
                found.append((frames[1:], int(ns)))
    assert sum(ns for _, ns in found) >= SAMPLED_NS, "%s: %d ns sampled" % (comm, sum(ns for _, ns in found))
    return found


def stacks(path, comm):
    """Without what a busy machine had no time to make a table for: that says so, and tells nothing about files."""
    return [(f, ns) for f, ns in all_stacks(path, comm) if f[0] != "[truncated: unwind table not built in time]"]


def honest(path, comm):
    for frames, _ in all_stacks(path, comm):
        assert not any("wrong" in f for f in frames), ";".join(frames)


def is_whole(frames, name):
    if frames[0] != "_start" or "main" not in frames:
        return False
    above = frames[frames.index("main") + 1 :]
    return above[:3] == ["work", name + "_outer", name + "_hot"] or above[:2] == ["work", "clock_gettime"]


def named(path, comm, name):
    honest(path, comm)
    total, good, worst, most = 0, 0, "", 0
    for frames, ns in stacks(path, comm):
        total += ns
        if is_whole(frames, name):
            good += ns
        elif ns > most:
            worst, most = ";".join(frames), ns
    assert good >= SAMPLED_NS / 2, "only %d ns of %s are whole" % (good, comm)
    assert good >= 0.97 * total, "%.1f %% of %s are whole; else %s" % (100 * good / total, comm, worst)


def lost(path, comm, name):
    seen = 0
    for frames, ns in stacks(path, comm):
        if name + "_hot" in frames:
            assert frames[0].startswith("[truncated: ") and frames[1:3] == ["lost", name + "_hot"], ";".join(frames)
            seen += ns
    assert seen >= SAMPLED_NS / 2, "%d ns in %s_hot" % (seen, name)


def generated(path, comm):
    seen = 0
    for frames, ns in stacks(path, comm):
        assert not any(f == "filler" or f.startswith("[" + comm) for f in frames), ";".join(frames)
        seen += ns if "[anon]" in frames else 0
    assert seen >= SAMPLED_NS / 2, "%d ns in generated code" % seen


def packed(path, comm, name):
    honest(path, comm)
    seen = 0
    for frames, ns in stacks(path, comm):
        user = [f for f in frames if f in (name + "_hot", name + "_outer") or f.startswith("[pack")]
        assert user or "clock_gettime" in frames or frames[-1] == "work", ";".join(frames)
        seen += ns if user else 0
    assert seen >= SAMPLED_NS / 2, "%d ns in the file" % seen


def json(path, comm):
    found = stacks(path, comm)
    parser = sum(ns for frames, ns in found if any("JsonParser" in f for f in frames) and frames[0] == "_start")
    total = sum(ns for _, ns in found)
    assert parser >= 0.7 * total, "%.1f %% are in the parser, whole" % (100 * parser / total)


def watch(*paths):
    """A descriptor of O_PATH opens nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    names = {libc.inotify_add_watch(fd, p.encode(), IN_OPEN): p for p in paths}
    assert fd >= 0 and -1 not in names, "cannot watch: %s" % os.strerror(ctypes.get_errno())
    print("ready", flush=True)
    sys.stdin.read()
    if select.select([fd], [], [], 0)[0]:
        raise AssertionError("%s was opened" % names[struct.unpack_from("i", os.read(fd, 4096))[0]])


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](*sys.argv[2:])
    except AssertionError as e:
        sys.exit(str(e))
