"""Drawings of boxes name what they show, and every word of them can be read."""

import re

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch

from labkit.figures import answers, drawings, nodes, processes, rendezvous

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


def test_columns_have_one_local_rank_of_each_node(drawn):
    picture = nodes([2, 1], columns=True)
    assert picture.text.startswith("A row is a node; a column has one LOCAL_RANK\nnode 0: RANK 0")
    assert "dashed outline is a column" in picture.text
    found = seen(drawn)
    assert {"row 0: node 0", "row 1: node 1", "column 0", "column 1"} <= set(found)
    assert "column 2" not in found
    dashed = [box for box in drawn[0].axes[0].patches if box.get_linestyle() not in ("-", "solid")]
    assert len(dashed) == 2


def test_ranks_go_on_where_local_ranks_and_gpus_start_again(drawn):
    assert nodes([1, 4, 4, 3]).text.splitlines()[1:3] == [
        "node 0: RANK 0, LOCAL_RANK 0, cuda:0",
        "node 1: RANK 1, LOCAL_RANK 0, cuda:0; RANK 2, LOCAL_RANK 1, cuda:1; "
        "RANK 3, LOCAL_RANK 2, cuda:2; RANK 4, LOCAL_RANK 3, cuda:3",
    ]
    found = seen(drawn)
    ranks = [word for word in found if re.fullmatch(r"RANK \d+", word)]
    assert ranks == [f"RANK {rank}" for rank in range(12)]
    local = [int(word.split()[1]) for word in found if re.fullmatch(r"LOCAL_RANK \d", word)]
    assert local == [0, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    assert [word for word in found if ":" in word] == [f"cuda:{number}" for number in local]


@pytest.mark.parametrize("n", range(2, 6))
def test_a_rendezvous_has_a_line_between_any_two_ranks(drawn, n):
    count = n * (n - 1) // 2
    said = f"rank to rank: {count} connection{'s' * (count > 1)}"
    assert f"3. {said}\n" in rendezvous(n).text
    assert f"step 3: {count} connection{'s' * (count > 1)}, rank to rank" in seen(drawn)
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
