"""A server on this machine that stands in for those of MNIST."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import struct
import threading
import time
from typing import Any


def idx_files(train: int, test: int) -> dict[str, bytes]:
    """Make the four files of a tiny MNIST; pixel values tell train and test apart."""
    files = {}
    for part, count, value in (("train", train, 1), ("t10k", test, 2)):
        images = struct.pack(">IIII", 0x803, count, 28, 28) + bytes([value]) * (784 * count)
        files[f"{part}-images-idx3-ubyte"] = images
        files[f"{part}-labels-idx1-ubyte"] = struct.pack(">II", 0x801, count) + bytes(count)
    return files


class Mirror:
    """A server on this machine that has a tiny "full" MNIST: 40 and 10 images."""

    counts = (40, 10)

    def __init__(self) -> None:
        self.packed = {f"{n}.gz": gzip.compress(c, mtime=0) for n, c in idx_files(40, 10).items()}
        self.resources = [(n, hashlib.md5(c).hexdigest()) for n, c in self.packed.items()]
        self.requests: list[str] = []  # "GET /name", in the order of their arrival
        self.delay = 0.0
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                mirror.requests.append(f"{self.command} {self.path}")
                content = mirror.packed.get(self.path[1:])
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                if self.command == "GET" and content is not None:
                    time.sleep(mirror.delay)
                    self.wfile.write(content)

            do_GET = do_HEAD = answer

            def log_message(self, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def gets(self) -> list[str]:
        return sorted(r.split("/")[1] for r in self.requests if r.startswith("GET"))

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
