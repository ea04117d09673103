"""Packages that are too old, too new, missing, or imported before the fitting one was installed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from packaging.requirements import Requirement

import labkit
from labkit import LabError, StartError
from labkit.base import versions


class Stub(metadata.Distribution):
    """An installed package of some version, without a file."""

    def __init__(self, text: str) -> None:
        self.text = text

    def read_text(self, filename: str) -> str | None:
        return self.text if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(versions.VARIABLE, raising=False)
    monkeypatch.setattr(versions, "_said", set())
    monkeypatch.setitem(sys.modules, "IPython", None)  # type: ignore[arg-type]


def install(monkeypatch: pytest.MonkeyPatch, packages: Mapping[str, str | None]) -> None:
    """Let some packages be there, by name and version; None: without a version in its metadata."""

    def distribution(name: str) -> metadata.Distribution:
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        version = packages[name]
        return Stub(
            "Name: x\n" if version is None else f"Name: x\nVersion: {version}\n\nVersion: 0"
        )

    monkeypatch.setattr(metadata, "distribution", distribution)


def load(monkeypatch: pytest.MonkeyPatch, name: str, version: object, **more: object) -> None:
    """Let a module of some version be imported here already."""
    module = ModuleType(name)
    vars(module).update(__version__=version, **more)
    monkeypatch.setitem(sys.modules, name, module)


def refusal(*requirements: str) -> str:
    with pytest.raises(StartError) as caught:
        versions.check(requirements)
    return str(caught.value)


@pytest.mark.parametrize(
    ("needed", "version", "kind"),
    [
        (">=9.1,<10", "9.1.0", None),
        (">=9.1,<10", "9.0.9", "old"),
        (">=9.1,<10", "10.0", "new"),
        (">=9.1,<10", "10.0.dev1", "new"),
        (">=2.11,<2.16", "2.15.0+cu132", None),
        (">=2.11,<2.16", "2.11.0a0+5228.nv25.6", None),
        (">=2.11,<2.16", "2.16.0.dev20261101+cpu", "new"),
        (">=6,!=6.5", "6.5", "old"),
        (">=6", "of my own", None),
        (">=6", None, "missing"),
    ],
)
def test_a_version_fits_or_is_older_or_newer(
    monkeypatch: pytest.MonkeyPatch, needed: str, version: str | None, kind: str | None
) -> None:
    install(monkeypatch, {} if version is None else {"no-such-thing": version})
    found = versions.misfits([f"no-such-thing{needed}"])
    assert [one.kind for one in found] == ([kind] if kind else [])


def test_what_is_too_old_is_refused_in_one_sentence_with_the_command_that_mends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, {"old-a": "5.9.5", "old-b": "7.34.0", "fine": "3"})
    monkeypatch.setattr(sys, "executable", "/a b/python")
    assert refusal("old-a>=6", "fine>=2", "old-b<10,>=9.1") == (
        "old-a is 5.9.5, old-b is 7.34.0, but labkit needs old-a>=6, old-b>=9.1,<10. "
        'Run: \'/a b/python\' -m pip install "old-a>=6" "old-b>=9.1,<10"'
    )
    load(monkeypatch, "IPython", "9.18.1", get_ipython=object)
    assert refusal("old-a>=6") == (
        'old-a is 5.9.5, but labkit needs old-a>=6. In a cell: %pip install "old-a>=6", and '
        "then restart the kernel."
    )
    assert capsys.readouterr().out == ""


def test_the_variable_makes_a_warning_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, {"old-a": "5.9.5"})
    monkeypatch.setenv(versions.VARIABLE, "1")
    versions.check(["old-a>=6"])
    assert capsys.readouterr().out.startswith("labkit: old-a is 5.9.5, but labkit needs old-a>=6.")


def test_what_is_newer_than_the_bound_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, {"new-a": "10.1"})
    for _ in range(2):
        versions.check(["new-a>=9,<10"])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(
        "labkit: new-a is 10.1, newer than labkit was tested with (new-a>=9,<10). If something "
        "fails: "
    )


def test_an_old_module_in_a_running_kernel_asks_for_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in Colab: pip has installed what is needed, the kernel has imported what was there."""
    install(monkeypatch, {"ipython": "9.18.1", "psutil": "7.2"})
    load(monkeypatch, "IPython", "7.34.0", get_ipython=object)
    assert refusal("ipython>=9.1,<10", "psutil>=6") == (
        "ipython is 7.34.0, but labkit needs ipython>=9.1,<10. In a cell: "
        '%pip install "ipython>=9.1,<10", and then restart the kernel.'
    )


@pytest.mark.parametrize("version", ["9.2", None, (9, 0), "unknown", ""])
def test_a_module_that_fits_or_does_not_say_its_version_asks_for_nothing(
    monkeypatch: pytest.MonkeyPatch, version: object
) -> None:
    install(monkeypatch, {"ipython": "9.18.1"})
    load(monkeypatch, "IPython", version, get_ipython=object)
    assert versions.misfits(["ipython>=9.1,<10"]) == []


def test_no_metadata_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"strange": None})
    versions.check(["missing>=1", "strange>=1", 'other>=1; python_version < "3"'])
    assert versions.misfits() == []  # labkit itself has none here


def test_the_bounds_are_those_of_the_installed_labkit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions.misfits() == []
    monkeypatch.setattr(psutil, "__version__", "0.0.1")
    assert [(one.name, one.version, one.kind) for one in versions.misfits()] == [
        ("psutil", "0.0.1", "old")
    ]
    with pytest.raises(StartError, match=r"^psutil is 0\.0\.1, but labkit needs psutil>="):
        labkit.start(2)
    with pytest.raises(StartError, match=r"^psutil is 0\.0\.1, but labkit needs psutil>="):
        labkit.load_ipython_extension(None)


def test_an_extra_adds_to_what_the_core_requires() -> None:
    core, figures, course = (
        {Requirement(one).name for one in versions.required(extra)}
        for extra in ("", "figures", "course")
    )
    assert {"torch", "ipyparallel"} <= core
    assert figures == {"matplotlib", "pillow"}
    assert {"jupyterlab", "nbval", "matplotlib"} <= course
    assert core.isdisjoint(course)


def test_what_needs_an_extra_says_so_until_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions.need.cache_clear()
    with monkeypatch.context() as away:
        away.setattr(sys, "executable", "/a b/python")
        for module in ("PIL", "matplotlib"):
            away.setitem(sys.modules, module, None)  # type: ignore[arg-type]
        with pytest.raises(LabError) as caught:
            versions.need("figures", "A figure")
        assert str(caught.value) == (
            "A figure needs matplotlib, pillow, which are not installed. "
            "Run: '/a b/python' -m pip install \"torch-labkit[figures]\""
        )
        load(away, "IPython", "9.18.1", get_ipython=object)
        with pytest.raises(LabError, match=r'In a cell: %pip install "torch-labkit\[figures\]"$'):
            versions.need("figures", "A figure")
        versions.need("course", "labkit run", "nbclient")
    versions.need("figures", "A figure")


def test_it_costs_a_start_little() -> None:
    versions.misfits()
    took = min(_timed() for _ in range(5))
    assert took < 0.05, f"{took * 1000:.0f} ms of a processor"


def _timed() -> float:
    began = time.process_time()
    versions.misfits()
    return time.process_time() - began


def test_an_import_of_labkit_reads_no_metadata() -> None:
    code = (
        "import sys, labkit; print('importlib.metadata' in sys.modules, 'packaging' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True,
                          check=True, cwd=Path(labkit.__file__).parents[1])  # fmt: skip
    assert done.stdout == "False False\n"
