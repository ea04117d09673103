"""The film of a ring has a frame per step, and a strip that stands still where nothing plays."""

from xml.etree import ElementTree

import pytest

from labkit.figures import ring_strip

from .test_chunks import ring

SVG = "{http://www.w3.org/2000/svg}"


def film(n):
    states, messages = ring(n)
    data, told = ring_strip(states, messages, phases=("add", "share"))._repr_mimebundle_()
    return ElementTree.fromstring(data["image/svg+xml"]), data, told


def groups(root, kind):
    return [group for group in root.iter(f"{SVG}g") if group.get("class") == kind]


@pytest.mark.parametrize("n", [2, 4, 8])
def test_each_step_is_a_frame_with_a_message_per_rank_and_stands_in_the_strip(n):
    root, _, _ = film(n)
    frames, (strip,) = groups(root, "frame"), groups(root, "strip")
    steps = [f"step {k}: add" for k in range(n - 1)]
    steps += [f"step {n - 1 + k}: share step {k}" for k in range(n - 1)]
    assert [frame.find(f"{SVG}text").text for frame in frames] == steps
    assert [text.text for text in strip.iter(f"{SVG}text")] == steps
    assert [len(groups(frame, "go")) for frame in frames] == [n] * len(steps)


def test_what_is_used_is_defined_once():
    root, _, _ = film(4)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    used = {element.get("href").removeprefix("#") for element in root.iter(f"{SVG}use")}
    assert len(ids) == len(set(ids))
    assert used == set(ids)


def test_it_stands_still_without_css_and_for_readers_who_want_no_motion():
    root, data, told = film(4)
    rules = root.find(f"{SVG}style").text
    still = rules.partition("prefers-reduced-motion: reduce")[2]
    assert ".film { display: none; }" in still
    assert ".strip { animation: none; }" in still
    assert "<script" not in data["image/svg+xml"]
    # a front end that does not trust the notebook shows this, and both are described
    assert data["image/png"].startswith(b"\x89PNG")
    assert told["image/svg+xml"]["alt"] == told["image/png"]["alt"] == data["text/plain"]
