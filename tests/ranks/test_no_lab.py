"""``%%px`` where no lab runs: before the first, after a start that failed or was stopped."""

from __future__ import annotations

import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit.notebook import shell as ipython
from labkit.notebook import startup
from labkit.runtime.session import Session
from tests.support.events import press_stop

NO_LAB = "No lab is running; labkit.start() gives you one."


@pytest.fixture
def found(shell: InteractiveShell) -> InteractiveShell:
    """Return a shell as ``import labkit`` leaves it."""
    for kind, names in ipython.MAGICS.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
    labkit._offer_magics()
    return shell


def check_there_is_none(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    """Fail unless each magic says in one sentence that there is no lab."""
    for text in ("%%px\n1", "%%px --ranks 1\nrank", "%px 1", "%pxresult"):
        capsys.readouterr()
        done = shell.run_cell(text)
        assert isinstance(done.error_in_exec, labkit.LabStopped), text
        shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
        assert shown == f"LabStopped: {NO_LAB}\n"


def test_before_the_first_start(
    found: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    check_there_is_none(found, capsys)


def test_the_magics_of_others_stay(found: InteractiveShell) -> None:
    cells = found.magics_manager.magics["cell"]
    cells["px"] = other = lambda line, cell: None
    labkit._offer_magics()
    assert cells["px"] is other


def test_torchrun_needs_none(found: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    for text, said in (("%%torchrun\nprint('here')", "here"), ("%torchrun -m this", "Zen")):
        assert found.run_cell(text).success
        assert said in capsys.readouterr().out


@pytest.mark.parametrize("again", [False, True])
def test_after_a_start_that_failed(
    found: InteractiveShell, capsys: pytest.CaptureFixture[str], again: bool
) -> None:
    if again:
        labkit.start(1).stop()
    with pytest.raises(labkit.StartError):
        labkit.start(1, preload=["no_such_module_here"])
    check_there_is_none(found, capsys)


def test_a_start_that_is_stopped_says_so(
    found: InteractiveShell,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = Session.form

    def form_stopped(*args: object, **named: object) -> Session:
        press_stop()
        return form(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "form", form_stopped)
    done = found.run_cell("import labkit\nlab = labkit.start(2)")
    assert isinstance(done.error_in_exec, labkit.Interrupted)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert shown == "Interrupted: the start was stopped.\n"
    check_there_is_none(found, capsys)


def test_a_stop_when_all_is_there_leaves_no_lab(
    found: InteractiveShell,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = startup._load_magics

    def load_stopped() -> None:
        load()
        press_stop()

    monkeypatch.setattr(startup, "_load_magics", load_stopped)
    with pytest.raises(labkit.Interrupted, match=r"^the start was stopped\.$"):
        labkit.start(1)
    check_there_is_none(found, capsys)
