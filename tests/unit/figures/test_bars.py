"""Bars show what was given, in one unit, and say it."""

import numpy as np
import pytest

from labkit.figures import expected_bars, memory

from .drawn import texts

MIB = 2**20
BILL = {"two levels": 0.25, "ring": 0.5, "alternating": 2.0}

pytestmark = pytest.mark.usefixtures("drawn")


@pytest.mark.parametrize(
    ("options", "start", "bars"),
    [
        ({"title": "ZeRO-1"}, "ZeRO-1: memory of 2 ranks as", ["rank 0", "rank 1"]),
        ({"each": "device"}, "Memory of 2 devices as", ["device 0", "device 1"]),
        ({"names": ["Adam", "ZeRO"]}, "Memory of Adam and ZeRO as", ["Adam", "ZeRO"]),
    ],
)
def test_memory_stacks_parts_in_one_unit(drawn, options, start, bars):
    parts = {"parameters": [4 * MIB, 4 * MIB], "optimizer state": [8 * MIB, MIB]}
    shown = memory(parts, exact=True, **options)
    bottom, top = drawn[0].axes[0].containers
    assert [bar.get_height() for bar in bottom] == [4, 4]
    assert [(bar.get_y(), bar.get_height()) for bar in top] == [(4, 8), (4, 1)]
    assert {"memory (MiB)", *bars, "12", "8", "5"} <= set(texts(drawn[0]))
    assert shown.text.startswith(start)
    lines = shown.text.splitlines()
    assert lines[2] == f"{bars[1]}: parameters 4 MiB, optimizer state 1 MiB"
    assert lines[3].startswith(f"A bar is the memory of one {options.get('each', 'rank')}, ")
    assert memory(parts, **options).text == "\n".join([lines[0], lines[3]])


def test_a_part_too_thin_for_its_number_has_none(drawn):
    memory({"parameters": [1000 * MIB], "buffers": [2 * MIB]})
    assert "2" not in [item.get_text() for item in drawn[0].axes[0].texts]
    assert memory({"gradients": [0]}).text.startswith("Memory of 1 rank as")


def test_expected_bars_stand_in_order_and_diamonds_on_their_bars(drawn):
    found = expected_bars(BILL, {"alternating": 1.5, "two levels": 0.75}, title="4 MiB")
    (axes,) = drawn[0].axes
    assert [bar.get_width() for bar in axes.patches] == [0.25, 0.5, 2.0]
    assert [text.get_text() for text in axes.get_yticklabels()] == list(BILL)
    (diamonds,) = axes.lines
    assert np.allclose(diamonds.get_xydata(), [[0.75, 0], [1.5, 2]])
    assert found.text.startswith("4 MiB: predicted: two levels 250 ms, ring 500 ms, alternating 2")
    assert "0.75" not in found.text
    expected_bars({"ring": 3e-4}, {})
    (axes,) = drawn[1].axes
    assert axes.get_xlabel() == "time (µs)"
    assert axes.patches[0].get_width() == pytest.approx(300)
    assert not axes.lines
