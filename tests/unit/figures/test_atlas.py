"""An atlas draws a line from box to box for each value, and all its cards are of one size."""

from itertools import pairwise

import pytest
from matplotlib.colors import to_hex

from labkit.base.errors import UsageError
from labkit.figures import atlas, exchange, rank_colour

from .drawn import check_words

N = range(4)
TABLE = [[[10 * r + i] for i in N] for r in N]
ALL_TO_ALL = (TABLE, [[[10 * r + i] for r in N] for i in N])
BROADCAST = ([[r + 1] for r in N], [[1]] * 4)


def lines(figure):
    """Return the lines of a card: colour, start and end."""
    (axes,) = figure.axes
    return [
        (to_hex(line.get_color()), *zip(*line.get_data(), strict=True), line.get_linestyle())
        for line in axes.get_lines()
    ]


def test_each_number_has_a_line_of_its_rank_to_where_it_is(drawn):
    exchange(*ALL_TO_ALL, "all_to_all")
    found = lines(drawn[0])
    assert len(found) == 16
    assert {colour for colour, *_ in found} == {rank_colour(r).lower() for r in N}
    # no two lines begin, or end, in the same box
    for ends in ([start for _, start, *_ in found], [end for _, _, end, _ in found]):
        assert len(set(ends)) == 16
        assert all(b - a > 0.1 for a, b in pairwise(sorted(x for x, _ in ends)))
    assert sum(style != "-" for *_, style in found) == 4, "four numbers stay on their rank"


def test_cards_are_of_one_size_and_their_words_can_be_read(drawn):
    atlas({"broadcast": BROADCAST, "all_to_all": ALL_TO_ALL}, used_by={"broadcast": "weights"})
    assert len({tuple(figure.get_size_inches()) for figure in drawn}) == 1
    assert drawn[0].get_size_inches()[0] < 390 / 96, "wider than a phone"
    for figure in drawn:
        check_words(figure)


def test_the_sheet_is_pictures_with_alt_text():
    sheet = atlas({"a < b": BROADCAST, "all_to_all": ALL_TO_ALL})
    bundle = sheet._repr_mimebundle_()
    assert bundle["text/plain"] == sheet.text
    assert bundle["text/html"].count("<img ") == 2
    assert 'alt="a &lt; b\nrank 0: [1] → [1]\nrank 1: [2] → [1]' in bundle["text/html"]
    assert sheet.text.split("\n\n")[1].startswith("all_to_all\nrank 0: [0] [1] [2] [3] → [0] [10]")


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ([[1]], [[1], [2]], "'x' has 1 ranks before it and 2 after it"),
        ([], [], "'x' has 0 ranks before it and 0 after it"),
        ([list(range(16))] * 4, [[1]] * 4, "boxes would be .* inches wide, and a page has 8"),
    ],
)
def test_what_does_not_fit_is_refused(before, after, sentence):
    with pytest.raises(UsageError, match=sentence):
        exchange(before, after, "x")


def test_no_call_is_refused():
    with pytest.raises(UsageError, match="calls is empty"):
        atlas({})
