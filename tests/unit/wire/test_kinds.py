"""Of what kind a value is, in a learner's words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from labkit.wire.trial import kind_of


class _Work:
    pass


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "None"),
        (True, "True or False"),
        (3, "a whole number"),
        (3.0, "a number with a decimal point"),
        ("a", "text"),
        (b"a", "bytes"),
        ([], "an empty list"),
        ([1], "a list of 1 number"),
        ([1, 2.0], "a list of 2 numbers"),
        ([[1], [2]], "a list of 2 lists"),
        ((1, "a"), "a tuple of a whole number and text"),
        ([1, "a", None, len], "a list of 4 items"),
        ((len, torch.ones(1)), "a tuple of a function and a tensor of float32 with shape (1,)"),
        ([True, False], "a list of True or False"),
        ([torch.ones(1)] * 3, "a list of 3 tensors"),
        ({1, 2}, "a set of 2 numbers"),
        ({"a": 1}, "a dict of 1 entry"),
        (torch.ones(2, 3).half(), "a tensor of float16 with shape (2, 3)"),
        ((i for i in "a"), "a generator"),
        (len, "a function"),
        (lambda: 1, "a function"),
        (int, "the class int"),
        (_Work(), "a Work"),
        (iter([]), "a list_iterator"),
    ],
)
def test_kinds(value: Any, said: str) -> None:
    assert kind_of(value) == said
