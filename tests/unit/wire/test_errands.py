"""Errands: called like functions, carried like values, and served by what has their signature."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import pytest

from labkit.rank import setup as on_ranks
from labkit.wire import errands
from labkit.wire.errands import Call, Errand, on_rank

assert on_ranks  # which says what serves them, here too


def test_a_call_is_a_value_that_travels() -> None:
    call = errands.open_store("127.0.0.1", timeout=3.0)
    assert call == Call("open_store", ("127.0.0.1",), {"timeout": 3.0})
    assert pickle.loads(pickle.dumps(call)) == call


def test_a_call_runs_where_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errands.pull, "implementation", lambda name: f"value of {name}")
    assert on_rank(errands.pull("x")) == "value of x"
    assert on_rank(errands.pull(name="x")) == "value of x"


@pytest.mark.parametrize("name", Errand.all)
def test_what_serves_an_errand_has_its_signature(name: str) -> None:
    """mypy compares the types; the names of the arguments count too, and what may be left out."""
    served = Errand.all[name]
    assert served.implementation is not None
    ours, theirs = inspect.signature(served), inspect.signature(served.implementation)
    assert ours.parameters.keys() == theirs.parameters.keys()
    assert [p.default for p in ours.parameters.values()] == [
        p.default for p in theirs.parameters.values()
    ]


def test_every_errand_is_in_the_module_under_its_name() -> None:
    found = {name: e for name, e in vars(errands).items() if isinstance(e, Errand)}
    assert found == Errand.all


def test_an_errand_that_nobody_serves_is_named() -> None:
    with pytest.raises(LookupError, match=r"^no errand 'older' here: .* same version of labkit$"):
        on_rank(Call("older", (), {}))


def test_the_notebook_serves_none() -> None:
    code = "from labkit.wire import errands; errands.on_rank(errands.leave())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "LookupError: no errand 'leave' here" in done.stderr
