"""What belongs to a process group that has ended says so, and what to write, in one sentence."""

from __future__ import annotations

import textwrap

import pytest

import labkit
from tests.support.cells import finish_cell, inside, results, run_cell, send_cell
from tests.support.deadlocks import cell

SKIP = "if rank: dist.barrier()"
MODELS = """
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
def train(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.rand(8, 4)).sum().backward()
    optimizer.step()
"""
DDP = MODELS + "model = DDP(nn.Linear(4, 4))\ntrain(model)"
FSDP = MODELS + "net = nn.Sequential(fully_shard(nn.Linear(4, 4)))\nfully_shard(net)\ntrain(net)"
MESH = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("dp", "tp"))
x = distribute_tensor(torch.arange(4.0), mesh["tp"], [Shard(0)])
"""


@pytest.fixture
def lab(lab4):
    """Four ranks in a group of the lab's."""
    if inside(lab4).cluster.deaths or inside(lab4).group.broken:
        lab4.restart()
    lab4.reset()
    return lab4


def fails(lab, code, number):
    """Run a cell that raises an error; return what it says, once for all ranks."""
    with pytest.raises(labkit.RankError) as caught:
        run_cell(lab, cell(code, number))
    text = str(caught.value)
    assert "remote worker" not in text
    assert " at 0x" not in text
    assert "out of step" not in text
    return text.removeprefix("ranks 0–3: ")


def end_by_deadlock(lab, number=3):
    """End the lab's group as most do: a rank does not come."""
    finished = finish_cell(send_cell(lab, cell(SKIP, number)))
    assert finished.ending.kind == "deadlock"


ENDED = "belongs to the process group that ended with the deadlock in In[3]"

#: What a cell makes, what a later one does with it, and what that says.
USES = {
    "DDP": (DDP, "train(model)", f"RuntimeError: model (DDP, made in In[2]) {ENDED}: "
            "model = DDP(model.module), or run In[2] again."),
    "DDP with buffers, evaluated": (
        MODELS + "bn = DDP(nn.BatchNorm1d(4))\ntrain(bn)",
        "with torch.no_grad(): bn(torch.rand(8, 4))",
        f"RuntimeError: bn (DDP, made in In[2]) {ENDED}: bn = DDP(bn.module), or run In[2] again."),
    "DDP in a list": (DDP + "\nmodels = [model]\ndel model", "train(models[0])",
                      f"RuntimeError: models[0] (DDP, made in In[2]) {ENDED}: models[0] = DDP("),
    "DDP in a sub-group": (
        MODELS + "half = dist.new_group([0, 1, 2, 3])\nmodel = DDP(nn.Linear(4, 4), None, "
        "process_group=half)", "train(model)",
        f"RuntimeError: model (DDP, made in In[2]) {ENDED}: run In[2] again."),
    "the backward of a DDP model's result": (
        DDP + "\nloss = model(torch.rand(8, 4)).sum()", "loss.backward()",
        f"RuntimeError: model (DDP, made in In[2]) {ENDED}: model = DDP(model.module), or run"),
    "FSDP": (FSDP, "train(net)", f"net (FSDP, made in In[2]) {ENDED}: run In[2] again."),
    "a sub-group": ("pair = dist.new_group()", "dist.all_reduce(torch.ones(1), group=pair)",
                    f"ValueError: pair (sub-group, made in In[2]) {ENDED}: run In[2] again."),
    "objects in a sub-group": (
        "pair = dist.new_group()", "dist.all_gather_object([None] * 4, rank, group=pair)",
        f"ValueError: pair (sub-group, made in In[2]) {ENDED}: run In[2] again."),
    "messages in a sub-group": (
        "pair = dist.new_group()",
        "dist.send(torch.ones(1), (rank + 1) % 4, group=pair)",
        f"ValueError: pair (sub-group, made in In[2]) {ENDED}: run In[2] again."),
    "the rank in a sub-group": ("pair = dist.new_group()", "dist.get_rank(pair)",
                                f"ValueError: pair (sub-group, made in In[2]) {ENDED}: run"),
    "the old default group": ("W = dist.group.WORLD", "dist.all_reduce(torch.ones(1), group=W)",
                              f"W (old default group, made in In[2]) {ENDED}: dist.group.WORLD is"),
    "a sharded tensor": (MESH, "x.full_tensor()",
                         f"RuntimeError: x (DTensor, made in In[2]) {ENDED}: run In[2] again."),
    "a result of a sharded tensor": (MESH, "(x + 1).sum().full_tensor()",
                                     f"x (DTensor, made in In[2]) {ENDED}: run In[2] again."),
    "a mesh": (MESH, "dist.barrier(mesh.get_group('tp'))",
               f"RuntimeError: mesh (mesh, made in In[2]) {ENDED}: run In[2] again."),
    "an optimizer": (
        DDP + "\nfrom torch.distributed.optim import ZeroRedundancyOptimizer as Zero\n"
        "o = Zero(model.parameters(), torch.optim.SGD, lr=0.1)",
        "model = DDP(model.module)\nmodel(torch.rand(8, 4)).sum().backward()\no.step()",
        f"ValueError: o (ZeroRedundancyOptimizer, made in In[2]) {ENDED}: run In[2] again."),
}  # fmt: skip


