"""How the table shows where a result differs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from labkit.course.compare import Comparison
from labkit.course.report import BAD, GOOD, LONGEST, MOST, Row, describe
from labkit.course.report import rows as rows_of


def rows(yours: Any, expected: Any) -> tuple[Row, ...]:
    return rows_of(Comparison(yours, expected))


def test_a_short_value_is_shown_whole() -> None:
    assert rows([1, 2], [1, 3]) == (("", "[1, 2]", "[1, 3]", BAD),)


def test_of_a_long_one_the_parts_are_shown_that_differ() -> None:
    wrong = list(range(200))
    wrong[70] = wrong[90] = 0
    shown = rows(wrong, list(range(200)))
    assert shown == (("[70]", "0", "70", BAD), ("[90]", "0", "90", BAD))
    many = rows([0] * 200, list(range(200)))
    assert len(many) == MOST + 1
    assert many[-1][:2] == ("…", "193 more differ")


def test_a_right_value_that_is_too_long_has_a_row_for_each_short_entry() -> None:
    values = ["a" * 38, [0.5] * 8, "b" * 38, 12345, "c" * 38]
    names = ("first", "second", "third", "fourth", "fifth")
    each = tuple((n, repr(v), repr(v), GOOD) for n, v in zip(names, values, strict=True))
    assert rows_of(Comparison(values, values), names) == each
    by_key = dict(zip(names, values, strict=True))
    assert rows_of(Comparison(by_key, by_key)) == each
    short, long, many = values[1:4], [*values[:4], "c" * 50], ["a" * 30] * (MOST + 1)
    for right, labels in (
        (short, names[:3]),
        (long, names),
        (values, ()),
        (many, tuple("abcdefg")),
    ):
        assert len(rows_of(Comparison(right, right), labels)) == 1


@pytest.mark.parametrize("place", [0, 100, 390])
def test_a_long_text_is_cut_around_the_place(place: int) -> None:
    text = "word " * 80
    wrong = text[:place] + "X" + text[place + 1 :]
    ((_, yours, expected, _),) = rows(wrong, text)
    assert "X" in yours
    assert yours != expected
    assert len(yours) <= LONGEST + 6


def test_two_texts_are_never_the_same() -> None:
    a = torch.tensor([1.00002, 2.00002])  # torch shows four digits
    assert [what for what, *_ in rows(a, a + 2.5e-5)] == ["[0]", "[1]"]
    for pair in (
        (a, a + 2.5e-5),
        (1, True),
        (torch.zeros(0, 2), torch.zeros(0, 2).bool()),
        ("1", 1),
    ):
        assert all(yours != expected for _, yours, expected, _ in rows(*pair))


def test_a_value_is_written_on_one_line() -> None:
    assert "\n" not in describe(torch.ones(3, 3))
    assert len(describe("a" * 999)) <= LONGEST + 3
