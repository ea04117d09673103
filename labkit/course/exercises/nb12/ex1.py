"""Exercise 12-1: run the replicas on threads that keep the caller's settings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from ....base import times
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When

REPLICAS = 3
#: A type that autocast takes only if it is asked for: on CPUs it takes bfloat16 by default.
ASKED = torch.float16
TOGETHER, OUTPUTS, GRAPH, PLAIN, NO_GRAPH, CAST = range(6)


def _on_threads(answer: Callable[..., Any], count: int = REPLICAS) -> tuple[Any, Any, bool, str]:
    """Return the outputs, whether all replicas ran at the same time (or how many ran), whether any
    of them recorded a graph, and the types in which they computed."""
    gate = threading.Barrier(count, timeout=times.REPLICAS_TOGETHER.seconds())
    met, graphs, types = [], [], set()

    def replica(number: int, piece: torch.Tensor) -> torch.Tensor:
        try:
            gate.wait()
            met.append(True)
        except threading.BrokenBarrierError:
            met.append(False)
        time.sleep(0.03 * (count - number))  # the first one is done last
        graphs.append(torch.is_grad_enabled())
        types.add(str(torch.mm(piece, piece).dtype).removeprefix("torch."))
        return 10 * piece

    replicas = [lambda piece, i=i: replica(i, piece) for i in range(count)]
    outputs = answer(replicas, [torch.tensor([[i + 1.0]]) for i in range(count)])
    kinds = ", ".join(sorted(types))
    return outputs, all(met) if len(met) == count else f"{len(met)} ran", any(graphs), kinds


def trial(answer: Callable[..., Any], here: Here) -> list[Any] | None:
    outputs, together, graph, plain = _on_threads(answer)
    if outputs is None:
        return None
    with torch.no_grad():
        _, _, no_graph, _ = _on_threads(answer, 1)  # a batch of one row has one piece
    with torch.autocast("cpu", dtype=ASKED):
        _, _, _, cast = _on_threads(answer)
    return [together, _values(outputs), graph, plain, no_graph, cast]


def _values(outputs: Any) -> Any:
    """Return the numbers in a list of outputs, or what there is instead of a list."""
    if not isinstance(outputs, list | tuple):
        return type(outputs).__name__
    return [o.item() if isinstance(o, torch.Tensor) else type(o).__name__ for o in outputs]


def expected() -> list[Any]:
    return [True, [10.0 * (i + 1) for i in range(REPLICAS)], True, "float32", False, "float16"]


def _is(place: int, *values: Any) -> When:
    """Return the predicate of a mistake that gives one of some values at a place."""
    return lambda yours, expected, n: yours[place] in values


EXERCISE = Exercise(
    id="12-1",
    title="Carry the settings over",
    answer="apply_on_threads",
    setup="""
        from concurrent.futures import ThreadPoolExecutor

        import torch
    """,
    trial=trial,
    expected=expected,
    entries=(
        "all replicas at the same time",
        "outputs",
        "records a graph",
        "type of torch.mm",
        "records a graph, called under no_grad",
        "type of torch.mm, called under autocast to float16",
    ),
    where="notebook",
    mistakes=(
        Mistake(
            "It does not return a list: pool.map gives the outputs one by one, as they are asked "
            "for. Make a list of them, list(pool.map(…)).",
            when=_is(OUTPUTS, "generator", "map"),
        ),
        Mistake(
            "It returns futures, not outputs: return what result() gives for each.",
            when=lambda yours, expected, n: "Future" in yours[OUTPUTS],
        ),
        Mistake(
            "The replicas do not all run at the same time: use one thread per replica, and start "
            "all of them before you wait for the first.",
            when=_is(TOGETHER, False),
        ),
        Mistake(
            "The outputs are in another order than the replicas, such as that in which the threads "
            "finished. gather needs them in the replicas' order; otherwise rows change places.",
            when=lambda yours, expected, n: (
                yours[OUTPUTS] != expected[OUTPUTS]
                and sorted(yours[OUTPUTS], key=str) == expected[OUTPUTS]
            ),
        ),
        Mistake(
            "Under no_grad the replicas still record a graph. Read the setting in the caller's "
            "thread, before the others start, and set it inside each of them.",
            when=_is(NO_GRAPH, True),
        ),
        Mistake(
            "Even with gradients enabled no graph is recorded, so training gets no gradient. Set "
            "what the caller has set, not always the same.",
            when=_is(GRAPH, False),
        ),
        Mistake(
            "Autocast is on in the threads although the caller has not turned it on: pass "
            "enabled=.",
            when=lambda yours, expected, n: yours[PLAIN] != "float32",
        ),
        Mistake(
            "Under the caller's autocast the threads compute in float32: autocast is off in them. "
            "Ask for it in the caller's thread, for the device type of the pieces, and turn it on "
            "inside each thread.",
            when=_is(CAST, "float32"),
        ),
        Mistake(
            "Autocast is on in the threads, but they take the default type, bfloat16 on a CPU, and "
            "not the one that the caller has asked for: pass dtype=, too.",
            when=_is(CAST, "bfloat16"),
        ),
    ),
    hints=(
        "Functions such as torch.is_grad_enabled() answer for the thread that calls them. Which "
        "them?",
        "Ask first and keep the three answers in variables. Give the threads a function that sets "
        "all three and then calls the replica.",
        "In that function, one with statement can have both torch.set_grad_enabled(…) and "
        "torch.autocast(…). pool.map(function, replicas, pieces) gives the outputs in order.",
    ),
)
