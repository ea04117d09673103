"""A saved timeline in a real browser: it zooms, moves, and names what is under the pointer."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.notebook.timeline.timeline import Timeline
from labkit.wire.recording import Event, Recording
from tests.browser import chromium
from tests.support.system import needs

pytestmark = [pytest.mark.slow, needs("chromium")]
MS = 1_000_000
FORWARD, RANGE = Event("forward", "Net", 40 * MS, 60 * MS), "[from, to]"


def test_a_saved_timeline_can_be_zoomed_into(tmp_path: Path) -> None:
    timeline = Timeline([Recording(rank, 0, 100 * MS, [FORWARD]) for rank in range(2)])
    timeline.save(tmp_path / "t.html")
    errors: list[str] = []
    with chromium.chromium() as browser, chromium.window(browser, sharp=True) as window:
        page = window.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((tmp_path / "t.html").as_uri())
        lanes = page.get_by_role("img", name="Timeline of ranks 0–1")
        box = lanes.bounding_box()
        assert box is not None
        middle, first_row = box["x"] + page.evaluate("place(0.05)"), box["y"] + 30
        page.mouse.move(middle, first_row)
        assert page.locator("#tip").inner_text() == "forward: Net\n20 ms, from 40 ms"
        page.mouse.wheel(0, -500)
        page.wait_for_function("to - from < 0.09")
        start, stop = page.evaluate(RANGE)
        assert start < 0.05 < stop
        page.mouse.down()
        page.mouse.move(middle + 50, first_row)
        page.mouse.up()
        assert page.evaluate(RANGE)[0] < start
        lanes.press("0")
        assert page.evaluate(RANGE) == [0, 0.1]
        lanes.press("+")
        lanes.press("ArrowRight")
        assert page.evaluate(RANGE) == pytest.approx([0.022, 0.092])
    assert errors == []
