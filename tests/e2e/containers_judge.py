#!/usr/bin/env python3
"""Judges what record says of containers, for containers.sh; says why something does not hold and exits 1.

    containers_judge.py labels FILE.pb.gz PID WANT...   samples of PID have LABEL=VALUE, and not the labels in -LABEL
    containers_judge.py pids FILE.pb.gz WANT...         there are samples of +PID, and none of -PID
"""
import sys

from daemon_judge import Profile


def labels(samples, pid, *wants):
    of_pid = [x for _, _, x in samples if x["pid"] == int(pid)]
    assert of_pid, "no sample of %s" % pid
    for x in of_pid:
        for want in wants:
            if want.startswith("-"):
                assert want[1:] not in x, x
            else:
                key, value = want.split("=", 1)
                assert str(x.get(key)) == value, "%s: %s" % (want, x)


def pids(samples, *wants):
    seen = set(x["pid"] for _, _, x in samples)
    for want in wants:
        assert (int(want[1:]) in seen) == (want[0] == "+"), "%s: samples are of %s" % (want, sorted(seen))


if __name__ == "__main__":
    with open(sys.argv[2], "rb") as f:
        profile = Profile(f.read())
    {"labels": labels, "pids": pids}[sys.argv[1]](profile.samples, *sys.argv[3:])
