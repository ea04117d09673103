"""Explain deadlocks of sends and receives, alone and beside collectives."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.rank_names import label
from ..wire.samples import Wait
from .case import COLLECTIVE, Case, as_message
from .in_step import unmatched
from .needs import Situation


def messages(case: Case) -> str:
    """Explain deadlocks of sends and receives alone."""
    waits = {rank: as_message(wait) for rank, wait in case.waits.items()}
    kinds = {w.kind for w in waits.values()}
    if not kinds or not kinds <= {"send", "recv", "recv_any"}:
        return ""
    for rank, wait in waits.items():
        text = _tags(waits, rank, wait)
        if text:
            return text
    if absent := case.absent():
        what = " and ".join(
            text
            for kind, text in (("send", "a receive"), ("recv", "a send"), ("recv_any", "a send"))
            if kind in kinds and not (kind == "recv_any" and "recv" in kinds)
        )
        missing, goes = ("are missing", "go") if " and " in what else ("is missing", "goes")
        return (
            f"Every send needs one receive and every receive one send: {what} of "
            f"{label(sorted(absent))} {missing} (or {goes} to another rank)."
            f"{_astray(case.situation)}"
        )
    left = unmatched(case.situation.samples).values()  # also what is not waited for yet
    if kinds == {"send"} and not any(count < 0 for count in left):
        return (
            "Every one of them sends before it receives, and a send is over only when its "
            "message is taken. Let one side receive first, or use isend or batch_isend_irecv."
        )
    if "send" not in kinds and not any(count > 0 for count in left):
        return "Every one of them waits to receive before it sends. One side has to send first."
    return (
        "The sends and receives do not pair up: each send needs a receive on the rank that it "
        "names, with the same tag and the same size, and that names the sender."
        f"{_astray(case.situation)}"
    )


def _astray(s: Situation) -> str:
    """Return which send and which receive name one rank in common, but not each other: one of the
    two ranks is to blame, which need not be the one that did not come."""
    left = sorted(unmatched(s.samples).items())
    sends = [(sender, to) for (_, sender, to, _), count in left if count > 0]
    receives = [(to, sender) for (_, sender, to, _), count in left if count < 0]
    for a, b in sends:
        for c, d in receives:
            if (a == d) != (b == c):
                return (
                    f" Rank {a} sends to rank {b}, and rank {c} receives from rank {d}: one of "
                    "them may name the wrong rank."
                )
    return ""


def _tags(waits: Mapping[int, Wait], rank: int, wait: Wait) -> str:
    other = waits.get(wait.peer)
    opposite = {"send": ("recv", "recv_any"), "recv": ("send",)}.get(wait.kind, ())
    if other is None or other.kind not in opposite or other.tag == wait.tag:
        return ""
    if other.peer not in (rank, -1):
        return ""
    return (
        f"The tags differ: rank {rank} waits in {wait.kind} with tag {wait.tag}, "
        f"rank {wait.peer} in {other.kind} with tag {other.tag}."
    )


def messages_and_collectives(case: Case) -> str:
    kinds = {as_message(w).kind for w in case.waits.values()}
    if kinds & {*COLLECTIVE} and kinds & {"send", "recv", "recv_any"} and not case.absent():
        return (
            "Some ranks wait in a collective, others for a message from them. The calls have to "
            "come in an order that suits both sides."
        )
    return ""
