"""A picture of tensors shows who held what, who sent it to whom, and says it in text."""

import io

import matplotlib.image
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from labkit.figures import before_after, rank_colour, tensors
from labkit.figures.moves import COMBINED as TOGETHER
from labkit.figures.moves import follow, trace
from labkit.figures.style import COMBINED
from labkit.figures.values import lay_out, number, pieces, text

from .drawn import check_words, words


def pixels(picture):
    return matplotlib.image.imread(io.BytesIO(picture.png))


def moves_of(before, after, groups=None, reduced=None):
    rows = [[pieces(entry) for entry in column] for column in (before, after)]
    return trace(*rows, groups or [list(range(len(before)))], reduced)


def sent(before, after, messages):
    return follow(*([pieces(e) for e in column] for column in (before, after)), messages)


# --- text ---------------------------------------------------------------------------------------


def test_the_text_has_every_rank_and_value():
    picture = before_after(
        [torch.tensor([1.0]), torch.tensor([2.5])], [torch.tensor([3.5])] * 2, "add"
    )
    assert repr(picture) == f"add\nrank 0: [1] → [3.5]\nrank 1: [2.5] → [3.5]\n{tensors.DOT}"


def test_the_columns_are_before_and_after_or_two_tensors(drawn):
    before_after([1.0], [2.0])
    before_after([1.0], [2.0], heads=("x", "y"))
    seen = [{word.get_text() for word in words(figure)} for figure in drawn]
    heads = [sorted(found & {"before", "after", "x", "y"}) for found in seen]
    assert heads == [["after", "before"], ["x", "y"]]


def test_the_text_ends_with_the_reading_help():
    picture = before_after([1.0], [1.0], "barrier", how_to_read="Nothing moves.")
    assert repr(picture) == "barrier\nrank 0: [1] → [1]\nNothing moves."


def test_lists_and_nothing():
    picture = before_after([[np.array([0.0]), np.array([1.0])], None], [np.array([0.0]), 1.0])
    assert repr(picture) == f"rank 0: [0] [1] → [0]\nrank 1: – → [1]\n{tensors.TRACED}"


def test_ranks_of_a_subgroup_keep_their_names():
    picture = before_after([1.0, 2.0], [3.0, 3.0], ranks=[0, 5])
    assert repr(picture) == f"rank 0: [1] → [3]\nrank 5: [2] → [3]\n{tensors.DOT}"


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        (torch.tensor([True, False]), "[True False]"),
        (torch.tensor([123456, -7]), "[123456 -7]"),
        (torch.tensor(2**40), "[1.1e12]"),
        (torch.tensor([1.5], dtype=torch.bfloat16), "[1.5]"),
        (torch.tensor([1234000.0, -0.001, 2.5e-7, -0.0]), "[1.234e6 -0.001 2.5e-7 0]"),
        (torch.tensor([float("nan"), -float("inf")]), "[nan -inf]"),
        (torch.arange(4).reshape(2, 2), "[[0 1] [2 3]]"),
        (torch.arange(8).reshape(2, 2, 2), "[[0 1] [2 3] [4 5] [6 7]]"),
        ([1, 2], "[1 2]"),
        ([torch.tensor(1), torch.tensor(2)], "[1] [2]"),
        (torch.tensor([]), "[]"),
        (torch.ones(2, requires_grad=True), "[1 1]"),
    ],
)
def test_values_as_text(entry, shown):
    assert text(pieces(entry)) == shown


def test_a_number_is_short():
    worst = [-1.2345678e-38, -0.00012345678, 3.4e38, -999999, 12345.678]
    assert max(len(number(value)) for value in worst) <= 10


# --- who sent what to whom ----------------------------------------------------------------------


def column(*rows):
    """Give each rank a list of tensors of one value."""
    return [[np.array([value]) for value in row] for row in rows]


