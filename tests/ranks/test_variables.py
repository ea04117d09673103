"""``lab["x"]``: what goes to the ranks and comes back, and what is said of what cannot."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import labkit
from labkit import LabError, RankError, UsageError
from tests.support.cells import run_cell

MADE = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import threading
seq = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
with torch.no_grad(): seq[0].weight.fill_(rank)
model = DDP(nn.Linear(2, 1))
trainer = {"model": model}
group = dist.new_group()
work = dist.all_reduce(torch.ones(1), async_op=True)
lock = threading.Lock()
items = (i for i in range(3))
if rank: only = 1
"""


@pytest.fixture(scope="module")
def lab():
    with labkit.start(2) as lab:
        run_cell(lab, MADE)
        yield lab


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("model", "%px sd = model.module.state_dict(), then lab['sd']."),
        ("trainer", "%px part = …, then lab['part']."),
        ("group", "%px members = dist.get_process_group_ranks(group), then lab['members']."),
        ("work", "%px work.wait(), then the tensor of that call."),
        ("lock", "%px part = …, then lab['part']."),
        ("items", "%px items = list(items), then lab['items']."),
    ],
)
def test_what_stays_on_its_rank_names_the_way_on(lab: labkit.Lab, name: str, way: str) -> None:
    with pytest.raises(UsageError) as caught:
        lab[name]
    assert str(caught.value).startswith(f"{name} cannot leave its ranks")
    assert str(caught.value).endswith(f"Take what you need of it: {way}")
    assert "\n" not in str(caught.value)


def test_dots_read_an_attribute(lab: labkit.Lab) -> None:
    assert [w.tolist() for w in lab["seq.0.weight"]] == [[[0, 0]], [[1, 1]]]
    assert lab["device.type"] == ["cpu", "cpu"]
    assert [tuple(w.shape) for w in lab["model.module.weight"]] == [(1, 2)] * 2


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("seq.0.wieght", "There is no seq.0.wieght on ranks 0–1: seq.0 is a Linear, which has no"),
        ("nope.x", "There is no variable 'nope' on ranks 0–1."),
        ("only.real", "There is no variable 'only' on rank 0."),
        ("seq.", 'lab[…] must name one variable, as in lab["x"], got '),
        (".seq", 'lab[…] must name one variable, as in lab["x"], got '),
        ("0.seq", 'lab[…] must name one variable, as in lab["x"], got '),
        ("seq()", 'lab[…] must name one variable, as in lab["x"], got '),
        ("seq.state_dict()", 'lab[…] must name one variable, as in lab["x"], got '),
        ("seq[0]", 'lab[…] must name one variable, as in lab["x"], got '),
    ],
)
def test_only_what_is_there_is_read(lab: labkit.Lab, name: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        lab[name]
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("name", ["rank", "world_size", "device", "torch", "dist"])
def test_the_names_of_labkit_stay(lab: labkit.Lab, name: str) -> None:
    with pytest.raises(UsageError, match=f"^{name} is a name that labkit gives to each rank"):
        lab[name] = 3
    with pytest.raises(UsageError, match=f"^{name} is a name that labkit gives to each rank"):
        del lab[name]
    assert lab["rank"] == [0, 1]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (threading.Lock, "lab['y'] = …: a lock cannot be sent to the ranks (cannot pickle '_thr"),
        (lambda: (i for i in "a"), "lab['y'] = …: a generator cannot be sent to the ranks (can"),
        (lambda: [threading.Lock()], "lab['y'] = …: a list of 1 item cannot be sent to the ranks"),
    ],
)
def test_what_cannot_be_sent_is_one_sentence(
    lab: labkit.Lab, make: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(UsageError) as caught:
        lab["y"] = make()
    assert str(caught.value).startswith(sentence)
    assert str(caught.value).endswith(": make it in a %%px cell.")
    assert "y" not in lab


def test_the_lab_itself_stays(lab: labkit.Lab) -> None:
    with pytest.raises(UsageError, match=r"a Lab cannot be sent .*\(the lab itself stays in the"):
        lab["me"] = lab
    with pytest.raises(UsageError, match=r"^What lab.run was given cannot be sent to the ranks"):
        lab.run(lambda: lab.world_size)


def test_a_lab_has_names_as_a_mapping_has_keys(lab: labkit.Lab) -> None:
    lab["x"] = 3
    assert "x" in lab
    assert "torch" in lab
    assert "only" not in lab
    assert {"x", "rank", "seq"} <= set(lab.keys())
    assert {"torch", "only", "exit", "In", "get_ipython"}.isdisjoint(lab.keys())
    del lab["x"]
    assert "x" not in lab
    with pytest.raises(UsageError, match=r"^There is no variable 'x' on ranks 0–1\.$"):
        del lab["x"]
    run_cell(lab, "if rank: half = 1")
    del lab["half"]
    with pytest.raises(UsageError, match=r"^lab\[…\] must name one variable"):
        _ = 3 in lab


def test_an_attribute_that_a_lab_has_not_says_how_to_read_a_variable(lab: labkit.Lab) -> None:
    with pytest.raises(AttributeError, match=r"^a Lab has no seq; lab\['seq'\] has the values"):
        lab.seq  # noqa: B018
    assert not hasattr(lab, "_repr_png_")


def test_a_result_that_stays_is_one_sentence(lab: labkit.Lab) -> None:
    with pytest.raises(RankError, match=r"TypeError: The result cannot leave its ranks: it is a g"):
        lab.run(lambda: (i for i in "a"))


def test_what_only_ranks_can_read_is_one_sentence(lab: labkit.Lab) -> None:
    code = "import sys, types\nmodule = sys.modules['only_here'] = types.ModuleType('only_here')\n"
    run_cell(lab, code + "exec('class K: pass', vars(module))\nk = module.K()")
    with pytest.raises(LabError, match=r"^k has left its ranks, but the notebook cannot read it"):
        lab["k"]
    run_cell(lab, "del k, module, sys.modules['only_here']")
