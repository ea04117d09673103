"""Lanes and pipelines show what ran when, and say it without times."""

import pytest

from labkit.figures import idle, lanes, pipelines

SPANS = [("a", "all_reduce", 5.0, 6.0), ("b", "wait for a", 5.0, 6.0), ("b", "read", 6.0, 6.1)]
STAGES = [
    [("F0", 10.0, 11.0, 1), ("F1", 11.0, 12.0, 2), ("B0", 14.0, 16.0, 1), ("B1", 17.0, 19.0, 0)],
    [("F0", 11.0, 12.0, 1), ("B0", 12.0, 14.0, 0), ("F1", 14.0, 15.0, 1), ("B1", 15.0, 17.0, 0)],
]

pytestmark = pytest.mark.usefixtures("drawn")


def test_the_text_has_lanes_in_the_order_of_their_names_and_words_in_that_of_time():
    picture = lanes([*SPANS[1:], SPANS[0], ("a", "before", 4.0, 4.5)], title="T", how_to_read="R.")
    assert picture.text.splitlines() == ["T", "b: wait for a, read", "a: before, all_reduce", "R."]


def test_bars_begin_at_zero_and_waits_are_hatched(drawn):
    lanes(SPANS)
    bars = drawn[0].axes[0].patches
    assert [bar.get_x() for bar in bars] == pytest.approx([0, 0, 1])
    assert [bar.get_width() for bar in bars] == pytest.approx([1, 1, 0.1])
    assert [bool(bar.get_hatch()) for bar in bars] == [False, True, False]


def test_lanes_of_one_kind_have_one_colour_and_milliseconds_if_they_are_asked_for(drawn):
    kinds = {"a": "backward", "b": "backward"}
    lanes([*SPANS[:1], ("b", "exposed", 6.0, 6.5)], kinds=kinds, unit="ms")
    (axes,) = drawn[0].axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([1000, 500])
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [False, True]
    assert axes.get_xlabel() == "time (ms)"
    lanes([("a", "x", 0.0, 1.0), ("b", "y", 0.0, 1.0)], kinds=kinds)
    first, second = drawn[1].axes[0].patches
    assert first.get_facecolor() == second.get_facecolor()


def test_each_pass_stands_in_its_lane_at_its_time_on_one_scale(drawn):
    longer = [[(name, 2 * begin, 2 * end, kept) for name, begin, end, kept in s] for s in STAGES]
    found = pipelines({"short": STAGES, "long": longer})
    axes, below = drawn[0].axes
    bars = [(round(b.get_y() + b.get_height() / 2), b.get_x(), b.get_width()) for b in axes.patches]
    assert bars == [
        (stage, begin - 10.0, end - begin)
        for stage, passes in enumerate(STAGES)
        for _, begin, end, _ in passes
    ]
    words = [text.get_text() for text in axes.texts]
    assert words == ["0", "1", "0", "1", "keeps 2", "0", "0", "1", "1", "keeps 1"]
    forward, _, backward, _ = axes.patches[:4]
    assert forward.get_alpha() < backward.get_alpha()
    assert axes.get_xlim() == below.get_xlim() == (0, 18.0)
    assert found.text.splitlines()[:2] == [
        "short: stage 0 keeps 2, stage 1 keeps 1.",
        "long: stage 0 keeps 2, stage 1 keeps 1.",
    ]


def test_the_idle_share_counts_all_stages_over_the_whole_time():
    assert idle(STAGES) == pytest.approx(1 - 12 / (2 * 9))
    assert idle([STAGES[0][:2]]) == 0
