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

from tests.bench.child import environment
from tests.bench.peers import __main__ as bench
from tests.bench.peers import bounds, compare, install, measure, notebook, table
from tests.bench.peers.cells import PICTURES, SHOW, Cells
from tests.bench.peers.measure import Left, Said, Session
from tests.bench.peers.notebook import Seen
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

    def notebook(self) -> list[str]:
        return [sys.executable, f"{PROGRAMS}/in_kernel.py"]


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


#: A program whose kernel is the child of a server, which starts it anew when it has died.
SERVED = fake(
    "served",
    """
    import os, subprocess, threading
    def kernel():
        return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    first = kernel()
    def again():
        first.wait()
        kernel()
    threading.Thread(target=again, daemon=True).start()
    time.sleep(1)
    answer("the server is there")
    sys.stdin.readline()
    moment = time.time()
    answer(moment)
    answer(moment + 0.25)
    place = {"kernel": first.pid, "beside": [os.getpid()]}
    serve(lambda: None, lambda: time.sleep(60), kernel=lambda: place)
    """,
    server=True,
)


def test_the_start_of_a_server_is_not_that_of_the_ranks(tmp_path):
    assert measure.session(SERVED, 4, environment(str(tmp_path))).start == pytest.approx(0.25)


def test_a_kernel_that_its_server_starts_anew_is_left(tmp_path, monkeypatch):
    for module in (measure, table):
        monkeypatch.setattr(module, "LOOKS", (5.0, 5.1))
    left = measure.left(SERVED, environment(str(tmp_path)))
    assert left.processes == 1
    assert left.seconds is None
    assert left.after["5"] == {
        "processes": 1, "started since": 1, "listeners": 0, "off loopback": 0
    }  # fmt: skip
    row = table.row(Result(SERVED, left=left), [4])
    assert row[4] == "1 process, 0 listeners, started since by the Jupyter server"


def test_what_is_slow_is_repeated_less_often(tmp_path, monkeypatch):
    taken = {"start": 11.0, "said": 30.0}
    monkeypatch.setattr(measure, "session", lambda *_: Session(taken["start"], 1.0))
    monkeypatch.setattr(measure, "skip", lambda *_: Said(taken["said"], "rank 1"))

    def repeat() -> tuple[int, int, int]:
        found = Result(QUICK)
        for ranks in (4, 16):
            for _ in range(3):
                compare.start(found, ranks)
        compare.skip(found, "skip", 3)
        return len(found.starts(4)), len(found.starts(16)), len(found.said["skip"])

    assert repeat() == (3, 2, 1)
    taken |= {"start": 9.0, "said": 0.8}
    assert repeat() == (3, 3, 3)
    taken |= {"said": None}
    assert repeat() == (3, 3, 1)


def display(
    mime: str, value: object, text: str, kind: str = "display_data", name: str = ""
) -> dict:
    data = {mime: value, "text/plain": text}
    transient = {"display_id": name} if name else {}
    return {"type": kind, "content": {"data": data, "transient": transient}}


RANKS = "application/vnd.of-its-own+json"
QUIET = {"messages": [], "prompts": []}


@pytest.mark.parametrize(
    ("messages", "seen", "words"),
    [
        ([display("image/png", PICTURES[0], "rank 0"), display("image/png", PICTURES[1], "rank 1")],
         (2, ["image/png"], "rank 0\nrank 1"), "2 pictures, image/png"),
        ([display(RANKS, {"ranks": [*PICTURES]}, "as it was", name="a"),
          display(RANKS, {"ranks": [*PICTURES]}, "both", "update_display_data", "a")],
         (2, [RANKS], "both"), f"2 pictures, {RANKS}"),
        ([display("application/javascript", SHOW, "<Javascript object>"),
          {"type": "stream", "content": {"text": "\x1b[31m<IPython Image object>\x1b[0m\n"}}],
         (0, [], "<Javascript object>\n<IPython Image object>"), "nothing"),
        ([{"type": "stream", "content": {"text": "0: <IPython.core.display.Image object>\n"}}],
         (0, [], "0: <IPython.core.display.Image object>"),
         "no picture: “0: <IPython.core.display.Image object>”"),
    ],
)  # fmt: skip
def test_a_picture_counts_where_it_is_shown_not_where_it_is_named(messages, seen, words):
    found = notebook.judge({"messages": messages, "prompts": []}, QUIET, {})
    assert (found.pictures, found.carriers, found.displayed) == seen
    assert table.notebook_row(in_notebook(found))[1] == words


def in_notebook(seen: Seen) -> Result:
    return Result(replace(QUICK, cells=Cells([], "CODE")), seen=seen)


@pytest.mark.parametrize(
    ("stop", "debugger", "words"),
    [
        ({"prompts": ["rank 1: ipdb> "], "text": "ipdb> p secret\n41\n"}, {},
         ("prompt “rank 1: ipdb>”, answers", "not measured: it attaches to the kernel")),
        ({"prompts": ["? "], "text": "went on\n"}, {},
         ("prompt “?”, does not answer", "not measured: it attaches to the kernel")),
        ({"prompts": [], "text": "went on\nbdb.BdbQuit\nTraceback\n"}, {},
         ("no prompt: “bdb.BdbQuit”", "not measured: it attaches to the kernel")),
        ({"prompts": [], "text": "went on\n"}, {"Rank 0": "40", "Rank 1": "41"},
         ("no prompt, nothing said", "stops 2 ranks, reads 40, 41")),
    ],
)  # fmt: skip
def test_a_breakpoint_is_one_if_its_prompt_answers(stop, debugger, words):
    messages = [{"type": "stream", "content": {"text": stop["text"]}}]
    seen = notebook.judge(QUIET, {"messages": messages, "prompts": stop["prompts"]}, debugger)
    _, _, prompt, stops = table.notebook_row(in_notebook(seen))
    assert prompt == words[0]
    assert stops.startswith(words[1])


def test_a_kernel_shows_the_picture_and_serves_the_breakpoint(tmp_path):
    # A kernel ignores breakpoint() while no debugger of JupyterLab's is attached.
    start = "import pdb, sys\nrank, sys.breakpointhook = 1, pdb.set_trace"
    peer = replace(QUICK, cells=Cells([start], "CODE"))
    seen = notebook.look(peer, environment(str(tmp_path)))
    assert (seen.pictures, seen.carriers) == (1, ["image/png"])
    assert seen.answered, seen
    assert "went on" in seen.stopped


NOTHING = {"processes": 0, "started since": 0, "listeners": 0, "off loopback": 0}
LEFT = Left(8, ["127.0.0.1:1"], 0.2, {"0.5": NOTHING, "0.6": NOTHING})
MESS = {"processes": 4, "started since": 0, "listeners": 3, "off loopback": 1}


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
