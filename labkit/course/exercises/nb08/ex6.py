"""Exercise 08-6: test the model inside DDP on all ranks, and add up what each has counted."""

from __future__ import annotations

from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Goal, Mistake, Wrong
from ...mistakes import near, would_give
from .reading import FEW, GUESSES, HANDLED, LABELS, expected, right, trial


def _padded(rank: int, n: int) -> list[int]:
    """Return the share of DistributedSampler, which starts over until all have equally many."""
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
        return sum(right([first + i for i in s]) / len(s) for s in shares if s) / n

    ways = zip(_shares(len(LABELS), n), _shares(FEW, n), strict=True)
    played = [[mean(many, 0), len(LABELS), mean(few, 2), FEW] for many, few in ways]
    return any(
        near([y[:4] for y in yours], [wrong] * n) and not near(expected[0][:4], wrong)
        for wrong in played
    )


def _read_while_training(yours: Any, expected: Any, n: int) -> bool:
    """Tell whether the accuracies are those of the model in training mode."""

    def read(first: int, count: int) -> float:
        pairs = list(zip(GUESSES, LABELS, strict=True))[first : first + count]
        return sum(9 - guess == label for guess, label in pairs) / count

    wrong = [read(0, len(LABELS)), len(LABELS), read(2, FEW), FEW]
    return near([y[:4] for y in yours], [wrong] * n)


EXERCISE = Exercise(
    id="08-6",
    title="Test together",
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
            shown_by={
                "reduces on rank 0": edit(
                    "dist.all_reduce(counts)", "if rank == 0:\n    dist.all_reduce(counts)"
                ),
            },
        ),
        Mistake(
            "Some ranks call all_reduce more often than others. With one call per batch, ranks "
            "with more batches wait for calls that never come: count in the loop, reduce once "
            "after it.",
            stuck=r"\branks 0\S* wait in all_reduce",  # rank 0's share is never the smaller one
            shown_by={
                "reduces in the loop": edit(
                    "dist.all_reduce(counts)",
                    "",
                    "batch_size=100",
                    "batch_size=25",
                    "counts[1] += len(labels)",
                    "counts[1] += len(labels)\ndist.all_reduce(counts)",
                ),
            },
        ),
        Mistake(
            "The two numbers have changed places: return the accuracy first, then the number of "
            "images.",
            when=would_give(lambda n: [[y[1], y[0], y[3], y[2], *HANDLED] for y in expected(n)]),
            shown_by={
                "changed places": edit(
                    "return correct / total, int(total)", "return int(total), correct / total"
                )
            },
        ),
        Mistake(
            "The second number is at most one rank's share of the images: add up the counts over "
            "the ranks.",
            when=_own_share,
            shown_by={"does not reduce": edit("dist.all_reduce(counts)", "")},
        ),
        Mistake(
            "Some images are counted twice: DistributedSampler repeats a few, so that all ranks "
            "have equally many. Take every world_size-th image instead.",
            when=lambda yours, expected, n: (
                int(yours[0][1]) == len(_padded(0, n)) * n > len(LABELS)
            ),
            shown_by={
                "pads": edit(
                    "share = Subset(test_set, range(rank, len(test_set), world_size))",
                    "share = Subset(test_set, list(DistributedSampler(test_set, shuffle=False)))",
                ),
            },
        ),
        Mistake(
            "Every rank has tested every image, and the counts were added up: give each rank a "
            "share of the images.",
            when=lambda yours, expected, n: int(yours[0][1]) == n * len(LABELS) and n > 1,
            shown_by={
                "everybody tests everything": edit(
                    "share = Subset(test_set, range(rank, len(test_set), world_size))",
                    "share = test_set",
                ),
            },
        ),
        Mistake(
            "The model was in training mode while it was tested, in which layers such as dropout "
            "change its answers: call eval() before the first batch.",
            when=_read_while_training,
            shown_by={"no eval": edit("ddp.eval()", "")},
        ),
        Mistake(
            "The number of images is right, but the accuracy is not. A mean of the ranks' "
            "accuracies is wrong where their shares differ in length: add up counts, then divide "
            "once.",
            when=_mean_of_accuracies,
            shown_by={
                "the mean of accuracies": edit(
                    """
                    dist.all_reduce(counts)
                    correct, total = counts.tolist()
                    return correct / total, int(total)
                    """,
                    """
                    accuracy = counts[0] / counts[1]
                    dist.all_reduce(accuracy)
                    return accuracy.item() / world_size, len(test_set)
                    """,
                ),
            },
        ),
        Mistake(
            "The numbers are right, but the model is still in eval mode, in which the next epoch "
            "would train it without dropout: call train() at the end.",
            when=would_give(lambda n: [[*y[:4], False, False, False] for y in expected(n)]),
            shown_by={"stays in eval mode": edit("ddp.train()", "")},
        ),
        Mistake(
            "The numbers are right, but autograd has recorded the test for a backward pass that "
            "never comes, which costs time and memory: test under torch.no_grad().",
            when=would_give(lambda n: [[*y[:4], True, True, False] for y in expected(n)]),
            shown_by={
                "records gradients": edit("with torch.no_grad():", "with torch.enable_grad():")
            },
        ),
        Mistake(
            "The numbers are right, but ddp(…) was called. DDP's forward may hold a collective (it "
            "broadcasts buffers), and ranks wait there for one without a batch: call ddp.module.",
            when=would_give(lambda n: [[*y[:4], True, False, True] for y in expected(n)]),
            shown_by={"through DDP": edit("ddp.module(", "ddp(")},
        ),
        Mistake(
            "The result is right, but it takes more than one collective per call: put both "
            "counts into one tensor and reduce it once, after the last batch. (With one "
            "collective per batch, ranks with more batches than others could wait forever.)",
            missed="collectives",
            shown_by={
                "two collectives": edit(
                    "dist.all_reduce(counts)",
                    "dist.all_reduce(counts[0])\ndist.all_reduce(counts[1])",
                ),
                "a collective per batch": body("""
                    share = Subset(test_set, range(rank, len(test_set), world_size))
                    all_counts = torch.zeros(2, device=device)
                    model = ddp.module.eval()
                    with torch.no_grad():
                        for start in range(0, -(-len(test_set) // world_size), 100):
                            counts = torch.zeros(2, device=device)
                            for i in range(start, min(start + 100, len(share))):
                                pixels, label = share[i]
                                guess = model(pixels.to(device)[None]).argmax().item()
                                counts += torch.tensor([float(guess == label), 1], device=device)
                            dist.all_reduce(counts)
                            all_counts += counts
                    model.train()
                    return all_counts[0].item() / all_counts[1].item(), int(all_counts[1])
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
        model = ddp.module.eval()
        with torch.inference_mode():
            for index in range(rank, len(test_set), world_size):
                pixels, label = test_set[index]
                correct += model(pixels.to(device).unsqueeze(0)).argmax().item() == label
        dist.all_reduce(correct)
        model.train()
        return correct.item() / len(test_set), len(test_set)
    """),
    hints=(
        "Which rank tests which images, so that each is tested once? What can be added up? And "
        "in which mode is a model tested?",
        "Subset(test_set, range(rank, len(test_set), world_size)) is this rank's share. Count the "
        "correct answers and the images in it, with ddp.module in eval mode, under no_grad.",
        "One tensor holds both counts. Reduce it once, after the loop, on every rank; divide "
        "after that.",
    ),
)
