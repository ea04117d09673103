"""Exercise 11-4: on SIGTERM finish the step, stop on all ranks together, and save."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, some_rank
from .saves import another_saves

#: By the case: the first step, all steps, and the step in which a rank gets SIGTERM: that rank
#: counted from the last one, or no signal.
CASES: dict[str, tuple[int, int, int | None, int]] = {
    "no signal, steps 0–3": (0, 4, None, 0),
    "SIGTERM to the last rank in step 1 of 0–4": (0, 5, 1, -1),
    "SIGTERM to rank 0 in step 3 of 2–6": (2, 7, 3, 0),
    "SIGTERM to the last rank in the last step of 0–2": (0, 3, 2, -1),
    "no signal, no step left": (3, 3, None, 0),
}
#: Seconds that the first rank's saving takes, and a step on ranks other than the first.
SLOW, STEP = 0.2, 0.01
MIDDLE = "in the middle of a step"
HANDLER, OURS, NONE = "SIGTERM's handler afterwards", "the one before", "none set"


def trial(answer: Callable[..., Any], here: Here) -> list[dict[str, Any]]:
    """Train under each case; rank 0 is the quickest in its steps, and slow to save."""
    return [_one(answer, here, *case) for case in CASES.values()]


def _one(
    answer: Callable[..., Any], here: Here, done: int, steps: int, stop: int | None, to: int
) -> dict[str, Any]:
    """Return what one call returned, which steps it took, and what was saved when."""
    seen: dict[str, Any] = {"returned": None, "steps": [], "saved": []}
    target = to % here.world_size
    unnoticed: list[int] = []

    def note(number: int, frame: object) -> None:
        """Take the place of the end of the process, where nobody else handles the signal."""
        unnoticed.append(number)

    def take_step(i: int) -> None:
        seen["in step"] = True
        time.sleep(STEP if here.rank else 0)
        if i == stop and here.rank == target:
            os.kill(os.getpid(), signal.SIGTERM)
        seen["steps"].append(int(i))
        seen["in step"] = False

    def save(n: int) -> None:
        if seen.get("in step"):
            seen["saved"].append(MIDDLE)
            return
        time.sleep(SLOW)
        seen["saved"].append(int(n))
        wrote.append(time.monotonic())

    wrote: list[float] = []
    before = signal.signal(signal.SIGTERM, note)
    try:
        found = answer(take_step, save, done, steps)
        seen["returned"] = int(found) if found is not None else None
        left = time.monotonic()  # the clock of the machine, the same for all ranks
    except SystemExit:
        raise RuntimeError("it ended the process in the middle of a step") from None
    finally:
        own = signal.signal(signal.SIGTERM, before)
    seen.pop("in step", None)
    seen[HANDLER] = NONE if unnoticed else OURS if own is note else "another one"
    times: list[Any] = [None] * here.world_size
    dist.all_gather_object(times, (left, max(wrote, default=0.0)))
    seen["saved before all return"] = min(t[0] for t in times) >= max(t[1] for t in times)
    return seen


def _ends(done: int, steps: int, stop: int | None) -> int:
    return steps if stop is None else stop + 1


def expected(n: int) -> list[list[dict[str, Any]]]:
    """All take the same steps; rank 0 saves how many are done."""
    return [
        [
            {
                "returned": _ends(done, steps, stop),
                "steps": list(range(done, _ends(done, steps, stop))),
                "saved": [_ends(done, steps, stop)] if rank == 0 else [],
                HANDLER: OURS,
                "saved before all return": True,
            }
            for done, steps, stop, _ in CASES.values()
        ]
        for rank in range(n)
    ]


def _any(kind: Callable[[dict[str, Any], dict[str, Any]], bool]) -> Predicate:
    """Return the predicate of a mistake that shows in some case on some rank, by what was found
    and what was expected."""
    return some_rank(lambda mine, its: any(map(kind, mine, its)))


def _goes_on(yours: Sequence[Any], expected: Any) -> set[bool]:
    """Return after whose signals the run went on: True for rank 0's, False for the others'."""
    return {
        to == 0
        for place, (_, _, stop, to) in enumerate(CASES.values())
        if stop is not None and len(yours[0][place]["steps"]) > len(expected[0][place]["steps"])
    }


EXERCISE = Exercise(
    id="11-4",
    title="Stop together",
    answer="run",
    setup="""
        import signal
        import sys
        from collections.abc import Callable
    """,
    trial=trial,
    expected=expected,
    entries=tuple(CASES),
    mistakes=(
        Mistake(
            "A rank asks the others only when it has been asked to stop itself; the others never "
            "make that call. Let all ranks call all_reduce after every step.",
            stuck=r"waits? (?:for|in) .*all_reduce",
        ),
        Mistake(
            "SIGTERM came and no handler was set: it would have ended the process. Set one with "
            "signal.signal before the first step.",
            when=_any(lambda y, e: y[HANDLER] == NONE),
        ),
        Mistake(
            "The handler leaves, or saves, in the middle of a step. It should only take a note: "
            "the step has to be finished on all ranks first.",
            when=_any(lambda y, e: MIDDLE in y["saved"]),
            raises=r"^RuntimeError: it ended the process in the middle",
        ),
        Mistake(
            "The ranks did not stop after the same step: each looked at its own note. Let them "
            "agree after every step, with an all_reduce of the notes.",
            when=lambda yours, expected, n: any(
                len({len(y["steps"]) for y in case}) > 1 for case in zip(*yours, strict=True)
            ),
        ),
        Mistake(
            "A signal to rank 0 stops the run, and a signal to another rank does not. Any rank may "
            "be asked: take the sum or the maximum of all ranks' notes.",
            when=lambda yours, expected, n: _goes_on(yours, expected) == {False},
        ),
        Mistake(
            "The ranks went on after SIGTERM: they took a note, and did not act on it. Leave the "
            "loop after the step if any rank has a note.",
            when=lambda yours, expected, n: _goes_on(yours, expected) == {False, True},
        ),
        Mistake(
            "The run stopped although no rank was asked in this call. Each call begins without a "
            "note.",
            when=_any(lambda y, e: len(y["steps"]) < len(e["steps"])),
        ),
        Mistake(
            "Another rank saves, and rank 0 does not: save where rank == 0.",
            when=another_saves,
        ),
        Mistake(
            "Every rank saves. One is enough: if rank == 0.",
            when=_any(lambda y, e: y["saved"] and not e["saved"]),
        ),
        Mistake(
            "Rank 0 has to save once in each call, at its end: also if all steps are done, and not "
            "after each step.",
            when=_any(lambda y, e: e["saved"] and len(y["saved"]) != 1),
        ),
        Mistake(
            "Save and return how many steps are done since the beginning of training: after step "
            "i that is i + 1, also if this call began at a later step.",
            when=_any(
                lambda y, e: (
                    y["steps"] == e["steps"]
                    and (y["returned"], y["saved"]) != (e["returned"], e["saved"])
                )
            ),
        ),
        Mistake(
            "A rank returned before rank 0 had saved. Behind save, let all ranks call a barrier.",
            when=_any(lambda y, e: not y["saved before all return"]),
        ),
        Mistake(
            "SIGTERM still has your handler after the call. signal.signal returns the one that was "
            "there before: set it again at the end.",
            when=_any(lambda y, e: y[HANDLER] != OURS),
        ),
    ),
    hints=(
        "The handler only takes a note. Who has to know of it, and when?",
        "After each step: a tensor with the number of this rank's notes, and an all_reduce over "
        "it. If the result is more than 0, all ranks break.",
        "signal.signal returns the handler that was there before: keep it, and set it again at "
        "the end. Behind the loop rank 0 calls save(done), and a barrier keeps the others until "
        "it has.",
    ),
)
