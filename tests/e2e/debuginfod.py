#!/usr/bin/env python3
"""debuginfod.py: servers of debug files for debuginfod.sh, and how many times they were asked.

DIR: one server for all cases; the first part of the path says how it behaves. Writes DIR/port; appends the path of
each request to DIR/calls.
    /good/buildid/ID/debuginfo      sends DIR/ID
    /other/...                      sends DIR/other
    /none/...                       404
    /hang/...                       answers nothing
    /endless/...                    sends bytes for ever
    /hops/N/...                     redirects N times, then to /good
    /file/...                       redirects to file://
"""
import http.server
import os
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    top = "."

    def log_message(self, *args):
        pass

    def note(self):
        with open(os.path.join(self.top, "calls"), "a", encoding="utf-8") as f:
            f.write(self.path + "\n")

    def send(self, name):
        with open(os.path.join(self.top, os.path.basename(name)), "rb") as f:
            data = f.read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def redirect(self, where):
        self.send_response(302)
        self.send_header("Location", where)
        self.end_headers()

    def endless(self):
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(bytes(1 << 16))
        except OSError:
            pass  # it had enough

    def do_GET(self):
        self.note()
        parts = self.path.split("/")[1:]
        how, build_id = parts[0], parts[-2]
        if how == "good":
            self.send(build_id)
        elif how == "other":
            self.send("other")
        elif how == "hang":
            self.connection.recv(1)  # until the client goes
        elif how == "endless":
            self.endless()
        elif how == "hops":
            left = int(parts[1])
            self.redirect(("/hops/%d" % (left - 1) if left > 1 else "/good") + "/buildid/%s/debuginfo" % build_id)
        elif how == "file":
            self.redirect("file://" + os.path.join(os.path.abspath(self.top), build_id))
        else:
            self.send_error(404)


def main():
    top = sys.argv[1]
    Handler.top = top
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with open(os.path.join(top, "port.tmp"), "w", encoding="utf-8") as f:
        f.write(str(server.server_address[1]))
    os.rename(os.path.join(top, "port.tmp"), os.path.join(top, "port"))
    server.serve_forever()


main()
