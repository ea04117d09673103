"""What is said of everyday slips, by the errors that Python and torch raise for them."""

from __future__ import annotations

import math
import os.path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from labkit.notebook import names
from labkit.runtime import error_texts
from labkit.runtime.cluster import RankCluster


def cluster(*devices: str) -> RankCluster:
    return cast(Any, SimpleNamespace(places=[SimpleNamespace(device=d) for d in devices]))


def function() -> None:
    """Stand for a function of the notebook's."""


class Class:
    """Stand for a class of the notebook's."""


function.__module__ = Class.__module__ = "__main__"
KNOWN = {
    "data": [1, 2],
    "f": function,
    "C": Class,
    "m": math,
    "path": os.path,
    "math": math,
    "sqrt": math.sqrt,
    "Node": SimpleNamespace,
    "other": lambda: 0,
}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("data", "data is a variable of the notebook: lab['data'] = data gives it to the ranks."),
        ("f", "f is a function of the notebook: lab['f'] = f gives it to the ranks."),
        ("C", "C is a class of the notebook: lab['C'] = C gives it to the ranks."),
        ("m", "m is imported in the notebook only: write import math as m in the cell."),
        ("math", "math is imported in the notebook only: write import math in the cell."),
        (
            "sqrt",
            "sqrt is imported in the notebook only: write from math import sqrt in the cell.",
        ),
        (
            "Node",
            "Node is imported in the notebook only: write from types import SimpleNamespace as "
            "Node in the cell.",
        ),
    ],
)
def test_a_name_of_the_notebook_is_named(name: str, sentence: str) -> None:
    assert error_texts.of_notebook(name, KNOWN) == sentence


def test_a_name_that_the_notebook_has_not_is_no_slip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_texts, "names_of_notebook", lambda: KNOWN)
    here = cluster("cpu")
    assert error_texts.explain_slip("NameError", "name 'data' is not defined", here)
    assert error_texts.explain_slip("NameError", "name 'dat' is not defined", here) is None
    assert error_texts.explain_slip("ValueError", "name 'data' is not defined", here) is None
    local = "cannot access local variable 'data' where it is not associated with a value"
    assert error_texts.explain_slip("UnboundLocalError", local, here) is None


def test_the_notebooks_own_name_of_the_lab_is_in_the_sentence() -> None:
    lab = type("Lab", (), {"__module__": "labkit.notebook.lab"})()
    known = {"data": 1, "four": lab}
    assert error_texts.of_notebook("data", known).endswith(
        ": four['data'] = data gives it to the ranks."
    )
    assert error_texts.of_notebook("four", known) == (
        "four is the lab, and belongs to the notebook: use it in a cell without %%px."
    )


WRITE = (
    "This lab computes on the CPU: write .to(device) and device=device, and DDP(model) without "
    "device_ids."
)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("Found no NVIDIA driver on your system. Please check", WRITE),
        ("Torch not compiled with CUDA enabled", WRITE),
        ("No CUDA GPUs are available", WRITE),
        ("DistributedDataParallel device_ids and output_device arguments only work with", WRITE),
        (
            "nccl2 requires at least one CUDA device",
            'This lab computes on the CPU: NCCL needs a GPU for each rank; write "gloo", or leave '
            "the backend out.",
        ),
        (
            "No backend type associated with device type cuda",
            "This lab computes on the CPU: write device.type where the line, or its mesh, has "
            '"cuda".',
        ),
        (
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is",
            "This lab computes on the CPU: write torch.load(…, map_location=device).",
        ),
    ],
)
def test_a_line_for_a_gpu_is_told_what_to_write(message: str, sentence: str) -> None:
    assert error_texts.explain_slip("RuntimeError", message, cluster("cpu", "cpu")) == sentence
    assert error_texts.explain_slip("RuntimeError", message, cluster("cuda:0", "cpu")) is None


def test_other_errors_stay_as_they_are() -> None:
    error = ("ValueError", "CUDA is a word", ["ValueError: CUDA is a word"])
    assert error_texts.add_slips(cluster("cpu"), {0: error}, "text", ["block"]) == (
        "text",
        ["block"],
    )


def test_each_sentence_comes_once() -> None:
    errors = {
        rank: ("RuntimeError", f"Found no NVIDIA driver ({rank})", ["lines"]) for rank in range(3)
    }
    summary, blocks = error_texts.add_slips(cluster("cpu"), errors, "text", ["block"])
    assert (summary, blocks) == (f"text\n{WRITE}", ["block", WRITE])


@pytest.mark.parametrize(
    ("name", "ranks", "sentence"),
    [
        ("rank", [0, 1], "rank is a name of the ranks: begin the cell with %%px."),
        ("only", [1], "only is a name of rank 1: begin the cell with %%px."),
        (
            "dist",
            [0, 1],
            "dist is imported on the ranks only: begin the cell with %%px, or write import "
            "torch.distributed as dist here.",
        ),
    ],
)
def test_a_name_of_the_ranks_is_named(name: str, ranks: list[int], sentence: str) -> None:
    assert names.of_ranks(name, ranks, 2) == sentence


def test_the_notebook_has_no_group() -> None:
    assert names.of_group("Default process group has not been initialized, please make sure")
    assert names.of_group("using env:// rendezvous: environment variable RANK expected, but not")
    assert names.of_group("process group") is None
