"""Exercise 14-1: choose the tool for a job: one GPU, DDP, torchrun, elastic, FSDP, RPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When

GIB = 2**30

#: The cases: a name for the mistakes below, the arguments, and the answer. Of each two questions
#: that a case could answer with yes, one case shows which comes first.
CASES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("small", {"state": GIB, "gpus": 1, "hosts": 1}, "one GPU"),
    ("several", {"state": GIB, "gpus": 4, "hosts": 1}, "DDP"),
    ("hosts", {"state": GIB, "gpus": 4, "hosts": 2}, "torchrun"),
    (
        "risky",
        {"state": GIB, "gpus": 4, "hosts": 8, "must_survive": True},
        "elastic",
    ),
    ("large", {"state": 112 * GIB, "gpus": 4, "hosts": 1}, "FSDP"),
    (
        "both",
        {"state": 112 * GIB, "gpus": 2, "hosts": 2, "must_survive": True},
        "FSDP",
    ),
    ("too large", {"state": 112 * GIB, "gpus": 1, "hosts": 2}, "more GPUs"),
    ("roles", {"state": GIB, "gpus": 2, "hosts": 2, "alike": False}, "RPC"),
    ("large roles", {"state": 112 * GIB, "gpus": 1, "hosts": 1, "alike": False}, "RPC"),
    (
        "all roles",
        {"state": 112 * GIB, "gpus": 4, "hosts": 1, "must_survive": True, "alike": False},
        "RPC",
    ),
    ("one too small", {"state": 112 * GIB, "gpus": 1, "hosts": 1}, "more GPUs"),
    ("risky host", {"state": GIB, "gpus": 4, "hosts": 1, "must_survive": True}, "elastic"),
    ("single GPUs", {"state": GIB, "gpus": 1, "hosts": 2}, "torchrun"),
)
PLACES = {name: place for place, (name, _, _) in enumerate(CASES)}
GPU_BYTES = 40 * GIB
STEPS = {"one GPU", "DDP", "torchrun", "elastic", "FSDP", "more GPUs", "RPC"}


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(gpu_bytes=GPU_BYTES, **case) for _, case, _ in CASES]


def expected() -> list[str]:
    return [step for _, _, step in CASES]


def _label(case: Mapping[str, Any]) -> str:
    """Write the arguments of a case, all but gpu_bytes, which is always the same."""
    values = {**case, "state": f"{case['state'] // GIB} GiB"}
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _chose(case: str, *steps: str) -> When:
    return lambda yours, expected, n: yours[PLACES[case]] in steps


def _any(*whens: When) -> When:
    """Return the predicate of a mistake that shows in one of several ways."""
    return lambda yours, expected, n: any(when(yours, expected, n) for when in whens)


EXERCISE = Exercise(
    id="14-1",
    title="Which tool for which step",
    answer="choose",
    trial=trial,
    expected=expected,
    entries=tuple(_label(case) for _, case, _ in CASES),
    where="notebook",
    mistakes=(
        Mistake(
            "Ranks that do different work need RPC: DDP and FSDP are for ranks that are alike. "
            "Check alike first.",
            when=_any(
                *(_chose(c, *STEPS - {"RPC"}) for c in ("roles", "large roles", "all roles"))
            ),
            shown_by={
                "all ranks are alike": edit(
                    """
                    if not alike:
                        return "RPC"
                    """,
                    "",
                ),
                "roles come last": edit(
                    """
                    if not alike:
                        return "RPC"
                    """,
                    "",
                    'return "torchrun" if hosts > 1 else "DDP"',
                    """
                    if hosts > 1:
                        return "torchrun"
                    return "DDP" if alike else "RPC"
                    """,
                ),
                "room before roles": edit(
                    """
                    if not alike:
                        return "RPC"
                    """,
                    "",
                    "if gpus * hosts == 1:",
                    """
                    if not alike:
                        return "RPC"
                    if gpus * hosts == 1:
                    """,
                ),
                "all room before roles": edit(
                    """
                    if not alike:
                        return "RPC"
                    """,
                    "",
                    "if state > gpu_bytes:",
                    """
                    if not alike:
                        return "RPC"
                    if state > gpu_bytes:
                    """,
                ),
            },
        ),
        Mistake(
            "A single GPU is enough only if the state fits on it: 112 GiB do not fit on one of "
            "40 GiB. Compare the state with the memory before you count GPUs.",
            when=_chose("one too small", "one GPU"),
            shown_by={
                "one GPU before room": edit(
                    "if state > gpu_bytes * gpus * hosts:",
                    """
                    if gpus * hosts == 1:
                        return "one GPU"
                    if state > gpu_bytes * gpus * hosts:
                    """,
                    """
                    if gpus * hosts == 1:
                        return "one GPU"
                    if must_survive:
                    """,
                    "if must_survive:",
                ),
            },
        ),
        Mistake(
            "Even in parts, 112 GiB do not fit on two GPUs of 40 GiB: compare the state with the "
            "memory of all GPUs, gpu_bytes * gpus * hosts.",
            when=_chose("too large", "FSDP", "torchrun", "DDP"),
            shown_by={
                "no limit at all": edit(
                    """
                    if state > gpu_bytes * gpus * hosts:
                        return "more GPUs"
                    """,
                    "",
                ),
            },
        ),
        Mistake(
            "112 GiB fit on four GPUs of 40 GiB together. More GPUs are needed only if the state "
            "does not fit on all of them together.",
            when=_chose("large", "more GPUs"),
            shown_by={
                "one GPU is the limit": edit(
                    "if state > gpu_bytes * gpus * hosts:",
                    "if state > gpu_bytes:",
                    """
                    if state > gpu_bytes:
                        return "FSDP"
                    """,
                    "",
                ),
            },
        ),
        Mistake(
            "Two machines with two GPUs of 40 GiB each have 160 GiB together: count the GPUs of "
            "all hosts.",
            when=_chose("both", "more GPUs"),
            shown_by={"the GPUs of one host": edit("gpus * hosts:", "gpus:")},
        ),
        Mistake(
            "With DDP every rank keeps the whole state. What does not fit on one GPU needs FSDP.",
            when=_chose("large", "DDP", "torchrun"),
            shown_by={
                "forgets the room": edit(
                    """
                    if state > gpu_bytes:
                        return "FSDP"
                    """,
                    "",
                ),
            },
        ),
        Mistake(
            "Elastic restarts processes; it does not make the state smaller. What does not fit "
            "on one GPU needs FSDP, and torchrun can restart that too.",
            when=_chose("both", "elastic"),
            shown_by={
                "elastic before room": body("""
                    if not alike:
                        return "RPC"
                    if must_survive:
                        return "elastic"
                    if state > gpu_bytes * gpus * hosts:
                        return "more GPUs"
                    if state > gpu_bytes:
                        return "FSDP"
                    if gpus * hosts == 1:
                        return "one GPU"
                    return "torchrun" if hosts > 1 else "DDP"
                """),
            },
        ),
        Mistake(
            "With must_survive=True a training has to survive a loss, on one host too: DDP, and "
            "torchrun without restarts, end when a worker does. Check must_survive before hosts.",
            when=_any(_chose("risky", "torchrun", "DDP"), _chose("risky host", "torchrun", "DDP")),
            shown_by={
                "hosts before losses": body("""
                    if not alike:
                        return "RPC"
                    if state > gpu_bytes * gpus * hosts:
                        return "more GPUs"
                    if state > gpu_bytes:
                        return "FSDP"
                    if gpus * hosts == 1:
                        return "one GPU"
                    if hosts > 1:
                        return "torchrun"
                    if must_survive:
                        return "elastic"
                    return "DDP"
                """),
                "one host survives": edit("if must_survive:", "if must_survive and hosts > 1:"),
            },
        ),
        Mistake(
            "With gpus=1 and hosts=1 there is a single GPU, and that is enough if the state fits.",
            when=_chose("small", *STEPS - {"one GPU"}),
            shown_by={
                "always several": edit(
                    """
                    if gpus * hosts == 1:
                        return "one GPU"
                    """,
                    "",
                ),
            },
        ),
        Mistake(
            "Two hosts with gpus=1 have two GPUs together: a single one is gpus * hosts == 1.",
            when=_chose("single GPUs", "one GPU"),
            shown_by={"one GPU each": edit("if gpus * hosts == 1:", "if gpus == 1:")},
        ),
        Mistake(
            "On one machine no launcher is needed: the lab, or mp.spawn, starts DDP there. Two "
            "machines need torchrun on each.",
            when=lambda yours, expected, n: (
                yours[PLACES["several"]] == "torchrun" or yours[PLACES["hosts"]] == "DDP"
            ),
            shown_by={
                "torchrun for all": edit(
                    'return "torchrun" if hosts > 1 else "DDP"', 'return "torchrun"'
                )
            },
        ),
    ),
    another=body("""
        total = gpus * hosts
        steps = [
            (not alike, "RPC"),
            (state > gpu_bytes * total, "more GPUs"),
            (state > gpu_bytes, "FSDP"),
            (total == 1, "one GPU"),
            (must_survive, "elastic"),
            (hosts > 1, "torchrun"),
        ]
        return next((step for applies, step in steps if applies), "DDP")
    """),
    hints=(
        "Check first what leaves no choice, and last what is only convenient: different roles, "
        "no room at all, no room on one GPU, a single GPU, losses, hosts.",
        "Six questions, each with a return, in this order: not alike; state larger than all "
        "memory; state larger than one GPU; one GPU in all; must_survive; more than one host.",
        "The conditions on memory are state > gpu_bytes * gpus * hosts and, after it, state > "
        'gpu_bytes; a single GPU is gpus * hosts == 1. What no question catches is "DDP".',
    ),
)
