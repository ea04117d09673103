"""The strip of a ring shows each step: what was sent, what arrived, and how far the sums are."""

import pytest
from matplotlib.patches import FancyArrowPatch

from labkit.base.errors import UsageError
from labkit.figures import ring as drawing
from labkit.figures.ring import ring_strip

from .drawn import check_words, texts
from .test_chunks import ring

PHASES = ("add", "share")


def arrows(figure):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]


def test_the_text_says_what_went_where_in_each_step():
    states, messages = ring(2)
    lines = ring_strip(states, messages, phases=PHASES).text.splitlines()
    assert lines[:-1] == [
        "before: [1 1], [10 10]",
        "add, step 0: chunk 0 from rank 0 to 1, chunk 1 from rank 1 to 0; sums of 2 of 2",
        "share, step 1: chunk 1 from rank 0 to 1, chunk 0 from rank 1 to 0; sums of 2 of 2",
        "complete on ranks 0–1: chunks 0, 1",
    ]
    assert lines[-1] == drawing.HOW_TO_READ


def test_an_arrow_is_a_message_and_where_none_was_sent_there_is_none(drawn):
    states, messages = ring(4)
    ring_strip(states, messages)
    ring_strip(states, [])
    # 6 steps of 4 messages; the one from the last rank to the first is drawn in two pieces
    assert [len(arrows(figure)) for figure in drawn] == [6 * (4 + 1), 0]
    still = [[own[0]] * 7 for own in states]
    assert "step 5: no message\ncomplete on ranks 0–3: no chunk" in ring_strip(still, []).text
    assert "from rank 0 to 1, where nothing changed" in ring_strip(still, messages).text


def test_a_wrong_sum_is_said():
    states = [[[1, 1], [1, 7]], [[10, 10], [10, 10]]]
    text = ring_strip(states, [(1, 0)]).text
    assert "step 0: chunk 1 from rank 1 to 0; not a sum of the ranks' chunks" in text


@pytest.mark.parametrize("n", [2, 3, 4, 8])
@pytest.mark.parametrize("phases", [(), PHASES])
def test_all_words_can_be_read(drawn, n, phases):
    states, messages = ring(n)
    ring_strip(states, messages, phases=phases)
    check_words(drawn[0])


@pytest.mark.parametrize("n", [0, 1, 9])
def test_numbers_of_ranks_that_cannot_be_drawn_are_refused(n):
    with pytest.raises(UsageError, match=f"2 to 8 ranks, not {n}"):
        ring_strip([[[1], [1]]] * n, [])
    states, messages = ring(4)
    with pytest.raises(UsageError, match="6 steps cannot be 4 phases"):
        ring_strip(states, messages, phases=("a", "b", "c", "d"))


def test_a_strip_has_a_title_and_a_later_phase_counts_its_own_steps(drawn):
    states, messages = ring(4)
    picture = ring_strip(states, messages, phases=PHASES, title="Every sum is complete")
    assert picture.text.startswith("Every sum is complete\nbefore: ")
    found = texts(drawn[0])
    assert {"Every sum is complete", "step 2", f"step 3 ({PHASES[1]} step 0)"} <= {*found}
