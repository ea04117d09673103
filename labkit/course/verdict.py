"""What a check returns: values to ask, which are shown as the check has printed them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace

from ..notebook import shell


@dataclass(frozen=True, repr=False)
class Verdict:
    """Hold what came of a check. It is true if the answer has passed.

    A notebook shows it as the check has printed it, and not a second time in the cell that has
    printed it.

    Attributes
    ----------
    exercise
        The exercise's id, such as ``"03-2"``.
    name
        The verdict in short: "passed", the sentence of a mistake, "forbidden: all_reduce",
        "goal: bytes sent", the name of an error, "nothing" or "different".
    sentence
        What is wrong, in words; "" if the answer has passed.
    mistake
        The sentence of the known mistake that the answer shows; None if it shows none.
    text
        What the check has printed.

    Examples
    --------
    >>> lab["neighbour"] = lambda: 1
    >>> verdict = labkit.check("00-3")
    00-3  Name your neighbour
    ...
    00-3 not yet.
    ...
    >>> verdict.mistake is None or verdict.mistake == verdict.sentence
    True
    """

    exercise: str
    name: str
    sentence: str = ""
    mistake: str | None = None
    text: str = field(default="", compare=False)
    _cell: str = field(default="", compare=False)

    @property
    def passed(self) -> bool:
        """Whether the answer has passed.

        >>> import torch.distributed as dist
        >>> lab["neighbour"] = lambda: (dist.get_rank() + 1) % dist.get_world_size()
        >>> assert labkit.check("00-3").passed
        00-3  Name your neighbour
        ...
        00-3 passed.
        """
        return self.name == "passed"

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        about = f"exercise={self.exercise!r}, passed={self.passed}"
        return f"Verdict({about}{'' if self.passed else f', sentence={self.sentence!r}'})"

    def _ipython_display_(self) -> None:  # IPython's own hook
        if self._cell != _this_cell():
            _print(self.text)


class Verdicts(dict[str, Verdict]):
    """Hold the verdicts on several exercises, by id; shown as the check has printed them."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self._cell = _this_cell()

    def print(self, line: str) -> None:
        """Print a line, and keep it."""
        self.text += f"{line}\n"
        _print(f"{line}\n")

    def _ipython_display_(self) -> None:  # IPython's own hook
        if self._cell != _this_cell():
            _print(self.text)


def printed(verdict: Verdict, text: str) -> Verdict:
    """Print the text of a verdict, and return the verdict with it."""
    _print(text)
    return replace(verdict, text=text, _cell=_this_cell())


def _this_cell() -> str:
    return shell.cell_name(shell.current())


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
