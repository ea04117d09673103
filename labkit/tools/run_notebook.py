"""Run a notebook in the terminal: every cell in order, in a kernel of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from traitlets.config import Config

from ..base.errors import DataError, StartError, UsageError
from ..base.files import reason, write_whole
from ..notebook.live import LIVE
from .environment import encryption, kernel_environment

#: What a carriage return and a backspace take back, as nbval has it, which compares the result.
_TAKEN_BACK = re.compile(r".*\r(?=[^\n])")
_BACKSPACE = re.compile(r"[^\n]\x08")
#: How much of what a kernel wrote outside its cells is shown when it has died.
LOG_LINES = 15


class Watcher(Protocol):
    """Somebody who is told how a run goes. Cells are numbered from 1, code cells only."""

    def begins(self, number: int, cell: NotebookNode) -> None: ...

    def ended(self, number: int, cell: NotebookNode) -> None: ...


@dataclass(frozen=True)
class Failure:
    """Why a run ended before the last cell."""

    number: int  #: of the code cell; 0 if the kernel did not even start
    source: str
    error: str  #: as the notebook shows it, with its colours
    interrupted: bool = False


def read(path: Path) -> NotebookNode:
    """Read a notebook.

    Raises
    ------
    DataError
        If there is none at ``path``.
    """
    try:
        text = path.read_text(encoding="utf-8")
        nb = nbformat.reads(text, as_version=4)
        nbformat.validate(nb)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({reason(error)}).") from None
    except Exception:  # nbformat stumbles over foreign JSON in many ways
        raise DataError(f"{path} is not a Jupyter notebook.") from None
    return nb


def cells_to_run(nb: NotebookNode) -> list[int]:
    """Return the positions of the code cells that have something in them."""
    cells = enumerate(nb.cells)
    return [i for i, cell in cells if cell.cell_type == "code" and cell.source.strip()]


def check_output(path: Path, option: str = "--output") -> None:
    """Raise LabError unless a file can be written at ``path``, which an option names."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; {option} takes the name of a file.")
    if not path.parent.is_dir():
        raise UsageError(f"There is no folder {path.parent} to write {path.name} into.")
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"Nothing can be written into the folder {path.parent}.")


def store(nb: NotebookNode, path: Path) -> None:
    """Write a notebook; DataError says why it cannot be."""
    try:
        write_whole(path, (nbformat.writes(nb).rstrip("\n") + "\n").encode())
    except OSError as error:
        raise DataError(f"{path} cannot be written ({reason(error)}).") from None


def execute(
    nb: NotebookNode,
    folder: Path,
    *,
    ranks: int | None,
    timeout: float | None,
    watcher: Watcher,
    failed: Callable[[Failure], object] | None = None,
) -> Failure | None:
    """Run a notebook; its outputs are replaced by those of this run.

    Parameters
    ----------
    nb
        Changed in place. Cells that were not reached have no output.
    folder
        The kernel's working directory.
    ranks
        What ``labkit.start`` shall give, whatever the notebook asks for. None: as it asks.
    timeout
        Seconds that one cell may take. None: no limit.
    failed
        Is told of each cell that fails, and the run goes on behind it. None: the first one ends
        the run.

    Returns
    -------
    Failure or None
        What ended it early, if anything. Ctrl-C interrupts the cell, a second one the run.

    Raises
    ------
    StartError
        If the notebook's kernel is not installed here.
    """
    run = _Run(nb, watcher, failed)
    client = new_client(
        nb,
        folder,
        timeout=timeout,
        allow_errors=failed is not None,
        on_notebook_start=run.starts,
        on_cell_execute=run.begins,
        on_cell_executed=run.ended,
    )
    run.client = client
    # What the kernel's process says outside its cells is of interest only if it dies.
    with tempfile.TemporaryFile() as log:
        return asyncio.run(run.go({"env": unwatched_environment(ranks), "stderr": log}))


def new_client(nb: NotebookNode, folder: Path, **options: Any) -> NotebookClient:
    """Make a client that runs cells of a notebook in a kernel whose working directory is
    ``folder``."""
    return NotebookClient(
        nb,
        resources={"metadata": {"path": str(folder)}},
        config=Config({"KernelManager": encryption()}),
        record_timing=False,  # no times of day in a file that is kept under version control
        store_widget_state=False,
        **options,
    )


def unwatched_environment(ranks: int | None = None) -> dict[str, str]:
    """Return the variables of a kernel on whose cells nobody looks while they run: no board is
    drawn, and a suspected deadlock ends by itself."""
    return kernel_environment(ranks) | {LIVE: "0"}


