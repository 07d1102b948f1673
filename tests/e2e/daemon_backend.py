#!/usr/bin/env python3
"""daemon_backend.py DIR [PORT [PEM]] - a backend that does what DIR/mode says, for daemon.sh; with PEM (key and
certificate) over TLS.

DIR/mode is one word, read at each request: ok, 500, 429 (Retry-After: 1), 400, cut (takes the push, then closes the
connection in the middle of the answer). DIR/commands.json is the list of commands given to every heartbeat, whatever
was acknowledged: an agent must bear that. Writes DIR/port, DIR/heartbeats (one JSON a line), DIR/acks ("id state
text" a line) and DIR/push/NNNN.STATUS with each body as it came; heartbeats always work unless DIR/mode is 500.
"""
import http.server
import json
import os
import ssl
import sys
import time

DIR = sys.argv[1]


def mode():
    try:
        with open(os.path.join(DIR, "mode")) as f:
            return f.read().strip()
    except FileNotFoundError:
        return "ok"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for k, v in headers.items():
            self.send_header(k.replace("_", "-"), v)
        self.end_headers()
        self.wfile.write(body)

    def heartbeat(self, body):
        beat = json.loads(body)
        with open(os.path.join(DIR, "heartbeats"), "a") as f:
            f.write(json.dumps(beat) + "\n")
        with open(os.path.join(DIR, "acks"), "a") as f:
            for a in beat["acks"]:
                f.write("%s %s %s\n" % (a["id"], a["state"], a["text"]))
        try:
            with open(os.path.join(DIR, "commands.json")) as f:
                commands = json.load(f)
        except FileNotFoundError:
            commands = []
        reply = {"schema": "flame-heartbeat-reply/1", "time_unix_ms": int(time.time() * 1000), "wanted_version": "", "commands": commands}
        self.answer(200, json.dumps(reply).encode())

    def push(self, body, how):
        status = {"ok": 200, "cut": 200}.get(how) or int(how)
        push = os.path.join(DIR, "push")
        name = "%04d.%s" % (len(os.listdir(push)), how)
        with open(os.path.join(push, "." + name), "wb") as f:
            f.write(body)
        os.rename(os.path.join(push, "." + name), os.path.join(push, name))
        if how == "cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            self.close_connection = True
        elif how == "429":
            self.answer(429, b"slow down\n", Retry_After="1")
        else:
            self.answer(status, b"because the test says so\n" if status != 200 else b"{}")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        how = mode()
        if self.path == "/push.v1.PusherService/Push":
            self.push(body, how)
        elif self.path != "/api/v1/heartbeat":
            self.answer(404)
        elif how == "500":
            self.answer(500, b"because the test says so\n")
        else:
            self.heartbeat(body)


def main():
    os.makedirs(os.path.join(DIR, "push"), exist_ok=True)
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    http.server.ThreadingHTTPServer.allow_reuse_address = True
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if len(sys.argv) > 3:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[3])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with open(os.path.join(DIR, "port.new"), "w") as f:
        f.write("%d\n" % server.server_address[1])
    os.rename(os.path.join(DIR, "port.new"), os.path.join(DIR, "port"))
    server.serve_forever()


main()
