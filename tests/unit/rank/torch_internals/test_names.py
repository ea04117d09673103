"""Each private name of torch that is gone is told, with the feature that it takes along."""

from __future__ import annotations

import time
from importlib.metadata import version
from types import FunctionType
from typing import Any

import pytest
import torch
from torch.torch_version import TorchVersion

from labkit.rank.torch_internals import frames, names, recorder

EVERY = sorted(
    name
    for name in {name for feature in names.FEATURES.values() for name in feature.names}
    if torch.__version__ >= names.SINCE.get(name, "0")  # compares as versions do
)


@pytest.fixture(autouse=True)
def afresh(monkeypatch):
    """Let each test look at torch as it is then, and with the recorder on."""
    monkeypatch.delenv(recorder.SIZE, raising=False)
    names._missing.cache_clear()
    yield
    monkeypatch.undo()
    names._missing.cache_clear()


def hide(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Change torch so that a name of ``FEATURES`` is gone, whatever kind of name it is."""
    if ": " in name:
        gone = name.rpartition(": ")[2]
        original_defined = names.is_defined
        monkeypatch.setattr(
            names, "is_defined", lambda own, *where: own != gone and original_defined(own, *where)
        )
    elif name.startswith("torch/"):
        part = name.removeprefix("torch/")
        original = names.os.path.exists
        gone = frames.path(part)
        monkeypatch.setattr(names.os.path, "exists", lambda path: path != gone and original(path))
    elif name == names.METHODS:
        replace_code(monkeypatch, "gather", co_names=lambda names: ("renamed",) * len(names))
    else:
        owner, attribute = name.split(".", 1)
        path = f"{names._OWNERS[owner]}.{attribute}"
        above, _, last = path.rpartition(".")
        found = names.find(above)
        if names.find(path) is None:  # set on objects only, by __init__
            monkeypatch.setattr(found, "__init__", lambda self: None)
        elif owner == "_c10d_functional":  # torch.ops makes what is not there
            monkeypatch.setattr(found, last, None)
        elif isinstance(found, type):
            monkeypatch.delattr(next(c for c in found.__mro__ if last in vars(c)), last)
        elif last in vars(found):
            monkeypatch.delattr(found, last)
        else:  # of an object: its class has it
            monkeypatch.delattr(type(found), last)


def replace_code(monkeypatch: pytest.MonkeyPatch, function: str, **changes: Any) -> None:
    """Put a function with another code in the place of one of torch.distributed; never called."""
    code = names._code(function)
    assert code is not None
    changed = {name: change(getattr(code, name)) for name, change in changes.items()}
    twin = FunctionType(code.replace(**changed), {})
    monkeypatch.setattr(f"torch.distributed.distributed_c10d.{function}", twin)


def test_this_torch_has_them_all():
    assert names.check() == []
    assert all(map(names.is_on, names.FEATURES))


def test_this_torch_has_the_public_files_and_functions_too():
    parts = (*frames.BLIND, *frames.MEETINGS)
    assert all(names.os.path.exists(frames.path(part)) for part in parts)
    assert all(map(names.has_method, names.COUNTED))
    makers = [names._code(maker).co_varnames for maker in frames.MAKERS[:2]]
    assert {frames.SIZE, frames.RANK, frames.METHOD, frames.LIMIT} <= set(makers[0])
    assert frames.ALONE in makers[1]


@pytest.mark.parametrize("name", EVERY)
def test_a_name_that_is_gone_turns_its_features_off_and_no_others(monkeypatch, name):
    hide(monkeypatch, name)
    missing = {one.feature: one for one in names.check()}
    # a method takes along what ends in it
    along = {n for n in EVERY if name.rpartition(".")[2] in n.split()[-1]}
    along |= {names.METHODS} if name.startswith("ProcessGroup.") else set()
    own = {key for key, feature in names.FEATURES.items() if name in feature.names}
    for key in own:
        assert name in missing[key].names
        assert set(missing[key].names) <= along | {name}
        sentence = str(missing[key])
        assert sentence.startswith(f"torch {version('torch')} hides ")
        assert sentence.endswith(f": {names.FEATURES[key].loss}.")
    assert all(set(missing[key].names) <= along for key in missing.keys() - own)
    off = set(missing) | (set(names.DEADLOCKS) if "deadlocks" in missing else set())
    assert {key for key in names.FEATURES if not names.is_on(key)} == off


def test_what_an_older_torch_never_had_is_not_told(monkeypatch):
    hide(monkeypatch, "Work._get_sequence_number")
    monkeypatch.setattr(names.torch, "__version__", TorchVersion("2.11.0+cpu"))
    assert names.check() == []


@pytest.mark.parametrize(
    ("value", "off"), [("0", True), ("00", True), ("128", False), ("10", False), ("", False)]
)
def test_a_recorder_that_the_user_switched_off_is_told(monkeypatch, value, off):
    monkeypatch.setenv(recorder.SIZE, value)
    sentence = (
        f"TORCH_FR_BUFFER_SIZE={value} switches off torch's flight recorder: "
        "deadlocks in collectives are not named."
    )
    assert list(map(str, names.check())) == ([sentence] if off else [])


def test_a_look_at_all_of_them_takes_no_time():
    times = []
    for _ in range(5):
        names._missing.cache_clear()
        begin = time.thread_time()
        names.check()
        times.append(time.thread_time() - begin)
    assert min(times) < 0.002
