"""record_report.py SCRATCH OUT - turns what bench/record.sh measured into OUT/record.json and gnuplot's tables."""
import json
import statistics
import sys


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def rows(path):
    return [[int(n) for n in line.split()] for line in read(path).splitlines()]


def programs(path):
    return {p["id"]: p for p in json.loads(read(path))}


def bpf_cost(scratch, hz):
    """Per program type of the agent: runs and nanoseconds between two looks at the kernel's own statistics."""
    others = programs(f"{scratch}/{hz}.none")
    start, end = programs(f"{scratch}/{hz}.start"), programs(f"{scratch}/{hz}.end")
    cost = {}
    for i in sorted(set(start) & set(end) - set(others)):
        runs = end[i].get("run_cnt", 0) - start[i].get("run_cnt", 0)
        ns = end[i].get("run_time_ns", 0) - start[i].get("run_time_ns", 0)
        if runs > 0:
            c = cost.setdefault(end[i]["type"], {"runs": 0, "run_ns": 0})
            c["runs"] += runs
            c["run_ns"] += ns
    for c in cost.values():
        c["ns_per_run"] = c["run_ns"] / c["runs"]
    summary = json.loads(read(f"{scratch}/{hz}.json"))
    own = summary["own"]
    return {
        "programs": cost,
        "samples": summary["samples"],
        "frequency_real_hz": summary["frequency_real_hz"],
        "window_ns": summary["window_ns"],
        "losses": summary["losses"],
        "own": own,
        "share_of_cpu_sampling": (own["cpu_window_ns"] + own["bpf_run_ns"]) / (summary["window_ns"] * summary["cpus"]),
        "share_of_cpu_whole": (own["cpu_start_ns"] + own["cpu_window_ns"] + own["cpu_flush_ns"] + own["bpf_run_ns"])
        / (summary["window_ns"] * summary["cpus"]),
    }


def switch_cost(scratch):
    pairs = [(b[1] / b[0], w[1] / w[0]) for b, w in ((r[:2], r[2:]) for r in rows(f"{scratch}/switch"))]
    return pairs, {
        "ns_per_switch_without": statistics.median(p[0] for p in pairs),
        "ns_per_switch_with": statistics.median(p[1] for p in pairs),
        "added_ns_per_switch": statistics.median(p[1] - p[0] for p in pairs),
        "ratio": statistics.median(p[1] / p[0] for p in pairs),
        "ratio_min": min(p[1] / p[0] for p in pairs),
        "ratio_max": max(p[1] / p[0] for p in pairs),
        "pairs": len(pairs),
    }


def main(scratch, out):
    ready = [r[0] / 1e6 for r in rows(f"{scratch}/ready")]
    whole = [t * 1e3 for t in json.loads(read(f"{out}/start.json"))["results"][0]["times"]]
    pairs, switch = switch_cost(scratch)
    result = {
        "schema": "flame-bench-record/1",
        "start_ms": {"to_first_sample_median": statistics.median(ready), "to_first_sample_max": max(ready),
                     "whole_1ms_recording_median": statistics.median(whole), "runs": len(ready)},
        "bpf": {hz: bpf_cost(scratch, hz) for hz in ("99", "997")},
        "switch": switch,
    }
    with open(f"{out}/record.json", "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    with open(f"{out}/start.tsv", "w", encoding="utf-8") as f:
        f.writelines(f"{i + 1}\t{a:.3f}\t{b:.3f}\n" for i, (a, b) in enumerate(zip(ready, whole)))
    with open(f"{out}/switch.tsv", "w", encoding="utf-8") as f:
        f.writelines(f"{i + 1}\t{a:.1f}\t{b:.1f}\n" for i, (a, b) in enumerate(pairs))
    with open(f"{out}/bpf.tsv", "w", encoding="utf-8") as f:
        for hz, cost in result["bpf"].items():
            per_run = {t: c["ns_per_run"] for t, c in cost["programs"].items()}
            f.write(f"{hz}Hz\t{per_run.get('perf_event', 0):.1f}\t{per_run.get('tracing', 0):.1f}\n")

    start = result["start_ms"]
    print(f"start to first sample      {start['to_first_sample_median']:8.1f} ms, slowest of {start['runs']} "
          f"{start['to_first_sample_max']:.1f}; whole 1 ms recording {start['whole_1ms_recording_median']:.1f} ms")
    for hz, cost in result["bpf"].items():
        for kind, what in (("perf_event", "sample"), ("tracing", "switch")):
            c = cost["programs"].get(kind)
            text = f"{c['ns_per_run']:8.0f} ns ({c['runs']} runs)" if c else "  no runs"
            print(f"BPF per {what} at {hz:>3} Hz  {text}")
        print(f"agent + BPF at {hz:>3} Hz       {100 * cost['share_of_cpu_sampling']:8.3f} % of the CPUs while sampling, "
              f"{100 * cost['share_of_cpu_whole']:.3f} % with start and output")
    print(f"a switch, pingpong         {switch['ns_per_switch_without']:8.0f} ns without, "
          f"{switch['added_ns_per_switch']:+.0f} ns with, ratio {switch['ratio']:.3f} "
          f"({switch['ratio_min']:.3f} to {switch['ratio_max']:.3f}, {switch['pairs']} pairs)")


main(*sys.argv[1:])
