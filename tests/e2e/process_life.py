"""process_life.py OUT.folded COMM HOT [MAX_SHARE [OTHER]] - has the process COMM its function HOT, and only names?

Prints what share of its time has a frame of no file, or of its own file and without a name. Exits 1 if HOT is not there, if the function of another program
is (OTHER is its own, too), or if the share is above MAX_SHARE.
"""
import re
import sys

path, comm, hot = sys.argv[1:4]
share_max = float(sys.argv[4]) if len(sys.argv) > 4 else 0.005
own = {hot, *sys.argv[5:]}
# Debian's own files are stripped: what is static in them has no name anywhere.
unnamed = re.compile(rf"\[(unknown|exited)|\[({comm}|late\.so)\+0x")
total = nameless = hits = wrong = 0
example = ""
for line in open(path, errors="replace"):
    stack, _, ns = line.rpartition(" ")
    frames = stack.split(";")
    if frames[0] != comm:
        continue
    total += int(ns)
    if any(unnamed.match(f) for f in frames[1:]):
        nameless += int(ns)
        example = example or stack
    hits += int(ns) if hot in frames else 0
    if any(f.endswith("_hot") and f not in own for f in frames[1:]):
        wrong += int(ns)
        example = stack
share = nameless / total if total else 1
print(f"{100 * share:.2f} % of {total / 1e9:.2f} s without names, {100 * hits / max(total, 1):.0f} % in {hot}", end="")
if hits and not wrong and share <= share_max:
    sys.exit(0)
print(f"; {wrong / 1e9:.3f} s in another program's functions; as {example[:300]}", end="")
sys.exit(1)
