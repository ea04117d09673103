"""What a correct program is: cells, and what the last line of the last one must be."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Sequence

#: From the number of ranks to what every rank's last line must be.
Expected = Callable[[int], Sequence[object]]


@dataclasses.dataclass(frozen=True)
class Program:
    """Cells that end by themselves, with right results, however long somebody waits in them.

    ``reset`` says that the ranks have made different numbers of groups. Torch counts them to name
    the next one (2.15), so a group that all ranks make would have several names.
    """

    name: str
    expected: Expected
    cells: tuple[str, ...]
    sizes: tuple[int, ...] = (2, 4)
    reset: bool = False


def program(
    name: str,
    expected: Expected,
    *cells: str,
    sizes: tuple[int, ...] = (2, 4),
    reset: bool = False,
) -> Program:
    """Make a program from cells as they stand, indented, in the table."""
    return Program(name, expected, tuple(map(inspect.cleandoc, cells)), sizes, reset)


def provided(
    name: str, value: float, code: str, *, by: int = 0, to: int = 1, after: str = ""
) -> Program:
    """Make a program in which a rank waits for a message that the code of another one brings.

    ``after`` is run by that one in a cell of its own.
    """
    cell = (
        f"x = torch.zeros(1)\nif rank == {by}:\n{_indented(code)}\n"
        f"if rank == {to}:\n    dist.recv(x, {by})\nx.item()"
    )
    more = [f"if rank == {by}:\n{_indented(after)}\nx.item()"] if after else []
    return program(name, only(to, value, 0.0), cell, *more)


def late(name: str, code: str, *, by: int = 0) -> Program:
    """Make a program in which all add up, one of them after some code of its own."""
    cell = (
        f"x = torch.tensor([rank + 1.0])\nif rank == {by}:\n{_indented(code)}\n"
        "dist.all_reduce(x)\nx.item()"
    )
    return program(name, total, cell)


def _indented(code: str) -> str:
    return textwrap.indent(inspect.cleandoc(code), "    ")


def everyone(value: object) -> Expected:
    """Expect the same on every rank."""
    return lambda n: [value] * n


def only(rank: int, value: object, others: object) -> Expected:
    """Expect something on one rank (-1: the last), and something else on the others."""
    return lambda n: [value if r == rank % n else others for r in range(n)]


def total(n: int) -> Sequence[float]:
    """Expect the sum of rank + 1 over all ranks on each."""
    return [n * (n + 1) / 2] * n


def on_four(programs: Sequence[Program]) -> list[Program]:
    """Make programs run on four ranks only: two would show no more, and take as long."""
    return [dataclasses.replace(program, sizes=(4,)) for program in programs]
