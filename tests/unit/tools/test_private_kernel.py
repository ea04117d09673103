"""What a program reads of a cell of its private kernel."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from nbformat.v4 import new_output

from labkit.base.errors import UsageError
from labkit.tools import private_kernel
from labkit.tools.private_kernel import LONGEST, PrivateKernel


def test_outputs_are_text_without_colours() -> None:
    outputs = [
        new_output("stream", name="stdout", text="\x1b[1mrank 0\x1b[0m: 10 %\rrank 0: 20 %\n"),
        new_output("display_data", data={"image/png": "iVBO", "text/plain": "<Figure>"}),
        new_output("error", ename="E", evalue="v", traceback=["\x1b[31mDeadlock\x1b[0m: …"]),
    ]
    assert private_kernel.read(outputs) == "rank 0: 20 %\n<Figure>\nDeadlock: …"


def test_a_text_that_json_cannot_hold_is_written_out() -> None:
    read = private_kernel.read([new_output("stream", name="stdout", text="\ud800")])
    json.dumps(read, ensure_ascii=False).encode()
    assert read == r"\ud800"


@pytest.mark.parametrize("more", [0, 1, 10**6])
def test_a_long_text_has_a_bound(more: int) -> None:
    text = private_kernel.cut("a" * (LONGEST // 2) + "b" * (LONGEST // 2 + more))
    assert len(text) <= LONGEST + 50
    assert (f"{more:,} characters left out" in text) == (more > 0)
    assert (text[0], text[-1]) == ("a", "b")


@pytest.mark.parametrize("step", ["interrupt()", "status()", "wait(1)", "run('1', 1)"])
def test_without_a_kernel_every_step_says_so(step: str) -> None:
    kernel = PrivateKernel()
    with pytest.raises(UsageError, match="start"):
        asyncio.run(eval(f"kernel.{step}", {"kernel": kernel}))


def test_a_folder_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"^There is no folder /no/such\.$"):
        asyncio.run(PrivateKernel().start(Path("/no/such")))
