"""An error of an answer in the notebook, told with the learner's own lines."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import pytest

from labkit.course import compare
from labkit.course.in_notebook import own_lines, tell
from labkit.notebook.show import plain

CELL = """def outer(x):
    return inner(x)

def inner(x):
    y = x
    return y / 0

def library(x):
    import json
    return json.loads(x)
"""


def defined() -> dict[str, Any]:
    """Return the functions of a cell, whose text Python knows, as that of a notebook's."""
    name = "/tmp/ipykernel_1/2.py"
    linecache.cache[name] = (len(CELL), None, CELL.splitlines(keepends=True), name)
    names: dict[str, Any] = {}
    exec(compile(CELL, name, "exec"), names)
    return names


def failure(function: Callable[..., Any], *args: Any) -> BaseException:
    """Return what a call raises, as it comes out of a trial of labkit's: without this file."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        function(*args)
    trace = caught.value.__traceback__
    return caught.value.with_traceback(None if trace is None else trace.tb_next)


def test_message_and_lines() -> None:
    assert plain(tell(failure(defined()["outer"], 1))).split("\n") == [
        "ZeroDivisionError: division by zero",
        "  line 2, in outer",
        "        1 def outer(x):",
        "  -->   2     return inner(x)",
        "  line 6, in inner",
        "        5     y = x",
        "  -->   6     return y / 0",
    ]
    assert own_lines(failure(defined()["outer"], 1)) == ("return inner(x)", "return y / 0")


def test_what_raised_it_where_that_is_a_library() -> None:
    lines = plain(tell(failure(defined()["library"], "{"))).split("\n")
    assert lines[0].startswith("JSONDecodeError: ")
    assert lines[-1].startswith("  raised in json/decoder.py:")


def test_no_line_of_labkit_is_shown() -> None:
    error = failure(compare.same, 1.0, 2.0, "a")
    assert plain(tell(error)).count("\n") == 0
    assert own_lines(error) == ()
