"""The figure of a timeline: lanes for any number of ranks and any length of time."""

import io
import json
from html import unescape

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from labkit.base.errors import DataError, UsageError
from labkit.figures import rank_colour
from labkit.figures.style import WORK, ink_of
from labkit.notebook.timeline.figure import HOW_TO_READ, MAX_ROWS, _of
from labkit.notebook.timeline.merge import rows
from labkit.notebook.timeline.timeline import Timeline
from labkit.wire.recording import Event, Recording, Span


def steps(rank, count=3, unit=1_000_000, buckets=2, late=0):
    """Make up a rank's training steps of 20 units."""
    events = []
    for step in range(count):
        at = lambda u, s=step: int((20 * s + u) * unit)  # noqa: E731
        events += [
            Event("data loading", "next batch", at(0), at(1)),
            Event("forward", "Net", at(1), at(4)),
            Event("backward", "backward", at(4 + late), at(18)),
            Event("blocked", "", at(12 + late), at(18)),
            Event("optimizer", "SGD.step", at(18), at(19)),
        ]
        for b in range(buckets):
            key = ("collective", "0", (0, 1), step * buckets + b)
            start, stop = at(6 + late + 6 * b / buckets), at(18 - (buckets - b - 1))
            events.append(Event("communication", "all_reduce", start, stop, 400, key, (0, 1)))
    return Recording(rank, 0, int(20 * count * unit), events)


def pixels(picture):
    return matplotlib.image.imread(io.BytesIO(picture.png))


def has(picture, colour, least=30, tolerance=0.02):
    near = np.abs(pixels(picture)[..., :3] - np.array(to_rgb(colour))).max(axis=-1) < tolerance
    return near.sum() > least


@pytest.mark.parametrize("ranks", [1, 4, 8])
def test_each_rank_has_a_lane_with_every_kind_in_its_colour(ranks):
    picture = Timeline([steps(r, late=2 * (r == 1)) for r in range(ranks)]).picture()
    for rank in range(ranks):
        assert has(picture, ink_of(rank_colour(rank)), 5, 0.06)  # thin letters
    for kind in ("data loading", "forward", "backward", "communication", "optimizer"):
        assert has(picture, WORK[kind].colour)
    assert picture.text.endswith(HOW_TO_READ)
    assert picture.text.startswith(f"Timeline of rank{'s 0–' if ranks > 1 else ' '}{ranks - 1}")


def test_the_bundle_has_the_image_and_the_same_text_as_repr():
    timeline = Timeline([steps(0)])
    data, metadata = timeline._repr_mimebundle_()
    assert data["image/png"].startswith(b"\x89PNG")
    assert data["text/plain"].startswith(repr(timeline))
    assert metadata["image/png"]["alt"] == data["text/plain"]


def test_only_kinds_that_are_there_are_in_the_legend():
    alone = Timeline([Recording(0, 0, 10**7, [Event("forward", "Net", 0, 10**6)])]).picture()
    assert has(alone, WORK["forward"].colour)
    assert not has(alone, WORK["backward"].colour, 0)


@pytest.mark.parametrize("unit", [15_000, 150_000_000])
def test_a_millisecond_and_ten_seconds_are_drawn_the_same(unit):
    picture = Timeline([steps(r, unit=unit) for r in range(2)]).picture()
    usual = Timeline([steps(r) for r in range(2)]).picture()
    assert abs(len(picture.png) / len(usual.png) - 1) < 0.15


def test_nothing_at_all_is_drawn_without_complaint():
    assert Timeline([Recording(0, 0, 0, []), Recording(1, 0, 0, [])]).picture().png


def test_thousands_of_spans_are_drawn_soon():
    timeline = Timeline([steps(r, count=700, unit=10_000, buckets=4) for r in range(4)])
    assert len(timeline.spans) > 20_000
    assert has(timeline.picture(), WORK["communication"].colour)


def test_stretches_that_a_dot_cannot_tell_apart_are_joined():
    spans = [Span(0, "forward", "", 0.001 * i, 0.001 * i + 0.0005) for i in range(1000)]
    assert len(_of(spans, "forward", dot=1e-5)) == 1000
    assert _of(spans, "forward", dot=0.01) == [(0.0, pytest.approx(1.009))]
    (one,) = _of(spans[:1], "forward", dot=0.01)
    assert one == (0.0, 0.01), "a short one is a dot wide"


