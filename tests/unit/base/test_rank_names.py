"""Names of ranks, and the joining of those that say the same."""

import re

import pytest

from labkit.base import rank_names
from labkit.base.rank_names import RANK_COLOURS


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([0], "rank 0"),
        ([0, 1, 2, 3], "ranks 0–3"),
        ([3, 0], "ranks 0, 3"),
        ([0, 2, 3, 5, 6, 7, 9], "ranks 0, 2–3, 5–7, 9"),
    ],
)
def test_label(ranks, text):
    assert rank_names.label(ranks) == text


def test_fold_keeps_the_order_of_first_ranks():
    assert rank_names.fold({2: "b", 0: "a", 1: "b", 3: "a"}) == [([0, 3], "a"), ([1, 2], "b")]


def test_ranks_on_the_way_to_the_same_are_joined():
    texts = {0: "a\nb\n", 1: "a\n", 2: "c", 3: "a\nb\nc\n"}
    assert rank_names.fold_begun(texts) == [([0, 1, 3], "a\nb\nc\n"), ([2], "c")]


def test_a_single_rank_has_its_colour_and_several_have_none():
    red_green_blue = ";".join(str(int(RANK_COLOURS[2][i : i + 2], 16)) for i in (1, 3, 5))
    assert rank_names.bold_label([2]) == f"\x1b[1;38;2;{red_green_blue}mrank 2\x1b[0m"
    assert rank_names.bold_label([1, 2]) == "\x1b[1mranks 1–2\x1b[0m"


def test_in_an_error_no_label_has_a_colour():
    assert rank_names.bold_label([2], coloured=False) == "\x1b[1mrank 2\x1b[0m"
    assert rank_names.block([2], "no", coloured=False).startswith("\x1b[1mrank 2\x1b[0m: ")


def test_progress_bars_stay_one_a_rank_though_two_are_equal_by_chance():
    bar = "100%|███| 3/3 [00:01<00:00,  2.00it/s]"
    texts = {0: bar, 1: bar, 2: "done"}
    assert rank_names.fold(texts) == [([0], bar), ([1], bar), ([2], "done")]
    assert rank_names.fold_begun(texts) == [([0], bar), ([1], bar), ([2], "done")]


def test_any_values_are_folded_by_what_is_compared_of_them():
    assert rank_names.fold({0: ("a", 1), 1: ("a", 1), 2: ("b", 1)}) == [
        ([0, 1], ("a", 1)),
        ([2], ("b", 1)),
    ]
    lists = {0: [1], 1: [2], 2: [1]}
    assert rank_names.fold(lists, tuple) == [([0, 2], [1]), ([1], [2])]


def test_a_progress_bar_within_a_value_stays_one_per_rank():
    bar = ("epoch", "50%|#####     | 5/10 [00:01<00:01, 4.9it/s]")
    assert rank_names.fold({0: bar, 1: bar}) == [([0], bar), ([1], bar)]
