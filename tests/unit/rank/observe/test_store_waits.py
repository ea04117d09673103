"""A wait for a key of a store is recognised, with its keys and its time limit."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from labkit.rank.observe import store_waits
from labkit.rank.torch_internals import stores


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    """Replace torch's methods for a test, and put them back."""
    for name in ("get", "wait"):
        monkeypatch.setattr(stores.Store, name, getattr(stores.Store, name))
    monkeypatch.setattr(store_waits, "stock", {})
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
        monkeypatch.setattr(stores, "limit", lambda store: None)
        assert store_waits.limit_of(asking.frame) is None


def test_it_is_installed_once():
    """A second time would call itself for ever."""
    before = dict(store_waits.stock)
    store_waits.install()
    assert store_waits.stock == before
    store = dist.HashStore()
    store.set("a", "x")
    assert store.get("a") == b"x"
