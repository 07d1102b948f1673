#!/usr/bin/env python3
"""Judges what a backend got from the daemon, for daemon.sh.

daemon_judge.py WHAT DIR [ARG...]   exits 1 and says why when WHAT does not hold. DIR is daemon_backend.py's. The
protobuf here is read by hand, so that a mistake of our own writers and readers cannot cancel out.
"""
import gzip
import json
import math
import os
import sys


def varint(data, i):
    value = shift = 0
    while True:
        value |= (data[i] & 0x7F) << shift
        shift += 7
        i += 1
        if not data[i - 1] & 0x80:
            return value, i


def fields(data):
    """[(number, int or bytes)]"""
    i, out = 0, []
    while i < len(data):
        key, i = varint(data, i)
        if key & 7 == 0:
            value, i = varint(data, i)
        elif key & 7 == 2:
            size, i = varint(data, i)
            value, i = data[i:i + size], i + size
            assert len(value) == size, "a field is cut"
        else:
            raise AssertionError("wire type %d" % (key & 7))
        out.append((key >> 3, value))
    return out


def packed(value):
    i, out = 0, []
    if isinstance(value, int):
        return [value]
    while i < len(value):
        v, i = varint(value, i)
        out.append(v)
    return out


class Profile:
    """samples: [(function names root first, cpu ns, {label: text or number})]"""

    def __init__(self, raw):
        top = fields(gzip.decompress(raw))
        strings = [v.decode() for n, v in top if n == 6]
        functions, locations = {}, {}
        for f in (dict(fields(v)) for n, v in top if n == 5):
            functions[f[1]] = strings[f.get(2, 0)]
        for location in (fields(v) for n, v in top if n == 4):
            lines = [dict(fields(v)) for n, v in location if n == 4]
            locations[dict(location)[1]] = [functions[line[1]] for line in lines]
        self.comments = {}
        for n, v in top:
            for c in packed(v) if n == 13 else []:
                if strings[c].startswith("flame."):
                    key, value = strings[c][6:].split("=", 1)
                    self.comments[key] = value
        single = dict((n, v) for n, v in top if n in (9, 10))
        self.start_ns, self.duration_ns = single.get(9, 0), single.get(10, 0)
        self.samples = []
        for sample in (fields(v) for n, v in top if n == 2):
            ids = [x for n, v in sample if n == 1 for x in packed(v)]
            values = [x for n, v in sample if n == 2 for x in packed(v)]
            labels = {}
            for label in (dict(fields(v)) for n, v in sample if n == 3):
                labels[strings[label[1]]] = strings[label[2]] if label.get(2) else label.get(3, 0)
            names = [name for i in ids for name in locations[i]]
            self.samples.append((names[::-1], values[-1], labels))

    def total(self):
        return sum(v for _, v, _ in self.samples)


def pushes(directory, how=("ok",)):
    """[(file name, [(labels, id, profile)])] in the order in which they came"""
    out = []
    for name in sorted(os.listdir(os.path.join(directory, "push"))):
        if name.startswith(".") or name.split(".")[1] not in how:
            continue
        with open(os.path.join(directory, "push", name), "rb") as f:
            request = f.read()
        series = []
        for n, one in fields(request):
            assert n == 1
            labels = {}
            for k, v in fields(one):
                if k == 1:
                    pair = dict(fields(v))
                    labels[pair[1].decode()] = pair[2].decode()
            for sample in (dict(fields(v)) for k, v in fields(one) if k == 2):
                series.append((labels, sample[2].decode(), Profile(sample[1])))
        out.append((name, series))
    return out


def shares(directory, truth):
    """cpu_split's functions have the truth's shares, in the series of that service, in no other."""
    with open(truth, encoding="utf-8") as f:
        cpu = {}
        for x in json.load(f)["functions"]:
            cpu[x["name"]] = cpu.get(x["name"], 0) + x["cpu_ns"]
    got = dict.fromkeys(cpu, 0)
    samples = 0
    for _, series in pushes(directory):
        for labels, _, p in series:
            for names, value, _ in p.samples:
                for name in set(n.split("(")[0] for n in names) & set(cpu):
                    assert labels["service_name"] == "cpu_split", "%s in %s" % (name, labels)
                    got[name] += value
                    samples += 1
    total = sum(got.values())
    assert total > 0, "no stack has any of %s" % ", ".join(cpu)
    n = total / 1e9 * 997 # a sample stands for 1/997 s on average
    for name, ns in cpu.items():
        p = ns / sum(cpu.values())
        sigma = math.sqrt(p * (1 - p) / n)
        share = got[name] / total
        assert abs(share - p) <= 4 * sigma, "%s: %.4f, truth %.4f, sigma %.4f" % (name, share, p, sigma)


