"""`labkit mcp`: an agent works in a lab, through the MCP SDK's own client.

The SDK is no part of the lock. ``.ci/test-with --extra mcp -- tests/tools/test_mcp_server.py``
installs it in an environment of its own and runs this, as CI does each night (job ``mcp``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sysconfig
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from labkit.base import times
from labkit.tools.mcp_server import Tools
from tests.support.events import HANG_SECONDS, LONG

LABKIT = Path(sysconfig.get_path("scripts")) / "labkit"

ALL_REDUCE = "x = torch.tensor([rank + 1.0])\ndist.all_reduce(x)\nx"
SKIPPED = "if rank == 1:\n    dist.all_reduce(x)"
ONE_WAITS = f"import time\nif rank:\n    time.sleep({LONG})\nelse:\n    dist.barrier()"

#: Calls a tool; returns its text, and whether it is an error.
Call = Callable[..., Awaitable[tuple[str, bool]]]

pytestmark = pytest.mark.slow
needs_sdk = pytest.mark.skipif(
    find_spec("mcp") is None, reason="the MCP SDK is not installed: .ci/test-with --extra mcp"
)


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[Call, psutil.Process]]:
    """Connect to a server of one's own."""
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    environment = {**os.environ, "HOME": str(folder)}
    parameters = StdioServerParameters(
        command=str(LABKIT), args=["mcp"], env=environment, cwd=str(folder)
    )
    before = psutil.Process().children()
    async with Client(stdio_client(parameters)) as client:
        (server,) = [child for child in psutil.Process().children() if child not in before]

        async def call(tool: str, **arguments: Any) -> tuple[str, bool]:
            result = await client.call_tool(tool, arguments)
            (content,) = result.content
            return content.text, bool(result.is_error)

        yield call, server


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def assert_all_end(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, HANG_SECONDS)
    assert not alive


@needs_sdk
def test_an_agent_finds_a_deadlock_and_goes_on(tmp_path: Path) -> None:
    async def session() -> list[psutil.Process]:
        async with served(tmp_path) as (call, server):
            assert await call("run", code="1") == ("There is no lab: start one.", True)
            said, wrong = await call("run", code="1", seconds="soon")
            assert wrong
            assert said.startswith("run, argument seconds: ")
            assert "\n" not in said
            said, wrong = await call("start", ranks=2, seconds=times.AGENT_WAIT_MOST)
            assert said.splitlines()[1].split()[0] == "0"
            assert not wrong
            assert await call("run", code=ALL_REDUCE) == ("ranks 0–1: tensor([3.])", False)
            said, _ = await call("run", code=SKIPPED, seconds=HANG_SECONDS)
            assert said.startswith("Deadlock: rank 1 waits for rank 0, which has ended its cell.")
            assert "line 3:  dist.all_reduce(x)" in said
            assert "Cause: The call stands under a condition" in said
            assert await call("run", code="x.item()", ranks="1") == ("rank 1: 3.0", False)
            assert await call("run_in_notebook", code='len(lab["x"])') == ("2", False)
            everyone = family(server)
            assert len(everyone) > 4  # the kernel, a warm process, a controller, the ranks
            return everyone

    assert_all_end(asyncio.run(session()))


@needs_sdk
def test_no_process_outlives_a_server_that_is_killed_while_ranks_wait(tmp_path: Path) -> None:
    async def session() -> None:
        async with served(tmp_path) as (call, server):
            await call("start", ranks=2, seconds=times.AGENT_WAIT_MOST)
            said, _ = await call("run", code=ONE_WAITS, seconds=1)
            assert said == "The cell is still running."
            everyone = family(server)
            os.kill(server.pid, signal.SIGKILL)
            await asyncio.to_thread(assert_all_end, everyone)

    asyncio.run(session())


def test_what_the_ranks_do_is_read_while_they_do_it() -> None:
    """Without the SDK, which adds nothing to it."""

    async def session() -> None:
        tools = Tools()
        try:
            await tools.start(ranks=2, seconds=times.AGENT_WAIT_MOST)
            said = await tools.run(ONE_WAITS, seconds=0.01)
            assert said == "The cell is still running."
            async with asyncio.timeout(HANG_SECONDS):
                while "waiting in barrier" not in (said := await tools.status()):
                    pass
            assert f"time.sleep({LONG})" in said
            assert "rank 1: stopped" in await tools.interrupt()
            assert await tools.run("rank", seconds=HANG_SECONDS) == "rank 0: 0\nrank 1: 1"
        finally:
            assert await tools.stop() == "Nothing is running any more."

    asyncio.run(session())


def test_a_kernel_that_dies_is_told_and_another_one_starts(tmp_path: Path) -> None:
    from labkit.base.errors import LabError, UsageError
    from labkit.tools.private_kernel import PrivateKernel

    async def session() -> None:
        kernel = PrivateKernel()
        try:
            await kernel.start(tmp_path)
            with pytest.raises(LabError, match=r"^The kernel has died"):
                await kernel.run("import os\nos.kill(os.getpid(), 9)", HANG_SECONDS)
            with pytest.raises(UsageError, match="start one"):
                await kernel.status()
            await kernel.start(tmp_path)
            here = await kernel.run("import os; print(os.getcwd())", HANG_SECONDS)
            assert here == str(tmp_path)
        finally:
            await kernel.stop()

    asyncio.run(session())
