"""What waits in a ``FileStore`` is freed, and its file is as it was."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from labkit.rank import file_stores

HOUR = timedelta(hours=1)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(dist.FileStore, "__init__", dist.FileStore.__init__)
    monkeypatch.setattr(file_stores, "_stock", None)
    monkeypatch.setattr(file_stores, "paths", set())
    file_stores.install()
    made = dist.FileStore(str(tmp_path / "store"), 2)
    made.set("here", "1")
    return made


def waiting(store):
    """Return threads that wait for a key of a store each, and what they raise."""
    errors = []

    def wait():
        try:
            store.wait(["never"], HOUR)
        except dist.DistStoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    return threads, errors


def ended():
    """Wait for the threads that free; tell whether there was one."""
    own = [t for t in threading.enumerate() if t.name == "labkit store"]
    for thread in own:
        thread.join(10)
    return bool(own)


def test_a_wait_raises_and_the_file_is_back(store, tmp_path):
    threads, errors = waiting(store)
    assert file_stores.free(lambda: not any(t.is_alive() for t in threads)) == 1
    for thread in threads:
        thread.join(10)
    assert len(errors) == 2
    assert ended()
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert store.get("here") == b"1"
    store.set("after", "2")
    assert dist.FileStore(str(tmp_path / "store"), 2).get("after") == b"2"


def test_ranks_that_free_at_once_leave_one_file(store, tmp_path):
    threads, errors = waiting(store)
    for _ in range(4):
        file_stores.free(lambda: not any(t.is_alive() for t in threads))
    assert ended()
    assert len(errors) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert store.get("here") == b"1"


def test_a_rank_that_goes_on_loses_nothing(store, tmp_path):
    threads, errors = waiting(store)
    assert file_stores.free(lambda: True) == 1
    ended()
    assert not errors
    store.set("never", "1")
    for thread in threads:
        thread.join(10)


def test_a_file_that_is_gone_is_not_waited_for(store, tmp_path):
    (tmp_path / "store").unlink()
    assert file_stores.free(lambda: False) == 0
    assert not ended()