THREE = {(0, 1), (1, 1), (2, 1)}
NAN = float("nan")
#: Of a collective: what ranks held before and after, options; owners of the values after, arrows,
#: meetings; None where it does not matter.
TRACED = {
    # 1 was on every rank before: the whole tensor says where it comes from
    "broadcast": ([[0, 1], [7, 1], [0, 1]], [[7, 1]] * 3, {}, [[1, 1]] * 3,
                  {(1, 0), (1, 1), (1, 2)}, []),
    "gather": (column([3], [1], [4]), [None, *column([3, 1, 4]), None], {},
               [[], [0, 1, 2], []], THREE, None),
    "gather, equal": (column([5], [5], [5]), [None, *column([5, 5, 5]), None], {},
                      [[], [0, 1, 2], []], THREE, None),
    "gather in one tensor": (column([5], [5], [5]), [None, [5, 5, 5], None], {},
                             [[], [0, 1, 2], []], THREE, None),
    "scatter": ([[np.array([r, 9]) for r in range(3)], None, None], [[0, 9], [1, 9], [2, 9]], {},
                [[0, 0]] * 3, {(0, 0), (0, 1), (0, 2)}, None),
    "all_to_all": (column([0, 1, 2], [10, 11, 12], [20, 21, 22]),
                   column([0, 10, 20], [1, 11, 21], [2, 12, 22]), {}, [[0, 1, 2]] * 3,
                   {(a, b) for a in range(3) for b in range(3)}, None),
    "all_reduce": ([1.0, 2.0, 3.0], [6.0] * 3, {}, [[TOGETHER]] * 3, set(),
                   [([0, 1, 2], [0, 1, 2])]),
    # 1 + 3 = 4 was on rank 1, and 2 + 4 = 6 is new
    "a sum that somebody held": ([[1, 2], [3, 4]], [[4, 6]] * 2, {}, [[TOGETHER] * 2] * 2, None,
                                 None),
    "a sum, as is said": ([[0.0], [1.0]], [[1.0], [1.0]], {"reduced": True}, [[TOGETHER]] * 2,
                          None, [([0, 1], [0, 1])]),
    "reduce": ([1.0, 2.0, 3.0], [6.0, 2.0, 3.0], {}, None, {(1, 1), (2, 2)}, [([0, 1, 2], [0])]),
    "reduce, to nothing": ([1.0, 2.0, 3.0], [6.0, None, None], {}, None, set(),
                           [([0, 1, 2], [0])]),
    "reduce_scatter": ([[1, 20], [3, 40]], [[4], [60]], {}, None, None,
                       [([0, 1], [0]), ([0, 1], [1])]),
    "maximum": ([[1, 9], [5, 2]], [[5, 9]] * 2, {}, [[1, 0]] * 2, None, None),
    "barrier": ([1, 2], [1, 2], {}, None, {(0, 0), (1, 1)}, None),
    "barrier, equal": ([5, 5], [5, 5], {}, None, {(0, 0), (1, 1)}, None),
    "barrier of nothing": ([None, None], [None, None], {}, None, set(), None),
    "subgroups": ([1, 2, 3, 4, 5], [3, 3, 7, 7, 5], {"groups": [[0, 1], [2, 3]]}, None, {(4, 4)},
                  [([0, 1], [0, 1]), ([2, 3], [2, 3])]),
    "from anybody": ([5, 5, None], [5, 5, 5], {}, [[0], [1], [None]], {(0, 0), (1, 1)}, None),
    "not a number": ([[NAN, 1.0], [2.0, 3.0]], [[NAN, 1.0]] * 2, {}, [[0, 0]] * 2, None, None),
}  # fmt: skip


@pytest.mark.parametrize("case", TRACED.values(), ids=TRACED)
def test_a_collective_is_traced(case):
    before, after, options, *expected = case
    moves = moves_of(before, after, **options)
    for found, right in zip((moves.owners, moves.arrows, moves.meetings), expected, strict=True):
        assert right is None or found == right


