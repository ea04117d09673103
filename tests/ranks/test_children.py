"""Workers that a stopped cell has started end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import labkit
from tests.support.cells import finish_cell, inside, run_cell, send_cell
from tests.support.events import Marks, stop_pressed, until

DATA = """
import multiprocessing as mp, time, torch.utils.data as D
class Data(D.Dataset):
    def __init__(self, hangs=False): self.hangs = hangs
    def __len__(self): return 8
    def __getitem__(self, i):
        if self.hangs and rank == 1 and i == 5:
            {mark}
            time.sleep(1000)
        return torch.ones(4)
def sleep():
    {mark}
    time.sleep(1000)
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[labkit.Lab]:
    with labkit.start(2) as lab:
        yield lab


def children(lab: labkit.Lab) -> list[list[psutil.Process]]:
    return [psutil.Process(place.pid).children() for place in inside(lab).cluster.places]


LEFT = {
    "a loop": "for x in D.DataLoader(Data(True), 1, num_workers=2): dist.all_reduce(x)",
    "a function": (
        "def train():\n    loader = D.DataLoader(Data(True), 1, num_workers=2, "
        "persistent_workers=True)\n    for x in loader: dist.all_reduce(x)\ntrain()"
    ),
    "a process": (
        "def work():\n    mp.get_context('fork').Process(target=sleep, daemon=True).start()\n"
        "    time.sleep(1000)\nwork()"
    ),
}


@pytest.mark.parametrize("code", LEFT.values(), ids=LEFT)
def test_workers_end_with_the_stop(lab: labkit.Lab, tmp_path: Path, code: str) -> None:
    marks = Marks(tmp_path)
    run_cell(lab, DATA.format(mark=marks.make()))
    with stop_pressed(lambda states: marks.count()):
        sent = send_cell(lab, code)
        assert isinstance(finish_cell(sent).error, labkit.Interrupted)
    # From outside: a cell could let Python collect them, which blocks the rank until they end.
    until(lambda: not any(children(lab)))
