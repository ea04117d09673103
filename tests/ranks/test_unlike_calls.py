"""Collectives that met and were not alike end well, with wrong numbers: they are warned of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import labkit
from tests.support import cells
from tests.support.cells import finish_cell, run_cell, send_cell


@pytest.fixture(scope="module", params=[2, 3], ids="{} ranks".format)
def lab(request: pytest.FixtureRequest) -> Iterator[labkit.Lab]:
    with labkit.start(request.param) as started:
        run_cell(started, PREPARE)
        yield started


PREPARE = """#px In[1]
import threading
import torch.distributed._functional_collectives as funcol
from torch.nn.parallel import DistributedDataParallel as DDP

ours = dist.new_group([0, 1])
others = [r for r in range(world_size) if r != rank]


def full(dtype, size=4, shape=None):
    return torch.arange(float(size)).add(rank + 1).to(dtype).reshape(shape or (size,))


def by_rank(first, then, **named):
    return full(first if rank == 0 else then, **named)


def like(x):
    return [torch.zeros_like(x) for _ in range(world_size)]
"""


def warnings(lab: labkit.Lab, code: str) -> list[str]:
    """Run a cell whose first line is line 2; return what it warns of, each sentence once."""
    return cells.warnings(run_cell(lab, f"#px In[2]\n{code.strip()}"))


I32 = "x = by_rank(torch.int32, torch.float32); "
TYPES = {
    "all_reduce": I32 + "dist.all_reduce(x)",
    "of 64 bits": "dist.all_reduce(by_rank(torch.int64, torch.float64))",
    "of 16 bits": "dist.all_reduce(by_rank(torch.float16, torch.bfloat16))",
    "broadcast": I32 + "dist.broadcast(x, 0)",
    "reduce": I32 + "dist.reduce(x, 1)",
    "all_gather": I32 + "dist.all_gather(like(x), x)",
    "all_gather_into_tensor": I32 + "dist.all_gather_into_tensor(torch.cat(like(x)), x)",
    "gather": I32 + "dist.gather(x, like(x) if rank == 1 else None, dst=1)",
    "scatter": I32 + "dist.scatter(x, like(x) if rank == 0 else None, src=0)",
    "reduce_scatter": I32 + "dist.reduce_scatter(x, like(x))",
    "reduce_scatter_tensor": I32 + "dist.reduce_scatter_tensor(x, torch.cat(like(x)))",
    "all_to_all": I32 + "dist.all_to_all(like(x), like(x))",
    "all_to_all_single": I32 + "y = torch.cat(like(x)); dist.all_to_all_single(y, y.clone())",
    "coalesced": I32 + "dist.all_reduce_coalesced([x, x.clone()])",
    "a handle": I32 + "dist.all_reduce(x, async_op=True).wait()",
    "a sub-group": I32 + "if rank < 2: dist.all_reduce(x, group=ours)",
    "a thread": I32
    + "t = threading.Thread(target=lambda: dist.all_reduce(x))\nt.start(); t.join()",
    "functional": I32 + "funcol.wait_tensor(funcol.all_reduce(x, 'sum', dist.group.WORLD))",
    "after messages": """
if rank == 0: dist.send(torch.ones(1), 1)
elif rank == 1: dist.recv(torch.ones(1), 0)
dist.monitored_barrier(); dist.all_reduce(by_rank(torch.int32, torch.float32))""",
    "a message": """
if rank == 0: dist.send(torch.ones(4, dtype=torch.int32), 1)
elif rank == 1: dist.recv(torch.ones(4), 0)""",
    "a batch": """
