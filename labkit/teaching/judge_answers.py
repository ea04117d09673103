"""Decide whether what answers gave is right, in a process in which no learner's code has run.

What comes from a sandbox is data that nobody vouches for. It is read by
``torch.load(weights_only=True)``, which runs nothing, in a process of its own with limits. That
process is forked from one that has imported torch and the course, and that reads no such data.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..base import times
from ..base.errors import LabError
from ..course import catalogue, edition
from ..course.exercise import Exercise, Failed
from ..course.judge import judge
from ..course.result import Result
from ..wire.trial import Unusable
from . import records

#: Bytes of memory that reading and comparing may take.
MEMORY = 8 << 30


@dataclass(frozen=True)
class Mark:
    """Whether an exercise is solved, and what was said of it."""

    passed: bool
    verdict: str = "not tried"  #: in short: "passed", the sentence of a mistake, "different", …
    sentence: str = ""


class Judge:
    """Fork a process for each judgement, from one that has imported torch and the course."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torch", "labkit.course.on_ranks", __name__])

    def questions(self, names: Sequence[str]) -> dict[str, tuple[str, bytes]]:
        """Return for each exercise the name of its answer, and what a sandbox is asked."""
        with self._fork(_send_questions, (list(names),), times.JUDGED) as connection:
            asked = ((connection.recv_bytes().decode(), connection.recv_bytes()) for _ in names)
            return dict(zip(names, asked, strict=True))

    def marks(
        self, names: Sequence[str], told: Path, ranks: Mapping[str, int]
    ) -> tuple[dict[str, Mark], list[str]]:
        """Judge what the answers of a notebook gave; return a mark per exercise, and the notes.

        An answer may have been tried several times: the best of them counts.

        Parameters
        ----------
        names
            The exercises that the notebook has.
        told
            The file of records that a sandbox has written.
        ranks
            On how many ranks the answer to each has to have been tried.
        """
        try:
            with self._fork(_send_marks, (list(names), told, ranks), times.JUDGED) as connection:
                marks, notes = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            lost = Mark(False, "unreadable", "What the answers gave could not be compared.")
            return dict.fromkeys(names, lost), []
        return {name: Mark(*said) for name, said in zip(names, marks, strict=True)}, notes

    @contextmanager
    def _fork(
        self, target: Callable[..., None], arguments: tuple[Any, ...], seconds: float
    ) -> Iterator[Connection]:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=target, args=(theirs, *arguments), daemon=True)
        process.start()
        theirs.close()
        try:
            if not ours.poll(seconds):
                raise EOFError
            yield ours
        finally:
            ours.close()
            process.kill()
            process.join()
            process.close()


# -- what is asked --------------------------------------------------------------------------------


def _send_questions(connection: Connection, names: list[str]) -> None:
    for name in names:
        exercise = catalogue.find(name)
        connection.send_bytes(exercise.answer.encode())
        connection.send_bytes(question(exercise))


def question(exercise: Exercise) -> bytes:
    """Return an exercise for a sandbox: where its trial is, and nothing of what it should give."""
    asked = {
        "id": exercise.id,
        "answer": exercise.answer,
        "where": exercise.where,
        "module": exercise.trial.__module__,  # of those that several exercises share, another one
        "forbids": list(exercise.forbids),
        "goals": [goal.measure for goal in exercise.goals],
        "seconds": exercise.seconds,
        "start": exercise.start,
    }
    return json.dumps(asked).encode()


# -- what came back -------------------------------------------------------------------------------


def _send_marks(
    connection: Connection, names: list[str], path: Path, ranks: Mapping[str, int]
) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(times.JUDGED),) * 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    with open(path, "rb") as file:
        answers, notes = records.parse(file)
    marks = []
    for name in names:
        tried = map(load, answers.get(name, []))
        given = [mark(catalogue.find(name), said, ranks[name]) for said in tried]
        best = max(given, key=lambda mark: mark.passed, default=Mark(False))
        said = map(records.printable, (best.verdict, best.sentence))
        marks.append([best.passed, *said])
    connection.send_bytes(json.dumps([marks, notes]).encode())


