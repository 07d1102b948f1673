#!/usr/bin/env python3
"""What containers.sh needs of CRI: images made of one static program, and calls by curl's HTTP/2.

    containers_cri.py image NAME PROGRAM FILE.tar   a docker-archive whose entry point is PROGRAM
    containers_cri.py run SOCKET IMAGE NAME HASH    a pod on the host's network with one container; prints both ids
    containers_cri.py remove SOCKET POD
    containers_cri.py answers DIR ID POD            the bytes of ListPodSandbox.grpc and ListContainers.grpc of one container
"""
import hashlib, io, json, os, struct, subprocess, sys, tarfile


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def pair(key, value):
    return field(1, key) + field(2, value)


def message(b):
    return b"\0" + struct.pack(">I", len(b)) + b


def texts(b):
    """The length-delimited fields of a message, by number."""
    at, found = 0, {}
    while at < len(b):
        tag, size = b[at], b[at + 1]  # ids are short
        found[tag >> 3] = b[at + 2:at + 2 + size]
        at += 2 + size
    return found


def call(socket, method, body):
    r = subprocess.run(["curl", "-sS", "--max-time", "60", "--http2-prior-knowledge", "--unix-socket", socket,
                        "-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary", "@-",
                        "-D", "/dev/stderr", "http://localhost/runtime.v1.RuntimeService/" + method],
                       input=message(body), capture_output=True)
    head = r.stderr.decode(errors="replace")
    assert r.returncode == 0 and "grpc-status: 0" in head, (method, head)
    return texts(r.stdout[5:])


def tar_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, data, mode in files:
            i = tarfile.TarInfo(name)
            i.size, i.mode = len(data), mode
            t.addfile(i, io.BytesIO(data))
    return out.getvalue()


def image(name, program, to):
    layer = tar_of([("program", open(program, "rb").read(), 0o755)])
    config = json.dumps({"architecture": "amd64" if os.uname().machine == "x86_64" else "arm64", "os": "linux",
                         "config": {"Entrypoint": ["/program", "--chunks", "1000000"]},
                         "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    open(to, "wb").write(tar_of([("config.json", config, 0o644), ("layer.tar", layer, 0o644),
                                 ("manifest.json", manifest, 0o644)]))


def run(socket, img, name, pod_hash):
    on_host = field(1, field(1, 2))  # NamespaceOption.network NODE
    config = (field(1, field(1, name) + field(2, "uid-" + name) + field(3, "prod")) + field(3, "/tmp") +
              field(6, pair("pod-template-hash", pod_hash)) + field(8, field(2, on_host)))
    pod = call(socket, "RunPodSandbox", field(1, config))[1].decode()
    container = field(1, field(1, "main")) + field(2, field(1, img))
    made = call(socket, "CreateContainer", field(1, pod) + field(2, container) + field(3, config))[1].decode()
    call(socket, "StartContainer", field(1, made))
    print(pod, made)


def remove(socket, pod):
    call(socket, "StopPodSandbox", field(1, pod))
    call(socket, "RemovePodSandbox", field(1, pod))


def answers(to, container, pod):
    p = (field(1, pod) + field(2, field(1, "web-5d4f8c7b9f-x2x4z") + field(2, "uid") + field(3, "prod")) +
         field(5, pair("pod-template-hash", "5d4f8c7b9f")))
    c = field(1, container) + field(2, pod) + field(3, field(1, "main")) + field(4, field(1, "shop/web:7"))
    open(os.path.join(to, "ListPodSandbox.grpc"), "wb").write(message(field(1, p)))
    open(os.path.join(to, "ListContainers.grpc"), "wb").write(message(field(1, c)))


if __name__ == "__main__":
    {"image": image, "run": run, "remove": remove, "answers": answers}[sys.argv[1]](*sys.argv[2:])
