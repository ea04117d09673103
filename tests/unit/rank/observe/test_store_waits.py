"""A wait for a key of a store is recognised, with its keys and its time limit."""

from __future__ import annotations

import socket
import sys
import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from labkit.rank.observe import store_waits
from labkit.rank.torch_internals import groups


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    """Replace torch's methods for a test, and put them back."""
    for name in ("get", "wait"):
        monkeypatch.setattr(dist.Store, name, getattr(dist.Store, name))
    monkeypatch.setattr(dist.TCPStore, "__init__", dist.TCPStore.__init__)
    monkeypatch.setattr(store_waits, "original", {})
    store_waits.install()


class Asking:
    """A thread that waits for keys of a store; ``frame`` is where it stands."""

    def __init__(self, wait, store, key):
        self.store, self.key, self.came = store, key, []
        self.thread = threading.Thread(target=lambda: self.came.append(wait()))

    def __enter__(self):
        self.thread.start()
        for _ in range(500):
            frame = sys._current_frames().get(self.thread.ident)
            while frame is not None and not store_waits.is_wait(frame):
                frame = frame.f_back
            if frame is not None:
                self.frame = frame
                return self
            self.thread.join(0.01)
        raise AssertionError("it does not wait")

    def __exit__(self, *error):
        self.store.set(self.key, "x")
        self.thread.join(5)
        assert self.came


def test_a_get_waits_for_one_key_as_long_as_the_store_does():
    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=90))
    with Asking(lambda: store.get("a"), store, "a") as asking:
        assert store_waits.keys_of(asking.frame) == ("a",)
        assert store_waits.limit_of(asking.frame) == timedelta(seconds=90)
    assert asking.came == [b"x"]


def test_a_wait_has_several_keys_and_a_limit_of_its_own():
    store = dist.HashStore()
    store.set("a", "x")
    limit = timedelta(seconds=70)

    def wait():
        store.wait(["a", "b"], limit)
        return True

    with Asking(wait, store, "b") as asking:
        assert store_waits.keys_of(asking.frame) == ("a", "b")
        assert store_waits.limit_of(asking.frame) == limit


def test_a_store_that_does_not_tell_its_limit_has_none_that_is_known(monkeypatch):
    store = dist.HashStore()
    with Asking(lambda: store.get("a"), store, "a") as asking:
        monkeypatch.setattr(groups, "store_limit", lambda store: None)
        assert store_waits.limit_of(asking.frame) is None


def test_it_is_installed_once():
    """A second time would call itself forever."""
    before = dict(store_waits.original)
    store_waits.install()
    assert store_waits.original == before
    store = dist.HashStore()
    store.set("a", "x")
    assert store.get("a") == b"x"


def test_a_server_waits_for_its_clients_as_long_as_it_is_told():
    limit = timedelta(seconds=70)
    made, port = [], []

    def serve():
        made.append(dist.TCPStore("127.0.0.1", port[0], 2, True, limit))

    with socket.create_server(("127.0.0.1", 0)) as free:
        port.append(free.getsockname()[1])
    thread = threading.Thread(target=serve)
    thread.start()
    for _ in range(500):
        frame = sys._current_frames().get(thread.ident)
        if frame is not None and store_waits.is_wait(frame):
            break
        thread.join(0.01)
    assert frame is not None
    assert store_waits.opens(frame)
    assert store_waits.limit_of(frame) == limit
    client = dist.TCPStore("127.0.0.1", port[0], 2, False)
    thread.join(5)
    client.set("key", "value")
    assert made[0].get("key") == b"value"


def test_a_store_without_a_limit_waits_for_what_torch_says(monkeypatch):
    frames = []
    monkeypatch.setitem(
        store_waits.original, "open", lambda *given: frames.append(sys._getframe(1))
    )
    store_waits.TCPStore.__init__(None, "127.0.0.1", 0)
    (frame,) = frames
    monkeypatch.undo()
    own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert store_waits.limit_of(frame) == own.timeout
