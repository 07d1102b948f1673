#!/usr/bin/env python3
"""A peer of flame-backend, written apart from its code: makes pprof and push.v1 by hand (proto files of
google/pprof and push.v1), sends good and hostile requests, prints what came back.

Used by backend.sh: backend_peer.py COMMAND PORT ARG... ; exits 0 when what it says held, and says why not.
"""
import base64
import gzip
import http.client
import json
import os
import socket
import struct
import sys
import threading
import time

TOKEN = os.environ.get("FLAME_TOKEN", "")


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def number(n, value):
    return varint(n << 3) + varint(value)


def pprof(stacks, start_ns, unit=b"nanoseconds"):
    """stacks: {("root", ..., "leaf"): value}"""
    strings, functions, body = [b"", b"cpu", unit], {}, b""

    def string(s):
        if s not in strings:
            strings.append(s)
        return strings.index(s)

    body += field(1, number(1, 1) + number(2, 2))
    for stack, value in stacks.items():
        ids = []
        for name in reversed(stack):
            ids.append(functions.setdefault(name, len(functions) + 1))
        body += field(2, field(1, b"".join(map(varint, ids))) + field(2, varint(value)))
    for name, i in functions.items():
        body += field(4, number(1, i) + field(4, number(1, i)))
        body += field(5, number(1, i) + number(2, string(name.encode())))
    for s in strings:
        body += field(6, s)
    return gzip.compress(body + number(9, start_ns) + number(10, 10**10))


def push_body(series):
    """series: [(labels, [(profile, id)])]"""
    out = b""
    for labels, samples in series:
        s = b"".join(field(1, field(1, k.encode()) + field(2, v.encode())) for k, v in labels.items())
        for raw, i in samples:
            s += field(2, field(1, raw) + (field(2, i.encode()) if i else b""))
        out += field(1, s)
    return out


def call(port, method, path, body=None, headers=None, timeout=30):
    c = http.client.HTTPConnection("127.0.0.1", int(port), timeout=timeout)
    h = dict(headers or {})
    if TOKEN:
        h["Authorization"] = "Bearer " + TOKEN
    c.request(method, path, body, h)
    r = c.getresponse()
    data = r.read()
    c.close()
    return r.status, dict(r.getheaders()), data


PROTO = {"Content-Type": "application/proto"}
JSON = {"Content-Type": "application/json"}
STACKS = {("main", "work", "hash"): 700, ("main", "work"): 200, ("main", "idle loop;x"): 100}


def push(port, service="shop", name="process_cpu", window="", host="h1", stacks=None, when=None, more=None,
         headers=PROTO):
    labels = {"service_name": service, "__name__": name, "host": host, **(more or {})}
    start = time.time_ns() - 10**10 if when is None else when
    return call(port, "POST", "/push.v1.PusherService/Push",
                push_body([(labels, [(pprof(stacks or STACKS, start), window)])]), headers)


def heartbeat(port, host="h1", instance="11111111-0000-4000-8000-000000000001", acks=(), **more):
    beat = {"schema": "flame-heartbeat/1", "host": host, "instance": instance, "boot_id": "b",
            "agent_version": "1.0", "kernel": "6.1.0", "arch": "x86_64", "cpus": 2,
            "time_unix_ms": int(time.time() * 1000), "state": "dormant", "state_text": "",
            "can": {"cpu": "ok", "wall": "no BTF"},
            "own": {"cpu_ns": 10**9, "rss_bytes": 12 << 20, "kernel_bytes": 1 << 20, "uptime_ns": 10**12},
            "losses": {"samples": 3, "windows_dropped": 0}, "spool": {"windows": 0, "bytes": 0},
            "acks": list(acks), **more}
    return call(port, "POST", "/api/v1/heartbeat", json.dumps(beat), JSON)


def want(got, status, text=b""):
    if got[0] != status or text not in got[2]:
        sys.exit(f"wanted {status} with {text!r}, got {got[0]}: {got[2][:300]!r}")


def folded(port, query):
    s, _, data = call(port, "GET", "/api/v1/flamegraph.folded?" + query)
    if s != 200:
        sys.exit(f"folded: {s} {data[:200]!r}")
    return data.decode()


