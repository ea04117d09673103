"""Check the comparison with other ways to run ranks, on peers that take no time."""

from __future__ import annotations

import io
import json
import re
import sys
import textwrap
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from tests.bench.peers import __main__ as bench
from tests.bench.peers import bounds, install, measure, table
from tests.bench.peers.measure import Left, Said, Session
from tests.bench.peers.peer import PEERS, Peer
from tests.bench.peers.result import Result

SERVE = "import sys, time; sys.path.insert(0, {programs!r}); from protocol import answer, serve\n"
PROGRAMS = str(Path(bench.__file__).parent / "programs")


@dataclass(frozen=True)
class Fake(Peer):
    """A peer whose program is a few lines, in which ``answer`` and ``serve`` are there."""

    code: str = ""

    def command(self, ranks: int, what: str) -> list[str]:
        code = SERVE.format(programs=PROGRAMS) + textwrap.dedent(self.code)
        return [sys.executable, "-S", "-c", code, str(ranks), what]


def fake(name: str, code: str, **options) -> Fake:
    way = {"calls": "a call", **options}
    return Fake(name, name.capitalize(), "", way="as it is", packages=["p"], code=code, **way)


QUICK = fake(
    "labkit",
    """
    def skip():
        raise RuntimeError("ranks 0, 2–3 wait for rank 1")
    answer(time.time())
    serve(lambda: None, skip)
    """,
)
SLOW = fake(
    "slow",
    """
    time.sleep(0.3)
    answer(time.time())
    serve(lambda: time.sleep(0.002), lambda: time.sleep(60))
    """,
)
BROKEN = fake("broken", "sys.exit('no such [thing]')")
SCRIPT = fake(
    "script",
    """
    answer(time.time())
    if sys.argv[2].startswith("skip"):
        answer(time.time())
        if sys.argv[2] == "skip-end":
            sys.exit("[rank0]: RuntimeError: Connection closed by peer, a remote worker")
    if sys.argv[2] != "start":
        time.sleep(60)
    """,
    calls="",
    stays=False,
)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Wait less, ask no interpreter for its packages."""
    monkeypatch.setattr(install, "versions", lambda python: {"p": "1.2"})
    monkeypatch.setattr(measure, "SAY_SECONDS", 1.0)
    monkeypatch.setattr(measure, "REST_SECONDS", 0.1)
    monkeypatch.setattr(measure, "LOOKS", (0.5, 0.6))
    for module in (bounds, table):
        monkeypatch.setattr(module, "LOOKS", (0.5, 0.6))


def run(tmp_path: Path, *peers: Peer) -> tuple[int, str, dict]:
    """Measure peers once; return exit code, what was shown, the JSON."""
    shown = io.StringIO()
    code = bench.run(peers, 1, [4], "the command", tmp_path, Console(file=shown, width=300))
    return code, shown.getvalue(), json.loads((tmp_path / "peers.json").read_text())


def test_every_peer_is_a_row_whatever_it_does(tmp_path):
    code, shown, document = run(tmp_path, QUICK, SLOW, BROKEN, SCRIPT)
    assert code == 0, shown
    assert [peer["name"] for peer in document["peers"]] == ["labkit", "slow", "broken", "script"]
    labkit, slow, broken, script = document["peers"]
    assert labkit["medians"]["4 ranks"]["start s"] < slow["medians"]["4 ranks"]["start s"]
    assert slow["medians"]["4 ranks"]["cell s"] >= 0.002
    assert len(slow["sessions"]["4"][0]["calls"]) == measure.CALLS
    assert labkit["skipped collective"]["skip"][0]["words"].endswith("wait for rank 1")
    assert slow["medians"]["skipped collective s"] == {"skip": None}
    assert "no such [thing]" in broken["errors"]["install"]
    assert script["medians"]["skipped collective s"]["skip"] is None
    assert script["medians"]["skipped collective s"]["skip-end"] < 1
    assert script["medians"]["4 ranks"]["cell s"] is None
    assert labkit["versions"] == {"p": "1.2"}
    assert {"cpu", "kernel", "cores", "memory_gib"} <= set(document["machine"])
    assert "no such [thing]" in shown
    assert {path.name for path in tmp_path.iterdir()} == {
        "peers.json", "peers.md", "peers.png", "peers.svg"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["labkit.Deadlock: rank 0 waits for rank 1"], "rank 0 waits for rank 1"),
        (["Error executing distributed code: Timeout waiting for responses"], "Timeout waiting"),
        (["Traceback:", '  File "errors.py", line 1', "    dist.all_reduce(x)",
          "RuntimeError: Connection closed by peer"], "Connection closed"),
        (["🔹 Rank 1:", "  done"], None),
        (["%px:  0/4 [00:00<?, ?tasks/s]"], None),
        (["UserWarning: an error of another kind"], None),
        ([], None),
    ],
)  # fmt: skip
def test_only_what_names_the_fault_counts_as_said(monkeypatch, lines, words):
    moment = time.time() - 100
    heard = [(moment - 1, "RuntimeError: rank 1 is missing (before)\n")]
    heard += [(moment + 2 + i, line + "\n") for i, line in enumerate(lines)]
    said = measure.judge(heard, moment)
    if words is None:
        assert said.seconds is None
    else:
        assert words in said.words
        assert 2 <= said.seconds <= 1 + len(heard)
        assert "before" not in said.text


NOTHING = {"processes": 0, "listeners": 0, "off loopback": 0}
LEFT = Left(8, ["127.0.0.1:1"], 0.2, {"0.5": NOTHING, "0.6": NOTHING})
MESS = {"processes": 4, "listeners": 3, "off loopback": 1}


def result(name: str, start: float, ran: float, **options) -> Result:
    peer = next(peer for peer in PEERS if peer.name == name)
    given = {"said": {"skip": [Said(1.0, "rank 0 waits for rank 1")]}, "left": LEFT, **options}
    session = Session(start, ran, [0.004, 0.005] if peer.calls else [], 0.01)
    return Result(peer, {"torch": "2"}, {4: [session], 16: [session]}, **given)


def verdicts(*results: Result) -> dict[str, str]:
    return {claim.name.removeprefix("peers-"): claim.verdict for claim in bounds.judge(results)}


def test_labkit_is_judged_and_nobody_else():
    good = result("labkit", 2.0, 3.0)
    bad = result(
        "ray",
        9.0,
        9.0,
        said={"skip": [Said(None)]},
        left=replace(LEFT, seconds=None, after={"0.5": MESS, "0.6": MESS}),
    )
    assert verdicts(bad) == {}
    assert set(verdicts(good, bad).values()) == {"ok"}
    bad.peer, good.peer = good.peer, bad.peer
    assert verdicts(good, bad) == {
        "start": "over", "skip": "failed", "processes": "over", "listeners": "over",
        "loopback": "ok",
    }  # fmt: skip


def test_two_starts_that_are_near_are_told_apart_by_processor_time():
    late_but_light = result("labkit", 2.1, 1.0)
    assert verdicts(late_but_light, result("ray", 2.0, 2.0))["start"] == "ok"
    assert verdicts(late_but_light, result("ray", 2.0, 0.5))["start"] == "over"
    assert verdicts(late_but_light, result("ray", 1.0, 2.0))["start"] == "over"
    (claim, *_) = bounds.judge([late_but_light, result("ray", 2.0, 2.0)])
    assert claim.b == "Ray"
    assert claim.note.endswith("time of processors decides")


def test_what_is_installed_is_pinned_and_leaves_torch_to_the_lock():
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", install.PINS.read_text(), re.M))
    assert {peer.installs for peer in PEERS if peer.installs} <= set(pinned)
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", install.LOCK.read_text(), re.M))
    assert set(pinned) & set(locked) == set()
    assert set(install.BESIDE) <= set(locked)


def test_an_unknown_peer_is_refused_with_the_names_of_all():
    app = typer.Typer()
    app.command()(bench.main)
    said = CliRunner().invoke(app, ["--only", "nope"], env={"COLUMNS": "200"})
    assert said.exit_code == 2
    assert [name for name in bench.NAMES if name not in said.output] == []
