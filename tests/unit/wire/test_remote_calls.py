"""Remote calls: called like functions, carried like values, and served by what has their
signature."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import pytest

from labkit.rank import setup as on_ranks
from labkit.wire import remote_calls
from labkit.wire.remote_calls import Call, RemoteFunction, on_rank

assert on_ranks  # which says what serves them, here too


def test_a_call_is_a_value_that_travels() -> None:
    call = remote_calls.open_store("127.0.0.1", timeout=3.0)
    assert call == Call("open_store", ("127.0.0.1",), {"timeout": 3.0})
    assert pickle.loads(pickle.dumps(call)) == call


def test_a_call_runs_where_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_calls.pull, "implementation", lambda name: f"value of {name}")
    assert on_rank(remote_calls.pull("x")) == "value of x"
    assert on_rank(remote_calls.pull(name="x")) == "value of x"


@pytest.mark.parametrize("name", RemoteFunction.all)
def test_what_serves_a_remote_call_has_its_signature(name: str) -> None:
    """mypy compares the types; the names of the arguments count too, and what may be left out."""
    served = RemoteFunction.all[name]
    assert served.implementation is not None
    ours, theirs = inspect.signature(served), inspect.signature(served.implementation)
    assert ours.parameters.keys() == theirs.parameters.keys()
    assert [p.default for p in ours.parameters.values()] == [
        p.default for p in theirs.parameters.values()
    ]


def test_every_remote_call_is_in_the_module_under_its_name() -> None:
    found = {name: e for name, e in vars(remote_calls).items() if isinstance(e, RemoteFunction)}
    assert found == RemoteFunction.all


def test_a_remote_call_that_nobody_serves_is_named() -> None:
    with pytest.raises(
        LookupError, match=r"^no remote call 'older' here: .* same version of labkit$"
    ):
        on_rank(Call("older", (), {}))


def test_the_notebook_serves_none() -> None:
    code = "from labkit.wire import remote_calls; remote_calls.on_rank(remote_calls.leave())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "LookupError: no remote call 'leave' here" in done.stderr
