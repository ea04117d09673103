"""Text that writes over itself, as a terminal shows it."""

import io
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tqdm import tqdm

from labkit.runtime.output import REACH, Screen, settle


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
    stock = Screen._take
    monkeypatch.setattr(Screen, "_take", lambda self: (read.append(1), stock(self)))
    screen = Screen()
    for _ in range(20_000):
        screen.write(".")
    assert str(screen) == "." * 20_000
    assert len(read) < 50
