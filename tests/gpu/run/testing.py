"""Run tests by pytest, within limits: one that hangs is named, and the rest run without it."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from tests.support.conda_versions import ROOT

from . import children
from .budget import Budget
from .result import STOPPED, TIME_OVER, Item, State, Step

#: Seconds without a word (a test that begins or ends) after which a test hangs.
SILENCE = 24.0
#: Seconds in which pytest has to begin; imports from a cold disk are slow.
BEGIN = 75.0
#: Seconds that there must be left to begin with tests.
LEAST = 20.0
#: pytest's exit codes of a run that came to its end: all passed, some failed, no tests.
RAN = (0, 1, 5)


def run_tests(
    name: str,
    targets: Sequence[str],
    *,
    budget: Budget,
    folder: Path,
    env: Mapping[str, str],
    options: Sequence[str] = (),
    seconds: float = float("inf"),
    silence: float = SILENCE,
    stop: Event | None = None,
    root: Path = ROOT,
) -> Step:
    """Run tests until each has run, hung or found the time over.

    Parameters
    ----------
    name
        The name of the step, and of its files in ``folder``.
    targets
        Files, or names of tests.
    seconds
        How long all of them may take, however much time there is.
    silence
        Seconds after which a test hangs.
    root
        pytest's, the project's.
    """
    step = Step(name)
    began = time.monotonic()
    end = began + seconds
    stem = name
    items: dict[str, Item] = {}
    collected: list[str] = []
    todo, number, why = list(targets), 0, ""
    log = folder / f"{stem}.log"
    for earlier in folder.glob(f"{stem}.*"):  # of a run before this one
        earlier.unlink()
    while todo:
        limit = min(budget.left(), end - time.monotonic())
        if stop is not None and stop.is_set():
            why = STOPPED
            break
        if limit < LEAST:
            why = TIME_OVER
            break
        number += 1
        record = folder / f"{stem}.{number}.jsonl"
        record.touch()
        hung: list[str | None] = []  # under way when it was silent; the next begins as it is ended

        def silent(record: Path = record, hung: list[str | None] = hung) -> bool:
            if not _is_silent(record, silence):
                return False
            hung.append(read(events_of(record))[2])
            return True

        ended = children.run(
            _command(todo, options, record, silence),
            seconds=limit,
            log=log,
            env={**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            silent=silent,
            stop=stop,
            folder=root,
        )
        listed, found, under_way = read(events_of(record))
        collected += [test for test in listed if test not in collected]
        items.update(found)
        for left in ended.left:
            step.items.append(Item(f"a process is left behind: {left}", "failed"))
        if ended.by == "itself" and ended.code in RAN:
            break
        if hung:
            under_way = hung[0]
        if under_way is not None and under_way not in found:
            text = {
                "silence": f"no end within {silence:.0f} s",
                "time": TIME_OVER,
                "stop": STOPPED,
                "itself": f"pytest ended with it (exit code {ended.code})",
            }[ended.by]
            cut = ended.by in ("time", "stop")  # that says nothing of the test
            items[under_way] = Item(under_way, "not run" if cut else "failed", why=text)
        elif ended.by == "itself":
            items["pytest"] = Item("pytest", "failed", why=_tail(log))
        if ended.by in ("time", "stop"):
            why = TIME_OVER if ended.by == "time" else STOPPED
            break
        todo = [test for test in collected if test not in items] if under_way or hung else []
    step.items += [items.get(test, Item(test, "not run", why=why)) for test in collected]
    step.items += [item for test, item in items.items() if test not in collected]
    if not step.items:
        step.why = why or "there are no such tests"
    elif not step.count("passed") and not step.count("failed"):
        step.why = next((item.why for item in step.items if item.why), why)
    step.seconds = time.monotonic() - began
    return step


def events_of(record: Path) -> list[dict[str, Any]]:
    """Return the events of a record, but for a line that was cut off when pytest was ended."""
    events = []
    for line in record.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            events.append(json.loads(line))
    return events


def read(events: Sequence[Mapping[str, Any]]) -> tuple[list[str], dict[str, Item], str | None]:
    """Return what the record says: the tests, those that have ended, the one under way."""
    listed: list[str] = []
    items: dict[str, Item] = {}
    reports: dict[str, list[Mapping[str, Any]]] = {}
    under_way: str | None = None
    for event in events:
        if "collected" in event:
            listed = list(event["collected"])
        elif "begins" in event:
            under_way = event["begins"]
        elif "test" in event:
            reports.setdefault(event["test"], []).append(event)
        elif "ended" in event:
            name = event["ended"]
            items[name], under_way = _item(name, reports.get(name, [])), None
    return listed, items, under_way


def _item(name: str, reports: Sequence[Mapping[str, Any]]) -> Item:
    """Make one of a test's set-up, call and tear-down: the worst of them counts."""
    state: State = "passed"
    why = ""
    for outcome in ("failed", "skipped"):
        found = [report for report in reports if report["outcome"] == outcome]
        if found:
            state = "failed" if outcome == "failed" else "skipped"
            why = found[0]["why"]
            break
    observed = [report["observed"] for report in reports if report.get("observed")]
    more = {"observed": observed[-1]} if observed else {}
    return Item(name, state, round(sum(report["seconds"] for report in reports), 2), why, more)


def _is_silent(record: Path, silence: float) -> bool:
    """Return whether a record has stood still for too long; pytest needs longer to begin."""
    found = record.stat()
    return time.time() - found.st_mtime > (silence if found.st_size else max(silence, BEGIN))


def _command(
    targets: Sequence[str], options: Sequence[str], record: Path, silence: float
) -> list[str]:
    # Only the plugins that are named: this Python may see packages that are not ours.
    plugins = ["-p", "no:cacheprovider", "-p", "nbval.plugin", "-p", "tests.gpu.run.pytest_events"]
    reports = [f"--record-to={record}", "-o", "console_output_style=classic"]
    dump = ["-o", f"faulthandler_timeout={0.8 * silence:.0f}"]  # where a test hangs, in the log
    return [sys.executable, "-m", "pytest", *plugins, *reports, *dump, *options, *targets]


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").rstrip().splitlines()[-lines:])


def gpu_files(tests: Path) -> list[Path]:
    """List the files with tests that are marked gpu."""
    marked = re.compile(r"mark\.gpu\b")
    return sorted(path for path in tests.rglob("test_*.py") if marked.search(path.read_text()))
