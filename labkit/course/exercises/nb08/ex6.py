"""Exercise 08-6: test on all ranks, and reduce what each has counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
from ...mistakes import near, would_give

#: What a net answers, and what is right. There are so many images that a rank's share has several
#: batches, whatever the size of a batch that the course uses; and no number of ranks divides them.
GUESSES = ((7, 2, 1, 0, 4, 1, 4, 9, 5, 9, 0, 6, 9) * 78)[:1002]
LABELS = ((7, 2, 1, 3, 4, 1, 8, 9, 6, 9, 2, 6, 0) * 78)[:1002]
#: And another, in which every rank of four has one batch.
FEW = 5


class _Reads(nn.Module):
    """Take the number in an image for its digit."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return F.one_hot(images.flatten().long(), 10).float()


def trial(answer: Callable[..., Any], here: Here) -> list[Any] | None:
    """Test on many images and on a few; return accuracy and number of images of both."""
    test_set = [
        (torch.tensor([float(guess)]), label) for guess, label in zip(GUESSES, LABELS, strict=True)
    ]
    found = []
    for images in (test_set, test_set[2 : 2 + FEW]):
        given = answer(_Reads(), images)
        if given is None:
            return None
        found += list(given)
    return found


def _right(share: Sequence[int]) -> int:
    return sum(GUESSES[i] == LABELS[i] for i in share)


def expected(world_size: int) -> list[list[float]]:
    """Count in one process."""
    images, few = range(len(LABELS)), range(2, 2 + FEW)
    return [[_right(images) / len(images), len(images), _right(few) / FEW, FEW]] * world_size


