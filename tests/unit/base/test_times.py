"""All times stand in one table, each with its reason, and a busy machine has more of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import labkit
from labkit.base import times
from labkit.base.times import Bound, Pace

PACKAGE = Path(labkit.__file__).parent

# -- the pace -------------------------------------------------------------------------------------


def pace_after(*round_trips: float) -> Pace:
    """Return the pace of a process that has measured these."""
    pace = Pace()
    for seconds in round_trips:
        pace.note(seconds)
    return pace


@pytest.mark.parametrize("noted", [(), (0.0,), (0.001, 0.009), (Pace.REFERENCE,), (-0.01,)])
def test_on_an_idle_machine_nothing_stretches(noted: tuple[float, ...]) -> None:
    assert pace_after(*noted).factor == 1.0


def test_on_a_busy_machine_bounds_are_as_much_longer_as_answers_take() -> None:
    assert pace_after(3 * Pace.REFERENCE).factor == pytest.approx(3)
    assert pace_after(2 * Pace.REFERENCE, 3 * Pace.REFERENCE).factor == pytest.approx(2)
    assert pace_after(*(x * Pace.REFERENCE for x in (4, 2, 3))).factor == pytest.approx(3)


def test_one_answer_that_is_late_by_chance_does_not_count() -> None:
    assert pace_after(0.001, 1e6).factor == 1
    assert pace_after(0.001, 1e6, 0.002).factor == 1


def test_nothing_stretches_for_ever() -> None:
    assert pace_after(1e6).factor == 20


def test_what_was_long_ago_does_not_count() -> None:
    assert pace_after(1e6, 1e6, 0.001).factor == 20
    assert pace_after(1e6, 1e6, 0.001, 0.001).factor == 1


def test_a_bound_is_its_least_or_a_multiple_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "pace", pace_after())
    bound = Bound(0.2)
    assert bound.seconds() == 0.2
    times.pace.note(2 * Pace.REFERENCE)
    assert bound.seconds() == pytest.approx(0.4)
    assert repr(bound) == "Bound(0.2)"


# -- the table ------------------------------------------------------------------------------------


def test_each_entry_has_a_reason() -> None:
    lines = (PACKAGE / "base" / "times.py").read_text().splitlines()
    entries = [i for i, line in enumerate(lines) if re.match(r"[A-Z][A-Z_]+\b.* = ", line)]
    assert len(entries) > 100
    assert [lines[i] for i in entries if not lines[i - 1].startswith("#: ")] == []


def test_each_entry_is_used() -> None:
    table = ast.parse((PACKAGE / "base" / "times.py").read_text())
    names = {
        name.id
        for node in table.body
        if isinstance(node, ast.Assign)
        for name in ast.walk(node.targets[0])
        if isinstance(name, ast.Name) and name.id.isupper()
    }
    text = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    used = set(re.findall(r"\btimes\.([A-Z_]+)\b", text))
    assert names - used == set()
    assert used - names == set()


#: Parts of names of times.
TIME = re.compile(
    r"(^|_)(SECONDS|MS|NANOSECONDS|PATIENCE|GRACE|LINGER|TIMEOUT|PAUSES?|TICK|DELAY)$"
)
#: Functions that are given a time.
WAITS = {"sleep", "pause", "wait", "wait_by", "wait_for", "wait_procs", "settimeout", "setitimer",
         "join", "communicate", "create_connection", "timedelta"}  # fmt: skip
#: Names of arguments that are times.
ARGUMENTS = {"timeout", "seconds", "linger", "patience"}
#: What says so itself, and why.
ALLOWED = {
    "rank/torch_internals/groups.py": "torch's own default",
    "figures/film.py": "a picture's own pace, for readers",
    "figures/style.py": "units: seconds, milliseconds, microseconds",
}


def is_number(node: ast.expr) -> bool:
    """Return whether an expression has a number other than 0 in it, and no names or texts."""
    parts = [n for n in ast.walk(node) if not isinstance(n, ast.operator | ast.unaryop | ast.Load)]
    if not all(isinstance(n, ast.Constant | ast.BinOp | ast.UnaryOp | ast.Tuple) for n in parts):
        return False
    values = [n.value for n in parts if isinstance(n, ast.Constant)]
    return all(type(v) in (int, float) for v in values) and any(values)


def own_times(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of a module that say a time themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            if any(map(TIME.search, names)) and is_number(node.value):
                yield node.lineno
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = node.args if name in WAITS else []
            named = [k.value for k in node.keywords if k.arg in ARGUMENTS or name in WAITS]
            if any(map(is_number, [*given, *named])):
                yield node.lineno


def test_no_other_module_says_a_time() -> None:
    """In the program of an exercise, how late a rank is made to be is no time of labkit's."""
    found = [
        f"{name}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if (name := str(path.relative_to(PACKAGE))) != "base/times.py"
        and not name.startswith("course/exercises/")
        and name not in ALLOWED
        for line in own_times(ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "END_SECONDS = 2.0",
        "PATIENCE, KILL_SECONDS = 0.5, 10.0",
        "LINGER_MS: int = 1000",
        "time.sleep(0.005)",
        "child.wait(timeout=5)",
        "ask(cluster, seconds=2 * 60)",
        "MOMENT = timedelta(milliseconds=1)",
    ],
)
def test_such_a_line_is_found(line: str) -> None:
    assert list(own_times(ast.parse(line))) == [1]


@pytest.mark.parametrize(
    "line", ["time.sleep(times.TICK)", "poll.poll(0)", "timedelta(0)", '", ".join(names)', "A = 3"]
)
def test_another_line_is_not(line: str) -> None:
    assert list(own_times(ast.parse(line))) == []
