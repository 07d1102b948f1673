#!/usr/bin/env python3
"""Judges a folded profile of names_go/: every function of main has the callers its source says, and stacks are whole.

	names_go_judge.py PLAIN|STACKS|CGO FOLDED [MISSED_PERCENT]

MISSED_PERCENT (0.5) of the weight may be of stacks that were cut; a wrong caller is never allowed. Prints what was
found; exit 1 with a line for each fault.
"""
import collections
import re
import sys

# Callers by function; None: any (runtime functions are not judged).
CALLERS = {
    "main.main": {"runtime.main"},
    "runtime.main": {"runtime.goexit"},
    "main.direct": {"main.main"},
    "main.inlinedOuter": {"main.direct"},
    "main.inlinedInner": {"main.inlinedOuter"},
    "main.(*pair[...]).spin": {"main.main"},
    "main.generic[...]": {"main.main"},
    "main.closure": {"main.main"},
    "main.closure.func1": {"main.main"},
    "main.stacks": {"main.main"},
    "main.tree": {"main.stacks", "main.tree"},
    "main.stacks.func1": {"runtime.goexit"},
    "main.recurse": {"main.stacks.func1", "main.recurse"},
    "main.large": {"main.stacks"},
    "main.pingpong": {"main.stacks"},
    "main.pingpong.func1": {"runtime.goexit"},
    "main.interrupted": {"main.stacks"},
    "main.clock": {"main.stacks"},
    "main.crossings": {"main.stacks"},
    "main.intoC": {"main.crossings"},
    "main.intoCAndBack": {"main.crossings"},
    "main._Cfunc_c_middle": {"main.intoC", "main.intoC.func1"},
    "main._Cfunc_c_calls_go": {"main.intoCAndBack", "main.intoCAndBack.func1"},
    "main.back": {"_cgoexp_back"},
    "main.leaf": {"main.(*pair[...]).spin", "main.generic[...]", "main.closure.func1", "main.recurse",
                  "main.pingpong.func1", "main.interrupted", "main.crossings", "main.back"},
}
# Share of the program's time, of those that do the same work: percent, with a wide margin for noise.
SHARES = {
    "PLAIN": {"main.(*pair[...]).spin": (20, 48), "main.generic[...]": (20, 48), "main.closure.func1": (8, 28),
              "main.direct": (5, 28)},
    "STACKS": {"main.tree": (1, 95), "main.recurse": (0.1, 95)},
    "CGO": {"main.intoC": (0.2, 95), "main.intoCAndBack": (0.2, 95)},
}


def main():
    mode, path = sys.argv[1:3]
    missed_max = float(sys.argv[3]) if len(sys.argv) > 3 else 0.5
    faults, total, cut, unnamed = collections.Counter(), 0, 0, 0
    shares = collections.Counter()
    through_c = 0
    for line in open(path, encoding="utf-8"):
        text, weight = line.rstrip("\n").rsplit(" ", 1)
        # cgo puts a hash into the name of its wrapper.
        frames = [re.sub(r"^_cgoexp_[0-9a-f]+_", "_cgoexp_", f) for f in text.split(";")[1:]]
        weight = int(weight)
        total += weight
        if frames[0].startswith("[truncated"):
            cut += weight
        for caller, function in zip(frames, frames[1:]):
            wanted = CALLERS.get(function)
            # What a cut stack begins with has no caller.
            if wanted and caller not in wanted and not caller.startswith("[truncated"):
                faults["%s called by %s" % (function, caller)] += weight
        if mode != "CGO":
            unnamed += weight * any(f.startswith("[") and not f.startswith("[truncated") for f in frames)
        for function in set(frames):
            shares[function] += weight
        if "runtime.asmcgocall" in frames and "main.back" in frames and "runtime.cgocallback" in frames:
            through_c += weight
    if total == 0:
        faults["no sample"] = 1
    if cut > total * missed_max / 100:
        faults["%.2f %% of the stacks were cut" % (100 * cut / total)] = cut
    if unnamed > 0:
        faults["frames without a name"] = unnamed
    for function, (low, high) in SHARES[mode].items():
        share = 100 * shares[function] / max(total, 1)
        if not low <= share <= high:
            faults["%s has %.1f %%, not %g to %g" % (function, share, low, high)] = shares[function]
    if mode == "CGO" and through_c == 0:
        faults["no stack from Go through C to Go"] = 1
    for fault, weight in faults.items():
        print("fault: %s (%.1f ms)" % (fault, weight / 1e6))
    print("%.0f ms, %.2f %% cut, %d functions" % (total / 1e6, 100 * cut / max(total, 1), len(shares)))
    return 1 if faults else 0


sys.exit(main())
