"""What the README claims, and how each claim is measured: a row of ``BENCHMARKS`` each.

What is compared is measured in turns: see ``alternate``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

import psutil

from .child import BenchError, Child, program, time_to_answer, torchrun
from .claim import Claim, alternate, median_ratio
from .peers.peer import PEERS

RANKS, MANY, TWO = 4, 16, 2
#: Of tensors, in bytes.
SIZES = (8, 256 << 10, 1 << 20, 16 << 20, 256 << 20)
SECONDS = 90.0  #: for one start, and for one answer
CELL_SECONDS = 400.0  #: for the start of two clusters, and for one round of cells
CELLS_A_ROUND = 40  #: of each magic; five rounds make two hundred
SETTLE_SECONDS = 1.0
#: Steps of one stretch of training: from half a second to five on two cores. The board comes after
#: a second.
STEPS = {"ddp": 50, "board": 500, "watch": 300, "curves": 300}
#: What to break, and what to stop, in turns: see ``programs/deadlock_labkit.py``.
FAULTS, WORK = ("skip", "send", "order"), ("compute", "sleep", "wait")
GIB, MIB = 2**30, 2**20
#: A watch that takes less time than this on a rank, per second, has not looked at it.
LEAST = 1e-6

#: Return a claim with what was measured in so many rounds, by programs with these variables.
Measure = Callable[[Claim, int, Mapping[str, str]], Claim]
Ratio = Callable[[Sequence[float], Sequence[float]], float]


@dataclass(frozen=True)
class Benchmark:
    """A claim, and what measures it."""

    claim: Claim
    measure: Measure


def starts(a: tuple[str, int], b: tuple[str, int], figure: Ratio = median_ratio) -> Measure:
    """Compare two starts up to a finished all_reduce: a peer's name and its number of ranks each.

    The programs are those that are compared with labkit's peers.
    """
    peers = {peer.name: peer for peer in PEERS}

    def measure(claim: Claim, rounds: int, env: Mapping[str, str]) -> Claim:
        commands = {s: peers[name].command(n, "start") for s, (name, n) in (("a", a), ("b", b))}
        run = partial(time_to_answer, seconds=SECONDS, env=env)
        times = alternate(rounds, {s: partial(run, command) for s, command in commands.items()})
        return replace(claim, figure=figure(times["a"], times["b"]), measurements=times)

    return measure


def per_rank(many: Sequence[float], few: Sequence[float]) -> float:
    """Return the median of what each further rank adds to a start."""
    added = [a - b for a, b in zip(many, few, strict=True)]
    return statistics.median(added) / (MANY - RANKS)


def asked(
    command: Sequence[str],
    *questions: str,
    take: Callable[[Any], float] = float,
    figure: Callable[[list[float]], float] = statistics.median,
    note: str = "",
) -> Measure:
    """Ask one program again and again, each question ``rounds`` times in turns."""

    def measure(claim: Claim, rounds: int, env: Mapping[str, str]) -> Claim:
        with Child(command, seconds=SECONDS, env=env) as lab:
            found = [take(lab.ask(question)) for _ in range(rounds) for question in questions]
        told = note.format(longest=max(found), median=statistics.median(found))
        return replace(claim, figure=figure(found), measurements={"a": found}, note=told)

    return measure


def trained(
    stretches: int, a: tuple[Sequence[str], str], b: tuple[Sequence[str], str]
) -> Measure:  # fmt: skip
    """Compare images per second: a program and how it trains, each; one that waits does not
    compute. So many stretches a round, after a first one of each that is not counted: caches, DDP's
    buckets and allocators settle."""

    def measure(claim: Claim, rounds: int, env: Mapping[str, str]) -> Claim:
        steps = STEPS[claim.name]
        with ExitStack() as stack:
            labs = {
                command: stack.enter_context(Child(command, seconds=SECONDS, env=env))
                for command in dict.fromkeys(tuple(command) for command, _ in (a, b))
            }
            sides = {
                side: partial(labs[tuple(command)].ask, f"{how} {steps}")
                for side, (command, how) in (("a", a), ("b", b))
            }
            alternate(1, sides)
            speeds = alternate(rounds * stretches, sides)
        figure = median_ratio(speeds["a"], speeds["b"])
        return replace(claim, figure=figure, measurements=speeds)

    return measure


def memory(claim: Claim, rounds: int, env: Mapping[str, str]) -> Claim:
    """Start one lab, let its ranks finish one all_reduce, look ``rounds`` times; the most counts.

    The proportional set size shares each page among all processes that map it, so the sum over
    the lab is what the machine really holds for it. Other programs that run torch from the same
    files bear a part of it too: what they lower by their coming and going is not counted.
    """
    total, notebook = [], []
    with Child(program("labs", MANY, "idle"), seconds=SECONDS, env=env) as lab:
        engines = set(lab.answer())
        owner = psutil.Process(lab.process.pid)
        for _ in range(rounds):
            time.sleep(SETTLE_SECONDS)
            below = {p.pid: _pss(p) for p in owner.children(recursive=True)}
            total.append(sum(below.values()) / GIB)
            notebook.append(_pss(owner) / GIB)
    own = statistics.median(size for pid, size in below.items() if pid in engines)
    rest = sum(size for pid, size in below.items() if pid not in engines)
    note = (
        f"{max(total) * 1024 / MANY:.0f} MiB per rank, all shared; one rank's own share is "
        f"{own / MIB:.0f} MiB, controller and warm process together {rest / MIB:.0f} MiB"
    )
    sizes = {"a": total, "the program that started the lab": notebook}
    return replace(claim, figure=max(total), measurements=sizes, note=note)


def _pss(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except AttributeError:
        raise BenchError("this system does not tell proportional set sizes") from None
    except psutil.NoSuchProcess as error:
        raise BenchError(f"a process of the lab ended by itself ({error})") from None


def cells(ranks: int) -> Measure:
    """Run empty cells in turns, each magic on processes of its own; pair neighbours.

    What all processes of a side take of the processors while it runs is the second figure: on a
    machine that others use, it is the steadier one.
    """

    def measure(claim: Claim, rounds: int, env: Mapping[str, str]) -> Claim:
        with Child(program("cells", ranks), seconds=CELL_SECONDS, env=env) as shell:
            return judge_cells(
                claim, [shell.ask(f"px pxelsewhere {CELLS_A_ROUND}") for _ in range(rounds)]
            )

    return measure


def judge_cells(claim: Claim, answers: list[dict[str, Any]]) -> Claim:
    """Make a measured claim of what the program has answered, a round each."""
    a, b = (
        list(chain.from_iterable(s)) for s in zip(*(x["seconds"] for x in answers), strict=True)
    )
    cpu_a, cpu_b = (list(side) for side in zip(*(x["processors"] for x in answers), strict=True))
    took = [statistics.median(side) * 1000 for side in (cpu_a, cpu_b)]
    return replace(
        claim,
        figure=median_ratio(a, b),
        measurements={"a": a, "b": b, "processors of a": cpu_a, "processors of b": cpu_b},
        note=f"{median_ratio(cpu_a, cpu_b):.3g} × in time of processors, "
        f"{took[0]:.3g} ms per cell instead of {took[1]:.3g}",
    )


def watch(claim: Claim, rounds: int, env: Mapping[str, str]) -> Claim:
    """Train watched; divide what the watch takes, on all ranks and in the notebook, by the time
    of the processors that the ranks can use: one each, as far as there are.

    CPU time is counted, not throughput compared: two runs of the same training differ by more
    than a hundredth on a machine that does anything else, and a bound that noise can break is
    no check. Nor is the training's own CPU time what it is divided by: the watch looks so many
    times a second, however little of that second other programs leave to the training. A first
    stretch is not counted.

    Raises
    ------
    BenchError
        If the watch took no time at all on some rank: then nothing was watched.
    """
    shares, ranks, notebook = [], [], []
    question = f"watched {STEPS['watch']}"
    with Child(program("train_labkit", RANKS), seconds=SECONDS, env=env) as lab:
        lab.ask(question)
        for _ in range(rounds * 2):
            took = lab.ask(question)
            if min(took["ranks"]) < LEAST * took["wall"]:
                raise BenchError(f"a rank was not watched: {took}")
            taken = sum(took["ranks"]) + took["notebook"]
            shares.append(taken / (took["wall"] * min(RANKS, took["cores"])))
            ranks.append(sum(took["ranks"]) / RANKS / took["wall"])
            notebook.append(took["notebook"] / took["wall"])
    milliseconds = [1000 * statistics.median(taken) for taken in (ranks, notebook)]
    return replace(
        claim,
        figure=statistics.median(shares),
        measurements={"a": shares, "seconds per rank and second": ranks,
                      "seconds in the notebook per second": notebook},
        note="the watch takes {:.2f} ms of CPU time per second on each rank, {:.2f} ms in the "
        "notebook's process".format(*milliseconds),
    )  # fmt: skip


def curves(claim: Claim, rounds: int, env: Mapping[str, str]) -> Claim:
    """Train in turns with and without ``lab.watch``; compare what CPU time the notebook's questions
    take on all ranks and in the notebook, as a share of the processors, as :func:`watch` does."""
    walls: dict[str, list[float]] = {"drawn": [], "undrawn": []}
    with Child(program("train_labkit", 2), seconds=SECONDS, env=env) as lab:

        def share(how: str) -> float:
            took = lab.ask(f"{how} {STEPS['curves']}")
            walls[how].append(took["wall"])
            taken = sum(took["ranks"]) + took["notebook"]
            return float(taken / (took["wall"] * min(2, took["cores"])))

        sides = {"a": partial(share, "drawn"), "b": partial(share, "undrawn")}
        alternate(1, sides)
        shares = alternate(rounds * 2, sides)
    a, b = (statistics.median(shares[side]) for side in "ab")
    slower = median_ratio(walls["drawn"][1:], walls["undrawn"][1:])
    note = f"{slower:.3g} × in wall-clock time, which counts on a quiet machine only"
    return replace(claim, figure=a - b, measurements=shares, note=note)


def values(claim: Claim, rounds: int, env: Mapping[str, str]) -> Claim:
    """Send tensors of all sizes there and back by both ways, in turns.

    The figure is gigabytes per second of the largest by shared memory, all ranks together; the note
    has the medians of all, from which ``labkit.wire.packing.LARGE`` was chosen.
    """
    took: dict[tuple[str, int], list[list[float]]] = {}
    with Child(program("values", TWO), seconds=CELL_SECONDS, env=env) as lab:
        for _ in range(rounds):
            for size in SIZES:
                for way in ("shared", "messages"):
                    took.setdefault((way, size), []).append(lab.ask(f"{way} {size}"))
    medians = {key: [statistics.median(side) for side in zip(*times, strict=True)]
               for key, times in took.items()}  # fmt: skip
    lines = [
        f"{size:,} bytes {way}: there {1000 * there:.1f} ms, back {1000 * back:.1f} ms"
        for (way, size), (there, back) in medians.items()
    ]
    speeds = [2 * TWO * SIZES[-1] / 1e9 / sum(times) for times in took["shared", SIZES[-1]]]
    slow = [2 * TWO * SIZES[-1] / 1e9 / sum(times) for times in took["messages", SIZES[-1]]]
    return replace(
        claim, figure=statistics.median(speeds), measurements={"a": speeds, "b": slow},
        note="; ".join(lines),
    )  # fmt: skip


def ratio(name: str, what: str, b: str, bound: float, **more: Any) -> Claim:
    """Claim that labkit takes a part of another one's time."""
    given = {"a": "labkit", "unit": "s", "figure_unit": "×", **more}
    return Claim(name=name, what=what, b=b, bound=bound, **given)


