"""Exercise 09-4: count what device 0 sends and receives in a step of DataParallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake

DEVICES = (2, 4, 8)
#: No number of devices divides inputs, outputs or their sum.
PARAMETERS, INPUTS, OUTPUTS = 1000, 243, 84


def trial(answer: Callable[[int, int, int, int], Any], here: Here) -> list[Any]:
    return [answer(k, PARAMETERS, INPUTS, OUTPUTS) for k in DEVICES]


def _sent(k: int) -> float:
    return (k - 1) * (PARAMETERS + (INPUTS + OUTPUTS) / k)


def _received(k: int) -> float:
    return (k - 1) * (PARAMETERS + OUTPUTS / k)


def expected() -> list[tuple[float, float]]:
    return [(_sent(k), _received(k)) for k in DEVICES]


def _bill(
    place: int | None, wrong: Callable[[int], Any]
) -> Callable[[Sequence[Any], Any, int], bool]:
    """Return the predicate of a mistake: one place of the pair, or all of it, is ``wrong(k)``."""

    def when(yours: Sequence[Any], expected: Any, n: int) -> bool:
        for bill, k in zip(yours, DEVICES, strict=True):
            mine = tuple(bill) if place is None else (bill[place],)
            theirs = wrong(k) if place is None else (wrong(k),)
            if any(abs(m - t) > 1e-6 for m, t in zip(mine, theirs, strict=True)):
                return False
        return True

    return when


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


EXERCISE = Exercise(
    id="09-4",
    title="Device 0's bill",
    answer="device0_traffic",
    trial=trial,
    expected=expected,
    entries=tuple(f"device0_traffic({k}, {PARAMETERS}, {INPUTS}, {OUTPUTS})" for k in DEVICES),
    where="notebook",
    mistakes=(
        Mistake(
            "It returns one number. Two are expected, as a pair: the bytes that are sent and "
            "those that are received.",
            when=lambda yours, expected, n: all(map(_is_number, yours)),
            shown_by={
                "all together": body("""
                    return (devices - 1) * (2 * parameters + (inputs + 2 * outputs) / devices)
                """),
            },
        ),
        Mistake(
            "Sent and received have changed places.",
            when=_bill(None, lambda k: (_received(k), _sent(k))),
            shown_by={
                "changed places": edit(
                    "return sent, others * (parameters + outputs / devices)",
                    "return others * (parameters + outputs / devices), sent",
                )
            },
        ),
        Mistake(
            "Device 0 sends nothing to itself: there are devices - 1 others.",
            when=_bill(None, lambda k: (_sent(k) * k / (k - 1), _received(k) * k / (k - 1))),
            shown_by={
                "itself too": body("""
                    sent = devices * parameters + inputs + outputs
                    return sent, devices * parameters + outputs
                """),
            },
        ),
        Mistake(
            "Each device gets its own piece of the batch, not all of it: divide inputs and "
            "outputs by devices.",
            when=_bill(0, lambda k: (k - 1) * (PARAMETERS + INPUTS + OUTPUTS)),
            shown_by={
                "the whole batch to each": body("""
                    others = devices - 1
                    return others * (parameters + inputs + outputs), others * (parameters + outputs)
                """),
            },
        ),
        Mistake(
            "The outputs' gradient is missing: it goes back to the devices that made the "
            "outputs, so device 0 sends it too.",
            when=_bill(0, lambda k: (k - 1) * (PARAMETERS + INPUTS / k)),
            shown_by={
                "the forward pass only": body("""
                    others = devices - 1
                    return others * (parameters + inputs / devices), others * outputs / devices
                """),
            },
        ),
        Mistake(
            "You send the parameters once. Each of the other devices needs a copy.",
            when=_bill(0, lambda k: PARAMETERS + (k - 1) * (INPUTS + OUTPUTS) / k),
            shown_by={
                "parameters once": body("""
                    others = devices - 1
                    pieces = others * (inputs + outputs) / devices
                    return parameters + pieces, parameters + others * outputs / devices
                """),
            },
        ),
        Mistake(
            "The parameters' gradient is missing: every replica sends back the gradient of all "
            "its parameters.",
            when=_bill(1, lambda k: (k - 1) * OUTPUTS / k),
            shown_by={
                "no gradient of the parameters": edit(
                    "(parameters + outputs / devices)", "outputs / devices"
                )
            },
        ),
    ),
    another=body("""
        sent = received = 0
        for _ in range(1, devices):
            sent += inputs / devices + parameters + outputs / devices
            received += outputs / devices + parameters
        return [sent, received]
    """),
    hints=(
        "Go through the four parts of the figure, and ask for each whether device 0 sends or "
        "receives it. The outputs come in, and their gradient goes out.",
        "To each of the devices - 1 others: the parameters, a piece of the inputs, a piece of the "
        "outputs' gradient. From each: a piece of the outputs, the gradient of the parameters.",
        "To each of the others go parameters + (inputs + outputs) / devices bytes. What comes "
        "back from each lacks one of these three terms.",
    ),
)
