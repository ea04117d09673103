"""Results of the exercises' answers, recorded once on real ranks and judged again on every run.

``python -m tests.support.results`` runs every answer of the course where it belongs and keeps what
it gave. What a learner is told of it follows from that by a pure function, so
``tests/unit/course/test_recorded_answers.py`` judges all recordings in seconds, without a rank.
After a change of one exercise ``python -m tests.support.results -k 05-2`` is enough.

As a pytest plugin (``-p tests.support.results``) this module records what ``check.examine`` finds
while an answer is tried.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from labkit.course import check
from labkit.course.exercise import Exercise, Failed
from labkit.course.exercises.nb09 import own_script
from labkit.course.exercises.nb19 import batch
from labkit.course.judge import Result, Verdict
from labkit.course.score import Score
from labkit.wire.trial import Unusable
from tests.support import answers, recordings, witnesses
from tests.support.answers import EXERCISES
from tests.support.noise import steady
from tests.support.recordings import OutdatedError

FOLDER = recordings.DATA / "answers"
TESTS = "tests/course/test_answers.py"
#: What kind of answer each of these tests tries.
KINDS = {
    "test_the_stub_is_known": "stub",
    "test_the_solution_of_the_notebook_passes": "solution",
    "test_another_solution_passes": "another",
    "test_a_wrong_answer_is_named": "wrong",
}
#: Exercise, kind, and the name of a wrong answer.
Key = tuple[str, str, str]
FIELDS = [field.name for field in dataclasses.fields(Result) if field.name != "exercise"]


@dataclass(frozen=True)
class Recording:
    """What an answer gave.

    Attributes
    ----------
    key
        Which answer it is.
    source
        The checksum of what ran.
    fields
        What the result holds, but for the exercise, which is judged as it is now.
    """

    key: Key
    source: str
    fields: Mapping[str, Any]

    def result(self, exercise: Exercise) -> Result:
        """Return it as the result of an exercise."""
        return Result(exercise, **self.fields)

    def to_json(self) -> str:
        """Return it as one line."""
        fields = {name: to_plain(value) for name, value in self.fields.items()}
        plain = {"answer": self.key, "source": self.source, **fields}
        return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Recording:
        """Return what a line holds."""
        plain = json.loads(line)
        exercise, kind, name = plain.pop("answer")
        source = plain.pop("source")
        if differing := plain.keys() ^ set(FIELDS):
            raise KeyError(*sorted(differing))
        fields = {field: from_plain(value) for field, value in plain.items()}
        return cls((exercise, kind, name), source, fields)


@cache
def sources() -> dict[Key, str]:
    """Return the checksum of each answer of the course: of the cell before it and its own."""
    found = {}
    for exercise in EXERCISES.values():
        texts = {
            ("stub", ""): answers.stub(exercise),
            ("solution", ""): answers.solution(exercise),
        }
        for name, witness in witnesses.of(exercise).items():
            key = ("another", "") if witness.says == witnesses.RIGHT else ("wrong", name)
            texts[key] = answers.written(exercise, witness)
        for own, text in texts.items():
            checksum = zlib.crc32(f"{answers.setup(exercise)}\n{text}".encode())
            found[exercise.id, *own] = f"{checksum:08x}"
    return found


def read(path: Path) -> list[Recording]:
    """Return the recordings of a file.

    Raises
    ------
    OutdatedError
        If it does not hold what a result does.
    """
    try:
        return [Recording.from_json(line) for line in path.read_text().splitlines()]
    except (KeyError, TypeError, ValueError) as error:
        raise OutdatedError(
            f"{path.name} does not hold what a result does ({error!r}): run make record."
        ) from None


# -- values -------------------------------------------------------------------------------------

#: What JSON has itself, as have texts; also a float that is no number.
PLAIN = (type(None), bool, int, float)


def _values(instance: Any) -> list[Any]:
    return list(vars(instance).values())


def _read_tensor(plain: Sequence[Any]) -> torch.Tensor:
    dtype, shape, numbers = plain
    return torch.tensor(numbers, dtype=getattr(torch, dtype)).reshape(shape)


#: Type -> how to write it as something simpler, and how to read that.
CODECS: Mapping[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: (list, tuple),
    dict: (lambda value: list(map(list, value.items())), dict),
    bytes: (bytes.hex, bytes.fromhex),
    torch.Tensor: (
        lambda t: [str(t.dtype).removeprefix("torch."), list(t.shape), t.flatten().tolist()],
        _read_tensor,
    ),
    Failed: (_values, lambda plain: Failed(*plain)),
    Unusable: (_values, lambda plain: Unusable(*plain)),
    own_script.Said: (str, own_script.Said),
    batch.Said: (str, batch.Said),
    Score: (lambda score: [str(score), score.shown], lambda plain: Score(*plain)),
}


def _tag(kind: type) -> str:
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}".removeprefix("builtins.")


READERS = {_tag(kind): reader for kind, (_, reader) in CODECS.items()}


def to_plain(value: Any) -> Any:
    """Return a value as JSON can carry it: ``(1, 2)`` is ``{"tuple": [1, 2]}``.

    Raises
    ------
    TypeError
        If it is of a type that no recording carries.
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is str:
        return steady(value)
    if kind is list:
        return list(map(to_plain, value))
    if kind not in CODECS:
        raise TypeError(f"no recording carries {value!r}, of {kind.__module__}.{kind.__name__}")
    return {_tag(kind): to_plain(CODECS[kind][0](value))}


def from_plain(plain: Any) -> Any:
    """Return the value that ``to_plain`` has written."""
    if isinstance(plain, list):
        return list(map(from_plain, plain))
    if not isinstance(plain, dict):
        return plain
    ((tag, inner),) = plain.items()
    return READERS[tag](from_plain(inner))


# -- recording ----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-answers", type=Path, help="the folder that they go to")


@pytest.fixture(autouse=True)
def _record_answer(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Record what an answer gives while a test tries it, whatever the test says of that."""
    folder = request.config.getoption("--record-answers")
    kind = KINDS.get(request.node.originalname)
    if folder is None or kind is None:
        yield
        return
    results: list[Result] = []
    examine = check.examine

    def examining(exercise: Exercise) -> tuple[Result, Verdict]:
        result, verdict = examine(exercise)
        results.append(result)
        return result, verdict

    monkeypatch.setattr(check, "examine", examining)
    yield
    values = request.node.callspec.params
    key = (values["name"], kind, values.get("wrong", ""))
    for result in results:
        fields = {name: getattr(result, name) for name in FIELDS}
        found = Recording(key, sources()[key], fields)
        recordings.append(folder / f"{values['name'][:2]}.jsonl", found)


def main(arguments: Sequence[str]) -> int:
    """Run the answers and replace their recordings; return pytest's exit status.

    With arguments for pytest (``-k 05-2``) the recordings of answers that do not run stay.
    """
    own = "tests.support.results"
    with recordings.recorded(own, "--record-answers", [TESTS, *arguments]) as (status, files):
        for new in files:
            path = FOLDER / new.name
            kept = read(path) if arguments and path.exists() else []
            known = [r for r in [*kept, *read(new)] if r.key in sources()]
            recordings.write(path, known, lambda r: r.key)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
