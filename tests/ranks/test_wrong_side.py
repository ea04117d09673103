"""A name of the notebook's on the ranks, or of the ranks' in the notebook: where it is, is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit import RankError
from labkit.notebook import names
from tests.support.cells import finish_cell, run_cell, send_cell
from tests.support.events import Gate

Told = Callable[[str], str]


@pytest.fixture(scope="module")
def lab(shell: InteractiveShell):
    with labkit.start(2) as lab:
        run_cell(lab, "mine = 3\nimport json as its_json\nif rank: only = 4")
        yield lab


@pytest.fixture
def told(shell: InteractiveShell, lab: labkit.Lab, capsys: pytest.CaptureFixture[str]) -> Told:
    """Return what a cell of the notebook's is told below its error."""

    def run(text: str) -> str:
        capsys.readouterr()
        assert not shell.run_cell(text).success
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rank", "rank is a name of the ranks: begin the cell with %%px.\n"),
        ("mine", "mine is a name of the ranks: begin the cell with %%px.\n"),
        ("[only for _ in 'a']", "only is a name of rank 1: begin the cell with %%px.\n"),
        ("torch.ones(1)", "torch is imported on the ranks only: begin the cell with %%px, or"),
    ],
)
def test_a_name_of_the_ranks(told: Told, text: str, sentence: str) -> None:
    assert told(text).startswith(sentence)


@pytest.mark.parametrize("text", ["mien", "_oh_no", "1 / 0", "def f():\n    x; x = 1\nf()"])
def test_nothing_is_said_of_what_is_nowhere(told: Told, text: str) -> None:
    assert told(text) == ""


def test_the_error_is_the_notebooks_own(shell: InteractiveShell, lab: labkit.Lab) -> None:
    error = shell.run_cell("mine").error_in_exec
    assert type(error) is NameError
    assert str(error) == "name 'mine' is not defined"
    assert not hasattr(error, "__notes__")


def test_a_module_that_misses_a_name_of_its_own_is_no_slip(
    told: Told, tmp_path: object, shell: InteractiveShell
) -> None:
    path = f"{tmp_path}/module_of_slips.py"
    with open(path, "w") as file:
        file.write("def f():\n    return mine\n")
    shell.run_cell(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport module_of_slips")
    assert told("module_of_slips.f()") == ""


@pytest.mark.parametrize(
    "text",
    [
        "dist.get_world_size()",
        "dist.all_reduce(None)",
        "dist.init_process_group('gloo')",
    ],
)
def test_the_process_group_is_on_the_ranks(
    told: Told, monkeypatch: pytest.MonkeyPatch, text: str, shell: InteractiveShell
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    if "all_reduce" in text:
        text = "import torch\ndist.all_reduce(torch.ones(1))"
    assert told(f"import torch.distributed as dist\n{text}") == (
        "The process group is on the ranks, not in the notebook: begin the cell with %%px.\n"
    )
    shell.run_cell("del dist\nglobals().pop('torch', None)")


def test_nothing_is_asked_of_ranks_that_are_busy(
    told: Told, lab: labkit.Lab, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    original = names.send_remote_call
    monkeypatch.setattr(
        names,
        "send_remote_call",
        lambda group, ranks, call: asked.append(ranks) or original(group, ranks, call),
    )
    sent = send_cell(lab, gate.wait)
    assert told("mine") == ""
    assert told("rank") != ""
    assert asked == []
    gate.open()
    assert finish_cell(sent).error is None
    sent = send_cell(lab, "pass", ranks=[0])
    assert finish_cell(sent).error is None
    assert told("mine") != ""
    assert asked == [[0, 1]]


@pytest.mark.parametrize(
    ("define", "cell", "sentence"),
    [
        ("data = [1]", "len(data)", "data is a variable of the notebook: lab['data'] = data gives"),
        ("def g(): pass", "if rank: g()", "g is a function of the notebook: lab['g'] = g gives"),
        ("import math as m", "m.pi", "m is imported in the notebook only: write import math as m"),
    ],
)
def test_a_name_of_the_notebook(
    shell: InteractiveShell, lab: labkit.Lab, define: str, cell: str, sentence: str
) -> None:
    shell.run_cell(define)
    error = shell.run_cell(f"%%px\n{cell}\n").error_in_exec
    assert isinstance(error, RankError)
    assert str(error).splitlines()[1].startswith(sentence)
    assert error.blocks[-1].startswith(sentence)


def test_a_function_of_the_notebook_does_not_see_cells(lab: labkit.Lab) -> None:
    names: dict[str, object] = {"__builtins__": __builtins__}
    exec("def f(): return rank\ndef g(): return mine\ndef h(): return nowhere", names)
    with pytest.raises(RankError) as caught:
        lab.run(names["f"])  # type: ignore[arg-type]
    assert str(caught.value).splitlines()[1] == (
        "rank is a name of the %%px cells, which a function of lab.run does not see: write "
        "dist.get_rank()."
    )
    with pytest.raises(RankError, match=r"does not see: run it in a %%px cell, or pass it as an"):
        lab.run(names["g"])  # type: ignore[arg-type]
    with pytest.raises(RankError) as caught:
        lab.run(names["h"])  # type: ignore[arg-type]
    assert str(caught.value) == "ranks 0–1: NameError: name 'nowhere' is not defined"


@pytest.mark.parametrize(
    "line",
    [
        "torch.ones(1).cuda()",
        "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1), device_ids=[rank])",
    ],
)
def test_a_line_for_a_gpu_is_told_what_to_write(lab: labkit.Lab, line: str) -> None:
    with pytest.raises(RankError) as caught:
        run_cell(lab, line)
    assert str(caught.value).splitlines()[-1] == (
        "This lab computes on the CPU: write .to(device) and device=device, and DDP(model) "
        "without device_ids."
    )


def test_nccl_is_for_gpus(lab: labkit.Lab) -> None:
    with pytest.raises(RankError, match=r'computes on the CPU: NCCL needs a GPU .*; write "gloo"'):
        run_cell(lab, "dist.new_group(backend='nccl')")


def test_without_a_lab_nothing_is_said(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    with labkit.start(1) as lab:
        shell.run_cell("rank")
        assert "%%px" in capsys.readouterr().err
        lab.stop()
        shell.run_cell("rank")
        assert capsys.readouterr().err == ""