def _padded(rank: int, n: int) -> list[int]:
    """Return the share that DistributedSampler deals: it goes round until all have as many."""
    each = -(-len(LABELS) // n)
    return [(rank + n * k) % len(LABELS) for k in range(each)]


def _own_share(yours: Any, expected: Any, n: int) -> bool:
    """Tell whether the ranks' numbers of images, added up, are all images: nobody has added."""
    return n > 1 and len(LABELS) <= sum(y[1] for y in yours) <= len(_padded(0, n)) * n


def _shares(count: int, n: int) -> list[list[list[int]]]:
    """Return the ways to deal images to the ranks: in turns, and in blocks."""
    images = list(range(count))
    size = -(-count // n)
    return [
        [images[r::n] for r in range(n)],
        [images[r * size : (r + 1) * size] for r in range(n)],
    ]


def _mean_of_accuracies(yours: Any, expected: Any, n: int) -> bool:
    """Tell whether the accuracies are means of the ranks' own, as far as all have images."""

    def mean(shares: list[list[int]], first: int) -> float:
        return sum(_right([first + i for i in s]) / len(s) for s in shares if s) / n

    ways = zip(_shares(len(LABELS), n), _shares(FEW, n), strict=True)
    played = [[[mean(many, 0), len(LABELS), mean(few, 2), FEW]] * n for many, few in ways]
    return any(near(yours, wrong) and not near(expected, wrong) for wrong in played)


EXERCISE = Exercise(
    id="08-6",
    title="Test together",
    answer="test",
    setup="from torch.utils.data import DataLoader, DistributedSampler, Subset",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", most=lambda n: 2),),
    entries=(
        f"accuracy, of {len(LABELS):,} images",
        f"their number, of {len(LABELS):,}",
        f"accuracy, of {FEW} images",
        f"their number, of {FEW}",
    ),
    mistakes=(
        Mistake(
            "Rank 0 waits in an all_reduce that the other ranks do not call: every rank has to "
            "call it.",
            stuck=r"\brank 0 waits in all_reduce",
            shown_by={
                "reduces on rank 0": body("""
                    share = Subset(test_set, range(rank, len(test_set), world_size))
                    counts = torch.zeros(2, device=device)
                    for pixels, labels in DataLoader(share, batch_size=100):
                        counts[0] += (
                            net(pixels.to(device)).argmax(dim=1) == labels.to(device)
                        ).sum()
                        counts[1] += len(labels)
                    if rank == 0:
                        dist.all_reduce(counts)
                    correct, images = counts.tolist()
                    return correct / images, int(images)
                """),
            },
        ),
        Mistake(
            "Some ranks call all_reduce more often than others. With one call per batch, ranks "
            "with more batches wait for calls that never come: count in the loop, reduce once "
            "after it.",
            stuck=r"\branks 0\S* wait in all_reduce",  # rank 0's share is never the smaller one
            shown_by={
                "reduces in the loop": body("""
                    share = Subset(test_set, range(rank, len(test_set), world_size))
                    total = torch.zeros(2, device=device)
                    for pixels, labels in DataLoader(share, batch_size=25):
                        guesses = net(pixels.to(device)).argmax(dim=1)
                        counts = torch.zeros(2, device=device)
                        counts[0] = (guesses == labels.to(device)).sum()
                        counts[1] = len(labels)
                        dist.all_reduce(counts)
                        total += counts
                    correct, images = total.tolist()
                    return correct / images, int(images)
                """),
            },
        ),
        Mistake(
            "The two numbers have changed places: return the accuracy first, then the number of "
            "images.",
            when=would_give(lambda n: [[y[1], y[0], y[3], y[2]] for y in expected(n)]),
            shown_by={
                "changed places": edit(
                    "return correct / images, int(images)", "return int(images), correct / images"
                )
            },
        ),
        Mistake(
            "The second number is at most one rank's share of the images: add up the counts over "
            "the ranks.",
            when=_own_share,
            shown_by={
                "does not reduce": body("""
                    share = Subset(test_set, range(rank, len(test_set), world_size))
                    correct = images = 0
                    for pixels, labels in DataLoader(share, batch_size=100):
                        correct += (
                            (net(pixels.to(device)).argmax(dim=1) == labels.to(device)).sum().item()
                        )
                        images += len(labels)
                    return correct / images, images
                """),
            },
        ),
        Mistake(
            "Some images are counted twice: DistributedSampler repeats a few, so that all ranks "
            "have equally many. Take every world_size-th image instead.",
            when=lambda yours, expected, n: (
                int(yours[0][1]) == len(_padded(0, n)) * n > len(LABELS)
            ),
            shown_by={
                "pads": body("""
                    counts = torch.zeros(2, device=device)
                    sampler = DistributedSampler(test_set, shuffle=False)
                    for pixels, labels in DataLoader(test_set, batch_size=100, sampler=sampler):
                        counts[0] += (
                            net(pixels.to(device)).argmax(dim=1) == labels.to(device)
                        ).sum()
                        counts[1] += len(labels)
                    dist.all_reduce(counts)
                    correct, images = counts.tolist()
                    return correct / images, int(images)
                """),
            },
        ),
        Mistake(
            "Every rank has tested every image, and the counts were added up: give each rank a "
            "share of the images.",
            when=lambda yours, expected, n: int(yours[0][1]) == n * len(LABELS) and n > 1,
            shown_by={
                "everybody tests everything": body("""
                    counts = torch.zeros(2, device=device)
                    for pixels, labels in DataLoader(test_set, batch_size=100):
                        counts[0] += (
                            net(pixels.to(device)).argmax(dim=1) == labels.to(device)
                        ).sum()
                        counts[1] += len(labels)
                    dist.all_reduce(counts)
                    correct, images = counts.tolist()
                    return correct / images, int(images)
                """),
            },
        ),
        Mistake(
            "The number of images is right, but the accuracy is not. A mean of the ranks' "
            "accuracies is wrong where their shares differ in length: add up counts, then divide "
            "once.",
            when=_mean_of_accuracies,
            shown_by={
                "the mean of accuracies": body("""
                    share = Subset(test_set, range(rank, len(test_set), world_size))
                    correct = 0
                    for pixels, labels in DataLoader(share, batch_size=100):
                        correct += (
                            (net(pixels.to(device)).argmax(dim=1) == labels.to(device)).sum().item()
                        )
                    accuracy = torch.tensor(correct / len(share), device=device)
                    dist.all_reduce(accuracy)
                    return accuracy.item() / world_size, len(test_set)
                """),
            },
        ),
        Mistake(
            "The result is right, but it takes more than one collective per call: put both "
            "counts into one tensor and reduce it once, after the last batch. (With one "
            "collective per batch, ranks with more batches than others could wait forever.)",
            missed="collectives",
            shown_by={
                "a collective per batch": body("""
                    share = Subset(test_set, range(rank, len(test_set), world_size))
                    total = torch.zeros(2, device=device)
                    for start in range(0, -(-len(test_set) // world_size), 100):
                        counts = torch.zeros(2, device=device)
                        for i in range(start, min(start + 100, len(share))):
                            pixels, label = share[i]
                            counts[0] += net(pixels.to(device)[None]).argmax().item() == label
                            counts[1] += 1
                        dist.all_reduce(counts)
                        total += counts
                    correct, images = total.tolist()
                    return correct / images, int(images)
                """),
                "two collectives": body("""
                    share = Subset(test_set, range(rank, len(test_set), world_size))
                    correct, images = torch.zeros(1, device=device), torch.zeros(1, device=device)
                    for pixels, labels in DataLoader(share, batch_size=100):
                        correct += (net(pixels.to(device)).argmax(dim=1) == labels.to(device)).sum()
                        images += len(labels)
                    dist.all_reduce(correct)
                    dist.all_reduce(images)
                    return correct.item() / images.item(), int(images.item())
                """),
            },
        ),
    ),
    also_wrong={
        "all but rank 0 reduce": Wrong(
            edit("dist.all_reduce(counts)", "if rank:\n    dist.all_reduce(counts)"),
            says="Deadlock",
        ),
        "counts the wrong ones": Wrong(edit("guesses ==", "guesses !="), says="different"),
        "prints": Wrong(body("print(8 / 13, 13)"), says="nothing"),
    },
    another=body("""
        correct = torch.tensor(0, device=device)
        for index in range(rank, len(test_set), world_size):
            pixels, label = test_set[index]
            correct += net(pixels.to(device).unsqueeze(0)).argmax().item() == label
        dist.all_reduce(correct)
        return correct.item() / len(test_set), len(test_set)
    """),
    hints=(
        "Which rank tests which images, so that each is tested once? And what can be added up?",
        "Subset(test_set, range(rank, len(test_set), world_size)) is this rank's share. Count the "
        "correct answers and the images in it.",
        "One tensor of both counts, one dist.all_reduce, then return correct / images and the "
        "number of images, as numbers (.tolist()).",
    ),
)