@pytest.mark.parametrize(("makes", "uses", "says"), USES.values(), ids=USES)
def test_what_belongs_to_a_group_that_has_ended_says_so(lab, makes, uses, says):
    run_cell(lab, cell(makes, 2))
    end_by_deadlock(lab)
    # A second try says the same, and harms nobody. (A graph can be used once.)
    for number in (4,) if uses == "loss.backward()" else (4, 5):
        assert says in fails(lab, uses, number)
    assert results(run_cell(lab, "x = torch.ones(1)\ndist.all_reduce(x)\nx.item()")) == ["4.0"] * 4


def test_what_the_sentence_says_to_write_works(lab):
    run_cell(lab, cell(DDP, 2))
    end_by_deadlock(lab)
    run_cell(lab, "model = DDP(model.module)\ntrain(model)")


def test_a_new_group_with_the_name_of_an_old_one_is_not_taken_for_it(lab):
    """Torch names groups by counting; a mesh knows its groups by their names alone."""
    run_cell(lab, cell(MESH, 2))
    end_by_deadlock(lab)
    run_cell(lab, "for ranks in ([0, 1, 2, 3], [0, 3], [1, 2]): dist.new_group(ranks)")
    assert ENDED in fails(lab, "x.full_tensor()", 4)


def test_a_mesh_of_all_ranks_goes_on(lab):
    code = """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        x = distribute_tensor(
            torch.arange(4.0), init_device_mesh("cpu", (world_size,)), [Shard(0)])
    """
    run_cell(lab, textwrap.dedent(code))
    end_by_deadlock(lab)
    assert results(run_cell(lab, "x.full_tensor().sum().item()")) == ["6.0"] * 4


def test_an_inference_of_a_ddp_model_needs_no_group(lab):
    run_cell(lab, cell(DDP, 2))
    end_by_deadlock(lab)
    inference = "with torch.no_grad(): y = model(torch.ones(4))\ny.shape[0]"
    assert results(run_cell(lab, inference)) == ["4"] * 4


def test_the_handle_of_a_call_in_a_group_that_has_ended_says_so(lab):
    late = "h = dist.all_reduce(torch.ones(1), async_op=True) if rank else None\nif rank: h.wait()"
    finished = finish_cell(send_cell(lab, cell(late, 2)))
    assert finished.ending.kind == "deadlock"
    with pytest.raises(labkit.RankError) as caught:
        run_cell(lab, cell("if rank: h.wait()", 3))
    assert str(caught.value) == (
        "ranks 1–3: RuntimeError: h (handle of a call, made in In[2]) belongs to the process group "
        "that ended with the deadlock in In[2]: make the call again."
    )


def test_a_reset_and_an_error_are_named_as_what_has_ended_a_group(lab):
    run_cell(lab, cell(DDP, 2))
    lab.reset()
    assert "that ended with lab.reset(): model" in fails(lab, "train(model)", 3)
    run_cell(lab, cell(DDP, 4))
    with pytest.raises(labkit.RankError, match="out of step"):
        run_cell(lab, cell("if rank: w = dist.all_reduce(torch.ones(1), async_op=True)\n1 / 0", 5))
    assert "that ended with an error in In[5]: model" in fails(lab, "train(model)", 6)


