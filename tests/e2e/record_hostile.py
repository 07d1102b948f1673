#!/usr/bin/env python3
"""Programs whose files change under them, for record_hostile.sh.

record_hostile.py victim LIB        burns in late_leaf of the library for ever; touches neither data nor tables of it
record_hostile.py harm SEED LIB...  spoils the files until it is killed; says so once when all are spoilt for the first time
record_hostile.py flat SUMMARY
record_hostile.py labelled FOLDED SUMMARY PID...    exits 1 and says why when it does not hold
"""
import ctypes
import json
import os
import random
import struct
import sys
import time


def victim(path):
    f = ctypes.CDLL(os.path.abspath(path)).late_leaf
    f.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    print("burns", flush=True)
    f(1, 1 << 62)


def regions(data):
    """(end of the text in the file, [(offset, size)] of headers and unwind tables)"""
    phoff, shoff = struct.unpack_from("<QQ", data, 0x20)
    phentsize, phnum, shentsize, shnum = struct.unpack_from("<HHHH", data, 0x36)
    text, spots = 0, [(0, 64), (phoff, phentsize * phnum), (shoff, shentsize * shnum)]
    for i in range(phnum):
        kind, flags, offset, _, _, size = struct.unpack_from("<IIQQQQ", data, phoff + i * phentsize)
        if kind == 1 and flags & 1:
            text = (offset + size + 4095) // 4096 * 4096
        if kind == 0x6474E550:  # .eh_frame_hdr, and .eh_frame behind it
            spots += [(offset, size), (offset + size, 160)] * 4
    return text, spots


def harm(seed, *paths):
    """Every third file is cut behind its text and written back, the others have bits flipped."""
    rng = random.Random(int(seed))
    whole = {p: open(p, "rb").read() for p in paths}
    spots = {p: regions(whole[p]) for p in paths}
    turn = 0
    while True:
        for i, path in enumerate(paths):
            text, where = spots[path]
            if i % 3 == 2:
                if turn % 4 == 3:
                    with open(path, "r+b") as f:
                        f.write(whole[path])
                else:
                    os.truncate(path, rng.randrange(text, len(whole[path])))
                continue
            offset, size = rng.choice(where)
            with open(path, "r+b") as f:
                at = offset + rng.randrange(size)
                f.seek(at)
                byte = f.read(1)[0] if at < len(whole[path]) else 0
                f.seek(at)
                f.write(bytes([byte ^ 1 << rng.randrange(8)]))
        turn += 1
        if turn == 3:
            print("harmed", flush=True)
        time.sleep(0.002)  # the pace of the damage; nothing waits for it


def labelled(folded, summary, *pids):
    """Every process was sampled as long as it ran, and each of its stacks is whole or says why it is not."""
    with open(summary, encoding="utf-8") as f:
        s = json.load(f)
    for pid in map(int, pids):
        rows = [r for r in s["ledger"] if r["tgid"] == pid]
        cpu = sum(r["cpu_ns"] for r in rows)
        sampled = sum(r["sampled_ns"] for r in rows)
        sigma = sum(r["sigma_ns"] for r in rows)
        assert cpu > 0 and abs(sampled - cpu) <= 6 * sigma + 1e6, "pid %d: ran %d ns, sampled %d" % (pid, cpu, sampled)
    stacks = 0
    cut = 0
    with open(folded, encoding="utf-8") as f:
        for line in f:
            frames = line.rsplit(" ", 1)[0].split(";")
            if not frames[0].startswith("python3") or len(frames) < 2:
                continue
            stacks += 1
            cut += frames[1].startswith("[truncated: ")
            assert frames[1].startswith(("[truncated: ", "_start", "[kernel", "[")) or frames[1] == "clone3", frames
    assert stacks > 0, "no stack of a victim"
    print("%d stacks, %d of them labelled" % (stacks, cut))


def flat(summary):
    """Bytes handed out by malloc after a window: the files differ from window to window, so not to the byte."""
    with open(summary, encoding="utf-8") as f:
        heap = [w["heap_bytes"] for w in json.load(f)["windows"]][2:]
    early, late = sorted(heap[:5])[2], sorted(heap[5:])[2]
    assert len(heap) == 10 and abs(late - early) <= 4096, "heap bytes per window: %s" % heap


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](*sys.argv[2:])
    except AssertionError as e:
        sys.exit(str(e))
