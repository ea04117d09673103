"""How the newest pictures of ranks look while a cell runs, and how often they come."""

from __future__ import annotations

import base64
import struct
from itertools import pairwise

import pytest

from labkit.base import times
from labkit.notebook import pictures as module
from labkit.notebook.pictures import Gallery, as_html
from labkit.runtime.output import Output, Pictures
from tests.support.virtual_clock import VirtualClock
from tests.unit.notebook.test_board import text_of


def png(name, width=300, height=200):
    """Return a display of something that begins as a PNG of that size does."""
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height)
    return {"data": {"image/png": base64.b64encode(head + name.encode()).decode()}, "metadata": {}}


def rank(*shown):
    """Return the pictures of a rank that has shown these one after the other."""
    output = Output()
    for bundle in shown:
        output.note({"header": {"msg_type": "clear_output"}, "content": {"wait": True}})
        output.note({"header": {"msg_type": "display_data"}, "content": bundle})
    return output.pictures()


def test_equal_pictures_are_shown_once_and_others_side_by_side():
    html = as_html({0: rank(png("a")), 1: rank(png("b")), 2: rank(png("a"))})
    assert text_of(html) == "ranks 0, 2rank 1"
    assert html.count("<img") == 2
    assert "repeat(2, " in html
    assert as_html({}) == ""


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_rank_that_is_a_picture_ahead_stands_for_both(ahead):
    few, more = rank(png("a")), rank(png("a"), png("b"))
    html = as_html({ahead: more, 1 - ahead: few})
    assert text_of(html) == "ranks 0–1"
    assert png("b")["data"]["image/png"] in html
    assert png("a")["data"]["image/png"] not in html


def test_a_picture_has_its_size_so_that_nothing_moves():
    html = as_html({0: rank(png("a", 640, 480))})
    assert 'width="640"' in html
    assert "aspect-ratio: 640 / 480" in html
    sharp = {**png("a", 640, 480), "metadata": {"image/png": {"width": 320, "alt": 'a "b"'}}}
    html = as_html({0: rank(sharp)})
    assert 'width="320"' in html
    assert 'alt="a &quot;b&quot;"' in html


def test_an_svg_cannot_run_a_script_and_a_huge_picture_waits_for_the_end(monkeypatch):
    svg = {"data": {"image/svg+xml": "<svg><script>1</script></svg>"}, "metadata": {}}
    html = as_html({0: rank(svg)})
    assert "<script" not in html
    assert 'src="data:image/svg+xml,%3Csvg' in html
    monkeypatch.setattr(module, "LARGEST", 10)
    assert "shown when the cell has ended" in text_of(as_html({0: rank(png("a"))}))


class Shows:
    """A gallery over ranks whose picture changes with each tick."""

    def __init__(self, size=0, changes=True):
        self.clock = VirtualClock()
        self.size, self.changes = size, changes
        self.below = None
        self.gallery = Gallery(self.pictures, lambda: self.below, self.clock)

    def pictures(self):
        name = str(self.clock.time) if self.changes else ""
        return {0: rank(png(name + " " * self.size))}

    def until(self, seconds):
        """Return when something was shown."""
        shown = []
        while self.clock.time < seconds:
            if self.gallery.poll() is not None:
                shown.append(self.clock.time)
            self.clock.sleep(times.TICK)
        return shown


def test_pictures_come_twice_a_second_at_most():
    shown = Shows().until(10)
    assert all(later - earlier >= times.PICTURES for earlier, later in pairwise(shown))
    assert 15 <= len(shown) <= 20


def test_large_pictures_come_less_often_than_the_server_would_drop_them():
    shows = Shows(size=900_000)  # 1.2 MB of text
    assert len(shows.until(10)) == 4


def test_a_picture_that_stays_the_same_is_shown_once():
    assert Shows(changes=False).until(3) == [0.0]


def test_what_stands_below_comes_with_the_pictures_and_is_not_lost_between():
    shows = Shows(changes=False)
    assert "below" not in shows.gallery.poll()
    shows.below = "<p>below</p>"
    shows.clock.sleep(0.1)
    assert shows.gallery.poll() is None  # too early
    shows.below = None
    shows.clock.sleep(times.PICTURES)
    html = shows.gallery.poll()
    assert html.endswith("<p>below</p>")
    assert "<img" in html


# -- which pictures -------------------------------------------------------------------------------


def note(output, kind, bundle, name=None):
    transient = {} if name is None else {"display_id": name}
    content = {**bundle, "transient": transient}
    output.note({"header": {"msg_type": kind}, "content": content})


def test_the_newest_picture_and_those_that_were_updated_are_looked_at():
    output = Output()
    text = {"data": {"text/plain": "a"}, "metadata": {}}
    note(output, "display_data", png("curve 0"), "curve")
    note(output, "display_data", png("first"))
    note(output, "display_data", png("second"))
    note(output, "display_data", text)
    assert output.pictures().bundles == [png("second")]
    note(output, "update_display_data", png("curve 1"), "curve")
    assert output.pictures().bundles == [png("curve 1"), png("second")]
    assert len(output.pictures().recent) == 4
    assert output.pictures() == Pictures([png("curve 1"), png("second")])
