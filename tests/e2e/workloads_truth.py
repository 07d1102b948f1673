"""workloads_truth.py DIR - do the truth files of tests/e2e/workloads.sh say what the arguments make certain?

Counts and schema are exact. Clocks are judged loosely, since the host is noisy: the exact-mode lab judges them.
"""
import json
import re
import sys

FAILED = False


def check(name, good, why=""):
    global FAILED
    print(f"ok {name}" if good else f"not ok {name}: {why}")
    FAILED = FAILED or not good


def schema_error(t):
    keys = {"schema", "workload", "argv", "pid", "seed", "checksum", "wall_ns", "cpu_ns", "functions", "threads",
            "wait_ns"}
    if set(t) != keys or t["schema"] != "flame-truth/1":
        return f"keys {sorted(t)}"
    if not re.fullmatch("[0-9a-f]{16}", t["checksum"]):
        return f"checksum {t['checksum']}"
    numbers = [t["pid"], t["seed"], t["wall_ns"], t["cpu_ns"], *t["wait_ns"].values()]
    for f in t["functions"]:
        if set(f) - {"inlined"} != {"name", "callers", "cpu_ns", "wall_ns", "count", "wait_ns"}:
            return f"function {f}"
        if not set(f.get("inlined", [])) < set(f["callers"]):
            return f"inlined callers {f}"
        numbers += [f["cpu_ns"], f["wall_ns"], f["count"], *f["wait_ns"].values()]
    for x in t["threads"]:
        if set(x) != {"tid", "name", "cpu_ns", "run_delay_ns", "slices"}:
            return f"thread {x}"
        numbers += [x["tid"], x["cpu_ns"], x["run_delay_ns"], x["slices"]]
    if not all(type(n) is int and n >= 0 for n in numbers):
        return f"not all numbers are natural: {numbers}"
    return None


def load(directory, name, burns=True):
    try:
        with open(f"{directory}/{name}.json", encoding="ascii") as f:
            t = json.load(f)
    except (OSError, ValueError) as e:
        check(f"{name}: truth is there", False, e)
        sys.exit(1)
    error = schema_error(t)
    check(f"{name}: truth has the schema", error is None, error)
    if not burns:
        return t
    inside = sum(f["cpu_ns"] for f in t["functions"])
    check(f"{name}: functions fill the process CPU", 0.9 * t["cpu_ns"] < inside <= t["cpu_ns"],
          f"{inside} of {t['cpu_ns']} ns")
    # schedstat also counts start-up, so it may exceed the measured phase, never fall behind it.
    threads = sum(x["cpu_ns"] for x in t["threads"])
    check(f"{name}: schedstat covers the measured phase",
          0.999 * t["cpu_ns"] <= threads <= t["cpu_ns"] + 100_000_000, f"{threads} and {t['cpu_ns']} ns")
    return t


def split(name, t, outer):
    by = {(f["name"], *f["callers"]): f for f in t["functions"]}
    rounds = by[("split_light", "path_b", "run", outer)]["count"] // 2
    want = {("split_heavy", "path_a"): 21, ("split_medium", "path_a"): 6, ("split_light", "path_a"): 3,
            ("split_heavy", "path_b"): 14, ("split_medium", "path_b"): 4, ("split_light", "path_b"): 2}
    got = {k: by[(*k, "run", outer)]["count"] for k in want}
    check(f"{name}: counts are 70/20/10 under 60/40", rounds > 0 and got == {k: v * rounds for k, v in want.items()},
          str(got))
    total = sum(by[(*k, "run", outer)]["cpu_ns"] for k in want)
    off = {k: 100 * by[(*k, "run", outer)]["cpu_ns"] / total - 2 * v for k, v in want.items()}
    check(f"{name}: its clocks agree within 3 points", all(abs(d) < 3 for d in off.values()), str(off))


def main(directory):
    t = load(directory, "cpu_split")
    split("cpu_split", t, "main")
    pace = [f for f in t["functions"] if f["name"] == "pace"]
    check("cpu_split: three pauses of 1 ms", len(pace) == 1 and pace[0]["count"] == 3
          and pace[0]["wait_ns"]["sleep"] >= 3_000_000 and t["wait_ns"] == pace[0]["wait_ns"], str(pace))
    t = load(directory, "threads")
    split("threads", t, "worker")
    names = [x["name"] for x in t["threads"]]
    check("threads: named", names == ["cpu_split", "worker-0", "worker-1"], str(names))
    check("threads: --seconds 1 lasts a second", 1_000_000_000 <= t["wall_ns"] < 3_000_000_000, t["wall_ns"])

    t = load(directory, "lock_convoy")
    by = {f["name"]: f for f in t["functions"]}
    counts = {n: f["count"] for n, f in by.items()}
    check("lock_convoy: counts", counts == {n: 80 for n in ("critical_work", "outside_work", "lock_wait", "hold_sleep")},
          str(counts))
    ratio = by["critical_work"]["cpu_ns"] / by["outside_work"]["cpu_ns"]
    check("lock_convoy: critical to outside is 2 by its clocks", 1.7 < ratio < 2.3, f"{ratio}")
    check("lock_convoy: sleeping with the mutex makes others wait",
          by["hold_sleep"]["wait_ns"]["sleep"] >= 80 * 500_000 and by["lock_wait"]["wait_ns"]["lock"] > 40_000_000
          and by["lock_wait"]["cpu_ns"] < by["lock_wait"]["wait_ns"]["lock"] / 4, str(t["functions"]))
    names = [x["name"] for x in t["threads"]]
    check("lock_convoy: threads named", names == ["lock_convoy"] + [f"worker-{i}" for i in range(4)], str(names))

    t = load(directory, "tail_noreturn")
    check("tail_noreturn: all of it under real_caller",
          [(f["name"], f["callers"]) for f in t["functions"]] == [("burn_noreturn", ["real_caller", "main"])],
          str(t["functions"]))

    t = load(directory, "busy_host", burns=False)
    counts = {f["name"]: f["count"] for f in t["functions"]}
    check("busy_host: as many switches and execs as asked for", counts == {"pair": 4000, "execer": 40}, str(counts))
    check("busy_host: --seconds 2 lasts two, and no less", 2_000_000_000 <= t["wall_ns"] < 6_000_000_000, t["wall_ns"])
    return FAILED


sys.exit(main(sys.argv[1]))
