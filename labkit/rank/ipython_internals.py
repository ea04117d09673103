"""Name what a rank uses of the insides of IPython and ipykernel.

No other file of ``labkit.rank`` does. :func:`check` says what these versions hide; the functions
below then do less, and stop nothing.
"""

from __future__ import annotations

import functools
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType, FrameType
from typing import Any
from weakref import WeakKeyDictionary

from IPython.core import interactiveshell

from ..wire.state import Feature, Missing, find_missing_in_sources

#: What rests on which names, by library.
FEATURES: dict[str, dict[str, Feature]] = {
    "ipykernel": {
        "control": Feature(
            ("Kernel.control_handlers", "Kernel.control_thread"),
            "ranks cannot be asked while a cell runs, so deadlocks are not named and "
            "lab.status() shows no lines",
        ),
        "interrupts": Feature(
            ("Kernel.pre_handler_hook", "Kernel.post_handler_hook"),
            "the stop button, pressed while a rank sends its reply, may cost the rank",
        ),
        "quiet": Feature(
            ("Kernel._publish_status", "Kernel._publish_execute_input", "Kernel.finish_metadata"),
            "each cell costs each rank three more messages",
        ),
        "cells": Feature(
            ("XCachingCompiler.get_code_name",),
            "errors and deadlocks do not say in which cell a line stands",
        ),
        "input": Feature(
            ("Kernel.raw_input",),
            "input() and a debugger on a rank cannot ask the user at the notebook",
        ),
    },
    "IPython": {
        "errors": Feature(
            ("InteractiveShell._showtraceback",),
            "errors of a rank show IPython's long traceback",
        ),
        "history": Feature(
            ("InteractiveShell.InteractiveTB", "AutoFormattedTB.structured_traceback"),
            "a rank takes half a second longer over each error",
        ),
        "ends": Feature(
            ("InteractiveShell.run_ast_nodes",),
            "a cell may end before the GPU has done its work",
        ),
        "exit": Feature(
            (
                "InteractiveShell.exiter",
                "ZMQInteractiveShell.ask_exit",
                "BuiltinTrap.auto_builtins",
            ),
            "exit() in a cell may end its rank",
        ),
        "outputs": Feature(
            ("HistoryManager.outputs",),
            "a rank may keep in memory what its cells have shown",
        ),
        "post mortem": Feature(
            ("InteractiveShell.debugger_cls",),
            "%debug on a rank shows no line of a cell, and asks on after the stop button",
        ),
        "debugger": Feature(
            ("Pdb.interaction", "Pdb.hidden_frames", "Pdb.stop_here"),
            "breakpoint() on a rank opens Python's own debugger, which shows no line of a cell",
        ),
    },
}

#: The source file that defines each class.
_FILES = {
    "Kernel": ("ipykernel", "kernelbase.py"),
    "XCachingCompiler": ("ipykernel", "compiler.py"),
    "InteractiveShell": ("IPython", "core/interactiveshell.py"),
    "ZMQInteractiveShell": ("ipykernel", "zmqshell.py"),
    "AutoFormattedTB": ("IPython", "core/ultratb.py"),
    "HistoryManager": ("IPython", "core/history.py"),
    "Pdb": ("IPython", "core/debugger.py"),
    "BuiltinTrap": ("IPython", "core/builtin_trap.py"),
}


@cache
def check() -> tuple[Missing, ...]:
    """Return the features that are off with the versions that are installed here."""
    return find_missing_in_sources(FEATURES, _FILES)


def is_on(feature: str) -> bool:
    """Return whether these versions have what a feature rests on."""
    return all(missing.feature != feature for missing in check())


# -- the control channel ------------------------------------------------------------------------


def control_loop(kernel: Any) -> Any:
    """Return the event loop of a kernel's control channel, None if ipykernel hides it."""
    return getattr(getattr(kernel, "control_thread", None), "io_loop", None)


