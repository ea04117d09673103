"""Check the benchmark harness itself, on programs that take no time."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from tests.bench import __main__ as bench
from tests.bench import measurements
from tests.bench.child import BenchError, Child, time_to_answer
from tests.bench.claim import Claim, alternate, median_ratio
from tests.bench.measurements import Benchmark

CLAIM = Claim(
    name="nap", what="a nap", a="short", b="long", unit="s", figure_unit="×", bound=0.9
)  # fmt: skip


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def nap(seconds: float) -> list[str]:
    return python(f"import time; time.sleep({seconds}); print('BENCH', time.time())")


def fake(claim: Claim, a: list[str], b: list[str]) -> Benchmark:
    """Make a benchmark that compares how long two programs take to answer."""

    def measure(claim, rounds, env):
        sides = {"a": a, "b": b}
        times = alternate(
            rounds,
            {s: lambda c=c: time_to_answer(c, seconds=10, env=env) for s, c in sides.items()},
        )
        return replace(claim, figure=median_ratio(times["a"], times["b"]), measurements=times)

    return Benchmark(claim, measure)


def run(tmp_path: Path, *benchmarks: Benchmark) -> tuple[int, str, dict]:
    """Run benchmarks, two rounds each; return exit code, what was shown, the JSON."""
    shown = io.StringIO()
    path = tmp_path / "bench.json"
    code = bench.run(benchmarks, 2, "the command", path, Console(file=shown, width=120))
    return code, shown.getvalue(), json.loads(path.read_text())


def test_a_claim_that_holds_is_a_row_and_every_measurement_is_kept(tmp_path):
    code, shown, document = run(tmp_path, fake(CLAIM, nap(0), nap(0.2)))
    assert code == 0
    row = next(line for line in shown.splitlines() if "≤ 0.9" in line)
    assert row.split()[0] == "nap"
    assert row.split()[-1] == "ok"
    (claim,) = document["claims"]
    taken = claim["measurements"]
    assert [len(taken["a"]), len(taken["b"])] == [2, 2]
    assert min(taken["b"]) >= 0.2
    assert claim["figure"] == median_ratio(taken["a"], taken["b"]) < 0.9
    assert claim["verdict"] == "ok"
    assert document["command"] == "the command"
    assert document["machine"]["cores"] >= 1
    assert document["date"].startswith("20")
    assert {"python", "torch", "ipyparallel", "labkit"} <= set(document["versions"])


def test_a_bound_from_below_turns_the_verdict_round():
    at_least = replace(CLAIM, at_least=True)
    for figure, verdicts in ((0.8, ("ok", "over")), (0.9, ("ok", "ok")), (1.0, ("over", "ok"))):
        claims = replace(CLAIM, figure=figure), replace(at_least, figure=figure)
        assert tuple(claim.verdict for claim in claims) == verdicts


def test_what_is_over_its_bound_and_what_fails_costs_its_own_row_only(tmp_path):
    broken = python("import sys; sys.exit('no such [thing]')")
    over, good = fake(CLAIM, nap(0.2), nap(0)), fake(CLAIM, nap(0), nap(0.2))
    code, shown, document = run(tmp_path, over, fake(CLAIM, broken, nap(0)), good)
    assert code == 1
    verdicts = [claim["verdict"] for claim in document["claims"]]
    assert verdicts == ["over", "failed", "ok"]
    assert [line.split()[-1] for line in shown.splitlines() if "≤ 0.9" in line] == verdicts
    assert "ended (1) without an answer" in shown
    assert "no such [thing]" in shown


def test_the_median_ratio_pairs_neighbours():
    assert median_ratio([1, 2, 9], [2, 2, 3]) == 1.0
    # A machine twice as slow in one round changes nothing.
    assert median_ratio([1, 20, 1], [2, 40, 2]) == 0.5


def test_measurements_alternate_and_change_places():
    order: list[str] = []
    out = alternate(3, {name: lambda n=name: order.append(n) or len(order) for name in "ab"})
    assert "".join(order) == "abbaab"
    assert out == {"a": [1, 4, 5], "b": [2, 3, 6]}


def test_a_program_that_does_not_answer_is_ended_in_time():
    began = time.monotonic()
    with (
        pytest.raises(BenchError, match=r"no answer within 0 s"),
        Child(python("import time; time.sleep(60)"), seconds=0.3) as child,
    ):
        child.answer()
    assert time.monotonic() - began < 10
    assert not psutil.pid_exists(child.process.pid)


def test_what_a_program_leaves_behind_is_ended():
    orphan = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'],\n"
        "                     start_new_session=True)\n"
        "print('BENCH', p.pid, flush=True)"
    )
    with Child(python(orphan), seconds=10) as child:
        pid = child.answer()
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_program_can_be_asked_again_and_again():
    double = "import sys\nfor line in sys.stdin: print('BENCH', 2 * int(line), flush=True)"
    with Child(python(double), seconds=10) as child:
        assert [child.ask(1), child.ask(21)] == [2, 42]
    assert child.process.returncode == 0


def test_programs_get_the_same_variables_whatever_runs_this(monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    env = bench.environment(str(tmp_path))
    assert "RANK" not in env
    assert env["OMP_NUM_THREADS"] == "1"
    assert env["PATH"] == os.environ["PATH"]


class Trained:
    """Stands in for the program that trains watched: gives the same answer again and again."""

    def __init__(self, *ranks: float) -> None:
        self.took = {"cores": 3, "wall": 2.0, "ranks": ranks, "notebook": 0.02}

    def __enter__(self) -> Trained:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, steps: int) -> dict:
        return self.took


def measured_watch(monkeypatch, *seconds: float) -> Claim:
    monkeypatch.setattr(measurements, "Child", lambda *_, **__: Trained(*seconds))
    (watch,) = [one for one in measurements.BENCHMARKS if one.claim.name == "watch"]
    return watch.measure(watch.claim, 1, {})


@pytest.mark.parametrize(("seconds", "verdict"), [(0.009, "ok"), (0.011, "over")])
def test_the_watch_is_judged_by_its_share_of_the_processors(monkeypatch, seconds, verdict):
    claim = measured_watch(monkeypatch, *[seconds] * 4)
    assert claim.figure == pytest.approx((4 * seconds + 0.02) / 6.0)
    assert claim.verdict == verdict


def test_a_rank_that_nobody_watched_is_no_cheap_watch(monkeypatch):
    with pytest.raises(BenchError, match="was not watched"):
        measured_watch(monkeypatch, 0.009, 0.009, 0.0, 0.009)


def app() -> typer.Typer:
    out = typer.Typer()
    out.command()(bench.main)
    return out


def test_an_unknown_claim_is_refused_with_the_names_of_all():
    result = CliRunner().invoke(app(), shlex.split("--only nope"), env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "nope" in result.output
    assert [name for name in bench.NAMES if name not in result.output] == []


def test_the_command_line_runs_what_was_chosen(monkeypatch, tmp_path):
    slow = fake(CLAIM, nap(0.2), nap(0))
    other = fake(replace(CLAIM, name="other"), nap(0), nap(0.2))
    monkeypatch.setattr(bench, "BENCHMARKS", (slow, other))
    monkeypatch.setattr(bench, "NAMES", ["nap", "other"])
    monkeypatch.setattr(bench, "warm_up", lambda: None)
    path = tmp_path / "out.json"
    result = CliRunner().invoke(app(), ["--only", "nap", "--rounds", "1", "--json", str(path)])
    assert result.exit_code == 1, result.output
    (claim,) = json.loads(path.read_text())["claims"]
    assert claim["name"] == "nap"
    assert claim["verdict"] == "over"
    assert len(claim["measurements"]["a"]) == 1


def test_cells_are_compared_pair_by_pair_and_their_processor_time_is_told():
    answers = [
        {"seconds": [[1.0, 30.0], [2.0, 60.0]], "processors": [0.01, 0.04]},
        {"seconds": [[2.0, 9.0], [4.0, 10.0]], "processors": [0.03, 0.12]},
    ]
    claim = measurements.judge_cells(CLAIM, answers)
    assert claim.figure == 0.5
    assert claim.measurements["a"] == [1.0, 30.0, 2.0, 9.0]
    assert claim.measurements["processors of b"] == [0.04, 0.12]
    assert claim.note == "0.25 × in time of processors, 20 ms per cell instead of 80"


def test_the_readmes_claims_are_there_with_their_bounds():
    bounds = {one.claim.name: one.claim.bound for one in measurements.BENCHMARKS}
    assert bounds == {
        "start": 0.55, "stock": 0.35, "warm": 0.5, "scale": 0.25, "restart": 1.0, "memory": 1.6,
        "values": 1.0, "cell-4": 0.6, "cell-16": 0.6, "cell-32": 0.7, "ddp": 0.97,
        "watch": 0.01, "board": 0.97,
        "deadlock": 0.6, "recovery": 0.2, "stop": 2.0,
    }  # fmt: skip
    kinds = {one.claim.name for one in measurements.BENCHMARKS if one.claim.at_least}
    assert kinds == {"values", "ddp", "board"}
