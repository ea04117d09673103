"""Check the comparison with other ways to run ranks, on peers that take no time."""

from __future__ import annotations

import io
import json
import re
import socket
import sys
import textwrap
import time
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from tests.bench.child import BenchError
from tests.bench.peers import __main__ as bench
from tests.bench.peers import bounds, compare, figure, install, measure, table
from tests.bench.peers.measure import Left, Said, Session
from tests.bench.peers.peer import PEERS, Peer
from tests.bench.peers.processes import listeners, off_loopback, processor_time
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


def test_a_start_that_fails_later_costs_its_own_cells_only(tmp_path):
    four = "assert sys.argv[1] != '4', 'four is too many'\n" + textwrap.dedent(SLOW.code)
    code, shown, document = run(tmp_path, QUICK, fake("four", four))
    assert code == 0, shown
    labkit, failing = document["peers"]
    assert labkit["errors"] == {}
    assert "four is too many" in failing["errors"]["4 ranks"]
    assert set(failing["errors"]) == {"4 ranks", "skip", "left"}  # those have four ranks as well


def test_what_was_measured_is_kept_when_somebody_ends_the_bench(tmp_path, monkeypatch):
    def leave(peer, env):
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "left", leave)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, QUICK)
    (labkit,) = json.loads((tmp_path / "peers.json").read_text())["peers"]
    assert labkit["medians"]["skipped collective s"]["skip"] < 5


def test_a_launcher_whose_ranks_end_is_started_and_then_called():
    launcher = fake(
        "launcher",
        """
        answer(time.time())
        if sys.argv[2] == "idle":
            time.sleep(60)
        serve(lambda: time.sleep(0.001), None)
        """,
        stays=False,
    )
    with compare.variables(launcher) as env:
        taken = measure.session(launcher, 4, env)
    assert 0 < taken.start_processors < 1
    assert min(taken.calls) >= 0.001
    assert 0 <= taken.call_processors < 0.01


def test_nothing_that_a_killed_program_leaves_outlives_the_look():
    orphan = fake(
        "orphan",
        """
        import socket, subprocess
        code = "import socket, time; s = socket.create_server(('', 0)); print(); time.sleep(60)"
        orphan = subprocess.Popen(
            [sys.executable, "-S", "-uc", code], stdout=subprocess.PIPE, start_new_session=True
        )
        orphan.stdout.readline()
        own = socket.create_server(("127.0.0.1", 0))
        answer(time.time())
        serve(None, None)
        """,
    )
    with compare.variables(orphan) as env:
        left = measure.left(orphan, env)
    assert left.processes == 2
    assert left.seconds is None
    assert left.after["0.6"] == {"processes": 1, "listeners": 1, "off loopback": 1}
    assert len(left.listeners) == 2
    assert len(left.names) == 1
    assert left.names[0].startswith("python")
    assert not [p for p in psutil.process_iter() if "create_server" in " ".join(command_of(p))]


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_kernel_with_nothing_left_is_not_watched_to_the_end(monkeypatch):
    monkeypatch.setattr(measure, "LOOKS", (5.0, 30.0))
    began = time.monotonic()
    with compare.variables(QUICK) as env:
        left = measure.left(QUICK, env)
    assert time.monotonic() - began < 20
    assert left.seconds is not None
    assert left.after["30"] == {"processes": 0, "listeners": 0, "off loopback": 0}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["labkit.errors.Deadlock: rank 0 waits for rank 1"], "rank 0 waits for rank 1"),
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


def test_a_program_cannot_end_strangers_processes(tmp_path):
    env = measure.settle(sys.executable, {"PATH": "/usr/bin"}, str(tmp_path))
    first = Path(env["PATH"].split(":")[0])
    assert {path.name for path in first.iterdir()} == {"pkill", "killall"}
    assert env["HOME"] == env["TMPDIR"] == str(tmp_path)


def test_listeners_are_told_by_the_interface():
    with socket.create_server(("127.0.0.1", 0)) as near, socket.create_server(("", 0)) as far:
        here = listeners([psutil.Process()])
        assert f"127.0.0.1:{near.getsockname()[1]}" in here
        assert f"0.0.0.0:{far.getsockname()[1]}" in off_loopback(here)
    assert off_loopback(["127.0.0.1:1", "::1:1", "::ffff:127.0.0.1:1"]) == []
    assert off_loopback(["192.0.2.2:1", ":::1"]) == ["192.0.2.2:1", ":::1"]