def call_later(kernel: Any, seconds: float, function: Callable[[], None]) -> None:
    """Call a function in the thread of a kernel's control channel, if it has one."""
    loop = control_loop(kernel)
    if loop is not None:
        loop.add_callback(loop.call_later, seconds, function)


def open_output(kernel: Any) -> None:
    """Make the thread of a kernel's control channel make its way to the output now.

    By itself it does at the first request, which is not answered if no file can be opened then.
    """
    loop = control_loop(kernel)
    schedule = getattr(getattr(kernel, "iopub_socket", None), "schedule", None)
    if loop is not None and schedule is not None:
        loop.add_callback(schedule, lambda: None)


def answer_control(kernel: Any, handlers: Mapping[str, Callable[..., None]]) -> None:
    """Make a kernel answer requests on its control channel, by the name of the request.

    A handler, called with (stream, ident, parent), runs in the thread of that channel.
    """
    if hasattr(kernel, "control_handlers"):
        kernel.control_handlers.update(handlers)


class _NoSubshells:
    """Stands for the thread of subshells where there is none; false, as ipykernel asks."""

    def __init__(self) -> None:
        self.parent_thread = threading.main_thread()

    def __bool__(self) -> bool:
        return False


def let_cells_await(kernel: Any) -> None:
    """Make a cell await something: ipykernel 7 asks the thread of subshells for its parent then,
    but an engine has none, so that the cell would never have ended."""
    if getattr(kernel, "shell_channel_thread", False) is None:
        kernel.shell_channel_thread = _NoSubshells()
        type(kernel)._supports_kernel_subshells = property(lambda self: False)


# -- what asks the user -------------------------------------------------------------------------


def take_input(kernel: Any, read: Callable[..., str], read_secret: Callable[..., str]) -> None:
    """Make ``input`` and ``getpass.getpass`` be these in the cells of a kernel."""
    if hasattr(kernel, "raw_input"):
        kernel.raw_input, kernel.getpass = read, read_secret


def use_debugger(shell: Any, make: Callable[[], Any]) -> None:
    """Make ``make()`` be the debugger that ``%debug`` and ``%pdb`` of a shell open."""
    formatter: Any = getattr(shell, "InteractiveTB", None)
    if hasattr(formatter, "debugger_cls"):
        formatter.debugger_cls = make


def remember_error(error: BaseException) -> None:
    """Record an error for ``%debug``, where Python and IPython look for the last one."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    sys.last_exc = error  # type: ignore[attr-defined]


def forget_error() -> None:
    """Drop the last error, with all that the variables of its frames hold: a GPU's memory, say."""
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)


# -- what is sent about a request ---------------------------------------------------------------


def choose_messages(
    kernel: Any,
    is_wanted: Callable[[Mapping[str, Any], str], bool],
    note_reply: Callable[[Mapping[str, Any], dict[str, Any]], None],
) -> None:
    """Make a kernel ask before it publishes that it is "busy" with a request or "idle" again, and
    the code of the request ("execute_input"): ``is_wanted(request, what)``.

    ``note_reply(request, content)`` may add to the content of each reply, after the last output of
    the request. Where ipykernel hides any of it, nothing is done.
    """
    names = ("_publish_status", "_publish_execute_input", "finish_metadata")
    status, code_of_cell, finish = (getattr(kernel, name, None) for name in names)
    if status is None or code_of_cell is None or finish is None:
        return

    def _publish_status(state: str, channel: str, parent: Any = None) -> None:
        if channel != "shell" or is_wanted(parent or kernel.get_parent(channel), state):
            status(state, channel, parent)

    def _publish_execute_input(code: str, parent: Any, number: int) -> None:
        if is_wanted(parent, "execute_input"):
            code_of_cell(code, parent, number)

    def finish_metadata(parent: Any, metadata: Any, content: dict[str, Any]) -> Any:
        note_reply(parent, content)
        return finish(parent, metadata, content)

    kernel._publish_status = _publish_status
    kernel._publish_execute_input = _publish_execute_input
    kernel.finish_metadata = finish_metadata