def alone(name: str, what: str, bound: float, unit: str = "s") -> Claim:
    """Claim a figure of labkit's that is compared with nothing."""
    return Claim(
        name=name, what=what, a="labkit", b="", unit=unit, figure_unit=unit, bound=bound
    )  # fmt: skip


TRAIN, BREAKING = program("train_labkit", RANKS), program("deadlock_labkit", RANKS)
WARM, RESTART = program("labs", RANKS, "warm"), program("labs", RANKS, "restart")
LAB, SPEED = ("labkit", RANKS), {"unit": "images/s", "at_least": True}
#: In the order they run.
BENCHMARKS = (
    Benchmark(ratio("start", "start to all_reduce, 4 ranks", "torchrun", 0.55),
              starts(LAB, ("torchrun", RANKS))),
    Benchmark(ratio("stock", "start to all_reduce, 4 ranks", "stock cluster, group by hand", 0.35),
              starts(LAB, ("ipyparallel", RANKS))),
    Benchmark(alone("warm", "the next start, 4 ranks", 0.5), asked(WARM, "start")),
    Benchmark(ratio("scale", "start to all_reduce: what each further rank adds", "4 ranks", 0.25,
                    a="16 ranks", figure_unit="s/rank"),
              starts(("labkit", MANY), LAB, per_rank)),
    Benchmark(alone("restart", "lab.restart(), 4 ranks", 1.0), asked(RESTART, "restart")),
    Benchmark(alone("memory", "16 idle ranks and all that serves them", 1.6, "GiB"), memory),
    Benchmark(Claim("values", "256 MiB to 2 ranks and back, all ranks together", "shared memory",
                    "messages", unit="GB/s", figure_unit="GB/s", bound=1.0, at_least=True), values),
    # With 32 ranks on two cores, what idle ranks do beside (heartbeats, gloo's threads) counts.
    *(Benchmark(ratio(f"cell-{n}", f"empty %%px cell, {n} ranks",
                      "stock magic on a stock cluster", bound), cells(n))
      for n, bound in ((4, 0.6), (16, 0.6), (32, 0.7))),
    Benchmark(ratio("ddp", "DDP training, 4 ranks", "torchrun", 0.97, a="labkit, %%px cells",
                    **SPEED),
              trained(8, (TRAIN, "hidden"), (torchrun("ddp_torchrun", RANKS), ""))),
    Benchmark(alone("watch", "DDP training, 4 ranks: the watch's share of the processors", 0.01,
                    ""), watch),
    Benchmark(ratio("board", "DDP training, 4 ranks, prints and board shown live", "not shown",
                    0.97, a="shown", **SPEED),
              trained(2, (TRAIN, "shown"), (TRAIN, "hidden"))),
    Benchmark(alone("curves", "DDP training, 2 ranks: the share of the processors that drawing its "
                    "losses takes (lab.watch)", 0.01, ""), curves),
    Benchmark(alone("deadlock", "a deadlock, 4 ranks: from certain to declared", 0.6),
              asked(BREAKING, *FAULTS, take=itemgetter(0),
                    note="longest to declare {longest:.2f} s")),
    Benchmark(alone("recovery",
                    "after a deadlock, 4 ranks: from declared to the next all_reduce done", 0.2),
              asked(BREAKING, *FAULTS, take=itemgetter(1),
                    note="longest recovery {longest:.2f} s")),
    Benchmark(alone("stop", "the stop button, 4 ranks: from the press to a notebook that takes the "
                    "next cell", 2.0),
              asked(BREAKING, *WORK, figure=max, note="median {median:.2f} s")),
)  # fmt: skip
