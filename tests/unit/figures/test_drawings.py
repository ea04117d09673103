"""Drawings of boxes name what they show, and every word of them can be read."""

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch

from labkit.figures import answers, drawings, processes, rendezvous

from .drawn import check_words, words


def seen(figures):
    """Return the words of the newest figure, all of which can be read."""
    check_words(figures[-1])
    return [text.get_text() for text in words(figures[-1])]


@pytest.mark.parametrize("n", range(1, 9))
def test_processes_are_in_the_picture_and_what_varies_not_in_the_text(drawn, n):
    devices = [f"cuda:{rank}" for rank in range(n)]
    text = processes(devices, backend="nccl").text
    assert text == processes(["cpu"] * n).text
    ranks = f"ranks 0–{n - 1}" if n > 1 else "rank 0"
    assert f"{ranks}: a %%px cell runs here, once per rank" in text
    found = seen(drawn[:1])
    assert {*devices, f"rank {n - 1}", "notebook kernel"} <= set(found)
    assert any("(nccl)" in word for word in found)


@pytest.mark.parametrize("n", range(2, 6))
def test_a_rendezvous_has_a_line_between_any_two_ranks(drawn, n):
    count = n * (n - 1) // 2
    said = f"rank to rank: {count} connection{'s' * (count > 1)}"
    assert f"3. {said}\n" in rendezvous(n).text
    assert f"3  {said}" in seen(drawn)
    to_the_store_and_back = 2 * n
    assert len(drawn[0].findobj(FancyArrowPatch)) - to_the_store_and_back == count


def test_answers_are_told_and_only_a_no_has_the_colour_of_a_refusal(drawn):
    table = {
        "gloo, probed:\nwhole numbers": {"SUM": 27, "AVG": "no"},
        "floats": {"SUM": 0, "AVG": 6.75},
    }
    assert answers(table, title="Reductions", how_to_read="A number.").text.splitlines() == [
        "Reductions",
        "columns: gloo, probed: whole numbers, floats",
        "SUM: 27, 0",
        "AVG: no, 6.75",
        "A number.",
    ]
    seen(drawn)
    colours = [to_hex(patch.get_facecolor()).upper() for patch in drawn[0].axes[0].patches]
    assert colours == [drawings.GIVEN, drawings.REFUSED, drawings.GIVEN, drawings.GIVEN]


def test_the_largest_table_can_be_read(drawn):
    column = {f"PREMUL_SUM {k}": "documented" for k in range(drawings.MAX_ROWS)}
    table = {f"column {c},\ndocumented": column for c in range(drawings.MAX_COLUMNS)}
    answers(table, title="All")
    assert len(seen(drawn)) == 1 + 6 + 16 + 6 * 16
