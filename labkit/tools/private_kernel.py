"""A kernel that nobody else uses, for a program that runs cells one at a time and reads text."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.kernelspec import NoSuchKernel
from nbclient.exceptions import DeadKernelError

from ..base import times
from ..base.errors import LabError, StartError, UsageError
from ..notebook.show import plain
from ..wire.texts import encodable
from .run_notebook import merge_streams, new_client, unwatched_environment
from .run_progress import output_text

#: Characters of a report: an agent reads each of them, and some thousand words are a lot.
LONGEST = 20_000
#: The kernel is killed with the process that started it, however that ends.
_END_TOGETHER = "__import__('labkit.wire.processes', fromlist=['_']).end_with_parent({parent})"
_STATUS = "__import__('labkit.notebook.lab', fromlist=['_']).running().status()"


class PrivateKernel:
    """A kernel that runs one cell at a time and ends with this process.

    Every wait has a bound. A cell that takes longer goes on, and its outputs are reported later.
    """

    def __init__(self) -> None:
        self._client: Any = None
        self._cell: nbformat.NotebookNode = nbformat.v4.new_code_cell()
        self._running: asyncio.Task[Any] | None = None

    async def start(self, folder: Path) -> None:
        """Start a kernel whose working directory is ``folder``, in place of the one before."""
        if not folder.is_dir():
            raise UsageError(f"There is no folder {folder}.")
        await self.stop()
        client = new_client(
            nbformat.v4.new_notebook(),
            folder,
            timeout=None,
            startup_timeout=int(times.AGENT_KERNEL),
            allow_errors=True,
        )
        client.create_kernel_manager()
        try:
            await client.async_start_new_kernel(env=unwatched_environment())
            await client.async_start_new_kernel_client()
        except (NoSuchKernel, RuntimeError) as error:
            raise StartError(f"The kernel did not start: {error}") from None
        self._client = client
        await self.run(_END_TOGETHER.format(parent=os.getpid()), times.AGENT_KERNEL)

    async def run(self, source: str, seconds: float) -> str:
        """Run a cell; return its report, or what there is of it after some seconds."""
        self._check_idle()
        self._cell = nbformat.v4.new_code_cell(source)
        self._client.nb.cells = [self._cell]
        self._running = asyncio.create_task(self._client.async_execute_cell(self._cell, 0))
        return await self.wait(seconds)

    async def wait(self, seconds: float) -> str:
        """Return the report of the last cell, waiting for it some seconds at most."""
        if self._running is None:
            raise UsageError("No cell has run since the start.")
        await asyncio.wait({self._running}, timeout=seconds)
        text = read(self._cell.outputs)
        if not self._running.done():
            return f"{text}\nThe cell is still running.".lstrip("\n")
        try:
            self._running.result()
        except DeadKernelError:
            await self.stop()
            raise LabError(f"{text}\nThe kernel has died, and the ranks with it.".strip()) from None
        return text or "(no output)"

    async def status(self) -> str:
        """Return what each rank does now, also while a cell runs."""
        self._check_started()
        # Of its own, with another identity: replies to the cell's client go past this one.
        asking = AsyncKernelClient()
        asking.load_connection_info(self._client.km.get_connection_info())
        asking.start_channels()
        try:
            async with asyncio.timeout(times.AGENT_STATUS):
                return await _evaluate_beside(asking, _STATUS)
        except TimeoutError:
            raise LabError(f"The kernel gave no answer in {times.AGENT_STATUS:g} s.") from None
        finally:
            asking.stop_channels()

    async def interrupt(self) -> str:
        """Press the stop button; return the report of the cell."""
        self._check_started()
        if self._running is None or self._running.done():
            raise UsageError("No cell is running.")
        await self._client.km.interrupt_kernel()
        return await self.wait(times.AGENT_INTERRUPTED.seconds())

    async def stop(self) -> None:
        """End the kernel, and with it the ranks."""
        client, self._client = self._client, None
        running, self._running = self._running, None
        if client is None:
            return
        await client.km.shutdown_kernel(now=True)
        if running is not None:  # it sees the end within a second
            with contextlib.suppress(DeadKernelError):
                await running
        client.kc.stop_channels()

    def _check_idle(self) -> None:
        """Raise UsageError unless a cell can run."""
        self._check_started()
        if self._running is not None and not self._running.done():
            raise UsageError("A cell is still running: wait for it, or interrupt it.")

    def _check_started(self) -> None:
        if self._client is None:
            raise UsageError("There is no lab: start one.")


async def _evaluate_beside(client: AsyncKernelClient, expression: str) -> str:
    """Evaluate an expression in a thread of the kernel's own (JEP 91, subshells): its main thread
    may be in a cell."""
    session = client.session
    client.control_channel.send(session.msg("create_subshell_request", {}))
    made = await client.get_control_msg()
    content = {
        "code": "",
        "silent": True,
        "store_history": False,
        "user_expressions": {"it": expression},
        "allow_stdin": False,
    }
    subshell = made["content"]["subshell_id"]
    request = session.msg("execute_request", content)
    request["header"]["subshell_id"] = subshell
    client.shell_channel.send(request)
    found = (await client.get_shell_msg())["content"]["user_expressions"]["it"]
    client.control_channel.send(session.msg("delete_subshell_request", {"subshell_id": subshell}))
    if found["status"] == "error":
        raise LabError(found["evalue"])
    return str(found["data"]["text/plain"])


def read(outputs: Sequence[nbformat.NotebookNode]) -> str:
    """Return outputs of a cell as a text of limited length, without colours."""
    texts = [plain(output_text(output)).rstrip("\n") for output in merge_streams(outputs)]
    return cut(encodable("\n".join(texts)))


def cut(text: str) -> str:
    """Leave out the middle of a text that is longer than ``LONGEST``."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    note = f"\n… {len(text) - 2 * half:,} characters left out …\n"
    return text[:half] + note + text[-half:]