def labels(directory, host):
    """Every series says where it comes from and has its id; a program without a unit is a service by its name."""
    count = 0
    for name, series in pushes(directory):
        for l, window, p in series:
            count += 1
            assert set(l) == {"__name__", "service_name", "host", "view"}, l
            assert l["__name__"] == "process_cpu" and l["view"] == "cpu" and l["host"] == host, l
            assert len(window) == 36, window
            assert p.comments["event"] == "cpu-clock" and "sigma_ns" in p.comments, p.comments
            assert not any("service" in x for _, _, x in p.samples), "the series says it"
            if l["service_name"] == "cpu_split":
                comms = set(x["comm"] for _, _, x in p.samples)
                assert comms == {"cpu_split"}, "%s holds %s" % (l["service_name"], comms)
    assert count > 0, "no series came"


def windows(directory, count, seconds):
    """COUNT windows end SECONDS apart, within 0.3 s; on a busy machine a start is late by half of that at most."""
    spans = sorted(set((p.start_ns, p.duration_ns) for _, series in pushes(directory) for _, _, p in series))
    # All series of one window have one start.
    assert len(spans) == int(count), "%d windows: %s" % (len(spans), spans)
    for (a, n), (b, _) in zip(spans, spans[1:]):
        gap = (b - (a + n)) / 1e9
        assert -0.3 < gap < 0.5 * float(seconds), "a gap of %.3f s" % gap
    ends = [(a + n) / 1e9 for a, n in spans]
    for a, b in zip(ends, ends[1:]):
        assert abs(b - a - float(seconds)) < 0.3, "ends are %.3f s apart" % (b - a)


def aligned(directory, seconds):
    """Windows end at multiples of SECONDS in UTC: half of them within 0.2 s, a busy machine delays the others."""
    ends = sorted(set(p.start_ns + p.duration_ns for _, series in pushes(directory) for _, _, p in series))
    assert len(ends) >= 2, ends
    off = sorted(min(e / 1e9 % float(seconds), -e / 1e9 % float(seconds)) for e in ends)
    assert off[(len(off) - 1) // 2] < 0.2, "ends are off by %s s" % off


def only(directory, service, *wants):
    """Samples came, all in SERVICE, all with each LABEL=VALUE, and flame.filter has each TEXT without "="."""
    count = 0
    for _, series in pushes(directory):
        for l, _, p in series:
            assert l["service_name"] == service, l
            for _, _, got in p.samples:
                count += 1
                for key, value in (w.split("=", 1) for w in wants if "=" in w):
                    assert str(got.get(key)) == value, "%s is %r" % (key, got.get(key))
            for text in (w for w in wants if "=" not in w):
                assert text in p.comments["filter"], p.comments
    assert count > 0, "no sample came"


def rates(directory, *wants):
    """The windows' rates are WANTS, each for at least one window, in this order; and none overlaps the next."""
    spans = {}
    for _, series in pushes(directory):
        for _, _, p in series:
            spans[p.start_ns] = (p.duration_ns, p.comments["frequency_hz"])
    starts = sorted(spans)
    seen = []
    for start in starts:
        if not seen or seen[-1] != spans[start][1]:
            seen.append(spans[start][1])
    assert seen == list(wants), "%s: %s" % (seen, [(s, spans[s]) for s in starts])
    for a, b in zip(starts, starts[1:]):
        assert b - (a + spans[a][0]) > -0.3e9, "%d overlaps %d" % (a, b)


def ordered(directory, count):
    """The accepted windows came oldest first, each once, and COUNT at least."""
    accepted = pushes(directory)
    starts = [series[0][2].start_ns for _, series in accepted]
    assert len(starts) >= int(count), "%d windows came" % len(starts)
    assert starts == sorted(starts), "out of order: %s" % starts
    ids = [i for _, series in accepted for _, i, _ in series]
    assert len(ids) == len(set(ids)), "an id came twice"


def retried(directory, how):
    """What was first answered with HOW came again, byte for byte, and then was accepted."""
    def read(name):
        with open(os.path.join(directory, "push", name), "rb") as f:
            return f.read()
    names = sorted(n for n in os.listdir(os.path.join(directory, "push")) if not n.startswith("."))
    first = [n for n in names if n.endswith("." + how)]
    assert first, "nothing was answered with %s" % how
    later = [read(n) for n in names if n.endswith(".ok")]
    for n in first:
        assert read(n) in later, "%s was never accepted" % n


def heartbeat(directory, *wants):
    """The last heartbeat has each PATH=VALUE."""
    with open(os.path.join(directory, "heartbeats"), encoding="utf-8") as f:
        beat = json.loads(f.readlines()[-1])
    for want in wants:
        path, value = want.split("=", 1)
        got = beat
        for key in path.split("."):
            got = got[key]
        assert str(got) == value, "%s is %r" % (path, got)


def main():
    what = sys.argv[1]
    try:
        {f.__name__: f for f in (shares, labels, windows, aligned, only, rates, ordered, retried, heartbeat)}[what](*sys.argv[2:])
    except (AssertionError, KeyError, IndexError, OSError) as e:
        print("%s: %s" % (type(e).__name__, e))
        sys.exit(1)


if __name__ == "__main__":
    main()
