"""What a trial knows of an answer: whether it is written, what it gave, and what it did not."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from labkit.wire.trial import Unusable, Watched, find, unusable


def named(source: str) -> dict[str, Any]:
    """Run a cell that defines ``f``."""
    names: dict[str, Any] = {}
    exec(source, names)
    return names


@pytest.mark.parametrize(
    "body",
    ["...", "pass", "return", "return None", '"""Say what it does."""', '"""Doc."""\n    ...'],
)
def test_a_stub_is_not_written(body: str) -> None:
    assert find("f", named(f"def f(x: int, y=2) -> int:\n    {body}")) == "unwritten"
    method = body.replace("\n", "\n    ")
    assert (
        find("f", named(f"class f:\n    'Doc.'\n    def g(self):\n        {method}")) == "unwritten"
    )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class f(dict):\n    ...", "unwritten"),
        ("f = ...", "unwritten"),
        ("", "missing"),
        ("f = 3", "no function"),
        ("f = '00-1 passed.'", "no function"),
        ("f = len", "written"),
        ("def f(): return 0", "written"),
        ("def f(): return ...", "written"),
        ("def f(): print(1)", "written"),
        ("def f(x): return x", "written"),
        ("def f(): yield", "written"),
        ("class f:\n    def __init__(self):\n        self.x = 1", "written"),
        ("class f:\n    size = 3", "written"),
    ],
)
def test_what_stands_for_an_answer(source: str, found: str) -> None:
    assert find("f", named(source)) == found


def test_an_answer_is_watched_and_otherwise_itself() -> None:
    names = named("k = 5\ndef f(x: int, y=2) -> int:\n    'Doc.'\n    return x * y")
    watched = Watched(names["f"])
    assert (watched.begun, watched.ended, watched.last) == (0, 0, None)
    assert watched(3, y=4) == 12
    assert (watched.begun, watched.ended, watched.last) == (1, 1, 12)
    assert watched.__globals__["k"] == 5
    assert watched.__name__ == "f"
    assert isinstance(watched, FunctionType)  # for a trial that looks
    assert watched.__defaults__ == (2,)


def fails(answer: Any, use: Any) -> Unusable:
    """Let a trial use what an answer gives in a way that fails."""
    watched = Watched(answer)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        use(watched(1))
    return unusable(caught.value, watched)


def test_what_an_answer_gave_that_could_not_be_used() -> None:
    def answer(x: int) -> list[float]:
        return [[1.0], [2.0]]  # type: ignore[list-item]

    found = fails(answer, lambda value: float(value[0]))
    assert (found.error, found.returned) == ("TypeError", "a list of 2 lists")
    assert found.wanted == "list[float]"
    assert fails(lambda x: None, len).returned == "None"


def test_an_answer_that_cannot_be_called_has_given_nothing() -> None:
    found = fails(lambda: 3, float)
    assert found.returned == ""
    assert "takes 0 positional arguments but 1 was given" in found.message
