"""Name the likely cause of a deadlock in one sentence, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable

from ..base.rank_names import label
from . import collective_causes, group_causes, message_causes
from .case import Case
from .exit_reason import ENDED


def likely_cause(case: Case) -> str:
    """Return the first explanation that fits."""
    return next(text for explain in EXPLANATIONS if (text := explain(case)))


def _condition(case: Case) -> str:
    absent = sorted(case.absent())
    if not absent:
        return ""
    raised = [r for r in absent if case.exit_reasons.get(r, ENDED).kind == "raised"]
    if raised:
        return f"{label(raised).capitalize()} stopped at an error before this call."
    dead = [r for r in absent if r in case.situation.dead]
    if dead:
        return f"The process of {label(dead)} is gone."
    return (
        f"The call stands under a condition (an if on the rank, an early return, a continue) "
        f"that {label(absent)} did not meet. Every rank of a group has to make it."
    )


def _otherwise(case: Case) -> str:
    return (
        "Every rank waits for another one. The ranks of a group have to make the same calls, in "
        "the same order, with tensors of the same shape."
    )


#: The first that fits is told: what is certain comes before what is only likely.
EXPLANATIONS: tuple[Callable[[Case], str], ...] = (
    group_causes.crossed_groups,
    group_causes.new_group,
    group_causes.init_process_group,
    group_causes.store,
    group_causes.left_out,
    message_causes.messages,
    collective_causes.threads,
    collective_causes.past_a_loop,
    collective_causes.disagreement,
    message_causes.messages_and_collectives,
    collective_causes.two_groups,
    collective_causes.uneven,
    _condition,
    _otherwise,
)