def test_processor_time_counts_a_process_to_less_than_a_hundredth_of_a_second():
    me = psutil.Process()
    before, began = processor_time([me]), time.process_time()
    while time.process_time() < began + 0.005:
        pass
    assert 0.004 < processor_time([me]) - before < 0.5


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


def test_a_script_is_no_rival_for_the_start():
    assert "start" not in verdicts(result("labkit", 2.0, 3.0), result("torchrun", 1.0, 1.0))


def test_a_labkit_that_could_not_be_measured_fails():
    nothing = Result(PEERS[0], errors={"install": "no disk"})
    assert set(verdicts(nothing).values()) == {"failed"}
    assert {claim.error for claim in bounds.judge([nothing])} == {"no disk"}


def test_the_table_says_what_was_seen():
    error = Said(0.2, "[rank0]: RuntimeError: [/a/pair.cc:5] closed")
    text = table.markdown(
        [
            result("labkit", 2.04, 3.0),
            result("torchrun", 5.0, 9.0, said={"skip": [Said(None)], "skip-end": [error]}),
            Result(PEERS[-1], errors={"install": "not installed: a | b\nNo solution found"}),
        ],
        [4, 16],
    )  # fmt: skip
    head, rule, labkit, torchrun, ray, _, *ways = text.splitlines()
    assert (
        len({re.sub(r"\\\|", "", line).count("|") for line in (head, rule, labkit, torchrun, ray)})
        == 1
    )
    assert "| 2.0 s (CPU 3.0 s) |" in labkit
    assert "| 4.5 ms (CPU 10 ms) |" in labkit
    assert "1.0 s: “rank 0 waits for rank 1”" in labkit
    assert "nothing (after 0.2 s)" in labkit
    assert "| a new run |" in torchrun
    assert "nothing in 60 s; if rank 1 ends: 0.2 s: “RuntimeError: closed”" in torchrun
    assert r"not installed: a \| b … No solution found" in ray
    assert len(ways) == 3


def test_a_quotation_is_the_same_in_every_run():
    log = "E1123 20:47:43.199000 23394 torch/api.py:836] RuntimeError: [/a/pair.cc:561] closed"
    assert table.shorten(log) == "RuntimeError: closed"
    long = "Timeout waiting for responses to 0798037a-a426-4a70-854b-85dd25968ac8"
    assert table.shorten(long) == "Timeout waiting for responses to …"
    assert len(table.shorten("word " * 100)) <= table.QUOTED


def test_the_figure_has_every_peer_and_says_who_has_no_cell(tmp_path):
    results = [result("labkit", 2, 3), result("torchrun", 5, 9), Result(PEERS[-1])]
    figure.draw(results, [4, 16], tmp_path / "peers.png")
    assert (tmp_path / "peers.png").stat().st_size > 10_000
    assert (tmp_path / "peers.svg").read_text().startswith("<?xml")


def test_a_peer_that_cannot_be_installed_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr(install, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(install, "run", refuse)
    with pytest.raises(BenchError, match="no such package"):
        install.install("nope")


def refuse(command: list[str]) -> str:
    raise BenchError("not installed: no such package")


def test_a_command_that_fails_is_told_by_its_last_words():
    with pytest.raises(BenchError, match="not installed: the reason"):
        install.run([sys.executable, "-S", "-c", "import sys; sys.exit('the reason')"])


def test_what_is_installed_is_pinned_and_leaves_torch_to_the_lock():
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", install.PINS.read_text(), re.M))
    assert {peer.installs for peer in PEERS if peer.installs} <= set(pinned)
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", install.LOCK.read_text(), re.M))
    assert set(pinned) & set(locked) == set()
    assert set(install.BESIDE) <= set(locked)


def test_every_peer_has_a_program_and_every_program_a_peer():
    folder = Path(PROGRAMS)
    programs = {path.stem for path in folder.glob("*.py")} - {"__init__", "protocol"}
    assert programs == {peer.program for peer in PEERS}


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.installs], ids=lambda p: p.name)
def test_an_installed_peer_has_the_locks_torch(peer, monkeypatch):
    if not Path(peer.python()).exists():
        pytest.skip("not installed; `make bench-peers` does that")
    monkeypatch.undo()
    (torch,) = re.findall(r"^torch==(\S+)", install.LOCK.read_text(), re.M)
    assert install.versions(peer.python())["torch"] == torch


def test_an_unknown_peer_is_refused_with_the_names_of_all():
    app = typer.Typer()
    app.command()(bench.main)
    said = CliRunner().invoke(app, ["--only", "nope"], env={"COLUMNS": "200"})
    assert said.exit_code == 2
    assert [name for name in bench.NAMES if name not in said.output] == []
