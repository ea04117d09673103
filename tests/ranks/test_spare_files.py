"""A rank that has used up its file descriptors is named and freed, and cells go on."""

import pytest

import labkit
from tests.support.cells import results, run_cell

EVERY_ONE = """
import os, resource, socket
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))
held = []
if rank == {rank}:
    while True:
        held.append({take})
dist.barrier()
"""


@pytest.mark.parametrize(
    ("rank", "take", "hard"),
    [
        (1, "open(os.devnull)", 256),
        (0, "socket.socket()", "hard"),
        (1, "[os.fdopen(end) for end in os.pipe()]", "hard"),
    ],
    ids=["files", "sockets", "pipes"],
)
def test_a_rank_that_has_used_them_up_is_named_and_cells_go_on(rank, take, hard):
    """In the lab's first cell: nothing of the rank has opened what it needs by then."""
    with labkit.start(2) as lab:
        with pytest.raises(labkit.RankError, match="Too many open files") as caught:
            run_cell(lab, EVERY_ONE.format(rank=rank, take=take, hard=hard))
        said = str(caught.value)
        assert f"Rank {rank} has no file descriptor left" in said
        assert f"lab.restart(ranks=[{rank}])" in said
        assert f"labkit freed rank {1 - rank} and formed the process group anew" in said
        assert results(run_cell(lab, "len(held) > 9")) == [str(r == rank) for r in (0, 1)]
        run_cell(lab, "held.clear()")
        code = "x = torch.ones(1)\ndist.all_reduce(x)\nx.item()"
        assert results(run_cell(lab, code)) == ["2.0"] * 2


def test_more_than_one_deadlock_of_such_a_rank_is_named():
    """What labkit keeps for itself is there again after each."""
    with labkit.start(2) as lab:
        with pytest.raises(labkit.RankError, match="Too many open files"):
            run_cell(lab, EVERY_ONE.format(rank=1, take="open(os.devnull)", hard=256))
        for _ in range(3):
            with pytest.raises(labkit.Deadlock, match="rank 1, which has ended"):
                run_cell(lab, "if rank == 0: dist.barrier()")


def test_a_rank_whose_library_says_it_is_named_too():
    """Of the whole system there may be too many, which no rank can change."""
    with labkit.start(2) as lab:
        raised = "raise RuntimeError('Too many open files{}. Communication with the workers')"
        with pytest.raises(labkit.RankError, match="Ranks 0–1 have no file descriptor left"):
            run_cell(lab, raised.format(""))
        with pytest.raises(labkit.RankError) as caught:
            run_cell(lab, raised.format(" in system"))
        assert "descriptor" not in str(caught.value)
