"""The fake NCCL ends programs as the real one was seen to end them, on a machine with a GPU.

``python -m tests.gpu.record`` adds the rows of ``seen.json``. A row fails until the fake
(``tests.support.fake_nccl``) behaves as NCCL did there, or labkit is mended and the row taken
out.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.observed import SEEN, Observed, replay
from tests.support.on_fake_nccl import start_on_fake_nccl

ROWS = json.loads(SEEN.read_text())["programs"]
NONE = pytest.param(None, marks=pytest.mark.skip(reason="no program has been seen on NCCL yet"))


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS or [NONE], ids=lambda row: row["test"] if row else "none")
def test_a_program_ends_as_it_was_seen_to_end(row: dict[str, Any]) -> None:
    with start_on_fake_nccl(row["ranks"]) as lab:
        found = replay(lab, row)
    expected = Observed.from_dict(row)
    assert found.compared() == expected.compared(), (found.message, expected.message)
