"""What ranks write: as a terminal shows it, and found once where nobody waited for it."""

from __future__ import annotations

import io
import re
import sys
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tqdm import tqdm

from labkit.runtime import output
from labkit.runtime.output import NOTED, REACH, LateOutput, Output, Screen, collect, settle
from tests.support.requests import reply


def late_output(**over):
    """Return what is late, and ipyparallel's record of requests that are over."""
    metadata: dict[str, Any] = {"submitted": "a date, by ipyparallel's mistake"}
    metadata |= {name: record(text) for name, text in over.items()}
    made = LateOutput(SimpleNamespace(metadata=metadata))
    for engine, name in enumerate(over):
        made.note(engine, SimpleNamespace(msg_id=name))
    return made, metadata


def record(stdout, submitted=None):
    return {"submitted": submitted, "stdout": stdout, "stderr": ""}


def write(future, text):
    content = {"name": "stdout", "text": text}
    future.labkit_output.note({"header": {"msg_type": "stream"}, "content": content})


def test_what_is_new_comes_once():
    late, metadata = late_output(a="one\n", b="two\n")
    assert late.take() == {
        0: {"stdout": "one\n", "stderr": ""},
        1: {"stdout": "two\n", "stderr": ""},
    }
    metadata["a"]["stdout"] += "more\n"
    assert late.take() == {0: {"stdout": "more\n", "stderr": ""}}
    assert late.take() == {}
    assert set(metadata) == {"submitted"}  # what is over does not add up


def test_a_request_that_is_out_is_not_late():
    late, metadata = late_output()
    metadata["a"] = record("its own\n", submitted="now")
    assert (late.take(), set(metadata)) == ({}, {"submitted", "a"})


def test_a_bar_that_has_written_over_itself_is_shown_anew():
    late, metadata = late_output(a="10 of 20\r")
    assert late.take()[0]["stdout"] == "10 of 20"
    metadata["a"]["stdout"] = "done\n"
    assert late.take()[0]["stdout"] == "done\n"


def test_the_rest_of_a_cell_is_late_and_what_was_shown_is_not():
    late, sent = LateOutput(SimpleNamespace(metadata={})), reply(("ok", None), stdout="shown\n")
    sent.output = Future()
    late.note(4, sent)
    late.keep(sent, {"stdout": "shown\n", "stderr": ""})
    assert late.take() == {}
    write(sent, "rest\n")
    assert late.take() == {4: {"stdout": "rest\n", "stderr": ""}}
    write(sent, "end\n")
    sent.output.set_result(None)
    assert late.take() == {4: {"stdout": "end\n", "stderr": ""}}
    assert (late.take(), late._kept, late._seen) == ({}, {}, {})


def test_all_output_of_a_request_that_nobody_shows_is_late():
    late, sent = LateOutput(SimpleNamespace(metadata={})), reply(("ok", None), stdout="late\n")
    late.note(2, sent)
    late.keep(sent)
    late.keep(sent, {"stdout": "late\n", "stderr": ""})  # as ``finish`` does
    assert late.take() == {2: {"stdout": "late\n", "stderr": ""}}


def test_requests_of_long_ago_are_forgotten():
    late, _ = late_output(a="old\n")
    for number in range(NOTED):
        late.note(1, SimpleNamespace(msg_id=f"m{number}"))
    assert late.take() == {}


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", ""),
        ("a\nb\n", "a\nb\n"),
        ("trailing  \n", "trailing  \n"),
        ("50%\r100%", "100%"),
        ("abc\rX", "Xbc"),
        ("abc\b\bX", "aXc"),
        ("abc\x1b[2K\rX", "X"),
        ("abc\r\x1b[KX", "X"),
        ("a\nb\x1b[A\rX", "X\nb"),
        ("line\r\nnext\r\n", "line\nnext\n"),
        ("\x1b[32mgreen\x1b[0m", "\x1b[32mgreen\x1b[0m"),
        ("50%\r", "50%"),
    ],
)
def test_settle(text, seen):
    assert settle(text) == seen


def bars(steps, *, nested):
    """Let tqdm write bars; return all that it wrote."""
    stream = io.StringIO()
    # A bar that another test has left open would move this one to the next line.
    outer = {"desc": "outer", "position": 0, "mininterval": 0}
    for i in tqdm(range(steps), file=stream, ncols=60, **outer):
        if i == 1:
            tqdm.write("hello", file=stream)
        if nested:
            inner = {"desc": "inner", "position": 1, "leave": False, "mininterval": 0}
            for _ in tqdm(range(5), file=stream, ncols=60, **inner):
                pass
    return stream.getvalue()


@pytest.mark.parametrize("nested", [False, True])
def test_of_tqdm_one_finished_bar_is_left(nested):
    lines = settle(bars(20, nested=nested)).splitlines()
    assert lines[0] == "hello"
    assert lines[1].startswith("outer: 100%|")
    assert len(lines) == 2


PIECES = st.sampled_from(
    ["a", "bc ", "\n", "\r", "\r\n", "\b", "\x1b[A", "\x1b[2A", "\x1b[K", "\x1b[2K", "\x1b[31m"]
)