def name_errors(kernel: Any) -> None:
    """Make a reply name the error of a value that could not be shown: ipykernel has that of the
    cell's code at hand only, which is None, and calls it NoneType."""
    original = getattr(kernel, "finish_metadata", None)
    if original is None:
        return

    def finish_metadata(parent: Any, metadata: Any, content: dict[str, Any]) -> Any:
        error = getattr(sys, "last_value", None)  # see remember_error
        if content.get("ename") == type(None).__name__ and error is not None:
            content.update(ename=type(error).__name__, evalue=str(error))
        return original(parent, metadata, content)

    kernel.finish_metadata = finish_metadata


# -- what may run after a cell ------------------------------------------------------------------


def note_sessions(kernel: Any) -> None:
    """Begin to note whose requests a kernel serves; the one that it serves now is the owner's."""
    original = getattr(kernel, "set_parent", None)
    if original is None or kernel in _sessions:
        return
    sessions: set[str] = set()
    _sessions[kernel] = sessions

    def set_parent(ident: Any, parent: Any, channel: str = "shell", *args: Any) -> Any:
        if channel == "shell":
            sessions.add((parent.get("header") or {}).get("session", ""))
        return original(ident, parent, channel, *args)

    kernel.set_parent = set_parent


#: kernel -> the sessions that it has served
_sessions: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def is_shared(kernel: Any) -> bool:
    """Return whether a kernel has served more than one client since ``note_sessions``."""
    return len(_sessions.get(kernel, ())) > 1


# -- cells and their errors ---------------------------------------------------------------------


def name_cells(shell: Any, name: Callable[[str], str | None]) -> None:
    """Make ``name(code)`` be the file name of a cell; where it is None, the shell's own is."""
    original = getattr(shell.compile, "get_code_name", None)
    if original is None:
        return

    def get_code_name(raw_code: str, code: str, number: int) -> str:
        named = name(raw_code)
        return original(raw_code, code, number) if named is None else named

    shell.compile.get_code_name = get_code_name


def format_errors(shell: Any, lines_of: Callable[[BaseException], list[str]]) -> None:
    """Make ``lines_of(error)`` be what a shell shows of an error."""

    def show(
        shell: Any, etype: type, value: BaseException, tb: object, tb_offset: object = None
    ) -> list[str]:
        lines = lines_of(value)
        remember_error(value)
        shell._showtraceback(etype, value, lines)
        return lines

    def format_one(etype: type, value: BaseException, *rest: object, **named: object) -> list[str]:
        return lines_of(value)

    if hasattr(shell, "_showtraceback"):
        shell.set_custom_exc((BaseException,), show)
    # IPython formats each error once more, for the notebook's history: half a second of a rank.
    formatter: Any = getattr(shell, "InteractiveTB", None)
    if hasattr(formatter, "structured_traceback"):
        formatter.structured_traceback = format_one


def show_error(shell: Any, error: BaseException, lines: list[str]) -> None:
    """Show these lines of an error as what a cell has ended with."""
    remember_error(error)
    shell._showtraceback(type(error), error, lines)


def give_exit(shell: Any, leave: Any, show: Callable[[SystemExit], object]) -> None:
    """Make ``leave`` be what a shell calls to end, and ``show(error)`` show how a cell was left.

    IPython's own way shows how to end the shell, which is the last thing that a cell is to do.
    """
    if hasattr(shell, "exiter"):
        shell.exiter = leave  # ``%reset`` gives it back to the cells
    if hasattr(shell, "ask_exit"):
        shell.ask_exit = leave
    given = getattr(getattr(shell, "builtin_trap", None), "auto_builtins", None)
    if given is not None:  # which hides both from functions of other modules
        given.update(exit=leave, quit=leave)
    original = shell.showtraceback

    @functools.wraps(original)
    def showtraceback(exc_tuple: Any = None, *args: Any, **named: Any) -> None:
        error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
        if named.get("exception_only") and isinstance(error, SystemExit):
            if sys._getframe(1).f_code.co_name != "run_code":
                raise error  # %run shows it and goes on, and nobody would see it
            show(error)
        else:
            original(exc_tuple, *args, **named)

    shell.showtraceback = showtraceback
    warn = interactiveshell.warn

    @functools.wraps(warn)
    def warn_unless_advice(message: Any, *args: Any, **named: Any) -> None:
        if not str(message).startswith("To exit:"):
            named["stacklevel"] = named.get("stacklevel", 1) + 1
            warn(message, *args, **named)

    interactiveshell.warn = warn_unless_advice


