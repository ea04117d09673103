"""Say what of the cells' own belongs to a process group that has ended, and what to write instead.

After a repair the lab has a new group. Models, sub-groups and handles of before keep theirs, whose
connections are gone: torch then speaks of a crash of another rank, or of an object at an address.
Here is known which groups have ended and how, and which variable of which cell holds one.
"""

from __future__ import annotations

import linecache
import re
import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch.distributed as dist

from ...wire import texts
from .. import tracebacks
from ..torch_internals import ended
from . import p2p_record

#: Said of a group of the lab's that a cell has ended, now and with the next error.
LEFT = "{} ended the lab's process group; lab.reset() forms it again."

#: Whether labkit has formed the default group, and has not left it since.
_is_formed = False
#: The cell that runs, or ran last: "In[7]".
_cell = ""
#: Which cell a variable of the cells has its value from: name -> identity of the value, cell.
_bound: dict[str, tuple[int, str]] = {}
#: The sentence that says how the learner's program has ended the lab's group, "" if it has not.
left = ""


def note_joined() -> None:
    """Record that labkit has formed the default group."""
    global _is_formed
    _is_formed = True


def begin_cell(code: str) -> None:
    """Record which cell begins, and the groups that there are."""
    global _cell
    _cell = tracebacks.find_name(code) or "a cell"
    ended.note_destroyed("")  # by labkit, between cells


def end_cell(names: dict[str, Any]) -> None:
    """Record what a cell has made of its names, and which groups it has ended."""
    for name, value in names.items():
        known = _bound.get(name)
        if known is None or known[0] != id(value):
            _bound[name] = id(value), _cell
    end_call(_cell)


def end_call(what: str) -> None:
    """Record which groups a cell, or a function of ``lab.run``, has ended; say so of the lab's."""
    global left
    ended.note_destroyed(f"dist.destroy_process_group() in {what}")
    if dist.is_initialized():
        left = ""
    elif _is_formed and not left:
        left = LEFT.format(what)
        print(left, file=sys.stderr)


def leave(by: str) -> None:
    """Record that this rank leaves all its groups: ``by`` says through what: "lab.reset()", or
    "the deadlock", of the last cell."""
    global left, _is_formed
    _is_formed = False
    how = by if by.endswith(")") else f"{by or 'what happened'} in {_cell or 'a cell'}"
    ended.note_works([*p2p_record.homes, *p2p_record.messages], how)
    ended.note_all(how, _explain_model)
    left = ""


def explain(error: BaseException) -> None:
    """Make an error that a group of before has caused say what has that group, in one sentence."""
    text = str(error)
    if texts.NO_GROUP in text:
        if left:
            error.args = (f"{texts.NO_GROUP}: {left}",)
        return
    if isinstance(error, KeyError) and error.args and ended.is_ended(error.args[0]):
        error.args = (describe(error.args[0], error.args[0]),)  # of a table of torch's
        return
    if not (ended.any_noted() and texts.OF_ENDED.search(text)):
        return
    found = _find(error)
    if found is not None:
        error.args = (describe(*found),)


def describe(thing: object, group: object) -> str:
    """Return what a thing of the cells' belongs to, and what to write."""
    name, cell = find_name(thing)
    kind = ended.kind(thing)
    made = f", made in {cell}" if cell else ""
    article = "An" if kind[0] in "aeioF" else "A"
    who = f"{name} ({kind}{made})" if name else f"{article} {kind}"
    again = f"run {cell} again" if cell else "make it again"
    if kind == "DDP" and name and ended.was_default(group):
        again = f"{name} = DDP({name}.module), or {again}"
    if kind == "handle of a call":
        again = "make the call again"
    elif kind == "old default group":
        again = "dist.group.WORLD is the one of now"
    how = ended.how(group)
    ending = f"{texts.BELONGS} {how}" if how else "belongs to a process group that has ended"
    belongs = f"{who} {ending}"
    if left:
        return f"{belongs}. lab.reset() forms a new one; then {again}."
    return f"{belongs}: {again}."


def find_name(thing: object) -> tuple[str, str]:
    """Return by which variable of the cells a thing is reached, and the cell that this is from."""
    names = tracebacks.get_shell().user_ns if tracebacks.has_shell() else {}
    found = [(path, _cell_of(n, names)) for n, value, path in _reached(names) if value is thing]
    found += [
        (path, _cell_of(n, names))
        for n, value, path in _reached(names)
        if value is not thing and ended.contains(value, thing)
    ]
    # The variable of a loop that runs has no cell yet.
    return next((known for known in found if known[1]), found[0] if found else ("", ""))


def _cell_of(name: str, names: dict[str, Any]) -> str:
    """Return the cell that a variable has its value from, "" if that is not known."""
    at, cell = _bound.get(name, (0, ""))
    return cell if at == id(names[name]) else ""


def _reached(names: dict[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Yield the cells' variables, and what these hold: variable, value, how it is written."""
    own = [(n, v) for n, v in list(names.items()) if not n.startswith("_")]
    for name, value in own:
        yield name, value, name
    for name, value in own:
        if isinstance(value, dict):
            yield from ((name, v, f"{name}[{k!r}]") for k, v in list(value.items()))
        elif isinstance(value, list | tuple):
            yield from ((name, v, f"{name}[{i}]") for i, v in enumerate(value))
        elif type(value).__module__ == "__main__" and hasattr(value, "__dict__"):
            yield from ((name, v, f"{name}.{k}") for k, v in list(vars(value).items()))


def _explain_model(model: object, group: object) -> Exception:
    """Return what a model raises that would communicate in a group that has ended."""
    return RuntimeError(describe(model, group))


def _find(error: BaseException) -> tuple[object, object] | None:
    """Return what of the cells' an error has come from, and its group; None if that is unknown."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    inside = [frame for frame in frames if _is_library(frame)]
    for frame in inside:
        for value in list(frame.f_locals.values()):
            group = ended.group_of(value)
            if group is not None:
                return _holder(frames, value), group
    for frame in inside:  # a backward of what was computed before
        if frame.f_code.co_name == "backward":
            for model in ended.models_of(frame.f_locals.get("self")):
                return model, model.process_group
    return None


def _is_library(frame: FrameType) -> bool:
    return not tracebacks.is_cell(frame.f_code.co_filename)


def _holder(frames: list[FrameType], value: object) -> object:
    """Return what of the cells' a call went through: the outermost model, optimizer or tensor that
    has a name, or what the cell's line names; else the outermost one, else the thing itself."""
    selves = [f.f_locals.get("self") for f in frames if _is_library(f)]
    held = [thing for thing in selves if ended.holds(thing)]
    named = (thing for thing in [*held, *_on_lines(frames), value] if find_name(thing)[0])
    return next(named, held[0] if held else value)


def _on_lines(frames: list[FrameType]) -> Iterator[object]:
    """Yield what the lines of cells name that belongs to a group that has ended."""
    for frame in frames:
        if tracebacks.is_cell(frame.f_code.co_filename):
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            for name in re.findall(r"\w+", line):
                thing = frame.f_locals.get(name, frame.f_globals.get(name))
                if ended.group_of(thing) is not None:
                    yield thing
