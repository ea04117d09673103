"""Text that cannot be encoded is written out, and nothing else is changed."""

from __future__ import annotations

import io
import json
import sys

import pytest
from jupyter_client.session import json_packer

from labkit.wire import texts


@pytest.mark.parametrize(
    ("text", "seen"), [("ü→😀\n", "ü→😀\n"), ("a\ud800b", "a\\ud800b"), ("\udcff", "\\udcff")]
)
def test_lone_surrogates_are_written_out(text: str, seen: str) -> None:
    assert texts.encodable(text) == seen


def test_a_message_with_any_text_is_packed() -> None:
    message = {"k\udc80": ["a\ud800", {"b": ("ü", 1, None, True)}]}
    packed = texts.packer(json_packer)(message)
    assert json.loads(packed) == {"k\\udc80": ["a\\ud800", {"b": ["ü", 1, None, True]}]}
    fine = {"text": "ü→", "n": [1.5, "x"]}
    assert texts.packer(json_packer)(fine) == json_packer(fine)


def test_a_stream_of_plain_ascii_shows_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii"))
    texts.sanitize_streams()
    print("ranks 0–3: ü \ud800 … →", flush=True)
    assert raw.getvalue() == b"ranks 0-3: \\xfc \\ud800 ... ->\n"


@pytest.mark.parametrize(("encoding", "errors"), [("utf-8", "strict"), ("ascii", "replace")])
def test_other_streams_are_left_as_they_are(
    monkeypatch: pytest.MonkeyPatch, encoding: str, errors: str
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding, errors)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", None)
    texts.sanitize_streams()
    assert stream.errors == errors
