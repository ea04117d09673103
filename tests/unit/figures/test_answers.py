"""A table of answers says each of them, marks refusals, and can be read."""

import importlib

import pytest
from matplotlib.colors import to_hex

from labkit.errors import UsageError
from labkit.figures import answers, style

from .drawn import check_words, draw, words

module = importlib.import_module("labkit.figures.answers")
TABLE = {
    "gloo, probed:\nwhole numbers": {"SUM": 27, "AVG": "no"},
    "floats": {"SUM": 0, "AVG": 6.75},
}


def test_the_text_has_every_answer():
    picture = answers(TABLE, title="Reductions", how_to_read="A number was given.")
    assert picture.text.splitlines() == [
        "Reductions",
        "columns: gloo, probed: whole numbers, floats",
        "SUM: 27, 0",
        "AVG: no, 6.75",
        "A number was given.",
    ]


def test_only_a_no_has_the_colour_of_a_refusal(monkeypatch):
    figure = draw(monkeypatch, module, lambda: answers(TABLE))
    colours = [to_hex(patch.get_facecolor()).upper() for patch in figure.axes[0].patches]
    assert colours == [module.GIVEN, module.REFUSED, module.GIVEN, module.GIVEN]


def test_the_largest_table_can_be_read(monkeypatch):
    column = {f"PREMUL_SUM {k}": "documented" for k in range(module.MAX_ROWS)}
    table = {f"column {c},\ndocumented": column for c in range(module.MAX_COLUMNS)}
    figure = draw(monkeypatch, module, lambda: answers(table, title="All"))
    check_words(figure)
    assert len(words(figure)) == 1 + 6 + 16 + 6 * 16
    assert figure.get_size_inches()[0] <= style.MAX_WIDTH + 0.5


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({}, "0 columns"),
        ({str(k): {"SUM": 1} for k in range(7)}, "7 columns"),
        ({"a": {}}, "0 rows"),
        ({"a": {str(k): 1 for k in range(17)}}, "17 rows"),
        ({"a": {"SUM": 1}, "b": {"AVG": 1}}, "column 'b' has the rows"),
    ],
)
def test_what_cannot_be_drawn_is_refused(table, problem):
    with pytest.raises(UsageError, match=problem):
        answers(table)
