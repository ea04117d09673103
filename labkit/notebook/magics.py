"""``%%px``: ipyparallel's magic and options, with ranks, and labkit's display."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ipyparallel.client.magics import ParallelMagics, exec_args, output_args
from IPython.core import magic_arguments
from IPython.core.displayhook import DisplayHook
from IPython.core.error import UsageError as PrintedError
from IPython.core.interactiveshell import InteractiveShell

from ..base import interrupts, times
from ..base.errors import RankError, UsageError, red
from ..runtime import request
from ..wire.state import Outcome
from . import lab, live, show
from . import shell as ipython
from .run import may_ask, run

#: What ``shlex`` says of a line that it cannot divide into words.
UNREADABLE = "No closing quotation"


def fill_empty(lines: list[str]) -> list[str]:
    """Give a ``%%px`` cell without a body one that does nothing: IPython would refuse it."""
    first, *body = lines or [""]
    if first.split(None, 1)[:1] != ["%%px"] or any(line.strip() for line in body):
        return lines
    return [first.rstrip("\n") + "\n", "\n"]


def _failing(name: str, magic: Callable[..., Any]) -> Callable[..., Any]:
    """Make a magic that cannot read its line fail its cell: IPython prints that, and goes on."""

    @functools.wraps(magic)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return magic(*args, **named)
        except (PrintedError, ValueError) as error:
            if isinstance(error, ValueError) and str(error) != UNREADABLE:
                raise
            text = str(error).removeprefix(f"{name} ").rstrip(".")
            raise UsageError(f"{name}: {text}. {name}? shows what it takes.") from None

    return call


def _timed_out(error: RankError, seconds: float | None) -> RankError:
    """Return the error of a cell that took too long, with the limit that it had."""
    text = f"the cell took longer than {seconds:g} s (--timeout), so it was stopped."
    _, *blocks = error.blocks
    return RankError(f"TimedOut: {text}\n{error}", [f"{red('TimedOut')}: {text}", *blocks])


class LabMagics(ParallelMagics):
    """The parallel magics of the current lab."""

    view: Any
    _failed_by: Exception | None = None  #: of the last cell of ``%autopx``

    def __init__(self, shell: InteractiveShell, view: Any, suffix: str = "") -> None:
        super().__init__(shell, view, suffix)
        for kind, mark in (("line", "%"), ("cell", "%%")):
            own = self.magics[kind]
            own.update({name: _failing(mark + name, magic) for name, magic in own.items()})

    @classmethod
    def load(cls, shell: InteractiveShell) -> None:
        """Register the magics in a notebook."""
        running_lab = lab.current()
        assert running_lab is not None
        view = running_lab.client.direct_view("all")
        view.block = True
        if ipython.of_notebook() is not None:
            live.follow_output(shell)
        shell.register_magics(cls(shell, view))
        if fill_empty not in shell.input_transformers_cleanup:
            shell.input_transformers_cleanup.append(fill_empty)

    @magic_arguments.magic_arguments()
    @exec_args
    @output_args
    @magic_arguments.argument(
        "--ranks", type=str, help="the ranks that run the cell, as in 0,2 or 1-3 (default: all)"
    )
    @magic_arguments.argument(
        "--local", action="store_const", const=True, help="also run the cell in the notebook"
    )
    @magic_arguments.argument(
        "--timeout",
        type=float,
        help="seconds after which the cell is stopped on every rank, as by the stop button",
    )
    @magic_arguments.argument(
        "--time",
        action="store_true",
        help="print below the output how long the cell took on each rank, and how much CPU time",
    )
    def cell_px(self, line: str = "", cell: str | None = None) -> Any:
        """Run the cell on every rank (or ``--ranks``), at the same time.

        Output comes in rank order when the cell ends; ranks whose output is the same share it.
        """
        args = magic_arguments.parse_argstring(self.cell_px, line)
        current = self._lab()
        if args.targets and args.ranks:
            raise UsageError("%%px takes --ranks or --targets, not both.")
        ranks = current.check_ranks(lab.parse_ranks(args.ranks) if args.ranks else None)
        if args.targets:
            ranks = self._ranks_of_targets(current, args.targets)
        if args.timeout is not None and not args.timeout > 0:
            raise UsageError(f"--timeout takes a positive number of seconds, got {args.timeout:g}.")
        code = cell or ""
        ipython.check_syntax(self.shell, code, first_line=2)
        block = self.view.block if args.block is None else args.block
        if block:
            chosen = args.signal_on_interrupt
            signum = self._eval_signal_str(chosen) if chosen else self.signal_on_interrupt
            after = args.progress_after_seconds
            shown = live.Live(
                live.screen() if args.stream is not False else None,
                times.BOARD if after is None else after,
            )
            return self._run(
                current,
                ranks,
                self._named(code),
                shown,
                args.save_name,
                args.groupby,
                signum,
                args.timeout,
                local=code if args.local else None,
                timed=args.time,
            )
        if args.timeout is not None:
            raise UsageError("--timeout is for a cell that is waited for: not with --noblock.")
        if args.time:
            raise UsageError("--time is for a cell that is waited for: not with --noblock.")
        # ipyparallel's own way: an AsyncResult to look at later.
        with interrupts.shielded():
            sent = request.cell(lab.session_of(current).group, ranks, self._named(code))
            self._keep(sent.result, args.save_name)
        if args.local:
            self.shell.run_cell(code)
        return sent.result

    def parallel_execute(self, cell: str, block: Any = None, **kwargs: Any) -> Any:
        """Run a line (``%px``) or an ``%autopx`` cell on every rank."""
        current = self._lab()
        ipython.check_syntax(self.shell, cell, first_line=1)
        shown = live.Live(live.screen())
        code = f"{cell.rstrip()}\n#px {ipython.cell_name(self.shell)}"
        everyone = current.check_ranks(None)
        try:
            return self._run(current, everyone, code, shown, kwargs.get("save_name"))
        except Exception as error:
            self._failed_by = error
            raise

    def pxrun_nodes(self, *args: Any, **named: Any) -> Any:
        """Run a cell of ``%autopx``; one that fails on a rank fails in the notebook, too."""
        self._failed_by = None
        failed = super().pxrun_nodes(*args, **named)
        if self._failed_by is not None and named.get("result") is not None:
            named["result"].error_in_exec, self._failed_by = self._failed_by, None
        return failed

    @magic_arguments.magic_arguments()
    @output_args
    def result(self, line: str = "") -> Any:
        """Show what the last cell came to (``%pxresult``)."""
        if self.last_result is None:
            lab.running()
        return super().result(line)

    def _keep(self, result: Any, name: str | None) -> None:
        """Keep an AsyncResult for ``%pxresult`` and under the name that ``-o`` gives it."""
        self.last_result = result
        if name:
            self.shell.user_ns[name] = result

    def _lab(self) -> lab.Lab:
        current = lab.running()
        self.view = self.view if self.view.client is current.client else self._new_view(current)
        return current

    def _new_view(self, current: lab.Lab) -> Any:
        view = current.client.direct_view("all")
        view.block = self.view.block
        return view

    def _ranks_of_targets(self, current: lab.Lab, targets: str) -> list[int]:
        chosen = self._eval_target_str(targets)
        if chosen == "all":
            return current.check_ranks(None)
        engines = [chosen] if isinstance(chosen, int) else list(chosen)
        ids = current.engine_ids
        if wrong := [e for e in engines if e not in ids]:
            raise UsageError(f"There is no engine {wrong[0]!r}: the ids are {ids}.")
        return [ids.index(engine) for engine in engines]

    def _named(self, code: str) -> str:
        """Put the cell's name where its ``%%px`` line was, so that line numbers stay."""
        if code.lstrip().startswith("%%"):
            return code  # another cell magic, which must be first
        return f"#px {ipython.cell_name(self.shell)}\n{code}"

    def _run(
        self,
        current: lab.Lab,
        ranks: list[int],
        code: str,
        shown: live.Live,
        save_name: str | None,
        groupby: str = "type",
        signum: str | int = "SIGINT",
        timeout: float | None = None,
        *,
        local: str | None = None,
        timed: bool = False,
    ) -> None:
        """Run a cell, wait (``timeout`` seconds at most), show its output, raise what it raised.

        Any ``groupby`` but the default leaves the display to ipyparallel. ``local`` is what the
        notebook runs meanwhile. ``timed`` prints how long it took on each rank.
        """

        def shown_at_the_end(outcomes: Sequence[Outcome]) -> None:
            if groupby != "type" and sent.result.done():
                sent.result.display_outputs(groupby)
            else:
                quiet = DisplayHook.semicolon_at_end_of_expression(code)
                show.show(outcomes, results=not quiet)
            if timed:
                show.show_times(sent.times())

        with interrupts.shielded():
            group = lab.session_of(current).group
            sent = request.cell(group, ranks, code, may=may_ask())
            self._keep(sent.result, save_name)
            if local is not None:
                with interrupts.unshielded():
                    self.shell.run_cell(local)
            finished = run(
                sent,
                live=shown,
                show=shown_at_the_end,
                signum=signum,
                timeout=timeout,
                tolerate=True,
                watch=lab.watch_of(current),
            )
            # Here: an interrupt that comes late is not to take the error's place.
            if finished.ending.kind == "timeout" and isinstance(finished.error, RankError):
                raise _timed_out(finished.error, timeout)
            if finished.error is not None:
                raise finished.error
