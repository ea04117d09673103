"""What comes when nobody waits for it is found once, and whose it is."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from labkit.runtime.output import NOTED, LateOutput
from tests.support.requests import reply


def late_output(**over: str) -> tuple[LateOutput, dict[str, Any]]:
    """Return what is late, and ipyparallel's record of requests that are over."""
    metadata: dict[str, Any] = {"submitted": "a date, by ipyparallel's mistake"}
    metadata |= {name: record(text) for name, text in over.items()}
    made = LateOutput(SimpleNamespace(metadata=metadata))
    for engine, name in enumerate(over):
        made.note(engine, SimpleNamespace(msg_id=name))
    return made, metadata


def record(stdout: str, submitted: object = None) -> dict[str, Any]:
    return {"submitted": submitted, "stdout": stdout, "stderr": ""}


def write(future: Any, text: str) -> None:
    content = {"name": "stdout", "text": text}
    future.labkit_output.note({"header": {"msg_type": "stream"}, "content": content})


def test_what_is_new_comes_once() -> None:
    late, metadata = late_output(a="one\n", b="two\n")
    assert late.take() == {
        0: {"stdout": "one\n", "stderr": ""},
        1: {"stdout": "two\n", "stderr": ""},
    }
    metadata["a"]["stdout"] += "more\n"
    assert late.take() == {0: {"stdout": "more\n", "stderr": ""}}
    assert late.take() == {}
    assert set(metadata) == {"submitted"}  # what is over does not add up


def test_a_request_that_is_out_is_not_late() -> None:
    late, metadata = late_output()
    metadata["a"] = record("its own\n", submitted="now")
    assert (late.take(), set(metadata)) == ({}, {"submitted", "a"})


def test_a_bar_that_has_written_over_itself_is_shown_anew() -> None:
    late, metadata = late_output(a="10 of 20\r")
    assert late.take()[0]["stdout"] == "10 of 20"
    metadata["a"]["stdout"] = "done\n"
    assert late.take()[0]["stdout"] == "done\n"


def test_the_rest_of_a_cell_is_late_and_what_was_shown_is_not() -> None:
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


def test_all_output_of_a_request_that_nobody_shows_is_late() -> None:
    late, sent = LateOutput(SimpleNamespace(metadata={})), reply(("ok", None), stdout="late\n")
    late.note(2, sent)
    late.keep(sent)
    late.keep(sent, {"stdout": "late\n", "stderr": ""})  # as ``finish`` does
    assert late.take() == {2: {"stdout": "late\n", "stderr": ""}}


def test_requests_of_long_ago_are_forgotten() -> None:
    late, _ = late_output(a="old\n")
    for number in range(NOTED):
        late.note(1, SimpleNamespace(msg_id=f"m{number}"))
    assert late.take() == {}
