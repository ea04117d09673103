"""Let an agent work in a lab: the tools of ``labkit mcp`` (Model Context Protocol, over stdio).

The SDK is in the extra ``mcp`` and imported here alone, when the server starts. Nothing listens:
the agent's program starts this one and speaks to it through pipes.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

from .. import __version__
from ..base import times, versions
from ..base.errors import LabError, UsageError
from ..launch import zygote_client
from ..notebook.lab import parse_ranks
from ..wire import processes
from .environment import kernel_environment
from .private_kernel import PrivateKernel

INSTRUCTIONS = """\
A lab is some ranks of a torch.distributed process group, driven from a private Python kernel, the
notebook. `start` it first. On each rank `rank`, `world_size`, `device`, `torch` and `dist` are
defined, and variables stay from one call of `run` to the next. Outputs name their ranks, equal ones
once. A deadlock ends by itself: the report names the ranks that wait, the line and the likely
cause, the ranks are freed and keep their variables."""


class Tools:
    """What an agent can do. The docstrings are what it reads of them."""

    def __init__(self) -> None:
        self._kernel = PrivateKernel()
        self._changing = asyncio.Lock()

    async def start(
        self, ranks: int = 2, folder: str = ".", seconds: float = times.AGENT_WAIT
    ) -> str:
        """Start a private kernel and a lab of some ranks in it; a lab that is there ends.

        `folder` is the working directory. `seconds` is how long to wait, here and elsewhere: what
        takes longer goes on.
        """
        check_seconds(seconds)
        if ranks < 1:
            raise UsageError(f"ranks takes a whole number from 1 up, got {ranks}.")
        async with self._changing:
            await self._kernel.start(Path(folder).expanduser())
            source = f"import labkit\nlab = labkit.start({ranks})\nlab.status()"
            return await self._kernel.run(source, seconds)

    async def run(self, code: str, ranks: str = "", seconds: float = times.AGENT_WAIT) -> str:
        """Run code on every rank at the same time, or on `ranks`, as in "0,2-3"; return what each
        rank printed, returned or raised."""
        check_seconds(seconds)
        chosen = ",".join(map(str, parse_ranks(ranks))) if ranks else ""
        return await self._kernel.run(f"%%px{chosen and f' --ranks {chosen}'}\n{code}", seconds)

    async def run_in_notebook(self, code: str, seconds: float = times.AGENT_WAIT) -> str:
        """Run code in the notebook's kernel, where `lab` is: lab["x"] has a variable of each rank,
        lab.run(fn) calls a function on them, labkit.check("03-2") checks an exercise."""
        check_seconds(seconds)
        return await self._kernel.run(code, seconds)

    async def wait(self, seconds: float = times.AGENT_WAIT) -> str:
        """Wait for the code that still runs; return its outputs."""
        check_seconds(seconds)
        return await self._kernel.wait(seconds)

    async def status(self) -> str:
        """Return what each rank does now, at which line, and what it waits for; also while code
        runs."""
        return await self._kernel.status()

    async def interrupt(self) -> str:
        """Stop the code that runs, on all ranks; they keep their variables."""
        return await self._kernel.interrupt()

    async def restart(self, ranks: str = "", seconds: float = times.AGENT_WAIT) -> str:
        """Replace all ranks, or some, by fresh ones without variables; the notebook keeps its."""
        check_seconds(seconds)
        chosen = f"ranks={parse_ranks(ranks)}" if ranks else ""
        return await self._kernel.run(f"lab.restart({chosen})\nlab.status()", seconds)

    async def stop(self) -> str:
        """End the lab and its kernel."""
        async with self._changing:
            await self._kernel.stop()
        return "Nothing is running any more."


def check_seconds(seconds: float) -> None:
    """Raise UsageError unless a wait has a length that is allowed."""
    if not 0 < seconds <= times.AGENT_WAIT_MOST:
        most = f"{times.AGENT_WAIT_MOST:g}"
        raise UsageError(f"seconds takes a number above 0 and up to {most}, got {seconds:g}.")


def serve() -> None:
    """Serve until the agent closes stdin; end all that it has started.

    Raises
    ------
    LabError
        If the SDK is not installed.
    """
    versions.need("mcp", "labkit mcp", "mcp")
    with zygote_client.running(kernel_environment()):
        asyncio.run(_serve())


async def _serve() -> None:
    tools = Tools()
    loop = asyncio.get_running_loop()
    leaving = set()

    def leave() -> None:
        leaving.add(asyncio.ensure_future(_leave(tools)))

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, leave)
    try:
        await make_server(tools).run_stdio_async()
    finally:
        await tools.stop()


async def _leave(tools: Tools) -> None:
    """End although a thread of the SDK's still reads stdin, which nothing interrupts."""
    await tools.stop()
    processes.leave(128 + signal.SIGTERM)


def make_server(tools: Tools) -> Any:
    """Return the SDK's server with all tools; what it refuses it says in one sentence."""
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    class Server(MCPServer):
        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
            try:
                return await super().call_tool(name, arguments, context)
            except ToolError as error:
                why = error.__cause__
                if errors := getattr(why, "errors", None):  # pydantic's: of the wrong type
                    first = errors()[0]
                    place = ".".join(map(str, first["loc"]))
                    raise ToolError(f"{name}, argument {place}: {first['msg']}.") from None
                if isinstance(why, LabError):
                    raise ToolError(str(why)) from None
                raise

    server = Server("labkit", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    for tool in (
        tools.start, tools.run, tools.run_in_notebook, tools.wait, tools.status, tools.interrupt,
        tools.restart, tools.stop,
    ):  # fmt: skip
        server.add_tool(tool, structured_output=False)
    return server
