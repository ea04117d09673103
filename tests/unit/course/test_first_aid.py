"""Where to look after an error."""

from __future__ import annotations

import pytest
import torch

from labkit.course.exercise import Failed
from labkit.course.first_aid import advice


def fails(code: str) -> Failed:
    """Run a line, and return how it fails."""
    try:
        exec(code, {"torch": torch, "x": torch.ones(2), "y": torch.ones(3)})
    except Exception as error:
        return Failed(type(error).__name__, str(error), (code,))
    raise AssertionError(f"{code} does not fail")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("wrold_size + 1", "wrold_size is not defined there"),
        ("(lambda a: a)()", "keep the parameters"),
        ("None + 1", "Something there is None"),
        ("x + y", "Print the shapes"),
        ("torch.ones(2, 2) @ y", "Print the shapes"),
        ("x.view(3)", "Print the shapes"),
        ("torch.ones(2).long().add_(0.5)", "Print the dtypes"),
        ("[1][2]", "Print the length and the index"),
        ("{}['a']", "Print the keys"),
        ("x.mena()", "Print what stands before .mena"),
        ("bool(x)", "neither true nor false"),
        ("x.item()", "neither true nor false"),
        ("p = torch.ones(1, requires_grad=True); p += 1", "torch.no_grad"),
    ],
)
def test_errors_that_learners_meet(code: str, said: str) -> None:
    text = advice(fails(code))
    assert text.startswith(f"Begin with the line that raised the error: `{code}`.")
    assert said in text


def test_an_error_without_advice_has_its_line() -> None:
    said = advice(Failed("Odd", "", ("f()",)))
    assert said == "Begin with the line that raised the error: `f()`."
    assert advice(Failed("NameError", "name 'x' is not defined")) == ""
