"""The tools of `labkit mcp`: what they ask of the kernel, and what they refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from labkit.base import versions
from labkit.base.errors import LabError, UsageError
from labkit.tools import mcp_server
from labkit.tools.private_kernel import PrivateKernel


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Collect the cells that would run."""
    cells: list[tuple[str, float]] = []

    async def run(self: PrivateKernel, source: str, seconds: float) -> str:
        cells.append((source, seconds))
        return "done"

    monkeypatch.setattr(PrivateKernel, "run", run)
    return cells


def call(tool: Coroutine[Any, Any, str]) -> str:
    return asyncio.run(tool)


def test_code_runs_on_the_ranks_that_are_named(ran: list[tuple[str, float]]) -> None:
    tools = mcp_server.Tools()
    assert call(tools.run("x", seconds=5)) == "done"
    call(tools.run("x", ranks="0, 2–3", seconds=5))
    call(tools.restart(ranks="1", seconds=5))
    assert [source for source, _ in ran] == [
        "%%px\nx",
        "%%px --ranks 0,2,3\nx",
        "lab.restart(ranks=[1])\nlab.status()",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda tools: tools.run("x", ranks="0 --local\nimport os"),
        lambda tools: tools.run("x", seconds=float("nan")),
        lambda tools: tools.wait(seconds=601),
        lambda tools: tools.start(ranks=0),
        lambda tools: tools.restart(seconds=0),
    ],
)
def test_what_is_wrong_is_refused_in_one_sentence(wrong: Any, ran: list[tuple[str, float]]) -> None:
    with pytest.raises(UsageError) as error:
        call(wrong(mcp_server.Tools()))
    assert "\n" not in str(error.value)
    assert ran == []


def test_without_the_sdk_the_command_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"labkit mcp needs mcp, .*torch-labkit\[mcp\]"):
        mcp_server.serve()