RING = {n: [(r, (r + 1) % n) for r in range(n)] for n in (2, 4, 5)}
SENT = {
    "equal values": ([[7, 8], [0, 0], [0, 0]], [[7, 8], [7, 8], [0, 0]], [(0, 1)],
                     [[0, 0], [0, 0], [2, 2]], {(0, 1), (0, 0), (2, 2)}),
    "added": ([1, 2], [1, 3], [(0, 1)], [[0], [TOGETHER]], {(0, 1), (0, 0)}),
    "nothing changed": ([5, 5], [5, 5], [(0, 1)], [[0], [0]], {(0, 1), (0, 0)}),
    **{f"ring of {n}": ([[r, 0] for r in range(n)], [[r, (r - 1) % n] for r in range(n)], ring,
                        [[r, (r - 1) % n] for r in range(n)], {*ring, *((r, r) for r in range(n))})
       for n, ring in RING.items()},
}  # fmt: skip


@pytest.mark.parametrize("case", SENT.values(), ids=SENT)
def test_messages_are_followed(case):
    *given, owners, arrows = case
    moves = sent(*given)
    assert (moves.owners, moves.arrows) == (owners, arrows)


def test_messages_as_a_lab_lists_them():
    listed = [(0, 1, 4, "float32", 16, 0, "In[2], line 1")]
    one, other = (
        before_after([[1], [2]], [[1], [1]], messages=messages) for messages in (listed, [(0, 1)])
    )
    assert one.png == other.png


# --- the drawing --------------------------------------------------------------------------------


def test_boxes_have_the_colour_of_the_rank_that_held_the_value():
    moved = before_after([1.0, 2.0], [2.0, 1.0], messages=[(0, 1), (1, 0)])
    mixed = before_after([1.0, 2.0], [3.0, 3.0])
    grey = to_rgb(COMBINED)

    def has(picture, colour):
        near = np.abs(pixels(picture)[..., :3] - np.array(colour)).max(axis=-1) < 0.02
        return near.sum() > 200

    for rank in (0, 1):
        assert has(moved, to_rgb(rank_colour(rank)))
    assert has(mixed, grey)
    assert not has(moved, grey)


def extents(artists):
    """Left bottom and right top corner of each artist, in pixels."""
    return np.array([a.get_window_extent().get_points() for a in artists]).reshape(-1, 2, 2)


def overlaps(some, others):
    low = np.maximum(some[:, None, 0], others[None, :, 0])
    high = np.minimum(some[:, None, 1], others[None, :, 1])
    return (low < high).all(axis=-1)


def worst_cases():
    big = torch.tensor([-1.2345e-12, 98765432.1, 3.14159, -0.001234])
    yield "one", [1.0], [1.0], "dist.barrier()"
    yield "nothing", [None, None], [None, None], ""
    yield "big", [big] * 4, [big * 4] * 4, "dist.all_reduce(x)"
    yield "sixteen", [torch.randn(16) * 1e3] * 4, [torch.randn(16)] * 4, "dist.all_reduce(x)"
    yield "lists", [[torch.full((3,), 100 * r)] * 5 for r in range(3)], [[1] * 16] * 3, "x"
    yield "matrix", [torch.ones(2, 3)] * 3, [[torch.ones(2, 2) * 100] * 4] * 3, "x"
    yield "title", [1], [2], "dist.all_reduce(x, group=some_very_long_group_name) " * 4
    n = 12
    numbers = 100 * np.arange(n)[:, None] + np.arange(n)
    before, after = ([list(row) for row in table[..., None]] for table in (numbers, numbers.T))
    yield "ranks", before, after, "dist.all_to_all(incoming, outgoing)"
    yield "crowd", list(range(32)), [496] * 32, "dist.all_reduce(x)"


@pytest.mark.parametrize("case", list(worst_cases()), ids=lambda case: case[0])
def test_every_number_fits_its_box_and_all_words_can_be_read(drawn, case):
    torch.manual_seed(0)
    _, before, after, title = case
    before_after(before, after, title)
    (figure,) = drawn
    check_words(figure, beyond=True)  # a title may be wider
    (axes,) = figure.axes
    texts = extents(item for item in axes.texts if item.get_text())
    boxes = extents(item for item in axes.patches if isinstance(item, FancyBboxPatch))
    for extent, hits in zip(texts, overlaps(texts, boxes), strict=True):
        (left, bottom), (right, top) = extent
        for (x0, y0), (x1, y1) in boxes[hits]:
            assert x0 <= left < right <= x1
            assert y0 - 1 <= bottom < top <= y1 + 1


