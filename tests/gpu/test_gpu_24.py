"""What notebook 24 shows only where there is a GPU. Run by hand there: pytest -m gpu."""

from pathlib import Path

import nbformat
import pytest
import torch

from labkit.course import material
from tests.support.cells import run_cell

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"),
]


def cell_with(text):
    """Return the one cell of notebook 24 that has this in it, without its magic."""
    path = Path(material.root()) / "notebooks" / "24_collectives_in_depth.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    (source,) = (c.source for c in cells if c.cell_type == "code" and text in c.source)
    assert source.startswith("%%px\n")
    return source.removeprefix("%%px\n")


@pytest.mark.parametrize("ranks", [1, 2])
def test_wait_queues_and_another_stream_waits_for_the_sum(request, ranks):
    lab = request.getfixturevalue(f"lab{ranks}")
    run_cell(lab, "dist.all_reduce(torch.ones(1, device=device))")  # connects; that takes a while
    total = ranks * (ranks + 1) / 2
    lab["total"] = total
    run_cell(lab, cell_with("torch.cuda.Stream"))
    assert [x.item() for x in lab["x"]] == ranks * [total + 100]
    if {state.backend for state in lab.status()} == {"nccl"}:
        assert all(lab["queued"])


def test_the_reductions_of_the_probe_are_those_of_nccl_by_its_documentation(lab1):
    if lab1.status()[0].backend != "nccl":
        pytest.skip("this lab does not use NCCL")
    run_cell(lab1, cell_with("def probe("))
    (floats,) = lab1["floats"]
    refused = {name for name, answer in floats.items() if answer == "no"}
    assert refused == {"BAND", "BOR", "BXOR"}
