"""Tests use a lab as others do: nothing private of it, of its session or of what that holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
#: A private name behind a lab, also in the text of a program: ``lab4._group``,
#: ``inside(lab).cluster._left``, ``cluster._client``.
REACH = re.compile(
    r"(?:\b(?:\w*lab\d?|session|cluster|keeper|group)|\b(?:inside|session_of)\([^()]*\))"
    r"(?:\.[a-z]\w*(?:\[[^]]*\])?)*\._(?!_|repr_)\w+"
)


@pytest.mark.parametrize(
    ("code", "reaches"),
    [
        ("lab4._group", True),
        ("self.lab._cluster.deaths", True),
        ("inside(lab).group._leave([0])", True),
        ("print(session_of(lab).cluster.places[0]._x)", True),
        ("cluster._client", True),
        ("inside(lab).cluster.deaths", False),
        ("lab4._repr_html_()", False),
        ("lab.__setitem__('x', 1)", False),
        ("lab.run(f); other._x", False),
    ],
)
def test_a_reach_is_told_from_the_public_way(code: str, reaches: bool) -> None:
    assert bool(REACH.search(code)) is reaches


def test_no_test_reaches_into_a_lab() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{number}: {line.strip()}"
        for path in sorted(TESTS.rglob("*.py"))
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if REACH.search(line)
    ]
    assert found == []


def test_cells_are_run_by_one_helper() -> None:
    """Sending, following and finishing a cell stand in ``support/cells.py`` only."""
    by_hand = re.compile(r"\brequest\.cell\(|\bfinish\(\w+, follow\(")
    found = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if path != Path(__file__).resolve() and by_hand.search(path.read_text(encoding="utf-8"))
    }
    # The unit tests are of these functions; a benchmark runs without the tests.
    allowed = {"support/cells.py", "support/requests.py", "bench/programs/deadlock_labkit.py"}
    assert {name for name in found - allowed if not name.startswith("unit/runtime/")} == set()