def at_end_of_cells(
    shell: Any,
    finish: Callable[[], None],
    begin: Callable[[], None] = lambda: None,
    left: Callable[[SystemExit], SystemExit | None] = lambda error: error,
) -> None:
    """Call ``finish()`` when the code of a cell has run, before the cell has ended.

    What it raises is the cell's error, as if the cell's last line had raised it; an interrupt
    too. (IPython's own hooks, as "post_run_cell", catch both.) It is not called after an
    interrupt of the cell. An error of the cell's own goes before one of ``finish``. ``begin()``
    is called before the code; if it raises an error, none of the code runs. ``left(error)``
    returns what a SystemExit of the cell's is as its error, None if the cell has ended well.
    """
    original = getattr(shell, "run_ast_nodes", None)
    if original is None:
        return

    @functools.wraps(original)
    async def run_ast_nodes(*args: Any, **named: Any) -> bool:
        result = named.get("result")
        raised = False
        try:
            begin()
            raised = await original(*args, **named)
            if raised:
                error = getattr(result, "error_in_exec", None)
                if isinstance(error, KeyboardInterrupt):
                    return raised
                if isinstance(error, SystemExit) and result is not None:
                    result.error_in_exec = left(error)
                    raised = result.error_in_exec is not None
            finish()
        except BaseException as error:
            if raised:
                return raised
            if result is not None:
                result.error_in_exec = error
            shell.showtraceback(running_compiled_code=True)
            return True
        return raised

    shell.run_ast_nodes = run_ast_nodes


# -- interrupts ---------------------------------------------------------------------------------


def code_of(function: Any) -> CodeType:
    """Return the code of a function or method, also of one that was wrapped."""
    function = inspect.unwrap(function)
    code: CodeType = getattr(function, "__func__", function).__code__
    return code


def codes_of_cells(shell: Any) -> list[CodeType]:
    """Return the code that runs cells and turns what they raise into their errors."""
    found = getattr(shell, "run_ast_nodes", None)
    return [] if found is None else [code_of(found)]


def is_applied(frame: FrameType) -> bool:
    """Return whether a frame is that in which an engine calls the function of an ``apply``."""
    caller = frame.f_back
    return (
        frame.f_code.co_filename == "<string>"
        and caller is not None
        and caller.f_code.co_name == "do_apply"
    )


def on_interrupt(
    kernel: Any, begin: Callable[[], None], handle: Callable[[int, FrameType | None], None]
) -> None:
    """Make ``handle`` be the handler of SIGINT while a kernel handles a request, and call
    ``begin()`` before each. Where IPython hides what runs cells, nothing is done."""
    hooks = hasattr(kernel, "pre_handler_hook") and hasattr(kernel, "post_handler_hook")
    if not (hooks and codes_of_cells(kernel.shell)):
        return

    def pre_handler_hook() -> None:
        begin()
        kernel.saved_sigint_handler = signal.signal(signal.SIGINT, handle)

    kernel.pre_handler_hook = pre_handler_hook


def forget_outputs(shell: Any) -> None:
    """Drop what IPython keeps of the outputs of earlier cells: nobody can ask a rank for it."""
    getattr(shell.history_manager, "outputs", {}).clear()