def test_a_value_that_a_rank_kept_has_no_arrow(drawn):
    def arrows(*args, **options):
        before_after(*args, **options)
        return sum(isinstance(item, FancyArrowPatch) for item in drawn[-1].axes[0].patches)

    assert arrows([1, 2, 3], [1, 2, 3]) == 0
    assert arrows([1, 2, 3], [2, 2, 2]) == 2  # broadcast: two arrows, none to the root
    assert arrows([1, 2], [1, 2], messages=[]) == 0
    assert arrows([1, 2], [1, 1], messages=[(0, 1)]) == 1


def test_the_caption_says_what_is_no_message():
    reduced = before_after([1, 2], [3, 3], how_to_read="A sum.").text
    assert reduced.endswith(f"\nA sum. {tensors.DOT}")
    moved = before_after([1, 2], [2, 2]).text
    assert moved.endswith(f"\n{tensors.TRACED}")
    assert (
        before_after([1, 2], [2, 2], messages=[(1, 0)]).text
        == "rank 0: [1] → [2]\nrank 1: [2] → [2]"
    )
    some = before_after([1, 2, 5, 6], [3, 3, 6, 6], groups=[[0, 1], [2, 3]], reduced=None).text
    assert tensors.DOT in some
    assert tensors.TRACED in some


def test_long_rows_are_broken_into_equal_lines():
    held = [np.arange(100.0, 116.0)]
    layout = lay_out([[held], [held]], room=5.4)
    assert {block.height for column in layout.columns for block in column} == {2}
    assert {block.width for column in layout.columns for block in column} == {8}
    wide = lay_out([[held], [held]], room=20)
    assert wide.height(0) == 1
    assert wide.font > layout.font


def test_many_arrows_between_all_ranks_become_one_bar(drawn):
    def words(n):
        before_after(range(n), [list(range(n))] * n)
        return [item.get_text() for item in drawn[-1].axes[0].texts]

    assert "every rank to every rank" not in words(4)
    assert "every rank to every rank" in words(8)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "options", "message"),
    [
        ([1.0], [1.0, 2.0], {}, "Each rank has an entry in both: before has 1, after has 2."),
        ([np.arange(17.0)], [1.0], {}, "a rank holds 17 values; a picture shows at most 16"),
        ([], [], {}, "a picture shows 1 to 32 ranks, not 0"),
        ([1] * 33, [1] * 33, {}, "a picture shows 1 to 32 ranks, not 33"),
        (1.0, [1.0], {}, "before is one value: give a list with one entry for each rank"),
        ([1.0], torch.tensor(1.0), {}, "after is one value"),
        (["a"], [1.0], {}, "a rank holds values of type str"),
        ([1j], [1.0], {}, "a rank holds values of type complex"),
        ([[None, 1]], [1.0], {}, "a rank holds values of type NoneType"),
        ([1, 2], [1, 2], {"ranks": [0]}, "Each rank of before has its number in ranks: 2, not 1."),
        ([1, 2], [1, 2], {"ranks": [3, 3]}, "give different ranks, each 0 or more"),
        ([1, 2], [1, 2], {"messages": [(0, 2)]}, "messages names rank 2, but .* ranks 0, 1"),
        ([1, 2], [1, 2], {"messages": [0, 1]}, r"messages holds 0: give pairs \(source, target\)"),
        ([1, 2], [1, 2], {"groups": [[0, 4]]}, "groups names rank 4"),
        ([1, 2], [1, 2], {"groups": [[0, 1], [1]]}, "groups has rank 1 twice"),
        ([1, 2], [1, 2], {"messages": [], "groups": [[0]]}, "messages say all"),
        ([1, 2], [1, 2], {"messages": [], "reduced": True}, "messages say all"),
    ],
)
def test_what_does_not_fit_is_refused(before, after, options, message):
    with pytest.raises(ValueError, match=message):
        before_after(before, after, **options)