class _Run:
    """One run: where it is, and whether somebody wants it to end."""

    def __init__(
        self, nb: NotebookNode, watcher: Watcher, failed: Callable[[Failure], object] | None
    ) -> None:
        self.nb = nb
        self.watcher = watcher
        self.failed = failed
        self.client: Any = None
        self.number = 0
        self.cell = nbformat.v4.new_code_cell()
        self.interrupted = False
        for cell in nb.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None

    async def go(self, options: dict[str, Any]) -> Failure | None:
        from jupyter_client.kernelspec import NoSuchKernel

        try:
            await self.client.async_execute(**options)
        except NoSuchKernel as error:
            raise StartError(
                f"The notebook's kernel {error.name!r} is not installed here."
            ) from None
        except CellTimeoutError:
            return self._failure(f"It ran longer than {self.client.timeout:g} s (--timeout).")
        except CellExecutionError as error:
            return self._failure(self._traceback() or f"{error.ename}: {error.evalue}")
        except (DeadKernelError, _InterruptedError, asyncio.CancelledError):
            return self._failure("The notebook's kernel ended by itself.", options["stderr"])
        except RuntimeError as error:
            if self.number:
                raise
            return self._failure(f"The notebook's kernel did not start: {error}", options["stderr"])
        finally:  # not before: nbclient counts outputs to find those that a later cell updates
            for cell in self.nb.cells:
                if cell.cell_type == "code":
                    cell.outputs = merge_streams(cell.outputs)
        return None

    def _traceback(self) -> str:
        """Return the error that the cell shows."""
        errors = [out for out in self.cell.outputs if out.output_type == "error"]
        return "\n".join(errors[-1].traceback).strip("\n") if errors else ""

    def _failure(self, error: str, log: BinaryIO | None = None) -> Failure:
        if self.interrupted:
            return Failure(self.number, self.cell.source, "Interrupted.", interrupted=True)
        if log is not None:
            log.seek(0)
            lines = log.read().decode(errors="replace").splitlines()[-LOG_LINES:]
            error = "\n".join([error, *lines])
        return Failure(self.number, self.cell.source, error)

    # -- called by nbclient ---------------------------------------------------------------------

    def starts(self, notebook: NotebookNode) -> None:
        """Take over the signals: nbclient would shut the kernel down under its own feet."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):  # not main thread
            loop.add_signal_handler(signal.SIGINT, self._interrupt, task.cancel)
            loop.add_signal_handler(signal.SIGTERM, self._end, task.cancel)

    def begins(self, cell: NotebookNode, cell_index: int) -> None:
        self.number += 1
        self.cell = cell
        self.watcher.begins(self.number, cell)

    def ended(self, cell: NotebookNode, cell_index: int, execute_reply: Any) -> None:
        stored = cell.copy()
        stored.outputs = merge_streams(cell.outputs)
        self.watcher.ended(self.number, stored)
        if self.interrupted:  # also if the cell took the interrupt for its own
            raise _InterruptedError
        announced = "raises-exception" in cell.metadata.get("tags", [])
        if self.failed is not None and not announced and (error := self._traceback()):
            self.failed(self._failure(error))

    def _interrupt(self, cancel: Callable[[], object]) -> None:
        if self.interrupted or self.client.km is None:
            self._end(cancel)
            return
        self.interrupted = True
        self._asking = asyncio.ensure_future(self.client.km.interrupt_kernel())

    def _end(self, cancel: Callable[[], object]) -> None:
        self.interrupted = True
        cancel()


class _InterruptedError(Exception):
    """Ends a run after the cell that was interrupted."""


def merge_streams(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Return outputs in which all text between two displays is one stdout and one stderr.

    nbclient's own ``coalesce_streams`` merges the text of the whole cell: labels of pictures then
    stand together before the first picture, and a later cell's update of a display misses it.
    """
    merged: list[NotebookNode] = []
    for is_text, stretch in groupby(outputs, lambda output: output.output_type == "stream"):
        if not is_text:
            merged += stretch
            continue
        texts: dict[str, NotebookNode] = {}
        for output in stretch:
            if output.name in texts:
                texts[output.name].text += output.text
            else:
                texts[output.name] = output.copy()
        # They come by ways of their own: which of them is first is chance.
        for name in sorted(texts, reverse=True):
            texts[name].text = _read(texts[name].text)
            merged.append(texts[name])
    return merged


def _read(text: str) -> str:
    """Return what is left of a text on a screen."""
    before = ""
    while before != text:
        before, text = text, _BACKSPACE.sub("", text)
    return _TAKEN_BACK.sub("", text)
