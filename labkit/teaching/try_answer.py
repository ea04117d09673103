"""Try an answer in the learner's own kernel, and write down what it gave, as plain data.

There is the trial of an exercise here, and not what it should give
(:mod:`labkit.teaching.trial_source`). So even a learner's cell that has replaced all of labkit in
here can only write down values, and has to know the right ones.
"""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..base.errors import LabError
from ..base.files import write_whole
from ..course.exercise import HINTS, Exercise, Failed, Goal
from ..course.in_file import Told, try_file
from ..course.result import Result
from ..course.script_start import StartFailed
from ..wire.trial import kind_of

#: The types of plain data, which ``torch.load(weights_only=True)`` reads.
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
#: How deep a value may be nested.
_DEEPEST = 20


def main(asked: str, out: str) -> None:
    """Try the answer that a file asks for; write what it gave to another."""
    import torch

    question = json.loads(Path(asked).read_bytes())
    try:
        said: Any = [describe(result) for result in _results(question)]
    except LabError as error:
        said = str(error)
    data = io.BytesIO()
    torch.save(said, data)
    write_whole(Path(out), data.getvalue())


def recover() -> None:
    """Replace the ranks that have not come back from a cell, so that later answers can be tried."""
    from ..notebook import lab

    found = lab.current()
    if found is None:
        return
    cluster = lab.session_of(found).cluster
    free = cluster.free_ranks()
    if busy := [rank for rank in range(cluster.size) if rank not in free]:
        found.restart(busy)


def _results(question: dict[str, Any]) -> Iterator[Result]:
    """Yield what the answer gives, one result per number of ranks."""
    where = question["where"]
    exercise = _exercise(question)
    if where == "notebook":
        from ..course.in_notebook import try_in_notebook

        yield try_in_notebook(exercise)
    elif where == "file":
        yield try_file(exercise, _note_parts)
    else:
        from ..course.on_ranks import attempts

        yield from attempts(exercise)


def _exercise(question: dict[str, Any]) -> Exercise:
    """Return an exercise that expects nothing."""
    where, goals = question.pop("where"), question.pop("goals")
    module = importlib.import_module(question.pop("module"))
    return Exercise(
        **question,
        trial=module.trial,
        where=where,
        title="",
        hints=("",) * HINTS,
        goals=[Goal(measure, most=lambda n: 0) for measure in goals],
        expected=(lambda n: [None] * n) if where == "ranks" else lambda: None,
    )


def _note_parts(exercise: Exercise, told: Told) -> Result:
    """Return what all parts of a file's trial have found: nobody knows here which is the last."""
    parts: list[Any] = []
    try:
        parts += told
    except StartFailed as error:
        parts.append((error.failed, error.notes, error.waited))
    return Result(exercise, 1, [parts], [None])


def describe(result: Result) -> dict[str, Any]:
    """Return a result as plain data."""
    return {
        "world_size": result.world_size,
        "found": result.found,
        "yours": [plain(value) for value in result.yours],
        "counts": [None if c is None else dict(c) for c in result.counts],
        "forbidden": list(result.forbidden),
        "waited": result.waited,
        "crossed": result.crossed,
    }


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as plain data: what is neither plain nor a tensor, by its kind."""
    import torch

    if isinstance(value, Failed):
        return {"failed": plain(asdict(value), depth + 1)}
    if isinstance(value, str):
        return str(value)
    if type(value) in _PLAIN or depth > _DEEPEST:
        return value if type(value) in _PLAIN else {"other": kind_of(value)}
    if isinstance(value, torch.Tensor):
        return {"tensor": value.detach().cpu().clone().as_subclass(torch.Tensor)}
    if type(value) in (list, tuple):
        return [type(value).__name__, *(plain(item, depth + 1) for item in value)]
    if isinstance(value, Mapping):
        pairs = [[plain(k, depth + 1), plain(v, depth + 1)] for k, v in value.items()]
        return {"dict": pairs}
    if isinstance(value, set | frozenset):
        return {"set": [plain(item, depth + 1) for item in value]}
    if isinstance(value, torch.dtype | torch.Size):
        return {"torch": value}
    if type(value).__module__ == "numpy":
        return {"tensor": torch.as_tensor(value)}
    return {"other": kind_of(value)}
