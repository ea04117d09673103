"""Where a result differs, for the table."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from labkit.course.difference import LONGEST, MOST, describe, entries, leaves, rows


def test_entries_have_names_by_label_or_by_key() -> None:
    assert entries([1, 2], [1, 3], ("a", "b")) == [("b", 2, 3)]
    assert entries({"x": 1, "y": 2}, {"x": 1, "y": 3}) == [("y", 2, 3)]
    for yours, labels in (([1], ("a", "b")), ([1, 2], ()), (None, ("a", "b")), (3, ("a", "b"))):
        assert entries(yours, [1, 3], labels) is None
    assert entries({"x": 1}, {"y": 1}) is None


@pytest.mark.parametrize(
    ("yours", "expected", "places"),
    [
        ([1, [2, 3]], [1, [2, 4]], ["[1][1]"]),
        ([{"a": 1}], [{"a": 2}], ["[0]['a']"]),
        ([1, 2], [1], ["[1]"]),
        ({"a": 1}, {"b": 1}, ["['b']", "['a']"]),
        (torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 2], [3, 5]]), ["[1][1]"]),
        (3, 4, [""]),
        ([1], [1], []),
    ],
)
def test_the_innermost_parts_that_differ(yours: Any, expected: Any, places: list[str]) -> None:
    assert [place for place, *_ in leaves(yours, expected)] == places


def test_a_short_value_is_shown_whole() -> None:
    assert [(r.what, r.yours, r.expected) for r in rows([1, 2], [1, 3])] == [
        ("", "[1, 2]", "[1, 3]")
    ]


def test_of_a_long_one_the_parts_are_shown_that_differ() -> None:
    wrong = list(range(200))
    wrong[70] = wrong[90] = 0
    shown = rows(wrong, list(range(200)))
    assert [(r.what, r.yours, r.expected) for r in shown] == [
        ("[70]", "0", "70"),
        ("[90]", "0", "90"),
    ]
    many = rows([0] * 200, list(range(200)))
    assert len(many) == MOST + 1
    assert (many[-1].what, many[-1].yours) == ("…", "193 more differ")


@pytest.mark.parametrize("place", [0, 100, 390])
def test_a_long_text_is_cut_around_the_place(place: int) -> None:
    text = "word " * 80
    wrong = text[:place] + "X" + text[place + 1 :]
    (row,) = rows(wrong, text)
    assert "X" in row.yours
    assert row.yours != row.expected
    assert len(row.yours) <= LONGEST + 6


def test_two_texts_are_never_the_same() -> None:
    a = torch.tensor([1.00002, 2.00002])  # torch shows four digits
    assert [(r.what, r.yours != r.expected) for r in rows(a, a + 2.5e-5)] == [
        ("[0]", True),
        ("[1]", True),
    ]
    for pair in ((1, True), (torch.zeros(0, 2), torch.zeros(0, 2).bool()), ("1", 1)):
        assert all(r.yours != r.expected for r in rows(*pair))


def test_a_value_is_written_on_one_line() -> None:
    assert "\n" not in describe(torch.ones(3, 3))
    assert len(describe("a" * 999)) <= LONGEST + 3
