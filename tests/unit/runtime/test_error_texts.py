"""Errors that differ in nothing that matters are one, and everyday slips have a sentence."""

from __future__ import annotations

import math
import os.path
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from labkit.notebook import names
from labkit.runtime import error_texts
from labkit.runtime.error_texts import fold_warnings


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def error(message, name="RuntimeError", place="  In[2], line 3"):
    return name, message, [*f"{name}: {message}".split("\n"), place]


def summary(messages):
    return error_texts.error_texts({rank: error(message) for rank, message in enumerate(messages)})[
        0
    ]


def test_equal_errors_are_one():
    same = ("ValueError", "no", ["ValueError: no", "  In[1], line 2"])
    other = ("KeyError", "'k'", ["KeyError: 'k'"])
    summary, blocks = error_texts.error_texts({0: same, 1: other, 2: same})
    assert summary == "ranks 0, 2: ValueError: no\nrank 1: KeyError: 'k'"
    assert [plain(b) for b in blocks] == [
        "ranks 0, 2: ValueError: no\n  In[1], line 2",
        "rank 1: KeyError: 'k'",
    ]


def test_errors_with_other_lines_are_other_errors():
    errors = {r: ("ValueError", "no", ["ValueError: no", f"  line {r // 2}"]) for r in range(4)}
    summary, blocks = error_texts.error_texts(errors)
    assert summary == "ranks 0–1: ValueError: no\nranks 2–3: ValueError: no"
    assert [block.split("\n")[1] for block in blocks] == ["  line 0", "  line 1"]


CLOSED = "[../third_party/gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:{}"


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([CLOSED.format(port) for port in (16560, 14748, 16560)],
         CLOSED.format(16560) + " (other ports on the others)"),
        (["cannot reach 10.0.0.1:29500", "cannot reach 10.0.0.1:29501"],
         "cannot reach 10.0.0.1:29500 (other ports on the others)"),
        (["no answer of ('localhost', 29500)", "no answer of ('localhost', 412)"],
         "no answer of ('localhost', 29500) (other ports on the others)"),
        (["port: 2000 is in use", "port: 3000 is in use"],
         "port: 2000 is in use (other ports on the others)"),
        (["<ProcessGroup object at 0x7f03> is gone", "<ProcessGroup object at 0x7fa0b> is gone"],
         "<ProcessGroup object at 0x7f03> is gone (other addresses on the others)"),
        (["worker (pid(s) 12, 13) exited", "worker (pid(s) 904, 17) exited"],
         "worker (pid(s) 12, 13) exited (other process ids on the others)"),
        ([f"no file /proc/{pid}/fd" for pid in (12, 9042)],
         "no file /proc/12/fd (other process ids on the others)"),
        ([f"rank {rank} of 3 has failed" for rank in range(3)],
         "rank 0 of 3 has failed (their own rank numbers on the others)"),
        ([f"device_ids [{rank}] and [rank{rank}]" for rank in range(3)],
         "device_ids [0] and [rank0] (their own rank numbers on the others)"),
        ([f"rank {rank}: <A object at 0x{rank}f>\nSee port=40{rank}." for rank in range(2)],
         "rank 0: <A object at 0x0f>\nSee port=400."
         " (their own rank numbers and other addresses and other ports on the others)"),
    ],
)  # fmt: skip
def test_what_differs_on_every_rank_anyway_is_said_once(messages, told):
    ranks = f"ranks 0–{len(messages) - 1}"
    assert summary(messages) == f"{ranks}: RuntimeError: {told}"
    (block,) = error_texts.error_texts({rank: error(m) for rank, m in enumerate(messages)})[1]
    assert plain(block) == f"{ranks}: RuntimeError: {told}\n  In[2], line 3"


@pytest.mark.parametrize(
    "messages",
    [
        ["shape (0, 2)", "shape (1, 2)"],
        ["shape '[0]' is invalid", "shape '[1]' is invalid"],
        ["The size of tensor a (0) must match", "The size of tensor a (1) must match"],
        ["value 10", "value 11"],
        ["value 0.0", "value 1.0"],
        ["value 0.5", "value 1.5"],
        ["lost 0,500 rows", "lost 1,500 rows"],
        ["no key 'layer0'", "no key 'layer1'"],
        ["rank 0 has 4 params", "rank 1 has 6 params"],
        ["rank 1 has failed", "rank 0 has failed"],
        ["hex 0x7f00", "hex 0x7f01"],
        ["no peer [10.0.0.1]:2000", "no peer [10.0.0.2]:2000"],
        ["train.py:10 says no", "train.py:11 says no"],
        ["x[0]:128", "x[0]:256"],
        ["exit code 0", "exit code 1"],
    ],
)
def test_what_matters_keeps_errors_apart(messages):
    first, second = messages
    assert summary(messages) == f"rank 0: RuntimeError: {first}\nrank 1: RuntimeError: {second}"


def test_a_number_is_the_ranks_own_on_all_ranks_or_on_none():
    told = summary(["item 0", "item 0", "item 2", "item 3"])
    assert told == (
        "ranks 0–1: RuntimeError: item 0\n"
        "ranks 2–3: RuntimeError: item 2 (their own rank numbers on the others)"
    )


def test_equal_errors_at_other_places_stay_apart():
    places = {0: "  In[2], line 0", 1: "  In[2], line 1", 2: "  -->   2 f()", 3: "  -->   3 f()"}
    told = error_texts.error_texts(
        {rank: error("no", place=place) for rank, place in places.items()}
    )[0]
    assert told == "\n".join(f"rank {rank}: RuntimeError: no" for rank in range(4))


