"""What the two kinds of launchers say of ranks that do not come or have ended."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from labkit import LabError
from labkit.base import times
from labkit.launch import external_launcher
from labkit.launch import launcher as launchers
from labkit.launch.external_launcher import ExternalLauncher
from labkit.launch.launcher import ForkedLauncher, Launcher


def warm_process(*, ended: bool = False, **settings: Any) -> Any:
    closed = threading.Event()
    if ended:
        closed.set()
    process = SimpleNamespace(returncode=-9 if ended else None)
    default = {"closed": closed, "problems": {}, "children": {}, "process": process}
    return SimpleNamespace(how_ended=lambda: "It has ended.", **default | settings)


def let_run(launcher: Launcher, **engine_set: Any) -> Any:
    """Let a launcher take this for its set of engines."""
    engines = SimpleNamespace(get_output=lambda: engine_set.pop("output", ""), **engine_set)
    launcher.cluster = SimpleNamespace(engine_set=engines, engine_timeout=60)
    return engines


def test_a_forked_rank_that_ended_is_named_with_how_and_its_log() -> None:
    launcher = ForkedLauncher(warm_process())
    let_run(launcher, exits={}, output="boom")
    assert launcher.start_failure(2) == ""
    launcher.engine_set.exits[1] = (4711, -9)
    assert launcher.start_failure(2) == (
        "Rank 1 ended at start-up (signal 9 (SIGKILL)); its log ends:\nboom"
    )


def test_without_its_warm_process_no_rank_comes() -> None:
    launcher = ForkedLauncher(warm_process(ended=True))
    let_run(launcher, exits={})
    assert launcher.start_failure(2) == "It has ended."


def test_the_end_of_a_forked_controller_is_known_unless_all_have_ended() -> None:
    controller = SimpleNamespace(code=None)
    alone = ForkedLauncher(warm_process(children={"controller": controller}))
    assert alone.controller_failure() == ""
    controller.code = -9
    assert alone.controller_failure() == "signal 9 (SIGKILL)"
    # Then the ranks have ended too, which says more.
    together = ForkedLauncher(warm_process(ended=True, children={"controller": controller}))
    assert together.controller_failure() == ""


def test_what_to_do_depends_on_who_can_start_ranks() -> None:
    forked, ended = ForkedLauncher(warm_process()), ForkedLauncher(warm_process(ended=True))
    external = ExternalLauncher("mpi", {})
    assert forked.remedy([1]) == (
        "lab.restart(ranks=[1]) replaces it; the others keep their variables."
    )
    assert ended.remedy([1]) == "labkit.start() gives you a new lab."
    assert external.remedy([1]) == "lab.restart() gives you fresh ranks."
    assert (forked.replaces_some, external.replaces_some) == (True, False)


def test_a_module_that_could_not_be_imported_is_named() -> None:
    ForkedLauncher(warm_process()).check_preload()
    problems = {"nowhere": "ModuleNotFoundError: No module named 'nowhere'"}
    with pytest.raises(LabError, match=r"preload: cannot import 'nowhere' \(ModuleNotFound"):
        ForkedLauncher(warm_process(problems=problems)).check_preload()


def test_an_external_launcher_is_asked_for_trouble_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(external_launcher, "trouble", lambda engines: asked.append(engines) or "")
    monkeypatch.setattr(external_launcher, "any_ended", lambda engines: False)
    launcher = ExternalLauncher("slurm", {})
    let_run(launcher)
    assert [launcher.start_failure(2) for _ in range(3)] == [""] * 3
    assert len(asked) == 1
    monkeypatch.setattr(times, "LAUNCHER_LOOK", 0)
    launcher = ExternalLauncher("slurm", {})
    let_run(launcher, output="no such partition")
    monkeypatch.setattr(external_launcher, "trouble", lambda engines: "Slurm cannot run job 7")
    assert launcher.start_failure(2) == ("Slurm cannot run job 7; its log ends:\nno such partition")


def test_an_external_launcher_whose_process_ended_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_launcher, "any_ended", lambda engines: True)
    launcher = ExternalLauncher("mpi", {})
    let_run(launcher)
    assert launcher.start_failure(4) == (
        'engines="mpi" ended at start-up before all 4 ranks were there.'
    )


def test_without_a_gpu_nothing_is_started_to_count_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (launchers, external_launcher):
        monkeypatch.setattr(module, "has_gpu", lambda: False)
    assert ForkedLauncher(warm_process()).count_gpus() == 0  # it has no fork() here
    assert ExternalLauncher("mpi", {}).count_gpus() == 0
