"""The labs that the other files share work, on NCCL and, where this is only tried, on the fake."""

from __future__ import annotations

import pytest

from tests.support.cells import results, run_cell

from .ranks import FAKE, GPUS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS and not FAKE, reason="this machine has no GPU"),
]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_shared_lab_adds_up(request: pytest.FixtureRequest, ranks: int) -> None:
    lab = request.getfixturevalue(f"lab{ranks}")
    code = "x = torch.ones(1, device=device)\ndist.all_reduce(x)\nx.item()"
    assert results(run_cell(lab, code)) == [f"{ranks}.0"] * ranks
