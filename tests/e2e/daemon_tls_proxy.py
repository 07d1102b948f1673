#!/usr/bin/env python3
"""daemon_tls_proxy.py DIR ok|refuse - an HTTP proxy on loopback, for daemon_tls.sh: CONNECT tunnels and POST
with an absolute URL. Writes its port to DIR/proxy.port and each request line to DIR/proxy.seen. With "refuse" every
request gets 403.
"""
import os
import socket
import sys
import threading
from urllib.parse import urlsplit

DIR, MODE = sys.argv[1:3]


def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(peer):
    head = b""
    while b"\r\n\r\n" not in head:
        more = peer.recv(65536)
        if not more:
            return peer.close()
        head += more
    line, rest = head.split(b"\r\n", 1)
    with open(os.path.join(DIR, "proxy.seen"), "ab") as f:
        f.write(line + b"\n")
    method, target, version = line.split(b" ")
    if MODE == "refuse":
        peer.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        return peer.close()
    if method == b"CONNECT":
        host, port = target.decode().rsplit(":", 1)
        server = socket.create_connection((host, int(port)))
        peer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        url = urlsplit(target.decode())
        server = socket.create_connection((url.hostname, url.port))
        server.sendall(b" ".join((method, url.path.encode(), version)) + b"\r\n" + rest)
    threading.Thread(target=pump, args=(peer, server), daemon=True).start()
    pump(server, peer)
    return server.close()


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    with open(os.path.join(DIR, "proxy.new"), "w", encoding="ascii") as f:
        f.write("%d\n" % listener.getsockname()[1])
    os.rename(os.path.join(DIR, "proxy.new"), os.path.join(DIR, "proxy.port"))
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


main()