def test_warnings_are_folded_and_prints_stay_exact():
    warning = "UserWarning (In[2], line 3): rank {0} lost <A object at 0x{0}f>\n"
    folded = (
        "UserWarning (In[2], line 3): rank 0 lost <A object at 0x0f>"
        " (their own rank numbers and other addresses on the others)\nlast\n"
    )
    assert fold_warnings({r: warning.format(r) + "last\n" for r in range(3)}) == [
        ([0, 1, 2], folded)
    ]
    printed = {r: f"rank {r} has <A object at 0x{r}f>\n" for r in range(2)}
    assert fold_warnings(printed) == [([0], printed[0]), ([1], printed[1])]
    with_print = {r: warning.format(0) + printed[r] for r in range(2)}
    assert [ranks for ranks, _ in fold_warnings(with_print)] == [[0], [1]]


@pytest.mark.parametrize(
    "line",
    [
        "[rank{0}]:[W1122 10:00:0{0}.5 socket.cpp:755] no answer of [localhost]:2950{0}\n",
        "WARNING:root:port 2950{0} is in use\n",
        "/site/a.py:12: DeprecationWarning: <A at 0x7{0}>\n",
    ],
)
def test_warnings_of_others_are_folded(line):
    ((ranks, text),) = fold_warnings({rank: line.format(rank) for rank in range(2)})
    assert (ranks, text.count("on the others")) == ([0, 1], 1)


def test_progress_bars_stay_one_per_rank():
    bar = "100%|███| 3/3 [00:01<00:00,  2.00it/s]\n"
    assert fold_warnings({0: bar, 1: bar}) == [([0], bar), ([1], bar)]


def cluster(*devices):
    return cast(Any, SimpleNamespace(places=[SimpleNamespace(device=d) for d in devices]))


def function():
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


IN_NOTEBOOK = {
    "data": "is a variable of the notebook: lab['data'] = data gives it to the ranks.",
    "f": "is a function of the notebook: lab['f'] = f gives it to the ranks.",
    "C": "is a class of the notebook: lab['C'] = C gives it to the ranks.",
    "m": "is imported in the notebook only: write import math as m in the cell.",
    "math": "is imported in the notebook only: write import math in the cell.",
    "sqrt": "is imported in the notebook only: write from math import sqrt in the cell.",
    "Node": "is imported in the notebook only: write from types import SimpleNamespace as Node in "
    "the cell.",
}


@pytest.mark.parametrize("name", IN_NOTEBOOK)
def test_a_name_of_the_notebook_is_named(name):
    assert error_texts.of_notebook(name, KNOWN) == f"{name} {IN_NOTEBOOK[name]}"


def test_a_name_that_the_notebook_has_not_is_no_slip(monkeypatch):
    monkeypatch.setattr(error_texts, "names_of_notebook", lambda: KNOWN)
    here = cluster("cpu")
    assert error_texts.explain_slip("NameError", "name 'data' is not defined", here)
    assert error_texts.explain_slip("NameError", "name 'dat' is not defined", here) is None
    assert error_texts.explain_slip("ValueError", "name 'data' is not defined", here) is None
    local = "cannot access local variable 'data' where it is not associated with a value"
    assert error_texts.explain_slip("UnboundLocalError", local, here) is None


def test_the_notebooks_own_name_of_the_lab_is_in_the_sentence():
    lab = type("Lab", (), {"__module__": "labkit.notebook.lab"})()
    known = {"data": 1, "four": lab}
    assert error_texts.of_notebook("data", known).endswith(
        ": four['data'] = data gives it to the ranks."
    )
    assert error_texts.of_notebook("four", known) == (
        "four is the lab, and belongs to the notebook: use it in a cell without %%px."
    )


HERE = "This lab computes on the CPU: "
WRITE = f"{HERE}write .to(device) and device=device, and DDP(model) without device_ids."
ON_CPU = {
    "Found no NVIDIA driver on your system. Please check": WRITE,
    "Torch not compiled with CUDA enabled": WRITE,
    "No CUDA GPUs are available": WRITE,
    "DistributedDataParallel device_ids and output_device arguments only work with": WRITE,
    "nccl2 requires at least one CUDA device": (
        f'{HERE}NCCL needs a GPU for each rank; write "gloo", or leave the backend out.'
    ),
    "No backend type associated with device type cuda": (
        f'{HERE}write device.type where the line, or its mesh, has "cuda".'
    ),
    "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is": (
        f"{HERE}write torch.load(…, map_location=device)."
    ),
}


@pytest.mark.parametrize(("message", "sentence"), ON_CPU.items())
def test_a_line_for_a_gpu_is_told_what_to_write(message, sentence):
    assert error_texts.explain_slip("RuntimeError", message, cluster("cpu", "cpu")) == sentence
    assert error_texts.explain_slip("RuntimeError", message, cluster("cuda:0", "cpu")) is None


def test_other_errors_stay_as_they_are():
    error = ("ValueError", "CUDA is a word", ["ValueError: CUDA is a word"])
    assert error_texts.add_slips(cluster("cpu"), {0: error}, "text", ["block"]) == (
        "text",
        ["block"],
    )


def test_each_sentence_comes_once():
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
def test_a_name_of_the_ranks_is_named(name, ranks, sentence):
    assert names.of_ranks(name, ranks, 2) == sentence


def test_the_notebook_has_no_group():
    assert names.of_group("Default process group has not been initialized, please make sure")
    assert names.of_group("using env:// rendezvous: environment variable RANK expected, but not")
    assert names.of_group("process group") is None
