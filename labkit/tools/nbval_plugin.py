"""Make nbval strict and gentle: a pytest plugin, loaded with ``-p labkit.tools.nbval_plugin``.

Original nbval gets five things wrong:

- a cell that ran into ``--nbval-cell-timeout`` passes if its code swallows the interrupt;
- a code cell without an execution count is run, but its output is compared with nothing;
- the kernel ends by SIGKILL, so nothing that the notebook registered to run at its end runs;
- the kernel does not count cells, so an error in one that names ``In[7]`` never matches;
- what a cell has written to stderr and should not is not told: "Unexpected output fields".

And it would take what a cell shows while it runs for part of its output, and let every user of the
machine read what a kernel prints.

The labs of a session's notebooks share what they import: a zygote starts with the first cell.

Nothing else is changed; in particular no output is sanitised before it is compared.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from ..base import times
from ..launch.zygote_client import Zygote
from ..notebook.live import LIVE
from ..wire.state import Feature, Missing, find_missing_in_sources
from .environment import encryption

#: What rests on which insides of nbval; without them its own ways stay, and the header says so.
FEATURES = {
    "end": Feature(
        ("RunningKernel.execute_cell_input", "RunningKernel.stop"),
        "kernels are killed at their end and do not count cells",
    ),
    "timeout": Feature(
        ("IPyNbFile.timed_out",),
        "a notebook's cell that ran into its time limit passes if it swallows the interrupt",
    ),
}
_FILES = {"RunningKernel": ("nbval", "kernel.py"), "IPyNbFile": ("nbval", "plugin.py")}
_ZYGOTE = pytest.StashKey[Zygote | None]()


def check() -> list[Missing]:
    """Return what is off with the nbval that is installed here."""
    return list(find_missing_in_sources({"nbval": FEATURES}, _FILES))


def pytest_report_header() -> list[str]:
    """Return what nbval hides."""
    return [f"labkit: {missing}" for missing in check()]


def pytest_configure(config: pytest.Config) -> None:
    """Make nbval start kernels that end gently and show nothing that comes and goes, for as long
    as this pytest session lasts."""
    # Not at the top: pytest wants to rewrite nbval's assertions when it loads that plugin.
    from nbval import kernel, plugin

    config.add_cleanup((patch := pytest.MonkeyPatch()).undo)
    patch.setenv(LIVE, "0")
    manager: Any = getattr(kernel, "KernelManager", None)
    if manager is not None:
        patch.setattr(kernel, "KernelManager", partial(manager, **encryption()))
    running: Any = getattr(plugin, "RunningKernel", None)
    if running is None:
        return

    class GentleKernel(running):
        """Count cells; ask the kernel to end, and kill it only if it does not."""

        def execute_cell_input(self, cell_input: str, allow_stdin: bool | None = None) -> str:
            message: str = self.kc.execute(cell_input, allow_stdin=allow_stdin, stop_on_error=False)
            return message

        def stop(self) -> None:
            self.kc.stop_channels()
            self.km.shutdown_wait_time = times.KERNEL_ENDED
            self.km.shutdown_kernel(now=False)
            del self.km  # nbval asks for it to learn whether the kernel runs

    patch.setattr(plugin, "RunningKernel", GentleKernel)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the zygote with the first cell of a notebook: in xdist, where that runs."""
    from nbval.plugin import IPyNbCell

    if isinstance(item, IPyNbCell):
        start_zygote(item.config)


def start_zygote(config: pytest.Config) -> Zygote | None:
    """Make the labs of this pytest session start from one zygote, which ends with it; return it,
    None where none can be had."""
    if _ZYGOTE not in config.stash:
        config.stash[_ZYGOTE] = zygote = Zygote.start()
        if zygote is not None:
            config.add_cleanup(zygote.close)
    return config.stash[_ZYGOTE]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a notebook cell that timed out or that has nothing to be compared with."""
    from nbval.plugin import IPyNbCell

    if not isinstance(item, IPyNbCell):
        return (yield)
    timed_out_before = _timed_out(item)
    try:
        result = yield  # a cell that is skipped or fails by itself leaves here
    except Exception:
        _tell_stderr(item)
        raise
    if _timed_out(item) and not timed_out_before:
        limit = item.config.option.nbval_cell_timeout
        item.raise_cell_error(f"Timeout: the cell ran longer than {limit:g} s and was interrupted")
    if _compares_nothing(item):
        item.raise_cell_error("The cell was stored without having run: no output to compare with")
    return result


def _tell_stderr(item: Any) -> None:
    """Add to the report of a cell that failed what it has written to stderr."""
    outputs = getattr(item, "test_outputs", None) or ()
    if text := "".join(o.get("text", "") for o in outputs if o.get("name") == "stderr"):
        item.add_report_section("call", "stderr", text)


def _timed_out(item: Any) -> bool:
    """Return whether a cell of the notebook of ``item`` has run into its time limit."""
    return bool(getattr(item.parent, "timed_out", False))


def _compares_nothing(item: Any) -> bool:
    """Return whether nbval ran the cell of ``item`` without a stored run to compare with."""
    strict = item.config.option.nbval or item.options["check"]  # --nbval-lax runs most cells only
    return bool(strict and item.cell.source.strip() and item.cell.execution_count is None)
