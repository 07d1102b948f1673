#!/usr/bin/env python3
"""Judges the files of one recording against the workload's truth.json, for record.sh.

record_judge.py WHAT FILE...   exits 1 and says why when WHAT does not hold. Tolerances are derived here.
"""
import json
import math
import sys


def load(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def folded(path):
    """[(frames root first, value)]"""
    with open(path, encoding="utf-8") as f:
        return [(s.split(";"), int(v)) for s, v in (line.rstrip("\n").rsplit(" ", 1) for line in f)]


def bare(frame):
    return frame.split("(")[0]


def truth_shares(truth):
    cpu = {}
    for f in truth["functions"]:
        cpu[f["name"]] = cpu.get(f["name"], 0) + f["cpu_ns"]
    total = sum(cpu.values())
    return {name: ns / total for name, ns in cpu.items()}


def shares(profile, summary, truth):
    """Inclusive share of each function among all, within 4 sigma of the sample count."""
    want = truth_shares(load(truth))
    s = load(summary)
    got = {name: 0 for name in want}
    for stack, value in folded(profile):
        for name in want:
            if stack[0] == "cpu_split" and name in map(bare, stack):
                got[name] += value
    total = sum(got.values())
    assert total > 0, "no stack has any of %s" % ", ".join(want)
    n = total / (s["weight_ns"] / s["samples"])
    for name, p in want.items():
        sigma = math.sqrt(p * (1 - p) / n)
        share = got[name] / total
        assert abs(share - p) <= 4 * sigma, "%s: %.4f, truth %.4f, sigma %.4f" % (name, share, p, sigma)


def callers(profile, truth):
    """Each function stands under the caller that the truth names, and under no other."""
    want = {}
    for f in load(truth)["functions"]:
        want.setdefault(f["name"], set()).add(f["callers"][0])
    seen = {name: set() for name in want}
    for stack, _ in folded(profile):
        names = [bare(f) for f in stack]
        for name in want:
            # A sample between call and "push %rbp" skips one caller; that is a handful of instructions.
            if stack[0] == "cpu_split" and name in names and names[names.index(name) - 1].startswith("path_"):
                seen[name].add(names[names.index(name) - 1])
    for name, who in want.items():
        assert seen[name] == who, "%s called by %s, truth %s" % (name, sorted(seen[name]), sorted(who))


def whole(profile, comm, share):
    """Of the time of a chain_* program's leaf, so much has all its callers up to main, and main's own."""
    chain = ["main", "chain_plain", "chain_wide", "chain_dynamic", "chain_aligned", "chain_saved", "chain_leaf"]
    good = total = 0
    for stack, value in folded(profile):
        names = [bare(f) for f in stack]
        if names[0] != comm or "chain_leaf" not in names:
            continue
        total += value
        at = names.index("chain_leaf") + 1 - len(chain)
        good += value if at > 1 and names[at : at + len(chain)] == chain else 0
    if total == 0 or good / total < float(share):
        sys.exit(f"{good} of {total} ns have the whole chain")


def ledger(summary, truth, who="all"):
    """exec_ns of each thread is its schedstat within 0.1 %.

    "workers" slept when they were read, so nothing else is allowed. "all" read their own account as their last act:
    what follows is 50 us, and for the main thread, which lives on to write and exit, 20 ms.
    """
    t = load(truth)
    rows = {r["tid"]: r for r in load(summary)["ledger"]}
    threads = [th for th in t["threads"] if who == "all" or th["tid"] != t["pid"]]
    assert threads, "no threads in the truth"
    for thread in threads:
        row = rows.get(thread["tid"])
        assert row, "no row for %s" % thread["name"]
        slack = 0 if who == "workers" else 50e3
        high = 20e6 if thread["tid"] == t["pid"] else slack
        part = 0.001 * thread["cpu_ns"]
        off = row["exec_ns"] - thread["cpu_ns"]
        assert -slack - part <= off <= high + part, "%s: ledger %d, schedstat %d" % (
            thread["name"], row["exec_ns"], thread["cpu_ns"])


def sums(summary):
    s = load(summary)
    # A kernel that does not report every switch leaves up to a time slice open at each.
    slack = 4e6 * s["ledger_switches_missed"]
    off = s["weight_ns"] - s["ledger_cpu_ns"]
    assert abs(off) <= 4 * s["sigma_ns"] + slack, "%.2f sigma: stacks %d, ledger %d, sigma %d, missed switches %d" % (
        s["deviation_sigmas"], s["weight_ns"], s["ledger_cpu_ns"], s["sigma_ns"], s["ledger_switches_missed"])
    # Every sample taken has ended some way and is in the profile, those that waited for a table, too.
    ends = sum(s["stack_ends"].values())
    assert ends == s["samples"], "%d stacks ended, %d samples in the profile" % (ends, s["samples"])
    # A kernel may keep threads of its own to itself: no switch of theirs is reported although they slept, and no
    # sample falls into them. What is known of them is the scheduler's account alone.
    shown = [r for r in s["ledger"] if r["switches_voluntary"] + r["switches_involuntary"] or r["samples"] or
             not r["runnable_ns"] + r["blocked_s_ns"] + r["blocked_d_ns"] + r["blocked_other_ns"]]
    # The agent has too few samples of itself (README: each redraw of a period starts it anew), never too many.
    far = [r for r in shown if abs(r["sampled_ns"] - r["cpu_ns"]) > 6 * r["sigma_ns"] + 1e6 and
           (r["comm"] != "flame-agent" or r["sampled_ns"] > r["cpu_ns"])]
    # 6 sigma and a millisecond: a hundred threads, most of them with a sample or none.
    assert not far, "%s: sampled %d, ran %d, sigma %d" % tuple(
        far[0][k] for k in ("comm", "sampled_ns", "cpu_ns", "sigma_ns"))


def losses(summary):
    s = load(summary)
    lost = {k: v["samples"] for k, v in s["losses"].items() if v["samples"]}
    assert not lost and not s["stacks_missing"] and not s["records_bad"] and not s["ledger_lost"], str(lost)


def lost(profile, summary):
    """The stacks that found no room stand in the profile as one, and it sums up as any other."""
    s = load(summary)
    want = s["losses"]["map_full"]["weight_ns"]
    assert want > 0, "nothing was lost"
    stacks = folded(profile)
    got = sum(v for frames, v in stacks if frames == ["[lost: too many stacks]"])
    assert got == want, "shown %d, counted %d" % (got, want)
    assert sum(v for _, v in stacks) == s["weight_ns"], "the sum is not the weight"
    sums(summary)


def window(summary):
    """taken + idle + filtered is the window less at most a period on each CPU."""
    s = load(summary)
    weight = s["weight_ns"] + s["weight_idle_ns"] + s["weight_filtered_ns"]
    full = s["window_ns"] * s["cpus"]
    # A virtual CPU that the hypervisor holds back gets its sample late: 20 ms for that.
    slack = s["cpus"] * (2e9 / s["frequency_hz"] + 20e6)
    assert full - slack <= weight <= full, "weights %d, window on all CPUs %d" % (weight, full)


def only(summary, pid):
    s = load(summary)
    assert s["samples"] > 0 and s["ledger"], "nothing recorded"
    others = [r["tgid"] for r in s["ledger"] if r["tgid"] != int(pid)]
    assert not others, "ledger has %s" % others
    assert s["samples_filtered"] > 0, "other processes were not seen at all"


def slope(values):
    n = len(values)
    x = (n - 1) / 2
    y = sum(values) / n
    return sum((i - x) * (v - y) for i, v in enumerate(values)) / sum((i - x) ** 2 for i in range(n))


def memory(summary):
    """Bytes handed out by malloc after a window do not grow; the first two may fill caches.

    What stays over may be a chunk of another size each time: malloc gives 16 bytes more where the rest would be too
    small to be a chunk of its own. One window to the next may differ by that, ten by no more.
    """
    heap = [w["heap_bytes"] for w in load(summary)["windows"]][2:]
    assert len(heap) == 10 and max(heap) - min(heap) <= 16, "heap bytes per window: %s" % heap


def leak(summary):
    heap = [w["heap_bytes"] for w in load(summary)["windows"]][2:]
    assert 1024 <= slope(heap) <= 1056, "1 KiB a window leaks, but the heap is %s" % heap


try:
    globals()[sys.argv[1]](*sys.argv[2:])
except AssertionError as e:
    sys.exit(str(e))
