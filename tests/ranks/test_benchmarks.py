"""The benchmarks of a lab of four ranks, in small: their programs run, and give a figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import measurements
from tests.bench.child import environment
from tests.bench.measurements import BENCHMARKS

pytestmark = pytest.mark.slow

#: Far from their bounds, which a busy machine may miss.
MOST = {"watch": 0.2, "board": 10.0, "deadlock": 20.0, "recovery": 20.0}


@pytest.mark.parametrize("name", MOST)
def test_a_benchmark_has_a_figure(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for trained in measurements.STEPS:
        monkeypatch.setitem(measurements.STEPS, trained, 60)
    (benchmark,) = [one for one in BENCHMARKS if one.claim.name == name]
    claim = benchmark.measure(benchmark.claim, 1, environment(str(tmp_path)))
    assert claim.error == ""
    assert claim.figure is not None
    assert 0 < claim.figure < MOST[name]
