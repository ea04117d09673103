"""Exercise 09-2: run the replicas on threads that keep the caller's no_grad setting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake, Wrong

REPLICAS = 3
#: Seconds that replicas wait for each other: for ever if they run one after another.
PATIENCE = 1.0


def _on_threads(answer: Callable[..., Any]) -> tuple[Any, bool, list[bool]]:
    """Return the outputs, whether all replicas ran at the same time, and if they kept a graph."""
    gate = threading.Barrier(REPLICAS, timeout=PATIENCE)
    met, graphs = [], []

    def replica(number: int, piece: torch.Tensor) -> torch.Tensor:
        try:
            gate.wait()
            met.append(True)
        except threading.BrokenBarrierError:
            met.append(False)
        time.sleep(0.03 * (REPLICAS - number))  # the first one is done last
        graphs.append(torch.is_grad_enabled())
        return 10 * piece

    replicas = [lambda piece, i=i: replica(i, piece) for i in range(REPLICAS)]
    outputs = answer(replicas, [torch.tensor([i + 1]) for i in range(REPLICAS)])
    return outputs, len(met) == REPLICAS and all(met), graphs


def trial(answer: Callable[..., Any], here: Here) -> dict[str, Any] | None:
    outputs, together, graphs = _on_threads(answer)
    if outputs is None:
        return None
    with torch.no_grad():
        _, _, graphs_of_none = _on_threads(answer)
    return {
        "outputs": _values(outputs),
        "together": together,
        "graph": all(graphs),
        "no_grad": any(graphs_of_none),
    }


def _values(outputs: Any) -> Any:
    """Return the numbers in a list of outputs, or what there is instead of a list."""
    if not isinstance(outputs, list | tuple):
        return type(outputs).__name__
    return [o.item() if isinstance(o, torch.Tensor) else type(o).__name__ for o in outputs]


def expected() -> dict[str, Any]:
    return {
        "outputs": [10 * (i + 1) for i in range(REPLICAS)],
        "together": True,
        "graph": True,
        "no_grad": False,
    }


EXERCISE = Exercise(
    id="09-2",
    title="Carry the switch over",
    answer="apply_on_threads",
    setup="""
        from concurrent.futures import ThreadPoolExecutor

        import torch
    """,
    trial=trial,
    expected=expected,
    where="notebook",
    mistakes=(
        Mistake(
            "It does not return a list: pool.map gives the outputs one by one, as they are asked "
            "for. Make a list of them, list(pool.map(…)).",
            when=lambda yours, expected, n: yours["outputs"] in ("generator", "map"),
            shown_by={
                "a generator": edit(
                    "return list(pool.map(work, replicas, pieces))",
                    "return pool.map(work, replicas, pieces)",
                )
            },
        ),
        Mistake(
            "It returns futures, not outputs: return what result() gives for each.",
            when=lambda yours, expected, n: "Future" in yours["outputs"],
            shown_by={
                "futures": edit(
                    "return list(pool.map(work, replicas, pieces))",
                    "return [pool.submit(work, r, p) for r, p in zip(replicas, pieces)]",
                )
            },
        ),
        Mistake(
            "The replicas do not all run at the same time: use one thread per replica, and start "
            "all of them before you wait for the first.",
            when=lambda yours, expected, n: not yours["together"],
            shown_by={
                "one after another": body(
                    "return [replica(piece) for replica, piece in zip(replicas, pieces)]"
                ),
                "waits for each": edit(
                    "return list(pool.map(work, replicas, pieces))",
                    "return [pool.submit(work, r, p).result() for r, p in zip(replicas, pieces)]",
                ),
                "two threads only": edit("len(replicas)", "2"),
            },
        ),
        Mistake(
            "The outputs are in the order in which the threads finished. gather needs them in "
            "the replicas' order; otherwise rows change places.",
            when=lambda yours, expected, n: (
                yours["outputs"] != expected["outputs"]
                and sorted(yours["outputs"]) == expected["outputs"]
            ),
            shown_by={
                "as they are done": body("""
                    import threading

                    enabled, outputs = torch.is_grad_enabled(), []

                    def work(replica, piece):
                        with torch.set_grad_enabled(enabled):
                            outputs.append(replica(piece))

                    threads = [
                        threading.Thread(target=work, args=pair) for pair in zip(replicas, pieces)
                    ]
                    for thread in threads:
                        thread.start()
                    for thread in threads:
                        thread.join()
                    return outputs
                """),
            },
        ),
        Mistake(
            "Under no_grad the replicas still record a graph. Read the setting in the caller's "
            "thread, before the others start, and set it inside each of them.",
            when=lambda yours, expected, n: yours["no_grad"],
            shown_by={
                "as before": body("""
                    with ThreadPoolExecutor(len(replicas)) as pool:
                        return list(
                            pool.map(lambda replica, piece: replica(piece), replicas, pieces)
                        )
                """),
                "asks in the thread": edit(
                    """
                    enabled = torch.is_grad_enabled()

                    """,
                    "",
                    "with torch.set_grad_enabled(enabled):",
                    "with torch.set_grad_enabled(torch.is_grad_enabled()):",
                ),
            },
        ),
        Mistake(
            "Even with gradients enabled no graph is recorded, so training gets no gradient. Set "
            "what the caller has set, not always the same.",
            when=lambda yours, expected, n: not yours["graph"],
            shown_by={
                "never a graph": edit(
                    """
                    enabled = torch.is_grad_enabled()

                    """,
                    "",
                    "with torch.set_grad_enabled(enabled):",
                    "with torch.no_grad():",
                ),
            },
        ),
    ),
    also_wrong={
        "returns nothing": Wrong(
            body("""
                with ThreadPoolExecutor(len(replicas)) as pool:
                    list(pool.map(lambda replica, piece: replica(piece), replicas, pieces))
            """),
            says="nothing",
        ),
    },
    another=body("""
        import threading

        enabled, outputs = torch.is_grad_enabled(), [None] * len(replicas)

        def work(i):
            torch.set_grad_enabled(enabled)
            outputs[i] = replicas[i](pieces[i])

        threads = [threading.Thread(target=work, args=[i]) for i in range(len(replicas))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return outputs
    """),
    hints=(
        "torch.is_grad_enabled() answers for the thread that calls it. Which thread has to call "
        "it?",
        "Call it first and keep the answer in a variable. Give the threads a function that sets "
        "it and then calls the replica.",
        "In the function for the threads, return replica(piece) under torch.set_grad_enabled(…). "
        "pool.map(function, replicas, pieces) gives the outputs in order.",
    ),
)