# -- a program that ends the group itself -------------------------------------------------------

LEFT = "{} ended the lab's process group; lab.reset() forms it again."
NO_GROUP = "ValueError: Default process group has not been initialized: "
SCRIPT = """
def main():
    group = dist.new_group([0, 1, 2, 3])
    dist.all_reduce(torch.ones(1), group=group)
    dist.destroy_process_group()
main()
"""


@pytest.mark.parametrize("code", ["dist.destroy_process_group()", SCRIPT])
@pytest.mark.parametrize(
    "needs",
    ["dist.barrier()", "dist.get_rank()", "dist.new_group()", "dist.send(torch.ones(1), 1)",
     MODELS + "DDP(nn.Linear(1, 1))"],
)  # fmt: skip
def test_a_program_that_ends_the_group_is_told_so(lab, code, needs):
    outcomes = run_cell(lab, cell(code, 2))
    assert [o.stderr for o in outcomes] == [LEFT.format("In[2]") + "\n"] * 4
    assert lab.status().notes[-1] == LEFT.format("In[2]")
    assert LEFT.format("In[2]") in repr(lab.status())
    assert run_cell(lab, "1")[0].stderr == ""  # once
    assert fails(lab, needs, 3) == NO_GROUP + LEFT.format("In[2]")
    lab.reset()
    assert LEFT.format("In[2]") not in repr(lab.status())
    run_cell(lab, "dist.barrier()")


def test_a_function_that_ends_the_group_is_told_so(lab, capsys):
    def end():
        import torch.distributed

        torch.distributed.destroy_process_group()

    lab.run(end)
    assert LEFT.format("lab.run") in "".join(capsys.readouterr())
    assert fails(lab, "dist.barrier()", 2) == NO_GROUP + LEFT.format("lab.run")
    lab.reset()


def test_a_program_that_forms_a_group_of_its_own_is_left_alone(lab):
    own = "dist.destroy_process_group()\ndist.init_process_group('gloo')\ndist.barrier()"
    assert [o.stderr for o in run_cell(lab, cell(own, 2))] == [""] * 4
    assert lab.status().notes == []
    outcomes = run_cell(lab, cell("dist.destroy_process_group()", 3))
    assert outcomes[0].stderr == LEFT.format("In[3]") + "\n"
    lab.reset()


def test_what_is_left_after_a_program_has_ended_the_group_names_both_steps(lab):
    run_cell(lab, cell("pair = dist.new_group()", 2))
    run_cell(lab, cell("dist.destroy_process_group()", 3))
    assert fails(lab, "dist.all_reduce(torch.ones(1), group=pair)", 4) == (
        "ValueError: pair (sub-group, made in In[2]) belongs to the process group that ended with "
        "dist.destroy_process_group() in In[3]. lab.reset() forms a new one; then run In[2] again."
    )
    lab.reset()
    assert "dist.destroy_process_group() in In[3]: run In[2] again" in fails(
        lab, "dist.barrier(group=pair)", 5
    )


def test_a_sub_group_that_a_program_has_ended_is_named(lab):
    run_cell(lab, cell("pair = dist.new_group()", 2))
    assert run_cell(lab, cell("dist.destroy_process_group(pair)", 3))[0].stderr == ""
    text = fails(lab, "dist.all_reduce(torch.ones(1), group=pair)", 4)
    assert "ended with dist.destroy_process_group() in In[3]: run In[2] again." in text
    run_cell(lab, "dist.barrier()")


def test_a_lab_without_a_group_says_nothing_of_one():
    with labkit.start(2, join=False) as lab:
        # The barrier: rank 0 serves the store in which the other one still forms its group.
        code = "dist.init_process_group('gloo')\ndist.barrier()\ndist.destroy_process_group()"
        run_cell(lab, code)
        assert lab.status().notes == []
        with pytest.raises(labkit.RankError, match="please make sure to call init_process_group"):
            run_cell(lab, "dist.barrier()")