def test_a_communication_has_the_same_row_on_every_rank():
    def talk(rank, number, start, stop):
        return Span(rank, "communication", "", start, stop, number=number)

    # 1 and 2 overlap on rank 1 only; 3 begins when both have ended
    spans = [talk(0, 1, 0, 1), talk(0, 2, 2, 3), talk(1, 1, 0, 3), talk(1, 2, 2, 4),
             talk(0, 3, 4, 5), talk(1, 3, 4, 5)]  # fmt: skip
    assert rows(spans) == {1: 0, 2: 1, 3: 0}
    many = [talk(0, n, 0, 1) for n in range(MAX_ROWS + 3)]
    assert max(rows(many).values()) == MAX_ROWS + 2
    assert Timeline([steps(0, buckets=MAX_ROWS + 3)]).picture().png


def test_two_timelines_share_one_scale_of_time():
    short, long = (Timeline([steps(r, count=c) for r in range(2)]) for c in (1, 3))
    pair = short.compare(long, ("one step", "three steps"))
    lines = pair.text.splitlines()
    assert lines[0] == "one step: Timeline of ranks 0–1"
    assert "three steps: Timeline of ranks 0–1" in lines
    assert pair.text.endswith(HOW_TO_READ)
    image = pixels(pair)[..., :3]
    forward = np.abs(image - np.array(to_rgb(WORK["forward"].colour))).max(axis=-1) < 0.02
    bars = forward[:, int(0.45 * image.shape[1]) :]  # right of the legend's patch and step 1
    above, below = np.split(bars, [int(0.4 * len(bars))])
    assert below.any()
    assert not above.any()  # one step is as wide as a third of three


def test_a_pair_names_both_timelines():
    timeline = Timeline([steps(0)])
    with pytest.raises(UsageError, match="two names"):
        timeline.compare(timeline, ("only one",))


def test_it_is_saved_as_what_its_name_ends_in(tmp_path):
    timeline = Timeline([steps(0), steps(1)])
    for name in ("t.png", "t.svg", "t.html", "t.json", "t.json.gz"):
        timeline.save(tmp_path / "new" / name)
    begins = {path.suffix: path.read_bytes()[:5] for path in (tmp_path / "new").iterdir()}
    assert begins == {".png": b"\x89PNG\r", ".svg": b"<?xml", ".html": b"<!doc",
                      ".json": b'{"tra', ".gz": b"\x1f\x8b\x08\x00\x00"}  # fmt: skip


def test_a_name_that_cannot_be_saved_changes_nothing(tmp_path):
    (tmp_path / "t.html").mkdir()
    with pytest.raises(UsageError, match=r"saved as .html, .png, .* not as 't.txt'"):
        Timeline([steps(0)]).save(tmp_path / "t.txt")
    with pytest.raises(DataError, match=r"Cannot write .*t.html: Is a directory"):
        Timeline([steps(0)]).save(tmp_path / "t.html")
    assert [path.name for path in tmp_path.iterdir()] == ["t.html"]


def test_the_page_has_each_span_in_its_row_and_the_text(tmp_path):
    recordings = [steps(rank, late=2 * (rank == 1)) for rank in range(2)]
    recordings[0].events[1] = recordings[0].events[1]._replace(name="</script>$x")
    timeline = Timeline(recordings)
    timeline.save(tmp_path / "t.html")
    text = (tmp_path / "t.html").read_text()
    assert text.count("</script>") == 2
    data = json.loads(text.split('type="application/json">')[1].split("</script>")[0])
    names = [kind["name"] for kind in data["kinds"]]
    shown = {(lane, row, names[kind], start) for lane, row, kind, _, start, *_ in data["spans"]}
    row_of = rows(timeline.spans)
    assert shown == {
        (s.rank, 0 if s.number is None else 1 + row_of[s.number],
         "waiting" if s.kind == "blocked" else s.kind, s.start) for s in timeline.spans
    }  # fmt: skip
    words = {words for _, _, _, words, *_ in data["spans"]}
    assert {"forward: </script>$x", "all_reduce 1, 400 B", "waits for communication"} <= words
    assert unescape(text).count(timeline.describe()) == 2
