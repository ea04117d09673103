"""What a rank says of the variables that the notebook watches, without waiting for anything."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from labkit.rank import curves
from labkit.rank.curves import Unreadable, read_curve, read_number
from labkit.wire.requests import MOST_CURVES, MOST_POINTS, AskCurves


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        (np.float32(0.5), 0.5),
        (torch.tensor(2.5, requires_grad=True), 2.5),
        (torch.nn.Parameter(torch.tensor(1.5)), 1.5),
        (1.23456789, 1.23457),
        (math.nan, None),
        (-math.inf, None),
        (1e300, None),
        (1e-300, 0.0),
    ],
)
def test_numbers_and_tensors_without_dimensions_are_read(value, number):
    assert read_number(value) == number


class Sends(torch.Tensor):
    """Stands for a DTensor, which may run a collective when somebody looks at it."""

    def item(self):
        raise AssertionError("it was read")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (torch.zeros(2, 3), "a tensor of shape (2, 3) and torch.float32: keep numbers"),
        (torch.tensor(1j), "a tensor of shape () and torch.complex64: keep numbers"),
        (torch.tensor(1.0, device="meta"), "a tensor on meta, which is not read while a cell"),
        (torch.tensor(1.0).as_subclass(Sends), "a Sends: keep numbers"),
        ("0.3", "a str: keep numbers"),
        ([1.0], "a list: keep numbers"),
    ],
)
def test_what_is_no_number_says_why(value, why):
    with pytest.raises(Unreadable) as error:
        read_number(value)
    assert str(error.value).startswith(why)


def points(curve):
    """Return the places and values of a curve."""
    return [(curve.first + i * curve.every, value) for i, value in enumerate(curve.values)]


def test_only_what_is_new_of_a_list_is_sent():
    losses = [10.0 * i for i in range(5)]
    all_of_it = read_curve("losses", losses)
    assert points(all_of_it) == list(enumerate(losses))
    losses += [50.0, 60.0]
    new = read_curve("losses", losses, all_of_it.source, 5)
    assert points(new) == [(5, 50.0), (6, 60.0)]
    assert points(read_curve("losses", losses, all_of_it.source, 7)) == []


def test_another_list_and_one_that_was_cleared_are_sent_from_their_start():
    losses = [1.0, 2.0]
    assert points(read_curve("losses", [7.0, 8.0, 9.0], id(losses), 2))[0] == (0, 7.0)
    source = id(losses)
    losses.clear()
    losses.append(5.0)
    assert points(read_curve("losses", losses, source, 2)) == [(0, 5.0)]


def test_a_long_list_gives_a_few_of_its_values_and_always_the_last():
    length = 100 * MOST_POINTS + 7
    curve = read_curve("losses", list(range(length)))
    assert MOST_POINTS / 2 < len(curve.values) <= MOST_POINTS
    assert points(curve) == [(i, float(i)) for i in range(curve.first, length, curve.every)]
    assert curve.values[-1] == length - 1
    assert curve.first < curve.every


# -- which variable it is -------------------------------------------------------------------------


@pytest.fixture
def cells(monkeypatch):
    """The variables of the cells of a rank that is busy; this file counts as the user's."""
    names: dict[str, object] = {}
    monkeypatch.setattr(curves.tracebacks, "get_shell", lambda: SimpleNamespace(user_ns=names))
    monkeypatch.setattr(curves.sampler, "is_busy", lambda: True)
    monkeypatch.setattr(curves.sampler, "main_frame", lambda: sys._getframe(2))
    monkeypatch.setattr(
        curves.python_threads, "package", lambda file: "" if file == __file__ else "library"
    )
    yield names
    curves.forget()


def read(*names):
    """Return what of some variables can be drawn, and why others cannot."""
    answer = curves.read(AskCurves(names, {}))
    return {curve.name: list(curve.values) for curve in answer.curves}, dict(answer.unreadable)


def test_a_variable_of_the_function_that_runs_comes_before_that_of_the_cells(cells):
    cells["inner"] = cells["outer"] = cells["other"] = 1

    def train():
        outer = [2.0]
        return step(), outer

    def step():
        inner = 3.0
        return read("inner", "outer", "other", "nowhere"), inner

    (found, _), _ = train()
    assert found == ({"inner": [3.0], "outer": [2.0], "other": [1.0]}, {})


def test_the_list_of_a_function_that_has_ended_is_still_there_until_the_next_cell(
    cells, monkeypatch
):
    def train():
        losses = [1.0]
        read("losses")
        losses.append(2.0)

    train()
    monkeypatch.setattr(curves.sampler, "is_busy", lambda: False)
    assert read("losses") == ({"losses": [1.0, 2.0]}, {})
    curves.forget()
    assert read("losses") == ({}, {})


def test_a_dict_gives_a_curve_for_each_of_its_numbers_and_lists(cells):
    cells["history"] = {"train": [1.0, 2.0], 3: 4, "name": "first"}
    assert read("history") == ({"history['train']": [1.0, 2.0], "history[3]": [4.0]}, {})
    cells["history"] = {"name": "first"}
    assert read("history") == ({}, {"history": "a str: keep numbers"})
    cells["history"] = {i: i for i in range(100)}
    assert len(read("history")[0]) == MOST_CURVES


def test_a_function_that_is_debugged_is_left_alone(cells):
    """To look at its variables would undo what was set in the debugger just now."""

    def train():
        losses = [1.0]
        sys._getframe().f_trace = lambda *_: None
        return read("losses"), losses

    assert train()[0] == ({}, {})
