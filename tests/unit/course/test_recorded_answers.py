"""Judge every recorded answer: what is said of it, and whether it is still the answer.

The recordings are of real ranks (``tests/support/results.py``); what ``tests/course/test_answers``
expects of an answer that runs is expected of its recording too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from labkit.course import catalogue
from labkit.course.compare import same
from labkit.course.exercise import Exercise, Failed
from labkit.course.judge import judge
from labkit.course.on_ranks import expected_on
from labkit.course.report import report
from tests.support import results, witnesses
from tests.support.answers import EXERCISES
from tests.support.results import FOLDER, OutdatedError, Recording, read

AGAIN = "run make record"
#: What is said of an answer that is none of the wrong ones.
SAID = {"stub": "nothing", "solution": "passed", "another": "passed"}


def recordings() -> Iterator[Recording]:
    for path in sorted(FOLDER.iterdir()):
        yield from read(path)


def title(key: Iterable[str]) -> str:
    return " ".join(filter(None, key))


def complaints(recording: Recording, exercise: Exercise) -> list[str]:
    """Return what is said otherwise of a recorded answer than its exercise expects."""
    _, kind, name = recording.key
    result = recording.result(exercise)
    verdict = judge(result)
    wrong = witnesses.of(exercise)
    if (said := SAID.get(kind) or (wrong[name].says if name in wrong else None)) is None:
        return []  # there is no such answer any more
    right = verdict.name == said if kind in SAID else verdict.name.startswith(said)
    found = [] if right else [f"{title(recording.key)}: {verdict.name!r}, not {said!r}"]
    if exercise.id not in report(result, verdict):
        found.append(f"{title(recording.key)}: the report does not name the exercise")
    return found


def outdated(found: Iterable[Recording]) -> list[str]:
    """Return in a sentence each what is not recorded as it is now."""
    known = results.sources()
    recorded = {recording.key: recording.source for recording in found}
    said = {
        "has no recording": known.keys() - recorded.keys(),
        "is recorded, but there is no such answer": recorded.keys() - known.keys(),
        "has changed since it was recorded": {
            key for key in known.keys() & recorded.keys() if known[key] != recorded[key]
        },
    }
    return [f"{title(key)} {what}: {AGAIN}." for what, keys in said.items() for key in sorted(keys)]


def expected_now(exercise: Exercise, world_size: int) -> list[Any]:
    """Return what a right answer is compared with; of a file that is its last part."""
    if exercise.where == "ranks":
        return expected_on(exercise, world_size)
    expected = exercise.expected()
    return [expected if exercise.where == "notebook" else list(expected.values())[-1]]


@pytest.mark.parametrize("number", catalogue.numbers())
def test_each_recorded_answer_is_judged_as_its_exercise_says(number: str) -> None:
    found = [
        text
        for recording in read(FOLDER / f"{number}.jsonl")
        if (exercise := EXERCISES.get(recording.key[0])) is not None
        for text in complaints(recording, exercise)
    ]
    assert found == []


def test_each_answer_is_recorded_as_it_is_now() -> None:
    assert outdated(recordings()) == []


def test_what_is_expected_is_recorded_as_it_is_now() -> None:
    changed = [
        f"{name} expects something else than when it was recorded: {AGAIN}."
        for (name, kind, _), fields in ((r.key, r.fields) for r in recordings())
        if kind == "solution" and name in EXERCISES
        if not same(fields["expected"], expected_now(EXERCISES[name], fields["world_size"]))
    ]
    assert changed == []


def test_a_mistake_that_does_not_show_any_more_is_noticed() -> None:
    """Turn the predicates of a notebook round, one at a time, where only they can show it."""
    recorded = read(FOLDER / "05.jsonl")
    for exercise in catalogue.of_notebook("05"):
        own = [recording for recording in recorded if recording.key[0] == exercise.id]
        assert not any(complaints(recording, exercise) for recording in own)
        for place, mistake in enumerate(exercise.mistakes):
            if (when := mistake.when) is None or mistake.raises or mistake.stuck:
                continue
            turned = replace(mistake, when=lambda *values, when=when: not when(*values))
            mistakes = [*exercise.mistakes[:place], turned, *exercise.mistakes[place + 1 :]]
            changed = replace(exercise, mistakes=mistakes)
            assert any(complaints(recording, changed) for recording in own), mistake.sentence


def test_what_is_to_be_recorded_again_is_said_in_a_sentence() -> None:
    first, second, *others = recordings()
    other = replace(second, key=("00-1", "wrong", "of before"))
    assert outdated([replace(first, source="0"), other, *others]) == [
        f"{title(second.key)} has no recording: {AGAIN}.",
        f"00-1 wrong of before is recorded, but there is no such answer: {AGAIN}.",
        f"{title(first.key)} has changed since it was recorded: {AGAIN}.",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"waited":', '"awaited":', "KeyError('awaited', 'waited')"),
        ('"yours":[', '"yours":[{"array":[]},', "KeyError('array')"),
        ("{", "", "JSONDecodeError('Extra data: line 1 column 9 (char 8)')"),
    ],
)
def test_a_line_of_another_version_is_refused_in_a_sentence(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    path = tmp_path / "00.jsonl"
    path.write_text(next(recordings()).to_json().replace(old, new, 1))
    with pytest.raises(OutdatedError) as refused:
        read(path)
    assert str(refused.value) == f"00.jsonl does not hold what a result does ({said}): {AGAIN}."


def test_values_come_back_as_they_were() -> None:
    tensors = [
        torch.tensor(values, dtype=dtype)
        for values in ([], 1, [[0, 1], [1, 1]])
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool)
    ]
    value = {
        1: (None, True, 1, 1.0, 0.1, -math.inf, math.nan, "1", b"1"),
        "1": [Failed("TypeError", "it is …", ("x = 1",)), [], {}, ()],
    }
    assert repr(results.from_plain(results.to_plain([value, tensors]))) == repr([value, tensors])
    third = torch.ones(3) / 3
    assert torch.equal(results.from_plain(results.to_plain(third)), third)


def test_a_value_that_cannot_be_recorded_is_named() -> None:
    with pytest.raises(TypeError, match=r"^no recording carries range\(0, 2\), of builtins.range$"):
        results.to_plain([{"a": range(2)}])


def test_what_differs_between_machines_is_not_recorded() -> None:
    text = f"{FOLDER}: <f at 0x7f12ab>, {Path(torch.__file__).parent}/rpc.py, port: 4711"
    assert results.to_plain(text) == (
        "/course/tests/data/answers: <f at 0x0>, /site-packages/torch/rpc.py, port: 0"
    )