def rss_kb(pid):
    for line in open(f"/proc/{pid}/status", encoding="ascii"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise SystemExit("no VmRSS")


# --- commands


def c_push(port, service, window, *rest):
    want(push(port, service, window=window, host=rest[0] if rest else "h1"), 200)


def c_folded(port, query):
    sys.stdout.write(folded(port, query))


def c_reply(port):
    s, h, data = push(port, "reply", window="reply-1")
    if (s, h.get("Content-Type"), data) != (200, "application/proto", b""):
        sys.exit(f"{s} {h} {data!r}")


def c_json(port):
    """The Connect JSON codec, plain and gzipped, with both alphabets of base64."""
    def body(window, coded):
        return json.dumps({"series": [{
            "labels": [{"name": "service_name", "value": "json"}, {"name": "__name__", "value": "process_cpu"}],
            "samples": [{"rawProfile": coded, "ID": window}]}]}).encode()
    raw = pprof(STACKS, time.time_ns() - 10**10)
    url = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    path = "/push.v1.PusherService/Push"
    for window, coded in (("j1", base64.b64encode(raw).decode()), ("j1", url), ("j2", url)):
        s, h, data = call(port, "POST", path, body(window, coded), {"Content-Type": "application/json; charset=utf-8"})
        if (s, h.get("Content-Type"), data) != (200, "application/json", b"{}"):
            sys.exit(f"{s} {h} {data!r}")
    want(call(port, "POST", path, gzip.compress(body("j3", url)), {**JSON, "Content-Encoding": "gzip"}), 200)
    if "main;work;hash 2100" not in folded(port, "service=json"):
        sys.exit(folded(port, "service=json"))


def c_malformed(port):
    good = push_body([({"service_name": "s", "__name__": "n"}, [(pprof(STACKS, 1), "")])])
    for bad in (b"\xff" * 100, good[:-7], b"\x0a\xff\xff\xff\xff\x0f", field(1, field(2, field(1, b"not pprof")))):
        want(call(port, "POST", "/push.v1.PusherService/Push", bad, PROTO), 400, b'"code":"invalid_argument"')
    want(call(port, "POST", "/push.v1.PusherService/Push", push_body([({"a": "b"}, [(pprof(STACKS, 1), "")])]),
              PROTO), 400, b"service_name")
    want(call(port, "POST", "/push.v1.PusherService/Push", good, {"Content-Type": "text/plain"}), 415,
         b"application/proto")
    for bad in ("[]", "{", '{"series":{}}', '{"series":[1]}', '{"series":[{"labels":[{"name":1}]}]}', "[" * 100000,
                '{"series":[{"samples":[{"rawProfile":"!"}]}]}', '{"a":[' + "0," * 500000 + "0]}"):
        want(call(port, "POST", "/push.v1.PusherService/Push", bad, JSON), 400, b'"code":"invalid_argument"')
    want(call(port, "POST", "/push.v1.PusherService/Push", good, {**PROTO, "Content-Encoding": "br"}), 415)
    want(call(port, "POST", "/push.v1.PusherService/Push", gzip.compress(good)[:-9],
              {**PROTO, "Content-Encoding": "gzip"}), 400, b"cut short")


def c_all_or_nothing(port):
    good = (pprof(STACKS, time.time_ns()), "aon-1")
    body = push_body([({"service_name": "aon", "__name__": "cpu"}, [good, (b"garbage", "aon-2")])])
    want(call(port, "POST", "/push.v1.PusherService/Push", body, PROTO), 400)
    if folded(port, "service=aon"):
        sys.exit("half of a refused push was stored")


def bomb():
    import zlib
    z = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = bytes(1 << 20)
    out = [z.compress(piece) for _ in range(1024)]
    return b"".join(out) + z.flush()


def c_bomb(port, pid):
    raw = bomb()
    before = rss_kb(pid)
    for _ in range(2):
        want(call(port, "POST", "/push.v1.PusherService/Push", raw, {**PROTO, "Content-Encoding": "gzip"}), 413)
        want(call(port, "POST", "/push.v1.PusherService/Push",
                  push_body([({"service_name": "b", "__name__": "n"}, [(raw, "")])]), PROTO), 413)
    grown = rss_kb(pid) - before
    if grown > 200 << 10:
        sys.exit(f"memory grew by {grown} kB")


def c_labels(port):
    many = {f"label{i}": "x" * 100 for i in range(100000)}  # 10 MB
    want(push(port, "labels", more=many), 400)
    want(push(port, "labels", more={"long": "x" * 3000}), 400)


def c_too_large(port):
    want(call(port, "POST", "/push.v1.PusherService/Push", bytes(33 << 20), PROTO), 413)
    want(call(port, "POST", "/api/v1/heartbeat", b" " * (1 << 20), JSON), 413)
    want(call(port, "GET", "/api/v1/hosts", b"x", {}), 413)


def c_deep(port):
    deep = b'{"a":' * 10000 + b"1" + b"}" * 10000
    want(call(port, "POST", "/api/v1/heartbeat", deep, JSON), 400)
    want(call(port, "POST", "/api/v1/heartbeat", b"[" * 10000 + b"]" * 10000, JSON), 400)
    want(call(port, "POST", "/api/v1/requests", deep, JSON), 400)
    want(call(port, "POST", "/api/v1/heartbeat", b'{"schema":"flame-heartbeat/1","acks":[' + b"[" * 900 + b"]" * 900
              + b"]}", JSON), 400)


def c_names(port, data):
    evil = ["../../x", "a b", 'q"uote', "<svg onload=alert(1)>", "Ünï-çödé 火", "%2e%2e%2f", "a\nb", "__proto__"]
    tree = lambda: sorted(os.path.join(d, f) for d, _, fs in os.walk(data) for f in fs)
    import urllib.parse
    for i, n in enumerate(evil):
        want(push(port, n, window=f"evil-{i}", host=n), 200)
        want(heartbeat(port, host=n, instance=f"evil-{i:08}"), 200)
    services = [s["service"] for s in json.loads(call(port, "GET", "/api/v1/services")[2])]
    hosts = [h["host"] for h in json.loads(call(port, "GET", "/api/v1/hosts")[2])]
    for n in evil:
        shown = n.replace("\n", "\ufffd")
        if shown not in services or shown not in hosts:
            sys.exit(f"{n!r} is not shown: {services} {hosts}")
        if not folded(port, "service=" + urllib.parse.quote(shown)):
            sys.exit(f"no flame graph of {n!r}")
    strange = [f for f in tree() if not all(c.isalnum() or c in "-_./" for c in f) or ".." in f]
    if strange or os.path.exists(os.path.join(data, "../x")):
        sys.exit(f"files by name: {strange}")


def clamped(port):
    lines = call(port, "GET", "/metrics")[2].decode().splitlines()
    return int([x for x in lines if x.startswith("flame_store_clamped_total ")][0].split()[1])


def c_times(port):
    now, before = time.time_ns(), clamped(port)
    for i, when in enumerate((0, 1, now + 3 * 86400 * 10**9, now - 400 * 86400 * 10**9)):
        want(push(port, "times", window=f"times-{i}", when=when), 200)
    total = sum(int(x.rsplit(" ", 1)[1]) for x in folded(port, "service=times&from=now-1h&until=now%2B1m").splitlines())
    if total != 4 * 1000:
        sys.exit(f"times out of reason are not found where they were received: {total}")
    if clamped(port) - before != 4:
        sys.exit(f"{clamped(port) - before} of 4 are counted as clamped")
    want(heartbeat(port, host="skewed", instance="skewed-000001", time_unix_ms=int(time.time() * 1000) - 7200000), 200)
    host = [h for h in json.loads(call(port, "GET", "/api/v1/hosts")[2]) if h["host"] == "skewed"][0]
    if not 7190000 < host["skew_ms"] < 7210000 or not host["alive"]:
        sys.exit(f"skew: {host}")


def c_queries(port):
    for q in ("from=now&until=now-1h", "from=5&until=5", "from=yesterday", "from=now-1x", "until=-3", "query={a",
              "query=%7Ba%3D~%22(%22%7D", "format=exe", "from=now-1000h&until=now%2B20000h"):
        want(call(port, "GET", "/api/v1/flamegraph?" + q), 400, b'"code":"invalid_argument"')
        if not q.startswith("format"):
            want(call(port, "GET", "/api/v1/series?" + q), 400)
    want(call(port, "GET", "/api/v1/timeline?step=1ns"), 400)
    for stray in ("match=%7B%7D", "to=now", "servce=x", "from=now-1h&from=now-2h"):
        for path in ("flamegraph", "timeline", "series", "services"):
            want(call(port, "GET", f"/api/v1/{path}?{stray}"), 400, b"there is no parameter")
    want(call(port, "GET", "/api/v1/requests/unknown"), 404, b'"code":"not_found"')
    want(call(port, "DELETE", "/api/v1/requests/unknown"), 404)
    want(call(port, "GET", "/api/v1/requests/../../x"), 404)
    want(call(port, "GET", "/api/v1/nothing"), 404)
    want(call(port, "GET", "/push.v1.PusherService/Push"), 405)
    want(call(port, "DELETE", "/"), 405)
    want(call(port, "GET", "/api/v1/flamegraph?service=nobody"), 200, b'"total":0')
    want(call(port, "GET", "/api/v1/flamegraph.svg?service=nobody"), 200, b"no samples")
    s, h, data = call(port, "HEAD", "/api/v1/services")
    if s != 200 or data or int(h["Content-Length"]) < 2:
        sys.exit(f"HEAD: {s} {h} {data!r}")


def c_formats(port):
    want(push(port, "formats", window="formats-1"), 200)
    j = json.loads(call(port, "GET", "/api/v1/flamegraph?service=formats")[2])
    n = len(j["fields"])
    rows = [dict(zip(j["fields"], j["nodes"][i:i + n])) for i in range(0, len(j["nodes"]), n)]
    names = [j["names"][r["name"]] for r in rows]
    if j["total"] != 1000 or j["unit"] != "nanoseconds" or names != ["all", "main", "idle loop;x", "work", "hash"]:
        sys.exit(f"JSON: {j}")
    if [(r["level"], r["offset"], r["total"], r["self"]) for r in rows] != [
            (0, 0, 1000, 0), (1, 0, 1000, 0), (2, 0, 100, 100), (2, 100, 900, 200), (3, 100, 700, 700)]:
        sys.exit(f"JSON nodes: {rows}")
    s, h, svg = call(port, "GET", "/api/v1/flamegraph.svg?service=formats&title=%3Cscript%3E")
    if s != 200 or b"<script>" in svg.split(b"<script><![CDATA[")[0] or "sandbox" not in h["Content-Security-Policy"]:
        sys.exit(f"SVG: {s} {h} {svg[:300]!r}")
    want(call(port, "GET", "/api/v1/flamegraph.svg?service=formats&from=0&until=86399"), 200, b"24 h until 1970-01-01 23:59:59 UTC")
    s, h, raw = call(port, "GET", "/api/v1/flamegraph.pb.gz?service=formats")
    if s != 200 or b"hash" not in gzip.decompress(raw):
        sys.exit(f"pprof: {s} {h}")
    t = json.loads(call(port, "GET", "/api/v1/timeline?service=formats&step=10s")[2])
    if sum(p[1] for p in t["points"]) != 1000:
        sys.exit(f"timeline: {t}")


def c_commands(port):
    want(push(port, "cmd", window="cmd-1", host="cmdhost"), 200)
    beat = lambda acks=(): json.loads(heartbeat(port, host="cmdhost", instance="cmd-instance", acks=acks)[2])
    if beat()["commands"]:
        sys.exit("commands without a request")
    ask = {"services": ["cmd"], "view": "cpu", "frequency_hz": 49, "duration_s": 5, "pids": [1], "comms": ["a b"]}
    dry = call(port, "POST", "/api/v1/requests", json.dumps({**ask, "dry_run": True}), JSON)
    want(dry, 200, b'"host":"cmdhost"')
    if beat()["commands"]:
        sys.exit("a dry run was sent")
    made = json.loads(call(port, "POST", "/api/v1/requests", json.dumps({**ask, "id": "mine"}), JSON)[2])
    again = json.loads(call(port, "POST", "/api/v1/requests", json.dumps({**ask, "id": "mine"}), JSON)[2])
    if made["state"] != "pending" or again["commands"][0]["id"] != made["commands"][0]["id"]:
        sys.exit(f"made {made}, again {again}")
    (c,) = beat()["commands"]
    if (c["kind"], c["frequency_hz"], c["duration_s"], c["pids"], c["comms"]) != ("start", 49, 5, [1], ["a b"]):
        sys.exit(f"command: {c}")
    if beat()["commands"]:
        sys.exit("a leased command was sent twice")
    show = lambda: json.loads(call(port, "GET", "/api/v1/requests/mine")[2])
    if show()["state"] != "sent":
        sys.exit(f"sending moved the state to {show()['state']}")
    for state in ("running", "failed"):
        beat([{"id": c["id"], "state": state, "text": "why <b>"}])
        if show()["state"] != state or show()["commands"][0]["text"] != "why <b>":
            sys.exit(f"after {state}: {show()}")
    two = json.loads(call(port, "POST", "/api/v1/requests", json.dumps({"hosts": ["cmdhost"]}), JSON)[2])
    (c,) = beat()["commands"]
    want(call(port, "DELETE", "/api/v1/requests/" + two["id"]), 200, b'"state":"cancelled"')
    (stop,) = beat()["commands"]
    if (stop["kind"], stop["target"]) != ("stop", c["id"]):
        sys.exit(f"stop: {stop}")
    want(heartbeat(port, host="cmdhost2", instance="cmd-instance2"), 200)
    for bad in ({"hosts": []}, {"hosts": ["cmdhost"], "frequency_hz": 10**6}, {"hosts": "x"}, {"match": "{x=\"1\"}"},
                {"hosts": ["cmdhost"], "view": "../x"}, {"match": "{}", "max_hosts": 1}):
        want(call(port, "POST", "/api/v1/requests", json.dumps(bad), JSON), 400)
    want(call(port, "POST", "/api/v1/requests", json.dumps({"hosts": ["nobody"]}), JSON), 404, b"no host matches")


def c_hosts(port, wanted):
    """The wanted version reaches agents and the list; pages of the list are the list."""
    for i in range(7):
        answer = json.loads(heartbeat(port, host=f"page-{i % 3}", instance=f"page-instance-{i}")[2])
        if answer["wanted_version"] != wanted:
            sys.exit(f"wanted_version: {answer}")
    whole = json.loads(call(port, "GET", "/api/v1/hosts")[2])
    if any(h["wanted_version"] != wanted for h in whole):
        sys.exit(f"hosts: {whole}")
    paged = []
    while True:
        after = "&after=" + paged[-1]["instance"] if paged else ""
        page = json.loads(call(port, "GET", "/api/v1/hosts?limit=3" + after)[2])
        if len(page) > 3:
            sys.exit(f"a page of {len(page)}")
        paged += page
        if len(page) < 3:
            break
    if [h["instance"] for h in paged] != [h["instance"] for h in whole] or len(whole) < 7:
        sys.exit(f"{[h['instance'] for h in paged]} is not {[h['instance'] for h in whole]}")
    want(call(port, "GET", "/api/v1/hosts?limit=x"), 400)


def c_crowd(port, seconds):
    """Ten that push and ten that read, for so long; nothing but 200 and 429 comes back, and every push is there."""
    until, wrong, pushed = time.monotonic() + float(seconds), [], [0] * 10

    def writer(i):
        while time.monotonic() < until and not wrong:
            status, _, data = push(port, "crowd", window=f"crowd-{i}-{pushed[i]}", stacks={("main", f"w{i}"): 1})
            if status == 200:
                pushed[i] += 1
            elif status != 429:
                wrong.append((status, data))

    def reader(i):
        paths = ("flamegraph?service=crowd", "timeline?service=crowd", "series", "services", "hosts", "requests",
                 "flamegraph.svg?service=crowd")
        while time.monotonic() < until and not wrong:
            heartbeat(port, host=f"crowd-{i}", instance=f"crowd-instance-{i}")
            for path in paths:
                status, _, data = call(port, "GET", "/api/v1/" + path)
                if status not in (200, 429):
                    wrong.append((status, path, data[:200]))
    threads = [threading.Thread(target=f, args=(i,)) for f in (writer, reader) for i in range(10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if wrong:
        sys.exit(f"{wrong[0]}")
    got = dict(line.rsplit(" ", 1) for line in folded(port, "service=crowd").splitlines())
    for i, n in enumerate(pushed):
        if n and got.get(f"main;w{i}") != str(n):
            sys.exit(f"writer {i} pushed {n}, the graph has {got.get(f'main;w{i}')}")
    print(f"{sum(pushed)} pushes")


def c_idle(port, count):
    socks = []
    for _ in range(int(count)):
        s = socket.create_connection(("127.0.0.1", int(port)))
        socks.append(s)
    start = time.monotonic()
    want(push(port, "idle", window="idle-1"), 200)
    took = time.monotonic() - start
    if took > 2:
        sys.exit(f"a push took {took:.1f} s beside idle connections")
    print(f"{took * 1000:.0f} ms")


def c_slow(port, count):
    """`count` peers in the middle of a request, half of them in its headers, while a push and a heartbeat go through."""
    socks = []
    for i in range(int(count)):
        s = socket.create_connection(("127.0.0.1", int(port)))
        head = b"POST /push.v1.PusherService/Push HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/proto\r\n"
        s.sendall(head if i % 2 else head + b"Content-Length: 1000000\r\n\r\nx")
        socks.append(s)
    for s in socks: # they are alive, only slow
        s.sendall(b"x")
    start = time.monotonic()
    want(push(port, "slow", window="slow-1"), 200)
    want(heartbeat(port, host="slow", instance="slow-000001"), 200)
    took = time.monotonic() - start
    if took > 2:
        sys.exit(f"a push and a heartbeat took {took:.1f} s beside slow connections")
    if folded(port, "service=slow").count("\n") != len(STACKS):
        sys.exit("the push is not there")


def c_loris(port, seconds):
    """Slow headers, a slow body, an idle connection: closed at the idle timeout, of `seconds`, give or take."""
    head = b"POST /push.v1.PusherService/Push HTTP/1.1\r\nHost: localhost\r\n"
    slow = {"headers": head, "body": head + b"Content-Type: application/proto\r\nContent-Length: 100000\r\n\r\n",
            "idle": b""}
    limit = float(seconds) + 3
    left = {}
    for name, first in slow.items():
        s = socket.create_connection(("127.0.0.1", int(port)))
        s.sendall(first)
        s.settimeout(0.2)
        left[name] = s
    start = time.monotonic()
    while left and time.monotonic() - start < limit:
        for name, s in list(left.items()):
            try:
                if name != "idle":
                    s.sendall(b"X")
                if s.recv(1000) == b"":
                    del left[name]
            except TimeoutError:
                pass
            except OSError:
                del left[name]
    if left:
        sys.exit(f"still open after {limit} s: {', '.join(left)}")


def c_auth(port):
    for path in ("/api/v1/hosts", "/api/v1/flamegraph", "/metrics", "/api/v1/requests/x"):
        want(call(port, "GET", path), int(os.environ.get("WANT", "401")))
    want(push(port), int(os.environ.get("WANT_PUSH", "401")))
    want(call(port, "GET", "/healthz"), 200)
    want(call(port, "GET", "/"), 200, b"<title>Flamelab")


def c_sites(port):
    want(call(port, "GET", "/api/v1/hosts", None, {"Sec-Fetch-Site": "cross-site"}), 403)
    want(call(port, "GET", "/api/v1/hosts", None, {"Host": "evil.example:4040"}), 403)
    want(call(port, "POST", "/api/v1/requests", '{"match":"{}"}', {"Content-Type": "text/plain"}), 415)


def c_many(port, count, first):
    """Pushes with ids until the server goes away; prints the ids that were acknowledged."""
    for i in range(int(first), int(first) + int(count)):
        try:
            if push(port, "many", window=f"many-{i}", stacks={("main", f"f{i}"): 1})[0] == 200:
                print(f"many-{i}", flush=True)
        except (OSError, http.client.HTTPException):
            return


def c_flat(port, pid):
    def round_():
        for i in range(100):
            want(push(port, "flat", window=f"flat-{i % 10}"), 200)
            call(port, "POST", "/push.v1.PusherService/Push", b"\xff" * 10000, PROTO)
            heartbeat(port, host="flat", instance="flat-instance")
            call(port, "GET", "/api/v1/flamegraph?service=flat")
    round_()
    before = rss_kb(pid)
    for _ in range(3):
        round_()
    grown = rss_kb(pid) - before
    print(f"{grown} kB")
    if grown > 4096:
        sys.exit(f"memory grew by {grown} kB over 300 rounds")


if __name__ == "__main__":
    globals()["c_" + sys.argv[1]](*sys.argv[2:])