if rank < 2:
    x, y = by_rank(torch.int32, torch.float32), full(torch.float32)
    ops = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]
    for work in dist.batch_isend_irecv(ops): work.wait()""",
}


@pytest.mark.parametrize("code", TYPES.values(), ids=TYPES)
def test_another_type(lab: labkit.Lab, code: str) -> None:
    (said,) = warnings(lab, code.replace("; if ", "\nif "))
    assert "their bytes" in said
    assert "wrong. Convert first: x." in said
    assert "(In[2], line " in said or "funcol" in code


LAYOUTS = {
    "broadcast of a column": "dist.broadcast(full(torch.float32, 8, (4, 2))[:, 0], src=0)",
    "scatter into a column": """
x = full(torch.float32, 8, (4, 2))[:, 0]
dist.scatter(x, [torch.ones(4)] * world_size if rank == 0 else None, src=0)""",
    "scatter of transposed ones": """
x = full(torch.float32, 4, (2, 2))
dist.scatter(x, [x.t()] * world_size if rank == 0 else None, src=0)""",
    "transposed on one rank": """
x = full(torch.float32, 4, (2, 2))
dist.all_reduce(x.t() if rank else x)""",
    "channels last on one rank": """
x = full(torch.float32, 16, (1, 4, 2, 2))
dist.broadcast(x.to(memory_format=torch.channels_last) if rank else x, 0)""",
}


@pytest.mark.parametrize("code", LAYOUTS.values(), ids=LAYOUTS)
def test_memory_that_is_not_in_order(lab: labkit.Lab, code: str) -> None:
    (said,) = warnings(lab, code)
    assert ("not contiguous" in said) or ("transposed (dimensions" in said)
    assert "x.contiguous()" in said


def test_another_operation_and_size(lab: labkit.Lab) -> None:
    code = (
        "op = dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM\ndist.all_reduce(torch.ones(2), op)"
    )
    (said,) = warnings(lab, code)
    assert "SUM on rank 0, MAX on rank" in said
    (said,) = warnings(lab, "dist.broadcast(torch.ones(4 if rank else 2), 0)")
    assert "2 elements of float32 on rank 0, 4 elements of float32 on rank" in said


SLIPPED = {
    "a loop": """
for _ in range(4 if rank == 0 else 3): dist.all_reduce(torch.ones(1))
dist.all_reduce(torch.ones(1))
for _ in range(1 if rank == 0 else 2): dist.all_reduce(torch.ones(1))""",
    "many steps of DDP": """
model = DDP(torch.nn.Linear(1, 1, bias=False))
for _ in range(200 if rank == 0 else 199): model(torch.ones(1, 1)).sum().backward()
dist.all_reduce(torch.ones(1))
for _ in range(200 if rank == 0 else 201): model(torch.ones(1, 1)).sum().backward()""",
}


@pytest.mark.parametrize("code", SLIPPED.values(), ids=SLIPPED)
def test_a_call_after_a_shorter_loop(lab: labkit.Lab, code: str) -> None:
    (said,) = warnings(lab, code)
    line = 2 + code.strip().split("\n").index("dist.all_reduce(torch.ones(1))")
    assert said.startswith(f"UserWarning (In[2], line {line}): this call on rank")
    assert ("DDP's backward" in said) == ("DDP" in code)


LEGAL = {
    "nothing": "pass",
    "a branch for each": """
if rank == 0: dist.all_reduce(torch.ones(2))
else:
    dist.all_reduce(torch.zeros(2))""",
    "turns": """
for i in range(5):
    if rank == i % world_size: dist.broadcast(torch.ones(1), rank)
    else: dist.broadcast(torch.zeros(1), i % world_size)
    if rank == i % world_size: dist.all_reduce(torch.ones(1))
    else: dist.all_reduce(torch.zeros(1))""",
    "who is ready goes on": """
for _ in range(4 if rank == 0 else 3): dist.all_reduce(torch.ones(1))
left = torch.ones(1)
while left.item():
    left = torch.zeros(1)
    dist.all_reduce(left)
dist.all_reduce(left)""",
    "bool in uint8": "dist.broadcast(by_rank(torch.bool, torch.uint8), 0)",
    "bytes in uint8": """
