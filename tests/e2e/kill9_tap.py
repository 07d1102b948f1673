#!/usr/bin/env python3
"""What went over the wire while kill9.sh killed both ends, and whether the store agrees. It outlives them.

kill9_tap.py serve DIR BACKEND_PORT   forwards HTTP from DIR/tap.port to the backend. Before a push's 200 goes back
                                      to the agent, the ids of its windows are written to DIR/acked; those of every
                                      push that came to DIR/seen. With the backend down it closes the connection.
kill9_tap.py judge DIR DATA           DATA has each acknowledged window exactly once, and each that was ever sent.
"""
import glob
import http.client
import http.server
import os
import sqlite3
import sys

from daemon_judge import fields


def ids(push):
    out = []
    for _, series in fields(push):
        out += [dict(fields(v))[2].decode() for k, v in fields(series) if k == 2]
    return out


def append(directory, name, words):
    with open(os.path.join(directory, name), "a", encoding="ascii") as f:
        f.write("".join(w + "\n" for w in words))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        push = ids(body) if self.path == "/push.v1.PusherService/Push" else []
        append(sys.argv[2], "seen", push)
        try:
            c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[3]), timeout=60)
            c.request("POST", self.path, body, {"Content-Type": self.headers["Content-Type"]})
            r = c.getresponse()
            reply = r.read()
            c.close()
        except (OSError, http.client.HTTPException):
            self.close_connection = True
            return
        if r.status == 200:
            append(sys.argv[2], "acked", push)
        try:
            self.send_response(r.status)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)
        except OSError:
            self.close_connection = True


def serve(directory):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with open(os.path.join(directory, "tap.new"), "w", encoding="ascii") as f:
        f.write("%d\n" % server.server_address[1])
    os.rename(os.path.join(directory, "tap.new"), os.path.join(directory, "tap.port"))
    server.serve_forever()


def read(directory, name):
    with open(os.path.join(directory, name), encoding="ascii") as f:
        return set(f.read().split())


def judge(directory, data):
    windows, profiles = [], 0
    for path in sorted(glob.glob(os.path.join(data, "data", "*.db"))):
        db = sqlite3.connect("file:%s?mode=ro" % path, uri=True)
        windows += db.execute("SELECT labels, id FROM window").fetchall()
        profiles += db.execute("SELECT count(*) FROM profile").fetchone()[0]
        db.close()
    stored = [i for _, i in windows]
    acked, seen = read(directory, "acked"), read(directory, "seen")
    if len(set(windows)) != len(windows) or len(set(stored)) != len(stored) or profiles != len(windows):
        sys.exit("%d windows, %d of them different, %d profiles" % (len(windows), len(set(stored)), profiles))
    for name, wanted in (("acknowledged", acked), ("sent", seen)):
        missing = wanted - set(stored)
        if missing:
            sys.exit("%d of %d windows that were %s are missing: %s" % (len(missing), len(wanted), name, sorted(missing)[:3]))
    if len(acked) < 10:
        sys.exit("only %d windows were acknowledged, which proves nothing" % len(acked))
    print("%d windows acknowledged, %d stored, once each" % (len(acked), len(stored)))


if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    judge(sys.argv[2], sys.argv[3])
