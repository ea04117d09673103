"""The public names: what ``labkit.`` and a tab show, and that the rest stays out of the way."""

from __future__ import annotations

import importlib
import inspect
import pickle
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

import labkit

#: What a kernel must not wait for before the first cell runs.
HEAVY = ("torch", "ipyparallel", "zmq", "numpy", "matplotlib", "psutil", "typer")


def loaded_after(statement: str) -> list[str]:
    """Run a statement in a fresh process; return which of the heavy modules it has loaded."""
    code = f"import sys\n{statement}\nprint(*(m for m in {HEAVY} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_what_starts_a_lab_loads_no_figure() -> None:
    """With them comes numpy, which ends a process that may have too little memory for it."""
    assert not {"numpy", "matplotlib"} & {*loaded_after("import labkit.notebook.lab")}


def test_every_public_error_is_there() -> None:
    """As httpx does it: a new error that is not exported makes this fail."""
    module = importlib.import_module("labkit.base.errors")
    errors = {
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }
    assert errors <= set(labkit.__all__)


def test_the_names_are_sorted_and_unique() -> None:
    assert labkit.__all__ == sorted(set(labkit.__all__))


@pytest.mark.parametrize("name", labkit.__all__)
def test_a_public_name_has_a_docstring_and_an_address(name: str) -> None:
    value = getattr(labkit, name)
    assert (inspect.getdoc(value) or "").strip()
    # The address says where a line runs, so it stays the true one (and `lab.run??` finds it).
    address = value.__name__ if inspect.ismodule(value) else value.__module__
    assert address == "labkit" or address.startswith("labkit.")


@pytest.mark.parametrize("name", [n for n in labkit.__all__ if n[0].isupper()])
def test_a_public_class_can_be_pickled(name: str) -> None:
    assert pickle.loads(pickle.dumps(getattr(labkit, name))) is getattr(labkit, name)


def test_dir_shows_the_public_names_only() -> None:
    for name in labkit.__all__:
        getattr(labkit, name)  # the lazy ones, and all the modules behind them, are loaded now
    shown = [name for name in dir(labkit) if not (name[:2] == name[-2:] == "__")]
    assert shown == labkit.__all__


def test_tab_shows_the_public_names_only() -> None:
    shell = InteractiveShell()
    shell.history_manager.enabled = False
    shell.user_ns["labkit"] = labkit
    for jedi in (False, True):  # two completers: one asks dir(), the other may read the source
        shell.Completer.use_jedi = jedi
        with provisionalcompleter():
            found = {c.text.strip(".") for c in shell.Completer.completions("labkit.", 7)}
        assert found - {n for n in found if n.startswith("_")} == set(labkit.__all__)


def test_star_import_brings_the_public_names() -> None:
    space: dict[str, object] = {}
    exec("from labkit import *", space)
    assert set(space) - {"__builtins__"} == set(labkit.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'labkit' has no attribute 'strat'$"):
        labkit.strat  # noqa: B018


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("import labkit", []),
        ("import labkit; dir(labkit); labkit.LabError", []),
        ("import labkit; labkit.hosts.network", ["psutil"]),
        ("import labkit; labkit.datasets.mnist", []),
        ("import labkit; labkit.check", []),
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(statement: str, found: list[str]) -> None:
    assert loaded_after(statement) == found


def test_the_notebooks_side_loads_no_torch() -> None:
    modules = ("notebook.lab", "notebook.magics", "notebook.startup", "course.check", "__main__")
    statement = ", ".join(f"labkit.{module}" for module in modules)
    assert "torch" not in loaded_after(f"import {statement}")


def test_the_documents_use_public_names_only() -> None:
    root = Path(labkit.__file__).parents[1]
    text = "".join((root / name).read_text() for name in ("README.md", "docs/USING.md"))
    text = text.replace("labkit.log", "")
    used = set(re.findall(r"(?<!-m )\blabkit\.([a-z]\w*)", text))  # python -m runs any module
    assert {"start", "check", "hint", "solution", "figures", "hosts"} <= used
    assert used <= set(labkit.__all__)


def test_python_m_labkit_is_the_command_line() -> None:
    command = [sys.executable, "-m", "labkit"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"labkit {labkit.__version__}\n"
    script = Path(sysconfig.get_path("scripts")) / "labkit"
    helps = [
        subprocess.run([*start, "--help"], capture_output=True, text=True, check=True).stdout
        for start in (command, [str(script)])
    ]
    assert helps[0] == helps[1]
    assert "Usage: labkit " in helps[0]


def test_type_checkers_read_our_types_in_a_wheel_too(tmp_path: Path) -> None:
    package = Path(labkit.__file__).parent
    assert (package / "py.typed").is_file()
    (wheel,) = WheelBuilder(str(package.parent)).build(directory=str(tmp_path))
    assert {"labkit/py.typed", "labkit/__main__.py"} <= set(zipfile.ZipFile(wheel).namelist())