x = full(torch.float32) if rank == 0 else torch.zeros(16, dtype=torch.uint8)
dist.broadcast(x, 0)""",
    "complex and its parts": """
x = torch.ones(4, dtype=torch.complex64)
dist.all_reduce(x if rank else torch.view_as_real(x))""",
    "other shapes": "dist.all_reduce(full(torch.float32, 6, (2, 3) if rank else (3, 2)))",
    "transposed everywhere": "dist.all_reduce(full(torch.float32, 6, (2, 3)).t())",
    "what torch copies": """
x = full(torch.float32, 8, (4, 2))
dist.all_gather(like(x.t()), x.t()); dist.all_gather(like(x[:, 0]), x[:, 0])
dist.all_gather_into_tensor(torch.zeros(4 * world_size), x[:, 0])
dist.gather(x[:, 0], like(x[:, 0]) if rank == 0 else None)
dist.all_to_all([y.t() for y in like(x)], [x.t()] * world_size)
dist.reduce_scatter_tensor(torch.zeros(2), torch.ones(2, 2 * world_size)[0])
funcol.wait_tensor(funcol.all_reduce(x.t() if rank else x.reshape(2, 4), "sum", ours.group_name)
                   if rank < 2 else x)""",
    "join": """
model = DDP(torch.nn.Linear(1, 1), find_unused_parameters=True)
with model.join():
    for _ in range(4 if rank == 0 else 3): model(torch.ones(1, 1)).sum().backward()
dist.all_reduce(torch.ones(1))""",
    "objects": """
things = [{"step": rank}] * 2 if rank == 0 else [None, None]
dist.broadcast_object_list(things, 0)
dist.all_gather_object([None] * world_size, "on" * rank)
dist.gather_object("on" * rank, [None] * world_size if rank == 0 else None)""",
    "several types": """
x, y = full(torch.float32), full(torch.int32)
for z in (x, y): dist.all_reduce(z)
dist.reduce_scatter(x, like(x)); dist.all_reduce(y); dist.barrier(); dist.monitored_barrier()
dist.broadcast(y, 0)""",
    "other things in sub-groups": """
x = by_rank(torch.int32, torch.float32)
if rank < 2: dist.all_reduce(torch.ones(1), group=ours)
dist.all_reduce(torch.ones(1))""",
}  # fmt: skip


@pytest.mark.parametrize("code", LEGAL.values(), ids=LEGAL)
def test_what_is_right_or_meant(lab: labkit.Lab, code: str) -> None:
    assert warnings(lab, code) == []


def test_a_loop_that_begins_in_the_cell_before(lab: labkit.Lab) -> None:
    """Numbers go on; lines are those of this cell."""
    code = "for _ in range(3): dist.all_reduce(by_rank(torch.int32, torch.float32))"
    assert len(warnings(lab, code)) == 1
    assert warnings(lab, "pass") == []
    assert len(warnings(lab, code)) == 1


def test_a_function(lab: labkit.Lab, capsys: pytest.CaptureFixture[str]) -> None:
    def add(other: bool) -> None:
        import torch
        import torch.distributed as dist

        first = other and dist.get_rank() == 0
        dist.all_reduce(torch.ones(4, dtype=torch.int32 if first else torch.float32))

    lab.run(add, False)
    assert capsys.readouterr().err == ""
    lab.run(add, True)
    assert "all_reduce (collective" in capsys.readouterr().err


def test_only_cells_with_collectives_tell_of_them(lab: labkit.Lab) -> None:
    send = "if rank == 0: dist.send(torch.ones(1), 1)\nelif rank == 1: dist.recv(torch.ones(1), 0)"
    for code, tells in (("pass", False), (send, False), ("dist.all_reduce(torch.ones(1))", True)):
        sent = send_cell(lab, code)
        assert finish_cell(sent).error is None
        assert bool(sent.collectives()) == tells