@given(st.lists(PIECES, max_size=40), st.data())
@settings(max_examples=300, deadline=None)
@example(["a", "\r", "\n", "b"], None)
@example(["\n", "a", "bc ", "bc ", "\x1b[2A", "\x1b[31m", "a"], None)
@example(["a", "\x1b[A", "\x1b[A", "\x1b[2K", "\x1b[31m", "a"], None)
@example(["\r", "a", "\x1b[31m", " ", "b"], None)
def test_it_does_not_matter_in_which_pieces_a_text_comes(pieces, data):
    text = "".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text))))) if data else range(len(text))
    screen = Screen()
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        screen.write(text[begin:end])
        str(screen)
    # Spaces at the end of a line that was written over are not to be seen.
    lines, whole = plain(str(screen)).split("\n"), plain(settle(text)).split("\n")
    assert [line.rstrip() for line in lines] == [line.rstrip() for line in whole]


def test_a_long_text_is_not_drawn_again_with_every_piece():
    screen = Screen()
    for i in range(20_000):
        screen.write(f"line {i}\n")
    assert screen._open.count("\n") < REACH + 1
    assert str(screen).count("\n") == 20_000


def test_a_long_line_is_not_read_again_with_each_of_its_dots(monkeypatch):
    read = []
    original = Screen._take
    monkeypatch.setattr(Screen, "_take", lambda self: (read.append(1), original(self)))
    screen = Screen()
    for _ in range(20_000):
        screen.write(".")
    assert str(screen) == "." * 20_000
    assert len(read) < 50


# -- what is collected of a reply -------------------------------------------------------------


def message(kind, **content):
    return {"header": {"msg_type": kind}, "content": content}


def test_streams_are_kept_apart_and_settled():
    seen = Output()
    for name, text in [
        ("stdout", "a\n"),
        ("stderr", "50%"),
        ("stdout", "b\n"),
        ("stderr", "\r99%"),
    ]:
        seen.note(message("stream", name=name, text=text))
    assert (seen.text("stdout"), seen.text("stderr")) == ("a\nb\n", "99%")


def test_bundles_come_with_their_metadata():
    seen = Output()
    image = {"data": {"image/png": "iVBO"}, "metadata": {"image/png": {"width": 9}}}
    seen.note(message("display_data", **image, transient={"display_id": "x"}))
    seen.note(message("execute_result", **image, execution_count=3))
    seen.note(message("status", execution_state="idle"))
    assert seen.displays == [image]
    assert seen.result == image


def test_it_is_there_before_the_request_is_sent():
    class Future:
        def __init__(self):
            self.iopub_callbacks = []

    class Client:
        def create_message_futures(self, *args, **kwargs):
            return [Future(), "output"]

    client = Client()
    collect(client)
    future, _ = client.create_message_futures("id", {}, async_result=True)
    (callback,) = future.iopub_callbacks
    callback(message("stream", name="stdout", text="first"))
    assert future.labkit_output.text("stdout") == "first"


def test_reading_while_it_comes_loses_nothing():
    seen = Output()
    lines = [f"line {i}\n" for i in range(5000)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        writer = threading.Thread(
            target=lambda: [seen.note(message("stream", name="stdout", text=t)) for t in lines]
        )
        writer.start()
        while writer.is_alive():
            assert "".join(lines).startswith(seen.text("stdout"))
        writer.join()
    finally:
        sys.setswitchinterval(before)
    assert seen.text("stdout") == "".join(lines)


def test_much_output_is_not_left_to_the_collector(monkeypatch):
    collections = []
    monkeypatch.setattr(output.gc, "collect", lambda: collections.append(1))
    monkeypatch.setattr(output, "_collected", 0)
    seen = Output()
    for kind, content in [
        ("stream", {"name": "stdout", "text": "x" * (output.GARBAGE // 2)}),
        ("display_data", {"data": {"image/png": "x" * output.GARBAGE}, "metadata": {}}),
    ]:
        output.tidy()
        assert collections == []
        seen.note(message(kind, **content))
    output.tidy()
    output.tidy()
    assert collections == [1]


def display(text, name=None, kind="display_data"):
    transient = {"display_id": name} if name else {}
    return message(kind, data={"text/plain": text}, metadata={}, transient=transient)


def texts_of(seen):
    return [bundle["data"]["text/plain"] for bundle in seen.displays]


def test_clear_output_clears_now_or_when_the_next_output_comes():
    for wait in (False, True):
        seen = Output()
        for name in ("stdout", "stderr"):
            seen.note(message("stream", name=name, text="old"))
        seen.note(display("old"))
        seen.note(message("clear_output", wait=wait))
        assert (seen.text("stdout"), texts_of(seen)) == (("old", ["old"]) if wait else ("", []))
        seen.note(display("unseen", "elsewhere", kind="update_display_data"))  # is no output
        assert (seen.text("stderr"), texts_of(seen)) == (("old", ["old"]) if wait else ("", []))
        seen.note(message("stream", name="stdout", text="new"))
        assert (seen.text("stdout"), seen.text("stderr"), texts_of(seen)) == ("new", "", [])
    seen.note(message("clear_output", wait=True))
    seen.note(display("42", kind="execute_result"))
    assert seen.text("stdout") == ""
    assert seen.result["data"]["text/plain"] == "42"


def test_an_update_changes_the_displays_of_its_name():
    seen = Output()
    for text, name in [("a", "x"), ("b", "y"), ("c", None), ("d", "x")]:
        seen.note(display(text, name))
    assert texts_of(seen) == ["d", "b", "c", "d"]
    seen.note(display("new", "x", kind="update_display_data"))
    seen.note(display("later", "z", kind="update_display_data"))
    assert texts_of(seen) == ["new", "b", "c", "new"]
    outcome = seen.outcome(3)
    assert outcome.names == ["x", "y", "", "x"]
    assert outcome.updates["z"]["data"] == {"text/plain": "later"}
    assert seen.shown() == "new\nb\nc\nnew"
