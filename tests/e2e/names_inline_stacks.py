#!/usr/bin/env python3
"""names_inline_stacks.py PROFILE.pb.gz SUMMARY.json: "VALUE LEAF FILE:LINE;CALLER FILE:LINE;..." lines, then whether
the values sum up to what the summary says was sampled. Decodes pprof by itself, so that it shares no bug of ours."""
import collections
import gzip
import json
import os
import sys


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def packed(data):
    if isinstance(data, int):
        return [data]
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def main():
    raw = gzip.decompress(open(sys.argv[1], "rb").read())
    strings, functions, locations, samples = [], {}, {}, []
    for number, value in fields(raw):
        if number == 6:
            strings.append(value.decode())
        elif number == 5:
            f = dict(fields(value))
            functions[f[1]] = (f.get(2, 0), f.get(4, 0))
        elif number == 4:
            f = list(fields(value))
            locations[dict(f)[1]] = [dict(fields(v)) for n, v in f if n == 4]
        elif number == 2:
            ids, values = [], []
            for n, v in fields(value):
                ids += packed(v) if n == 1 else []
                values += packed(v) if n == 2 else []
            samples.append((ids, values))
    stacks, counts = collections.Counter(), 0
    for ids, values in samples:
        frames = []
        for line in (line for i in ids for line in locations[i]):
            name, file = functions[line[1]]
            place = f" {os.path.basename(strings[file])}:{line.get(2, 0)}" if file else ""
            frames.append(strings[name] + place)
            if strings[name] == "main":
                break
        stacks[";".join(frames)] += values[-1]
        counts += values[0]
    for stack, value in stacks.most_common():
        print(value, stack)
    said = json.load(open(sys.argv[2]))
    got = {"samples": counts, "weight_ns": sum(stacks.values())}
    wrong = [f"{k}: {v} in the profile, {said[k]} were sampled" for k, v in got.items() if v != said[k]]
    print("sum", ", ".join(wrong) or "equal")


main()
