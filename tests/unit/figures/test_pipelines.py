"""Figures of pipelines show each pass where it was, what was kept, and the law beside the marks."""

import pytest

from labkit.errors import UsageError
from labkit.figures import bubble, idle, pipelines

pytestmark = pytest.mark.usefixtures("drawn")

STAGES = [
    [("F0", 10.0, 11.0, 1), ("F1", 11.0, 12.0, 2), ("B0", 14.0, 16.0, 1), ("B1", 17.0, 19.0, 0)],
    [("F0", 11.0, 12.0, 1), ("B0", 12.0, 14.0, 0), ("F1", 14.0, 15.0, 1), ("B1", 15.0, 17.0, 0)],
]


def test_each_pass_stands_in_its_lane_at_its_time(drawn):
    pipelines({"1F1B": STAGES})
    (axes,) = drawn[0].axes
    bars = [(round(b.get_y() + b.get_height() / 2), b.get_x(), b.get_width()) for b in axes.patches]
    assert bars == [
        (stage, begin - 10.0, end - begin)
        for stage, passes in enumerate(STAGES)
        for _, begin, end, _ in passes
    ]
    words = [text.get_text() for text in axes.texts]
    assert words == ["0", "1", "0", "1", "keeps 2", "0", "0", "1", "1", "keeps 1"]


def test_a_forward_is_lighter_than_a_backward(drawn):
    pipelines({"1F1B": STAGES})
    forward, _, backward, _ = drawn[0].axes[0].patches[:4]
    assert forward.get_alpha() < backward.get_alpha()


def test_pipelines_below_each_other_have_one_scale_of_time(drawn):
    longer = [[(name, 2 * begin, 2 * end, kept) for name, begin, end, kept in s] for s in STAGES]
    found = pipelines({"short": STAGES, "long": longer})
    above, below = drawn[0].axes
    assert above.get_xlim() == below.get_xlim() == (0, 18.0)
    assert found.text.splitlines()[:2] == [
        "short: stage 0 keeps 2, stage 1 keeps 1.",
        "long: stage 0 keeps 2, stage 1 keeps 1.",
    ]


@pytest.mark.parametrize("records", [{}, {"none": []}, {"empty": [[], STAGES[0]]}])
def test_a_pipeline_without_passes_is_refused(records):
    with pytest.raises(UsageError, match="at least one pass"):
        pipelines(records)


def test_the_law_goes_through_every_count_and_marks_are_as_given(drawn):
    found = bubble([1, 2, 8], {"GPipe": [0.8, 0.7, 0.3], "1F1B": [0.81, 0.6, 0.2]}, stages=4)
    law, *marks = drawn[0].axes[0].lines
    x, y = law.get_xdata(), law.get_ydata()
    assert (x[0], x[-1]) == (1, 8)
    assert (y[0], y[-1]) == (pytest.approx(3 / 4), pytest.approx(3 / 11))
    assert [list(line.get_ydata()) for line in marks] == [[0.8, 0.7, 0.3], [0.81, 0.6, 0.2]]
    assert "0.8" not in found.text


def test_the_idle_share_counts_all_stages_over_the_whole_time():
    assert idle(STAGES) == pytest.approx(1 - 12 / (2 * 9))
    assert idle([STAGES[0][:2]]) == 0


def test_a_schedule_needs_a_share_for_each_count():
    with pytest.raises(UsageError, match="'GPipe' has 1 shares for 2 counts"):
        bubble([1, 2], {"GPipe": [0.5]}, stages=2)
