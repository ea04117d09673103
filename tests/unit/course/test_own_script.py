"""What is found of a script that trains, without starting it: from what its processes tell and from
its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from labkit.course.catalogue import find
from labkit.course.exercises.nb09 import own_script
from labkit.course.exercises.nb09.alone import BATCH, ROWS, STEPS
from labkit.course.exercises.nb09.own_script import AGAIN, ONE, TWO
from labkit.course.judge import Result, Verdict, judge
from labkit.course.script_start import Trained

EXERCISE = find("09-4")
#: The rows of both epochs in the order of one process, by numbers.
ORDER = [torch.randperm(ROWS, generator=torch.Generator().manual_seed(e)).tolist() for e in (0, 1)]
WEIGHTS = {name: torch.full((2,), float(i)) for i, name in enumerate(own_script.NAMES[:-1])} | {
    own_script.NAMES[-1]: torch.zeros(1)
}


class Alone:
    """Stand in for one process of ``single.py``."""

    steps: ClassVar = [order[i : i + BATCH] for order in ORDER for i in range(0, ROWS, BATCH)]
    weights: ClassVar = WEIGHTS


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_script, "alone", Alone)
    monkeypatch.setattr(
        own_script, "without_state", lambda: {k: v + 0.5 for k, v in WEIGHTS.items()}
    )


class Run:
    """A run as it should be on some processes; a test changes what it is about."""

    def __init__(self, folder: Path, size: int, part: str) -> None:
        self.place, self.part = folder / "a.pt", part
        self.done = int(part in (ONE, AGAIN))
        steps = Alone.steps[self.done * STEPS :]
        self.ranks = [Trained(folder, r, [s[r::size] for s in steps]) for r in range(size)]
        for rank in self.ranks:
            rank.weights = torch.ones(3)
        saves = [f"{self.place}.part"] * (2 - self.done)
        self.ranks[0].saved += saves
        self.state: dict[str, Any] = {
            "model": dict(WEIGHTS),
            "optimizer": {"param_groups": [{"lr": 0.05}]},
            "epoch": 2,
        }

    def judged(self) -> Verdict:
        if self.state:
            torch.save(self.state, self.place)
        found = own_script.found(self.ranks, self.place, self.done)
        expected = own_script.expected()[self.part]
        return judge(Result(EXERCISE, 1, [found], [expected]))


@pytest.fixture
def two(tmp_path: Path) -> Run:
    return Run(tmp_path, 2, TWO)


@pytest.fixture
def one(tmp_path: Path) -> Run:
    return Run(tmp_path, 1, ONE)


@pytest.mark.parametrize(("size", "part"), [(2, TWO), (1, ONE), (4, own_script.FOUR), (2, AGAIN)])
def test_all_as_expected(tmp_path: Path, size: int, part: str) -> None:
    assert Run(tmp_path, size, part).judged().passed


def test_a_share_may_be_any_part_of_the_batch_in_any_order(two: Run) -> None:
    two.ranks[0].steps = [sorted(step[:32]) for step in Alone.steps]
    two.ranks[1].steps = [sorted(step[32:]) for step in Alone.steps]
    assert two.judged().passed


def test_rounding_is_no_difference(two: Run) -> None:
    two.state["model"]["0.bias"] = WEIGHTS["0.bias"] + own_script.TOLERANCE / 2
    assert two.judged().passed
    two.state["model"]["0.bias"] = WEIGHTS["0.bias"] + own_script.TOLERANCE * 5
    assert two.judged().sentence == "The result differs from the expected one in weights in it."


def says(verdict: Verdict, words: str) -> bool:
    return verdict.mistake is not None and words in verdict.sentence


def batches(rows: list[int]) -> list[list[int]]:
    return [rows[i : i + 64] for i in range(0, len(rows), 64)]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (lambda own, r: Alone.steps, "Every rank computes all 3,968 images"),
        (lambda own, r: [b for order in ORDER for b in batches(order[r::2])],
         "Each rank computes 64 images per step"),
        (lambda own, r: own[:STEPS] * 2, "sampler.set_epoch(epoch)"),
        (lambda own, r: own + own[:STEPS], "a different number of epochs"),
    ],
)  # fmt: skip
def test_the_rows_of_two_ranks(two: Run, steps: Callable[..., Any], words: str) -> None:
    for r, rank in enumerate(two.ranks):
        rank.steps = steps(rank.steps, r)
    assert says(two.judged(), words)


def test_a_run_that_begins_again(one: Run) -> None:
    one.ranks[0].steps = Alone.steps
    one.ranks[0].saved *= 2
    assert says(one.judged(), "does not go on from the checkpoint")


def test_a_share_for_two_on_one_process(one: Run) -> None:
    whole = one.ranks[0].steps
    one.ranks[0].steps = [step[::2] for step in whole]  # of a sampler for two
    assert says(one.judged(), "A number of processes is written into the script")
    one.ranks[0].steps = [part for step in whole for part in (step[:32], step[32:])]
    assert says(one.judged(), "A number of processes is written into the script")


def test_ranks_with_weights_of_their_own(two: Run) -> None:
    two.ranks[1].weights = torch.tensor([1.0, 1.0, 1.5])
    assert says(two.judged(), "different weights")
    two.ranks[1].weights = None
    assert two.judged().name != "passed"


@pytest.mark.parametrize(
    ("saves", "words"),
    [
        ([2, 2], "Every rank writes the checkpoint"),
        ([0, 2], "A rank other than 0"),
        ([1, 0], "is written only once"),
    ],
)
def test_who_saves_and_how_often(two: Run, saves: list[int], words: str) -> None:
    for rank, count in zip(two.ranks, saves, strict=True):
        rank.saved = [f"{two.place}.part"] * count
    assert says(two.judged(), words)


def test_saves_of_something_else_do_not_count(two: Run) -> None:
    two.ranks[1].saved = ["/elsewhere/log.pt"]
    two.ranks[0].saved = ["", ""]  # to a buffer in memory, which is written then
    assert two.judged().passed


def test_a_checkpoint_that_is_written_in_its_place(two: Run) -> None:
    two.ranks[0].saved = [str(two.place)] * 2
    assert says(two.judged(), "is written over the old one")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimizer": {"param_groups": [{"lr": 0.1}]}}, "The learning rate grows"),
        ({"epoch": 1}, "a smaller epoch"),
        ({"model": {f"module.{name}": value for name, value in WEIGHTS.items()}},
         "begin with module."),
        ({"model": 3}, ""),
        ({"model": {}}, ""),
        ({"optimizer": {}}, ""),
    ],
)  # fmt: skip
def test_what_is_in_the_checkpoint(two: Run, change: dict[str, Any], words: str) -> None:
    two.state |= change
    verdict = two.judged()
    assert says(verdict, words) if words else verdict.name == "different"


def test_an_optimizer_that_starts_anew(one: Run) -> None:
    one.state["model"] = own_script.without_state()
    assert says(one.judged(), "without the optimizer's state")


def test_there_is_no_checkpoint(two: Run) -> None:
    two.state = {}
    assert says(two.judged(), "no checkpoint where --save=PATH says")


@pytest.mark.parametrize("content", [b"half of it", [1], {"epoch": 2}])
def test_a_checkpoint_of_another_kind_has_no_story(two: Run, content: Any) -> None:
    two.state = {}
    if isinstance(content, bytes):
        two.place.write_bytes(content)
    else:
        torch.save(content, two.place)
    assert two.judged().name == "different"


def test_a_process_that_told_nothing(two: Run) -> None:
    two.ranks[1].steps = []
    assert two.judged().name == "different"
