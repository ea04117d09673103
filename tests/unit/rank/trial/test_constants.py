"""Which answers are tried on fewer ranks: those with a constant that may be the number of ranks."""

from __future__ import annotations

from typing import Any

import pytest

from labkit.rank.trial.constants import may_fix_size


def defined(text: str) -> Any:
    """Define an answer as a cell does."""
    names: dict[str, Any] = {"__name__": "__main__", "rank": 3, "world_size": 4}
    exec(text, names)
    return names["f"]


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return (rank + 1) % 4",
        "def f():\n    return rank + 1 & 3",
        "def f(x):\n    return x * 0.25",
        "def f(n=4):\n    return n",
        "def f(*, n=4):\n    return n",
        "def f():\n    return [1, 2, 3, 0][rank]",
        "def f(x):\n    return [x, x, x, x]",
        "def f(x):\n    a, b, c, d = x\n    return a",
        "def f():\n    return [r for r in range(4)]",
        "def f():\n    return lambda: 4",
        "def f(x):\n    return x.view((4, -1))",
        "N = 4\ndef f():\n    return N",
        "RANKS = ['a', 'b', 'c', 'd']\ndef f():\n    return RANKS[rank]",
        "def g():\n    return 4\ndef f():\n    return g()",
        "def g(n):\n    return lambda: n\nf = g(4)",
        "class f:\n    n = 4",
        "class f:\n    def step(self):\n        return 4",
    ],
)
def test_a_constant_that_may_be_the_number_of_ranks(text: str) -> None:
    assert may_fix_size(defined(text), 4)
    assert not may_fix_size(defined(text), 9)


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return (rank + 1) % world_size",
        "def f(x):\n    return [x, 2, 0.5, True, 'four'][rank]",
        "import math\ndef f():\n    return math.pi",
        "def f():\n    return f() if rank else 1",
    ],
)
def test_other_answers_are_not_tried_again(text: str) -> None:
    assert not may_fix_size(defined(text), 4)
