"""What a sandbox writes down, and what is made of it outside, where nobody vouches for it."""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from labkit.course import catalogue
from labkit.course.exercise import Exercise, Failed
from labkit.course.on_ranks import expected_on
from labkit.course.result import Result
from labkit.teaching import judge_answers, records, try_answer
from labkit.wire.trial import Unusable

EVERY = [e for number in catalogue.numbers() for e in catalogue.of_notebook(number)]
NEIGHBOUR = catalogue.find("00-3")


def sent(value: Any) -> Any:
    """Return a value as it comes out of a sandbox."""
    data = io.BytesIO()
    torch.save(value, data)
    return judge_answers.load(data.getvalue())


def said(exercise: Exercise, values: list[Any], size: int, **more: Any) -> dict[str, Any]:
    zeros = dict.fromkeys((goal.measure for goal in exercise.goals), 0)
    entry = try_answer.describe(Result(exercise, size, values, [None] * size, [zeros] * size))
    return {**entry, **more}


@pytest.mark.parametrize(
    "exercise", [e for e in EVERY if e.where != "file" and "12-" not in e.id], ids=lambda e: e.id
)
def test_the_right_values_of_every_exercise_arrive(exercise: Exercise) -> None:
    size = 4 if exercise.where == "ranks" else 1
    right = expected_on(exercise, 4) if exercise.where == "ranks" else [exercise.expected()]
    (entry,) = sent([said(exercise, right, size)])
    result = judge_answers._result(exercise, entry)
    assert not result.wrong
    module = importlib.import_module(json.loads(judge_answers.question(exercise))["module"])
    assert module.trial is exercise.trial


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 2.5, "text", b"bytes", [1, (2, "x")], {1: [None], "a": {2}}, torch.float16,
        Failed("ValueError", "no", ("x = 1",)),
        Failed.of_trial(Unusable("TypeError", "no", "a list")),
    ],
    ids=repr,
)  # fmt: skip
def test_values_and_failures_arrive(value: Any) -> None:
    arrived = judge_answers.value(sent(try_answer.plain(value)))
    assert arrived == value
    assert type(arrived) is type(value)


def test_what_is_no_data_arrives_as_its_kind() -> None:
    class Everything:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    (entry,) = sent([said(NEIGHBOUR, [Everything()] * 4, 4)])
    assert not judge_answers.mark(NEIGHBOUR, [entry], 4).passed


def test_an_answer_is_judged_as_in_the_notebook() -> None:
    right, wrong = [1, 2, 3, 0], [1, 2, 3, 4]
    assert judge_answers.mark(NEIGHBOUR, [said(NEIGHBOUR, right, 4)], 4).passed
    mark = judge_answers.mark(NEIGHBOUR, [said(NEIGHBOUR, wrong, 4)], 4)
    assert (mark.passed, mark.sentence) == (False, NEIGHBOUR.mistakes[0].sentence)
    both = [said(NEIGHBOUR, right, 4), said(NEIGHBOUR, [1, 2, 3], 3)]
    assert judge_answers.mark(NEIGHBOUR, both, 4).verdict == "one size"
    forbidden = said(NEIGHBOUR, right, 4, forbidden=["all_reduce"])
    assert judge_answers.mark(NEIGHBOUR, [forbidden], 4).verdict == "forbidden: all_reduce"


@pytest.mark.parametrize(
    "claim",
    [
        None, [], {}, 3, "no lab runs", [{"passed": True}], [[]], [None],
        [said(NEIGHBOUR, [0], 1)],  # on one rank anything is easy
        [said(NEIGHBOUR, [1, 0], 2)],
        [said(NEIGHBOUR, [1, 2, 3, 0], 4, world_size=10**9)],
        [said(NEIGHBOUR, [1, 2, 3, 0], 4, found="passed")],
        [said(NEIGHBOUR, [1, 2, 3, 0], 4, yours=[{"other": "x", "more": 1}] * 4)],
        [said(NEIGHBOUR, [1, 2, 3, 0], 4), said(NEIGHBOUR, [0], 1)],
    ],
    ids=str,
)  # fmt: skip
def test_a_claim_is_no_proof(claim: Any) -> None:
    assert not judge_answers.mark(NEIGHBOUR, claim, 4).passed


def test_reading_runs_nothing(tmp_path: Path) -> None:
    class Bait:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    assert judge_answers.load(pickle.dumps(Bait())) is None
    assert sent([Bait()]) is None
    assert not (tmp_path / "ran").exists()


# -- records --------------------------------------------------------------------------------------


def test_records_are_read_up_to_what_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "answer"
    path.write_bytes(b"data\n1")
    told = io.BytesIO()
    records.note(told, "cell 3 \x1b[31mwas interrupted")
    records.answer(told, "00-1", path)
    assert not path.exists()
    whole = told.getvalue()
    read = ({"00-1": [b"data\n1"]}, ["cell 3 �[31mwas interrupted"])
    for rest in (b"", b"\n", b"{}\n", b'{"note": 1, "size": -1}\n', b"[" * 5000, b"\xff" * 9):
        assert records.parse(io.BytesIO(whole + rest)) == read


def test_a_learner_cannot_lay_a_trap_for_who_reads(tmp_path: Path) -> None:
    secret, link, pipe = (tmp_path / name for name in ("secret", "link", "pipe"))
    secret.write_text("it")
    link.symlink_to(secret)
    os.mkfifo(pipe)
    told = io.BytesIO()
    for path in (link, pipe, tmp_path, tmp_path / "nothing"):
        records.answer(told, "00-1", path)
    assert told.getvalue() == b""