def load(data: bytes) -> Any:
    """Return what a sandbox has written down, None if it is nothing that can be read."""
    import torch

    try:
        return torch.load(io.BytesIO(data), weights_only=True)
    except Exception:  # it may be anything
        return None


def mark(exercise: Exercise, said: Any, ranks: int) -> Mark:
    """Judge what an answer gave.

    ``said`` is what :mod:`labkit.teaching.try_answer` has written, or anything else.
    """
    if isinstance(said, str):
        return Mark(False, "not tried", said)
    try:
        return _mark(exercise, said, ranks)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, LabError):
        return Mark(False, "unreadable", "What the answer gave is not what a trial writes down.")


def _mark(exercise: Exercise, said: Any, ranks: int) -> Mark:
    results = [_result(exercise, entry) for entry in said]
    wanted = [1] if exercise.where != "ranks" else [ranks, ranks - 1][: len(results)]
    sizes = [result.world_size for result in results]
    if sizes != wanted:
        return Mark(False, "other ranks", f"It was tried on {sizes[0]} ranks, not on {ranks}.")
    verdict = judge(results[0])
    if verdict.passed and not all(judge(fewer).passed for fewer in results[1:]):
        results[0].found = "one size"
        verdict = judge(results[0])
    return Mark(verdict.passed, verdict.name, verdict.sentence)


def _result(exercise: Exercise, entry: Any) -> Result:
    """Return a result of which the values come from a sandbox, and all else from here."""
    size = entry["world_size"]
    if type(size) is not int or not 1 <= size <= 1024:
        raise ValueError(size)
    found, yours = entry["found"], [value(each) for each in entry["yours"]]
    if exercise.where == "file" and found == "written" and not isinstance(yours[0], Failed):
        from ..course.in_file import compare_parts

        return compare_parts(exercise, _parts(yours[0]))
    from ..course.on_ranks import expected_on

    if found != "written":
        expected: list[Any] = [None] * size
    elif exercise.where == "ranks":
        expected = expected_on(exercise, size)
    else:
        expected = [None] if exercise.where == "file" else [exercise.expected()]
    if len(yours) != size:
        raise ValueError(len(yours))
    return Result(
        exercise,
        size,
        yours,
        expected,
        counts=[None if count is None else _counts(count) for count in entry["counts"]],
        forbidden=[str(name) for name in entry["forbidden"]],
        waited=str(entry["waited"]),
        crossed=str(entry["crossed"]),
        found=found,
    )


def _counts(count: Any) -> dict[str, int]:
    return {str(name): int(number) for name, number in count.items()}


def _parts(yours: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parts of a file's trial as it did, and fail where it failed."""
    from ..course.script_start import StartFailed

    for part in yours:
        if isinstance(part[0], Failed):
            raise StartFailed(part[0], part[1], part[2])
        yield part


def value(said: Any) -> Any:
    """Return a value that was written down as plain data."""
    if isinstance(said, list):
        kind, items = {"list": list, "tuple": tuple}[said[0]], said[1:]
        return kind(value(item) for item in items)
    if not isinstance(said, dict):
        return said
    ((kind, inside),) = said.items()
    if kind == "dict":
        return {value(key): value(item) for key, item in inside}
    if kind == "set":
        return {value(item) for item in inside}
    if kind == "failed":
        return _failed(value(inside))
    if kind in ("tensor", "torch"):
        return inside
    return Other(str(inside))


def _failed(told: dict[str, Any]) -> Failed:
    unusable = told.pop("unusable")
    return Failed(**told, unusable=None if unusable is None else Unusable(**unusable))


@dataclass(frozen=True)
class Other:
    """Stand in the place of a value that is no plain data; ``kind`` describes its type."""

    kind: str


def exercises_of(notebook: str) -> list[str]:
    """List the ids of the exercises of a notebook of the course, by its file name; of a number that
    the course has, if it is another name."""
    from ..course import material

    number = notebook[:2]
    found = material.notebooks(number) if number.isdigit() else []
    own = [path for path in found if path.name == notebook] or found
    return [name for path in own for name in edition.exercises_in(path.read_bytes())]
