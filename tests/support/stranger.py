"""Be another user of this host, who tries every port that a lab listens at.

stranger.py USER

Becomes USER (a number), tries until its input ends, and writes what it got as JSON: one sentence
for everything that a stranger must not have, and how often it tried. torch is imported before it
gives its rights away, since the libraries may be where another user does not get.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  socket would import it too late
import json
import os
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import torch.distributed as dist

#: Seconds in which a connection that nobody wants is closed, on a busy machine.
PATIENCE = 10.0
#: Numbers that gloo gives to connections: small ones.
NUMBERS = range(12)

found: set[str] = set()
counts = {"connections": 0, "refused": 0, "stores": 0}
over = threading.Event()


def ports() -> list[tuple[str, int]]:
    """List where anybody listens."""
    listening = set()
    for name, host in (("tcp", "127.0.0.1"), ("tcp6", "::1")):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/net/{name}") as lines:
            next(lines)
            for row in map(str.split, lines):
                if row[3] == "0A":
                    listening.add((host, int(row[1].rpartition(":")[2], 16)))
    return random.sample(sorted(listening), len(listening))


def abstract() -> list[str]:
    """List the sockets of Unix that have no file, which no folder protects."""
    with open("/proc/net/unix") as lines:
        names = {row[7] for row in map(str.split, lines) if len(row) > 7}
    return ["\0" + name[1:] for name in names if name.startswith("@")]


def connections() -> Iterator[tuple[str, socket.socket]]:
    """Connect to everything that is there."""
    for address in ports():
        with contextlib.suppress(OSError):
            yield str(address[1]), socket.create_connection(address, timeout=PATIENCE)
    for name in abstract():
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(PATIENCE)
        with contextlib.suppress(OSError):
            line.connect(name)
            yield repr(name), line


def knock(words: Callable[[], bytes]) -> None:
    """Connect, say something, and wait for an answer or for the end."""
    for name, line in connections():
        counts["connections"] += 1
        with line:
            try:
                said = words()
                if said:
                    line.sendall(said)
                if answer := line.recv(100):
                    found.add(f"{name} answered {answer!r} to {said[:20]!r}")
            except TimeoutError:
                found.add(f"{name} kept a connection that said {said[:20]!r}")
                continue
            except OSError:
                pass
            counts["refused"] += 1
        if over.is_set():
            return


def number() -> bytes:
    """Return what a rank of gloo says first."""
    return struct.pack("=Q", random.choice(NUMBERS)) + random.randbytes(random.choice([0, 64]))


def store() -> None:
    """Take part in a store: read, write, delete."""
    for host, port in ports():
        counts["stores"] += 1
        with contextlib.suppress(Exception):
            limit = timedelta(seconds=1)
            line = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)
            found.add(f"{port} has let me into the store: {line.num_keys()} keys")
            line.set("labkit/default_pg/0//0//0", "mine")
            line.delete_key("init/")


WAYS = (
    lambda: knock(lambda: b""),
    lambda: knock(lambda: random.randbytes(200)),
    lambda: knock(number),
    lambda: knock(number),
    store,
)


def main(user: int) -> None:
    """Try until the input ends."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    print("ready", flush=True)
    threads = [threading.Thread(target=_again, args=(way,), daemon=True) for way in WAYS]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join(2 * PATIENCE)
    print(json.dumps({"found": sorted(found), **counts}), flush=True)
    os._exit(0)


def _again(way: Callable[[], None]) -> None:
    while not over.is_set():
        way()
        time.sleep(0.001)


if __name__ == "__main__":
    main(int(sys.argv[1]))
