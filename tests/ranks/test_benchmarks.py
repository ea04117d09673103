"""The benchmarks of a lab of four ranks, in small: their programs run, and give a figure."""

from __future__ import annotations

import pytest

from tests.bench import board, deadlock, recovery, watch
from tests.bench.child import environment

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("benchmark", "most"),
    [(watch, 0.2), (board, 10.0), (deadlock, 20.0), (recovery, 20.0)],
    ids=lambda value: value.CLAIM.name if hasattr(value, "CLAIM") else "",
)
def test_a_benchmark_has_a_figure(benchmark, most, monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "STEPS", 60, raising=False)
    claim = benchmark.measure(1, environment(str(tmp_path)))
    assert claim.error == ""
    assert claim.figure is not None
    assert 0 < claim.figure < most  # far from its bound, which a busy machine may miss
