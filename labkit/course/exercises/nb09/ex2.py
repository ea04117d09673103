"""Exercise 09-2: test the model inside DDP on all ranks, and add up what each has counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Goal, Mistake
from ...mistakes import Predicate, simulated
from .reading import FEW, GUESSES, HANDLED, LABELS, expected, right, trial


def _padded(rank: int, n: int) -> list[int]:
    """Return the share of DistributedSampler, which starts over until all have equally many."""
    each = -(-len(LABELS) // n)
    return [(rank + n * k) % len(LABELS) for k in range(each)]


def _own_share(yours: Any, expected: Any, n: int) -> bool:
    """Return whether the ranks' numbers of images, added up, are all images: nobody has added."""
    return n > 1 and len(LABELS) <= sum(y[1] for y in yours) <= len(_padded(0, n)) * n


def _shares(count: int, n: int) -> list[list[list[int]]]:
    """Return the ways to deal images to the ranks: in turns, and in blocks."""
    images = list(range(count))
    size = -(-count // n)
    return [
        [images[r::n] for r in range(n)],
        [images[r * size : (r + 1) * size] for r in range(n)],
    ]


def _counts(simulate: Callable[[int], list[float]]) -> Predicate:
    """Return the predicate of accuracies and numbers that are ``simulate(world_size)`` on all
    ranks."""
    return simulated(lambda n: [simulate(n)] * n, lambda own: own[:4])


def _mean_of_accuracies(way: int) -> Predicate:
    """Return the predicate of means of the ranks' own accuracies, as far as all have images."""

    def mean(count: int, first: int, n: int) -> float:
        shares = _shares(count, n)[way]
        return sum(right([first + i for i in s]) / len(s) for s in shares if s) / n

    return _counts(lambda n: [mean(len(LABELS), 0, n), len(LABELS), mean(FEW, 2, n), FEW])


def _read_while_training(n: int) -> list[float]:
    """Return what the model counts in training mode."""

    def read(first: int, count: int) -> float:
        pairs = list(zip(GUESSES, LABELS, strict=True))[first : first + count]
        return sum(9 - guess == label for guess, label in pairs) / count

    return [read(0, len(LABELS)), len(LABELS), read(2, FEW), FEW]


EXERCISE = Exercise(
    id="09-2",
    title="Evaluate on all ranks",
    answer="test",
    setup="""
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset
    """,
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", most=lambda n: 2),),
    entries=(
        f"accuracy, of {len(LABELS):,} images",
        f"their number, of {len(LABELS):,}",
        f"accuracy, of {FEW} images",
        f"their number, of {FEW}",
        "in training mode afterwards",
        "gradients were recorded",
        "ddp(…) was called",
    ),
    mistakes=(
        Mistake(
            "Rank 0 waits in an all_reduce that the other ranks do not call: every rank has to "
            "call it.",
            stuck=r"\brank 0 waits in all_reduce",
        ),
        Mistake(
            "Some ranks call all_reduce more often than others. With one call per batch, ranks "
            "with more batches wait for calls that never come: count in the loop, reduce once "
            "after it.",
            stuck=r"\branks 0\S* wait in all_reduce",  # rank 0's share is never the smaller one
        ),
        Mistake(
            "The two numbers have changed places: return the accuracy first, then the number of "
            "images.",
            when=simulated(lambda n: [[y[1], y[0], y[3], y[2], *HANDLED] for y in expected(n)]),
        ),
        Mistake(
            "The second number is at most one rank's share of the images: add up the counts over "
            "the ranks.",
            when=_own_share,
        ),
        Mistake(
            "Some images are counted twice: DistributedSampler repeats a few, so that all ranks "
            "have equally many. Take every world_size-th image instead.",
            when=lambda yours, expected, n: (
                int(yours[0][1]) == len(_padded(0, n)) * n > len(LABELS)
            ),
        ),
        Mistake(
            "Every rank has tested every image, and the counts were added up: give each rank a "
            "share of the images.",
            when=lambda yours, expected, n: int(yours[0][1]) == n * len(LABELS) and n > 1,
        ),
        Mistake(
            "The model was in training mode while it was tested, in which layers such as dropout "
            "change its answers: call eval() before the first batch.",
            when=_counts(_read_while_training),
        ),
        Mistake(
            "The number of images is right, but the accuracy is not. A mean of the ranks' "
            "accuracies is wrong where their shares differ in length: add up counts, then divide "
            "once.",
            when=_mean_of_accuracies(0) | _mean_of_accuracies(1),
        ),
        Mistake(
            "The numbers are right, but the model is still in eval mode, in which the next epoch "
            "would train it without dropout: call train() at the end.",
            when=simulated(lambda n: [[*y[:4], False, False, False] for y in expected(n)]),
        ),
        Mistake(
            "The numbers are right, but autograd has recorded the test for a backward pass that "
            "never comes, which costs time and memory: test under torch.no_grad().",
            when=simulated(lambda n: [[*y[:4], True, True, False] for y in expected(n)]),
        ),
        Mistake(
            "The numbers are right, but ddp(…) was called. DDP's forward may hold a collective (it "
            "broadcasts buffers), and ranks wait there for one without a batch: call ddp.module.",
            when=simulated(lambda n: [[*y[:4], True, False, True] for y in expected(n)]),
        ),
        Mistake(
            "The result is right, but it takes more than one collective per call: put both "
            "counts into one tensor and reduce it once, after the last batch. (With one "
            "collective per batch, ranks with more batches than others could wait forever.)",
            missed="collectives",
        ),
    ),
    hints=(
        "Which rank tests which images, so that each is tested once? What can be added up? And "
        "in which mode is a model tested?",
        "Subset(test_set, range(rank, len(test_set), world_size)) is this rank's share. Count the "
        "correct answers and the images in it, with ddp.module in eval mode, under no_grad.",
        "One tensor holds both counts. Reduce it once, after the loop, on every rank; divide "
        "after that.",
    ),
)
