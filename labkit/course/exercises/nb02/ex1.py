"""Exercise 02-1: name the collectives of six pictures, which ``scripts/which_call.py`` makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate

#: What a picture shows of each call: the check compares this, so that it does not give away names.
SHOWS = {
    "broadcast": "one rank's numbers on every rank",
    "scatter": "one rank's parts, one on each rank",
    "gather": "all ranks' numbers on one rank",
    "all_gather": "all ranks' numbers on every rank",
    "reduce": "grey on one rank",
    "all_reduce": "the same grey on every rank",
    "reduce_scatter": "a different grey on each rank",
    "all_to_all": "a part from every rank on each rank",
}
CALLS = {
    "A": "reduce_scatter",
    "B": "gather",
    "C": "broadcast",
    "D": "all_to_all",
    "E": "all_reduce",
    "F": "all_gather",
}
NO_ANSWER, NO_CALL = "no answer", "not one of the eight calls"


def _shows(name: Any) -> str:
    """Return what the picture of a call shows; ``dist.`` before its name is fine."""
    return SHOWS.get(str(name).strip().removeprefix("dist.").removesuffix("()"), NO_CALL)


def trial(answer: Callable[[], Mapping[str, str]], here: Here) -> Any:
    """Return what the named calls would show, by letter; what is no dict, as it is."""
    given = answer()
    if not isinstance(given, Mapping):
        return given
    named = {str(letter).upper(): name for letter, name in given.items()}
    return [_shows(named[letter]) if letter in named else NO_ANSWER for letter in CALLS]


def expected() -> list[str]:
    return [SHOWS[name] for name in CALLS.values()]


def _taken_for(*pairs: tuple[str, str]) -> Predicate:
    """Return whether one call of a pair is named where the other is shown."""
    confused = {(SHOWS[a], SHOWS[b]) for a, b in pairs}
    confused |= {(b, a) for a, b in confused}

    @Predicate
    def when(yours: Any, expected: Any, n: int) -> bool:
        return any(pair in confused for pair in zip(yours, expected, strict=True))

    return when


EXERCISE = Exercise(
    id="02-1",
    title="Name the collective",
    answer="which_calls",
    trial=trial,
    expected=expected,
    entries=tuple(f"picture {letter}" for letter in CALLS),
    where="notebook",
    mistakes=(
        Mistake(
            'Return a dict with a name for each letter, as in {"A": "scatter", …}.',
            when=lambda yours, expected, n: not {*yours} <= {*SHOWS.values(), NO_ANSWER, NO_CALL},
        ),
        Mistake(
            "A picture has no name yet: return one for each letter from A to F.",
            when=lambda yours, expected, n: NO_ANSWER in yours,
        ),
        Mistake(
            "One of the names is not among the eight calls of the sheet. Write them as there, "
            'such as "all_gather".',
            when=lambda yours, expected, n: NO_CALL in yours,
        ),
        Mistake(
            "You have the right kind of call, but look at who gets the result: after a call that "
            "begins with all_ every rank has it, after the other one a single rank, and the rest "
            "show a dash.",
            when=_taken_for(("gather", "all_gather"), ("reduce", "all_reduce")),
        ),
        Mistake(
            "Two calls begin with a part for each rank. Look at the lower boxes: if they are "
            "grey, the parts were combined (reduce_scatter); if they have the ranks' colours, "
            "the parts have only moved (all_to_all).",
            when=_taken_for(("reduce_scatter", "all_to_all")),
        ),
        Mistake(
            "Each rank has a combined number in both, so compare the numbers: after all_reduce "
            "they are equal, after reduce_scatter every rank has the sum of its own column.",
            when=_taken_for(("reduce_scatter", "all_reduce")),
        ),
        Mistake(
            "All ranks end with the same numbers in both, so follow the colours: after broadcast "
            "all numbers come from one rank, after all_gather one comes from each rank.",
            when=_taken_for(("broadcast", "all_gather")),
        ),
        Mistake(
            "A reduce leaves its result on a single rank, and the other ranks show a dash: count "
            "the grey boxes.",
            when=lambda yours, expected, n: SHOWS["reduce"] in yours,
        ),
        Mistake(
            "A scatter begins with the parts of a single rank, and the other ranks show a dash: "
            "count the ranks that have numbers in the upper row.",
            when=lambda yours, expected, n: SHOWS["scatter"] in yours,
        ),
    ),
    hints=(
        "Ask two questions of each picture: are there grey boxes, and do all ranks end with the "
        "same?",
        "Grey boxes mean reduce. The same result on every rank means all_ or broadcast; a dash "
        "means that only one rank gets something.",
        "Grey and different on each rank is reduce_scatter. Without grey: one colour everywhere "
        "is broadcast, all colours on every rank in the same order is all_gather, and in "
        "different numbers it is all_to_all.",
    ),
)
