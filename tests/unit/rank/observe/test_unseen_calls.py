"""A collective of C++ is known by the call of Python during which it was issued."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.deadlock.message import describe
from labkit.rank.observe import call_details, device, device_wait, flight_recorder, unseen_calls
from labkit.rank.observe.unseen_calls import FORWARD, Call, find, noting
from labkit.rank.torch_internals.recorder import Issued
from labkit.wire.samples import Entry

CELL = ("cell-8", 14)


class Group:
    group_name = "0"


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> deque[Call]:
    monkeypatch.setattr(unseen_calls, "made", found := deque[Call](maxlen=4))
    return found


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (9, None),
        (10, FORWARD),
        (20, FORWARD),
        (25, None),
        (31, "inner"),
        (35, "outer"),
        (99, "now"),
    ],
)
def test_the_innermost_call_at_a_moment_is_found(
    made: deque[Call], moment: int, expected: str | None
) -> None:
    made.extend([Call(FORWARD, None, 10, 20), Call("outer", None, 30, 40)])
    made.extend([Call("inner", None, 31, 33), Call("now", None, 50)])
    call = find(moment)
    assert (call and call.name) == expected


def test_a_call_is_noted_from_its_begin_to_its_end_whatever_happens(made: deque[Call]) -> None:
    def backward(fail: bool) -> int:
        assert made[-1].stop is None
        return 1 // (not fail)

    noted = noting("backward", backward)
    assert noted(fail=False) == 1
    with pytest.raises(ZeroDivisionError):
        noted(True)
    assert [(c.name, c.start <= (c.stop or 0)) for c in made] == [("backward", True)] * 2


@pytest.mark.parametrize("within", [False, True])
def test_a_bucket_that_waits_on_a_gpu_is_named_by_its_backward(
    made: deque[Call], monkeypatch: pytest.MonkeyPatch, within: bool
) -> None:
    group, key = Group(), ("0", (0, 1))
    entry = Issued("0", 45, 45, "nccl:all_reduce", 15, False, ((547,),), ("Float",), False, "nccl")
    made.append(Call("backward", CELL, 10, 20))
    for owner, name, value in (
        (device, "pending", lambda: ((key, 45),)),
        (device, "pending_messages", tuple),
        (device_wait.groups, "members", lambda: {group: {0: 0, 1: 1}}),
        (device_wait.blocked_call, "gives_up", lambda _: False),
        (flight_recorder, "entries", lambda: [entry]),
        (call_details, "calls", {}),
        (call_details, "describe", lambda place: (f"In[8], line {place[1]}", "step()")),
        (device_wait.tracebacks, "innermost", lambda _: ("In[8], line 15", "x.item()")),
    ):
        monkeypatch.setattr(owner, name, value)
    frame: Any = SimpleNamespace() if within else None
    wait = device_wait.describe(frame)
    assert wait is not None
    shown = Entry(number=45, name="all_reduce", shapes=((547,),), types=("Float",), done=False)
    assert describe(wait, shown) == "all_reduce (float32 [547], collective 45) of backward"
    if within:
        assert (wait.issued, wait.where) == ("In[8], line 14", "In[8], line 15")
    else:
        assert (wait.issued, wait.where, wait.line) == ("", "In[8], line 14", "step()")
