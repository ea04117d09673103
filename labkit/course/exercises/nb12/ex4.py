"""Exercise 12-4: choose between one GPU, DDP and FSDP by what training holds in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import When
from ...slips import Formula

GIB, MILLION = 2**30, 10**6
#: By parameters, bytes of a GPU, GPUs, and whether one is fast enough: the answer.
CASES: dict[tuple[int, int, int, bool], str] = {
    (MILLION, 24 * GIB, 4, True): "one GPU",
    (100 * MILLION, 24 * GIB, 4, False): "DDP",
    (5000 * MILLION, 80 * GIB, 64, False): "DDP",
    (7000 * MILLION, 80 * GIB, 8, False): "FSDP",
    (7000 * MILLION, 80 * GIB, 8, True): "FSDP",
    (100 * MILLION, 24 * GIB, 1, False): "one GPU",
    (GIB // 2, 8 * GIB, 2, False): "DDP",  # it just fits
    (GIB // 2 + 1, 8 * GIB, 2, False): "FSDP",
    (30_000 * MILLION, 80 * GIB, 8, False): "FSDP",  # nor do the weights alone
    (3000 * MILLION, 24 * GIB, 4, False): "FSDP",
    (100_000 * MILLION, 80 * GIB, 32, False): "FSDP",
}


def trial(answer: Callable[[int, int, int, bool], Any], here: Here) -> list[Any]:
    return [answer(*case) for case in CASES]


def expected() -> list[str]:
    return list(CASES.values())


def _label(parameters: int, size: int, gpus: int, fast_enough: bool) -> str:
    return f"choose({parameters:_}, {size // GIB} * 2**30, {gpus}, {fast_enough})"


#: choose(parameters, gpu_bytes, gpus, fast_enough)
Rule = Callable[[int, int, int, bool], str]


def _simulated(*rules: Rule) -> When:
    """Return the predicate of an answer that chooses as one of these rules does, in every case."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        simulation = [[rule(*case) for case in CASES] for rule in rules]
        return yours != expected and yours in simulation

    return when


def _fits(
    fits: Callable[[int, int, int], bool],
    enough: Callable[[int, bool], bool] = lambda gpus, fast: fast or gpus == 1,
) -> Rule:
    """Return the right rule, but for what fits, or for when one GPU is enough."""

    def rule(parameters: int, size: int, gpus: int, fast: bool) -> str:
        if not fits(parameters, size, gpus):
            return "FSDP"
        return "one GPU" if enough(gpus, fast) else "DDP"

    return rule


def _counts(each: float) -> Rule:
    """Return the rule that counts so many bytes per parameter."""
    return _fits(lambda parameters, size, gpus: each * parameters <= size)


def _enough(enough: Callable[[int, bool], bool]) -> Rule:
    return _fits(lambda parameters, size, gpus: 16 * parameters <= size, enough)


def _speed_first(parameters: int, size: int, gpus: int, fast: bool) -> str:
    return "one GPU" if fast or gpus == 1 else _counts(16)(parameters, size, gpus, fast)


EXERCISE = Exercise(
    id="12-4",
    title="Decide",
    answer="choose",
    trial=trial,
    expected=expected,
    formula=Formula(
        "'FSDP' if 16 * parameters > gpu_bytes else "
        "'one GPU' if fast_enough or gpus == 1 else 'DDP'",
        "parameters gpu_bytes gpus fast_enough",
        lambda n: list(CASES),
    ),
    entries=tuple(_label(*case) for case in CASES),
    where="notebook",
    mistakes=(
        Mistake(
            "That is what older texts say. Today DDP takes the place of DP on one machine, too, "
            "and FSDP that of model parallel.",
            when=lambda yours, expected, n: any(
                choice in ("DP", "DataParallel", "DDP with model parallel") for choice in yours
            ),
        ),
        Mistake(
            "DDP keeps the whole training state on every GPU: more GPUs do not make it fit. "
            "Compare with one GPU.",
            when=_simulated(
                _fits(lambda parameters, size, gpus: 16 * parameters <= size * gpus),
                _fits(lambda parameters, size, gpus: True),
            ),
        ),
        Mistake(
            "You count fewer than 16 bytes per parameter, so a training that does not fit seems "
            "to. Weights, gradient and each of Adam's two moments take 4 bytes per parameter.",
            when=_simulated(*map(_counts, (1, 2, 4, 6, 8, 12, 14, 15))),
        ),
        Mistake(
            "You count more than 16 bytes per parameter, so a training that fits seems not to: "
            "weights, gradient and Adam's two moments, of 4 bytes each. gpu_bytes are bytes too.",
            when=_simulated(*map(_counts, (18, 20, 24, 32, 64, 128))),
        ),
        Mistake(
            "If training does not fit on one GPU, it does not matter how fast that GPU is: ask "
            "first whether it fits.",
            when=_simulated(_speed_first),
        ),
        Mistake(
            "Training that needs exactly gpu_bytes fits: 16 bytes per parameter may be as many.",
            when=_simulated(_fits(lambda parameters, size, gpus: 16 * parameters < size)),
        ),
        Mistake(
            "With a single GPU there is nothing to divide the batch among: the answer is one GPU, "
            "fast enough or not.",
            when=_simulated(_enough(lambda gpus, fast: fast)),
        ),
        Mistake(
            "One GPU is fast enough there: more of them only add complexity.",
            when=_simulated(_enough(lambda gpus, fast: gpus == 1)),
        ),
    ),
    hints=(
        "Which question decides by itself, whatever the answers to the others?",
        "First whether training fits on one GPU, then whether one is enough. DDP is what is left.",
        "Training needs 16 * parameters bytes. Does that fit into gpu_bytes? Then look at "
        "fast_enough and gpus.",
    ),
)
