"""What labkit says when a library hides something, each name in turn."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from labkit import LabError
from labkit.launch import ipyparallel_internals
from labkit.notebook import startup
from labkit.rank import ipython_internals
from labkit.tools.doctor import software
from labkit.wire import state as features
from labkit.wire.encoding import encode
from labkit.wire.state import Feature, Missing, ProcessFacts

FILES = [ipyparallel_internals, ipython_internals]
NAMES = [
    pytest.param(file, library, feature, name, id=name)
    for file in FILES
    for library, found in file.FEATURES.items()
    for feature in found.values()
    for name in feature.names
]


@pytest.fixture
def _fresh() -> Iterator[None]:
    """Let each test look for itself: a process looks once."""
    for file in FILES:
        file.check.cache_clear()
    yield
    for file in FILES:
        file.check.cache_clear()


def rename(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a library's sources be a copy in which one attribute has another name."""
    owner, attribute = name.split(".")
    original = features.folder_of
    if owner == "atexit":
        monkeypatch.delattr(f"{owner}.{attribute}")
        return
    package, file = {**ipyparallel_internals._FILES, **ipython_internals._FILES}[owner]
    source = original(package)
    assert source is not None
    copy = folder / package
    shutil.copytree(
        source, copy, ignore=lambda _, names: [n for n in names if n in ("tests", "__pycache__")]
    )
    text = (source / file).read_text()
    (copy / file).write_text(text.replace(attribute, f"{attribute}_2"))
    monkeypatch.setattr(
        features, "folder_of", lambda asked: copy if asked == package else original(asked)
    )


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("file", FILES)
def test_the_versions_installed_here_hide_nothing(file: ModuleType) -> None:
    assert file.check() == ()


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize(("file", "library", "feature", "name"), NAMES)
def test_a_name_that_is_hidden_is_said_with_what_it_costs(
    file: ModuleType,
    library: str,
    feature: Feature,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rename(name, tmp_path, monkeypatch)
    said = [m for m in file.check() if m.loss == feature.loss]
    assert [m.names for m in said] == [(name,)]
    assert str(said[0]).startswith(f"{library} ")
    assert str(said[0]).endswith(f" hides {name}: {feature.loss}.")


@pytest.mark.usefixtures("_fresh")
def test_a_lab_does_not_start_without_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    startup.check_libraries()
    rename("AsyncResult._children", tmp_path, monkeypatch)
    ipyparallel_internals.check.cache_clear()
    with pytest.raises(LabError, match=r"hides AsyncResult\._children: labkit cannot follow what"):
        startup.check_libraries()


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize(
    ("name", "state"), [("AsyncResult._children", "problem"), ("Client._send", "note")]
)
def test_the_doctor_says_it(
    name: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert software.check_features({}).state == "ok"
    rename(name, tmp_path, monkeypatch)
    ipyparallel_internals.check.cache_clear()
    finding = software.check_features({})
    assert finding.state == state
    assert f"hides {name}: " in finding.text


def test_the_doctor_says_what_a_rank_misses() -> None:
    missing = Missing("IPython 10", ("x",), "y")
    rank = ProcessFacts("a", 1, None, gpus=(), nccl=None, cores=1, missing=(missing,))
    finding = software.check_features({"place": encode(rank)})
    assert (finding.state, finding.text) == ("note", "IPython 10 hides x: y.")


@pytest.mark.parametrize(
    ("source", "defined"),
    [
        ("    def tail(self):\n", True),
        ("    async def tail(self):\n", True),
        ("class tail:\n", True),
        ("class tail(Bird):\n", True),
        ("        self.tail = 1\n", True),
        ("        loop = self.tail = Loop()\n", True),
        ("    tail = Any()\n", True),
        ("    tail: dict[int, str] = {}\n", True),
        ("        tail_2 = 1\n    def tail_2(self):\n", False),
        ("        self.tail()\n", False),
        ("        if self.tail == 1:\n", False),
        ("# the tail = long\n", False),
        ("    def _tail(self):\n", False),
    ],
)
def test_a_definition_is_told_from_a_use(source: str, defined: bool, tmp_path: Path) -> None:
    assert features._defines(source, "tail") is defined


def test_without_sources_nothing_counts_as_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not features.is_defined("tail", "ipyparallel", "client/client.py")
    monkeypatch.setattr(features, "folder_of", lambda package: None)
    assert features.is_defined("tail", "ipyparallel", "client/client.py")


@pytest.mark.parametrize("option", [[], ["-O"], ["-OO"]])
def test_the_magics_are_there_without_docstrings(option: list[str]) -> None:
    code = (
        "from labkit.launch.ipyparallel_internals import mend_magics as go; go(); go()\n"
        "from labkit.notebook.magics import LabMagics\n"
        "import ipyparallel.client.magics as stock, sys\n"
        "print(stock.ParallelMagics in LabMagics.__mro__, sys.modules[stock.__name__] is stock)"
    )
    command = [sys.executable, *option, "-c", code]
    assert subprocess.check_output(command, text=True) == "True True\n"


#: Registers a handler, a finalizer, and one of a library of operators, and ends as a rank does.
ENDS = """
import atexit, os, weakref
import torch
from labkit.launch import engine_internals
class Thing: pass
things = [Thing(), Thing()]
atexit.register(print, "handler")
weakref.finalize(things[0], print, "finalizer")
library = torch.library.Library("labkit_test", "DEF")
library.define("nothing() -> ()")
def told(*args): print("torch's")
told.__module__ = torch.library.Library.__module__
weakref.finalize(things[1], told)
assert any(i.func is torch.library._del_library for i in weakref.finalize._registry.values())
engine_internals.run_exit_functions()
assert any(i.func is torch.library._del_library for i in weakref.finalize._registry.values())
os._exit(0)
"""


def test_a_rank_that_ends_leaves_torchs_tables_to_the_system() -> None:
    done = subprocess.run(
        [sys.executable, "-u", "-c", ENDS], capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.split()) == ["finalizer", "handler"]
