"""Exercise 09-4: choose between one GPU, DDP and FSDP by what training holds in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When

GIB, MILLION = 2**30, 10**6
#: (parameters, bytes of a GPU, GPUs, fast enough on one): a name for the mistakes below, the
#: arguments as they are shown, and the answer.
CASES: dict[str, tuple[int, int, int, bool]] = {
    "fast": (MILLION, 24 * GIB, 4, True),
    "slow": (100 * MILLION, 24 * GIB, 4, False),
    "hosts": (350 * MILLION, 80 * GIB, 64, False),
    "large": (7000 * MILLION, 80 * GIB, 8, False),
    "large and fast": (7000 * MILLION, 80 * GIB, 8, True),
    "alone": (100 * MILLION, 24 * GIB, 1, False),
    "just fits": (GIB // 2, 8 * GIB, 2, False),
    "just too large": (GIB // 2 + 1, 8 * GIB, 2, False),
    "weights too large": (30_000 * MILLION, 80 * GIB, 8, False),
    "weights fit": (3000 * MILLION, 24 * GIB, 4, False),
}
CHOICES = ("one GPU", "DDP", "DDP", "FSDP", "FSDP", "one GPU", "DDP", "FSDP", "FSDP", "FSDP")
NAMES = tuple(CASES)


def trial(answer: Callable[[int, int, int, bool], Any], here: Here) -> list[Any]:
    return [answer(*case) for case in CASES.values()]


def expected() -> list[str]:
    return list(CHOICES)


def _label(parameters: int, size: int, gpus: int, fast_enough: bool) -> str:
    return f"choose({parameters:_}, {size // GIB} * 2**30, {gpus}, {fast_enough})"


def _chose(case: str, *choices: str) -> When:
    return lambda yours, expected, n: yours[NAMES.index(case)] in choices


EXERCISE = Exercise(
    id="09-4",
    title="Decide",
    answer="choose",
    trial=trial,
    expected=expected,
    entries=tuple(_label(*case) for case in CASES.values()),
    where="notebook",
    mistakes=(
        Mistake(
            "That is what older texts say. Today DDP takes the place of DP on one machine, too, "
            "and FSDP that of model parallel.",
            when=lambda yours, expected, n: any(
                choice in ("DP", "DataParallel", "DDP with model parallel") for choice in yours
            ),
            shown_by={
                "DP": edit('return "DDP"', 'return "DP" if gpus <= 8 else "DDP"'),
                "model parallel": edit('return "FSDP"', 'return "DDP with model parallel"'),
            },
        ),
        Mistake(
            "DDP keeps the whole training state on every GPU: more GPUs do not make it fit. "
            "Compare with one GPU.",
            when=_chose("weights too large", "DDP", "one GPU"),
            shown_by={
                "all GPUs together": edit("> gpu_bytes", "> gpu_bytes * gpus"),
                "never FSDP": body("""
                    return "one GPU" if fast_enough or gpus == 1 else "DDP"
                """),
            },
        ),
        Mistake(
            "Training does not fit on one GPU although its weights alone do: the gradient and "
            "Adam's two moments have to be there as well, 16 bytes per parameter.",
            when=_chose("weights fit", "DDP", "one GPU"),
            shown_by={"weights only": edit("16 * parameters", "4 * parameters")},
        ),
        Mistake(
            "If training does not fit on one GPU, it does not matter how fast that GPU is: ask "
            "first whether it fits.",
            when=_chose("large and fast", "one GPU"),
            shown_by={
                "speed first": body("""
                    if fast_enough or gpus == 1:
                        return "one GPU"
                    return "FSDP" if 16 * parameters > gpu_bytes else "DDP"
                """)
            },
        ),
        Mistake(
            "Training that needs exactly gpu_bytes fits: 16 bytes per parameter may be as many.",
            when=_chose("just fits", "FSDP"),
            shown_by={"at the limit": edit("> gpu_bytes", ">= gpu_bytes")},
        ),
        Mistake(
            "With a single GPU there is nothing to divide the batch among: the answer is one GPU, "
            "fast enough or not.",
            when=_chose("alone", "DDP"),
            shown_by={"DDP on one": edit("fast_enough or gpus == 1", "fast_enough")},
        ),
        Mistake(
            "One GPU is fast enough there: more of them only add complexity.",
            when=_chose("fast", "DDP", "FSDP"),
            shown_by={"always more": edit("fast_enough or gpus == 1", "gpus == 1")},
        ),
    ),
    another=body("""
        weights = gradients = 4 * parameters
        moments = 2 * 4 * parameters
        if weights + gradients + moments <= gpu_bytes:
            return "DDP" if gpus > 1 and not fast_enough else "one GPU"
        return "FSDP"
    """),
    hints=(
        "Which question decides by itself, whatever the answers to the others?",
        "First whether training fits on one GPU, then whether one is enough. DDP is what is left.",
        "Training needs 16 * parameters bytes. Does that fit into gpu_bytes? Then look at "
        "fast_enough and gpus.",
    ),
)
