"""Situations of ranks, recorded once on real ranks and judged again on every run.

``make record`` runs each program of the tables on ranks and keeps what was judged. What a deadlock
is, who is stuck and what the message says follow from that by pure functions, so
``tests/unit/deadlock/test_recorded.py`` judges all recordings in seconds, without a rank.

As a pytest plugin (``-p tests.support.situations``) this module records what ``labkit`` judges
while a test of a table runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from labkit.deadlock.case import Case
from labkit.deadlock.exit_reason import ExitReason
from labkit.deadlock.needs import Situation
from labkit.deadlock.wait_graph import Verdict
from labkit.runtime import watchdog
from labkit.wire.encoding import ProtocolError, decode, encode
from tests.support import recordings
from tests.support.recordings import OutdatedError

FOLDER = recordings.DATA / "situations"
#: Situations of a correct program that are kept: the last ones.
KEPT = 2
#: The number of ranks of a test that has no parameter for it.
RANKS = 4
#: Tests of tables.
TESTS = tuple(
    f"tests/ranks/test_{name}.py"
    for name in ("faults", "deadlock_programs", "tables_on_fake_nccl", "correct_programs")
)
PASSED = pytest.StashKey[bool]()


@dataclass(frozen=True)
class Recording:
    """What was judged while a program ran.

    Attributes
    ----------
    test
        The name of the test without its parameters, which says what table the program is of.
    program, ranks
        The row, and on how many ranks it ran.
    judged
        The situations that were judged, the last one last; of a deadlock only that.
    seen
        All that was known when a deadlock was declared or suspected, which its message is about;
        None if there was none.
    fates
        What the ranks that are gone did.
    """

    test: str
    program: str
    ranks: int
    judged: tuple[Situation, ...]
    seen: Situation | None = None
    exit_reasons: Mapping[int, ExitReason] = field(default_factory=dict)

    def case(self, verdict: Verdict) -> Case:
        """Return the deadlock that a verdict makes of it."""
        assert self.seen is not None
        if verdict.proved:
            return Case(self.seen, verdict.proved, self.exit_reasons)
        return Case(self.seen, verdict.suspected, self.exit_reasons, verdict.doubts)

    def to_json(self) -> str:
        """Return it as one line."""
        plain = {
            "test": self.test,
            "program": self.program,
            "ranks": self.ranks,
            "judged": [encode(situation) for situation in self.judged],
            "seen": None if self.seen is None else encode(self.seen),
            "exit_reasons": [
                [rank, f.kind, f.error, f.code] for rank, f in sorted(self.exit_reasons.items())
            ],
        }
        return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Recording:
        """Return what a line holds."""
        plain = json.loads(line)
        seen = plain["seen"] and decode(Situation, plain["seen"])
        exit_reasons = {
            rank: ExitReason(*exit_reason) for rank, *exit_reason in plain["exit_reasons"]
        }
        judged = tuple(decode(Situation, one) for one in plain["judged"])
        return cls(plain["test"], plain["program"], plain["ranks"], judged, seen, exit_reasons)


def read(path: Path) -> list[Recording]:
    """Return the recordings of a file.

    Raises
    ------
    OutdatedError
        If another version of labkit's protocol has written it.
    """
    try:
        return [Recording.from_json(line) for line in path.read_text().splitlines()]
    except (ProtocolError, KeyError, TypeError) as error:
        raise OutdatedError(
            f"{path.name} was recorded with another protocol ({error}): run make record."
        ) from None


# -- recording ----------------------------------------------------------------------------------


class Recorder:
    """Keep what the watchdog judges while a test runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.judged: list[tuple[Situation, Verdict]] = []
        self.cases: list[tuple[Situation, Case]] = []
        judge = watchdog.judge

        def judging(situation: Situation) -> Verdict:
            verdict = judge(situation)
            self.judged.append((situation, verdict))
            return verdict

        def making(*arguments: Any) -> Case:
            case = Case(*arguments)
            if case.stuck:
                self.cases.append((self.judged[-1][0], case))
            return case

        monkeypatch.setattr(watchdog, "judge", judging)
        monkeypatch.setattr(watchdog, "Case", making)

    def recording(self, test: str, program: str, ranks: int) -> Recording | None:
        """Return what is to be kept, None if nothing was judged."""
        if self.cases:
            judged, case = self.cases[-1]
            return Recording(
                test, program, ranks, (judged,), case.situation, dict(case.exit_reasons)
            )
        # A first look can see ranks at different moments; it declares nothing.
        kept = [s for s, verdict in self.judged if not verdict.proved][-KEPT:]
        return Recording(test, program, ranks, tuple(kept)) if kept else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-situations", type=Path, help="the folder that they go to")


@pytest.fixture(autouse=True)
def _record_situations(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Record what is judged while a test of a table runs, if it passes."""
    folder = request.config.getoption("--record-situations")
    values = request.node.callspec.params.values() if hasattr(request.node, "callspec") else ()
    row = next((value for value in values if hasattr(value, "name")), None)
    if folder is None or row is None:
        yield
        return
    recorder = Recorder(monkeypatch)
    yield
    ranks = next((value for value in values if isinstance(value, int)), RANKS)
    found = recorder.recording(request.node.originalname, row.name, ranks)
    if found is not None and request.node.stash.get(PASSED, False):
        recordings.append(folder / f"{request.node.path.stem.removeprefix('test_')}.jsonl", found)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Notify the fixture whether the test has passed."""
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


def main(tests: Sequence[str]) -> int:
    """Run tests of tables (all if none is named), replace the recordings of those that passed, and
    return pytest's exit status. What no table has any more goes by hand: a unit test names it."""
    own = "tests.support.situations"
    with recordings.recorded(own, "--record-situations", tests or TESTS) as (status, files):
        for new in files:
            path = FOLDER / new.name
            kept = read(path) if path.exists() else []
            recordings.write(path, [*kept, *read(new)], lambda r: (r.test, r.program, r.ranks))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
