"""Exercise 09-5: choose between one GPU, DataParallel, DDP and DDP with model parallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When

#: (fits, fast_enough, machines, one_line), in the order of the notebook's table.
SITUATIONS = (
    (True, True, 1, False),
    (True, False, 1, True),
    (True, False, 1, False),
    (True, False, 8, True),
    (False, False, 1, True),
)
CHOICES = ("one GPU", "DP", "DDP", "DDP", "DDP with model parallel")


def trial(answer: Callable[[bool, bool, int, bool], Any], here: Here) -> list[Any]:
    return [answer(*situation) for situation in SITUATIONS]


def expected() -> list[str]:
    return list(CHOICES)


def _chose(case: int, *choices: str) -> When:
    return lambda yours, expected, n: yours[case - 1] in choices


EXERCISE = Exercise(
    id="09-5",
    title="Decide",
    answer="choose",
    trial=trial,
    expected=expected,
    where="notebook",
    mistakes=(
        Mistake(
            "In the first case one GPU is fast enough: more GPUs make it more complicated and no "
            "better.",
            when=_chose(1, "DP", "DDP", "DDP with model parallel"),
            shown_by={
                "always more GPUs": body("""
                    if not fits:
                        return "DDP with model parallel"
                    return "DP" if machines == 1 and one_line else "DDP"
                """),
            },
        ),
        Mistake(
            "The last model does not fit on a GPU, and both DP and plain DDP keep a whole copy "
            "on each: it has to be split.",
            when=_chose(5, "one GPU", "DP", "DDP"),
            shown_by={
                "forgets the size": body("""
                    if fast_enough:
                        return "one GPU"
                    return "DP" if machines == 1 and one_line else "DDP"
                """),
            },
        ),
        Mistake(
            "DP is one process on one machine. With eight machines it is DDP, whatever the "
            "colleague wants.",
            when=_chose(4, "DP"),
            shown_by={
                "forgets the machines": edit(
                    """
                    if machines == 1 and one_line:
                        return "DP"
                    return "DDP"
                    """,
                    'return "DP" if one_line else "DDP"',
                ),
            },
        ),
        Mistake(
            "The third case is trained every night, and more than one line may change: there DDP "
            "pays off.",
            when=_chose(3, "DP"),
            shown_by={
                "one machine is DP": edit(
                    """
                    if machines == 1 and one_line:
                        return "DP"
                    return "DDP"
                    """,
                    'return "DP" if machines == 1 else "DDP"',
                ),
            },
        ),
        Mistake(
            "The second case is the one for DP: one machine, and only one line may change.",
            when=_chose(2, "DDP"),
            shown_by={
                "never DP": body("""
                    if not fits:
                        return "DDP with model parallel"
                    return "one GPU" if fast_enough else "DDP"
                """),
            },
        ),
    ),
    another=body("""
        if fast_enough and fits:
            return "one GPU"
        if fits and one_line and machines < 2:
            return "DP"
        return "DDP" + ("" if fits else " with model parallel")
    """),
    hints=(
        "Ask first what rules choices out: does the model fit on one GPU at all?",
        "Then: is one GPU enough? Then: one machine and only one line? What is left is DDP.",
        "Three questions in this order: not fits; fast_enough; machines == 1 and one_line. Each "
        'has its own answer, and "DDP" is the rest.',
    ),
)
