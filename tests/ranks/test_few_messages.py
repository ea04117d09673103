"""What ranks send about a cell, and that its output and its AsyncResult lose nothing by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import labkit
from labkit.launch import ipyparallel_internals
from labkit.rank.streams import BURST
from labkit.wire import protocol, remote_calls
from tests.support.cells import inside, run_cell, send_cell
from tests.support.events import HANG_SECONDS


@pytest.fixture
def heard(lab4: Any) -> Iterator[list[list[str]]]:
    """The kinds of messages that came of each request beside its reply, in order.

    Not of questions on the control channel, which ranks are asked if a cell takes its time. The
    last message, that the rank is idle, is left out: it ends the request, and ipyparallel may call
    nobody with it.
    """
    client = lab4.client
    original = client.create_message_futures
    requests: list[list[str]] = []

    def kind_of(message: dict[str, Any]) -> list[str]:
        is_last = message["content"].get("execution_state") == "idle"
        return [] if is_last else [message["header"]["msg_type"]]

    def listen(future: Any) -> None:
        if future.header["msg_type"] not in ("execute_request", "apply_request"):
            return
        kinds: list[str] = []
        requests.append(kinds)
        ipyparallel_internals.on_output(future, lambda m: kinds.extend(kind_of(m)))

    ipyparallel_internals.on_new_future(client, listen)
    yield requests
    client.create_message_futures = original


def test_a_cell_without_output_costs_its_reply_alone(lab4, heard):
    run_cell(lab4, "a = 1")
    assert heard == [[]] * 4


def test_so_does_a_call_and_what_labkit_asks(lab4, heard):
    assert lab4.run(lambda: 1) == [1] * 4
    lab4["b"] = 2
    assert lab4["b"] == [2] * 4
    inside(lab4).cluster.remote_call(dict.fromkeys(lab4.engine_ids, remote_calls.describe()))
    assert heard == [[]] * 16


def test_a_call_that_prints_or_fails_is_told_to_the_end(lab4, heard, capsys):
    lab4.run(lambda: print("from a call"), ranks=[1])
    assert heard[0][:1] == ["stream"]
    assert "from a call" in capsys.readouterr().out
    with pytest.raises(labkit.RankError, match="ZeroDivisionError"):
        lab4.run(lambda: 1 / 0, ranks=[2])


def test_the_controller_can_still_be_asked_what_waits_and_what_is_done(lab4, eventually, gate):
    client = lab4.client

    def are(kind: str) -> list[bool]:
        """Tell which engines have their request there."""
        status = client.queue_status(verbose=True)
        queues = [status[engine][kind] for engine in lab4.engine_ids]
        return [msg_id in q for msg_id, q in zip(sent.result.msg_ids, queues, strict=True)]

    sent = send_cell(lab4, f"if rank < 2:\n    {gate.wait}")
    eventually(lambda: are("queue") == [True, True, False, False])
    eventually(lambda: are("completed") == [False, False, True, True])
    gate.open()
    assert sent.result.wait(HANG_SECONDS)
    eventually(lambda: all(are("completed")))
    assert not any(are("queue"))
    assert client.result_status(sent.result.msg_ids)["completed"] == sent.result.msg_ids


def test_an_async_result_says_what_the_original_says(lab4):
    code = "print('x', rank)\nrank"
    ours = send_cell(lab4, code).result
    original = lab4.client[:].execute(code, silent=False, block=False)
    for result in (ours, original):
        result.wait_for_output(HANG_SECONDS)
    own = {"msg_id", "submitted", "started", "completed", "received", protocol.CELL_TIME}
    for a, b in zip(ours.metadata, original.metadata, strict=True):
        assert {k: v for k, v in a.items() if k not in own | {"execute_result"}} == {
            k: v for k, v in b.items() if k not in own | {"execute_result"}
        }
        assert a["execute_result"]["data"] == b["execute_result"]["data"]
        assert a["started"].utcoffset() == b["started"].utcoffset()
    assert 0 < ours.serial_time < ours.elapsed * 4
    empty = send_cell(lab4, "a = 1").result
    assert empty.wait_for_output(HANG_SECONDS)
    assert [m["execute_input"] for m in empty.metadata] == ["a = 1"] * 4
    assert [m["engine_id"] for m in empty.metadata] == lab4.engine_ids


def test_requests_are_run_in_the_order_in_which_they_were_sent(lab4):
    lab4["seen"] = []
    view = lab4.client[:]
    assert lab4["seen"] == [[]] * 4
    for number in range(0, 20, 2):
        send_cell(lab4, f"seen.append({number})")
        view.execute(f"seen.append({number + 1})", block=False)
    assert lab4["seen"] == [list(range(20))] * 4


def test_a_cell_after_one_that_flushed_all_the_time_loses_nothing(lab4):
    run_cell(lab4, f"for i in range({BURST + 10}):\n    print(flush=True)", [0])
    for _ in range(3):
        assert run_cell(lab4, "print('a')\nprint('b', flush=True)", [0])[0].stdout == "a\nb\n"


def test_what_c_code_writes_last_is_there(monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # where it is set, ipykernel does not look for it
    code = "import os\n_ = os.write({}, b'from C\\n')"
    with labkit.start(2) as lab:
        for number in (1, 2) * 5:
            written = [o.stdout + o.stderr for o in run_cell(lab, code.format(number))]
            assert written == ["from C\n"] * 2
