"""Check the benchmark harness itself, on programs that take no time."""

from __future__ import annotations

import io
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console
from typer.testing import CliRunner

from tests.bench import __main__ as bench
from tests.bench import measurements
from tests.bench.child import time_to_answer
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
    assert {"python", "torch", "ipyparallel", "torch-labkit"} <= set(document["versions"])


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


def app() -> typer.Typer:
    out = typer.Typer()
    out.command()(bench.main)
    return out


def test_an_unknown_claim_is_refused_with_the_names_of_all():
    result = CliRunner().invoke(app(), shlex.split("--only nope"), env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "nope" in result.output
    assert [name for name in bench.NAMES if name not in result.output] == []


def test_the_readmes_claims_are_there_with_their_bounds():
    bounds = {one.claim.name: one.claim.bound for one in measurements.BENCHMARKS}
    assert bounds == {
        "start": 0.55, "stock": 0.35, "warm": 0.5, "scale": 0.25, "restart": 1.0, "memory": 1.6,
        "values": 1.0, "cell-4": 0.6, "cell-16": 0.6, "cell-32": 0.7, "ddp": 0.97,
        "watch": 0.01, "board": 0.97, "curves": 0.01,
        "deadlock": 0.6, "recovery": 0.2, "stop": 2.0,
    }  # fmt: skip
    kinds = {one.claim.name for one in measurements.BENCHMARKS if one.claim.at_least}
    assert kinds == {"values", "ddp", "board"}
