"""What is drawn of watched variables, when ranks are asked for it, and what stays."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from labkit.base import times
from labkit.base.errors import LabError
from labkit.notebook import watch as module
from labkit.notebook.watch import MOST_KEPT, Line, Watch
from labkit.wire.requests import Curve, Curves
from tests.support.virtual_clock import VirtualClock
from tests.unit.notebook.test_board import text_of


class Ranks:
    """Two ranks that answer at once, unless one is silent or dead."""

    def __init__(self, monkeypatch):
        self.clock = VirtualClock()
        self.variables = [{}, {}]  # of each rank: curve -> values, or a number
        self.unreadable = {}
        self.silent, self.dead = set(), set()
        self.asked = []  # when, which rank
        monkeypatch.setattr(module.control, "post", self.post)
        monkeypatch.setattr(module.control, "ask", self.ask)
        monkeypatch.setattr(module, "shows_pictures", lambda: True)

    def answer(self, rank, question):
        curves = []
        for name, values in self.variables[rank].items():
            if name.partition("[")[0] not in question.names:
                continue
            if isinstance(values, list):
                source, count = question.known.get(name, (0, 0))
                count = count if source == id(values) else 0
                curves.append(Curve(name, tuple(values[count:]), count, 1, id(values)))
            else:
                curves.append(Curve(name, (values,)))
        return Curves(tuple(curves), self.unreadable)

    def post(self, cluster, rank, question):
        self.asked.append((self.clock.time, rank))
        if rank in self.dead:
            return None
        future = Future()
        if rank not in self.silent:
            future.set_result(None)
        answer = self.answer(rank, question)
        return SimpleNamespace(future=future, answer=lambda: answer)

    def ask(self, cluster, questions, within):
        there = {r: q for r, q in questions.items() if r not in self.silent | self.dead}
        return {rank: self.answer(rank, question) for rank, question in there.items()}


@pytest.fixture
def ranks(monkeypatch):
    monkeypatch.setattr(module, "is_watched", lambda: True)
    return Ranks(monkeypatch)


def watch(ranks, *names, of=(0, 1)):
    """Return what draws some variables of the ranks."""
    made = Watch()
    made.set(names, of, ranks)
    return made


def curves(panels):
    """Return the curves of some panels: name -> (x axis, ranks -> values)."""
    return {p.name: (p.xlabel, {tuple(n.ranks): list(n.ys) for n in p.lines}) for p in panels}


def run(ranks, watched, *steps, seconds=0.5):
    """Run a cell of some steps, each after its time, and return what draws it and what was
    shown."""
    sampling = watched.begin(ranks, [0, 1])
    shown = []
    for step in steps:
        step()
        shown.append(sampling.poll())
        ranks.clock.sleep(seconds)
        shown.append(sampling.poll())
    return sampling, [html for html in shown if html is not None]


# -- one curve ------------------------------------------------------------------------------------


def test_a_list_grows_and_begins_again():
    line = Line()
    line.add(Curve("losses", (1.0, 2.0), 0, 1, 7), 0.5)
    line.add(Curve("losses", (3.0,), 2, 1, 7), 1.0)
    line.add(Curve("losses", (), 3, 1, 7), 1.5)
    assert line.points() == ((0, 1, 2), (1.0, 2.0, 3.0))
    assert (line.source, line.count) == (7, 3)
    line.add(Curve("losses", (9.0,), 0, 1, 8), 2.0)  # another list
    assert line.points() == ((0,), (9.0,))
    line.add(Curve("losses", (4.0, 6.0), 1, 2, 8), 2.5)  # every second one
    assert line.points() == ((0, 1, 3), (9.0, 4.0, 6.0))
    assert line.count == 4
    line.add(Curve("losses", (), 0, 1, 8), 3.0)  # it was cleared
    assert line.points() == ((), ())


def test_a_curve_has_a_bound_and_keeps_its_newest_point():
    line = Line()
    for i in range(10 * MOST_KEPT):
        line.add(Curve("loss", (float(i),)), i / 2)
        assert len(line.ys) <= MOST_KEPT
        assert line.ys[-1] == i
    assert line.xs == sorted(line.xs)


# -- one cell -------------------------------------------------------------------------------------


def test_ranks_are_asked_twice_a_second_and_never_waited_for(ranks):
    ranks.silent.add(1)
    sampling = watch(ranks, "losses").begin(ranks, [0, 1])
    while ranks.clock.time < 3:
        sampling.poll()
        ranks.clock.sleep(times.TICK)
    when = [time for time, rank in ranks.asked if rank == 0]
    assert when == pytest.approx([0, 0.6, 1.2, 1.8, 2.4], abs=0.01)
    assert [rank for _, rank in ranks.asked].count(1) == 1  # it has not answered yet


def test_lists_are_drawn_against_the_index_and_numbers_against_the_time(ranks):
    losses = [[], []]
    ranks.variables = [{"losses": own, "step": 0} for own in losses]

    def step():
        losses[0].append(1.0)
        losses[1].append(2.0)
        for own in ranks.variables:
            own["step"] += 1

    watched = watch(ranks, "step", "losses")
    sampling, shown = run(ranks, watched, step, step, step)
    assert "losses rank 0 1 rank 1 2" in text_of(shown[-1])
    last = curves(sampling.panels())
    assert list(last) == ["step", "losses"]
    assert last["losses"] == ("index", {(0,): [1.0, 1.0], (1,): [2.0, 2.0]})
    assert last["step"] == ("seconds", {(0, 1): [1.0, 1.0, 2.0]})


def test_what_a_cell_leaves_as_it_was_is_not_drawn(ranks):
    ranks.variables = [{"losses": [1.0], "lr": 0.1}, {"losses": [1.0], "lr": 0.1}]
    watched = watch(ranks, "losses", "lr")
    sampling, shown = run(ranks, watched, lambda: None, lambda: None)
    assert not any(map(text_of, shown))
    assert not watched.finish(sampling, well=True).shows_more()
    ranks.variables[1]["losses"].append(2.0)
    sampling, _ = run(ranks, watched)
    assert watched.finish(sampling, well=True).picture.text == (
        "losses against the index: one curve per rank, on ranks 0–1."
    )
    sampling, _ = run(ranks, watched, lambda: None)
    assert sampling.panels() == []


def test_what_stays_of_a_list_does_not_depend_on_when_it_was_sampled(ranks):
    losses = []
    ranks.variables = [{"losses": losses}, {}]
    watched = watch(ranks, "losses")
    sampling, _ = run(ranks, watched, *[lambda: losses.append(1.0)] * 5)
    sampling.look_last()
    before = curves(sampling.panels())
    again = watch(ranks, "losses").begin(ranks, [0, 1])
    again._seen = {}
    again.look_last()
    assert curves(again.panels()) == before == {"losses": ("index", {(0,): [1.0] * 5})}


def test_a_rank_that_dies_keeps_the_curve_that_it_had(ranks):
    ranks.variables = [{"losses": [1.0]}, {"losses": [2.0]}]
    watched = Watch()
    watched.names, watched.ranks = ("losses",), (0, 1)
    sampling, _ = run(ranks, watched, lambda: None)
    ranks.dead.add(1)
    ranks.variables[0]["losses"].append(3.0)
    assert watched.finish(sampling, well=False).picture is not None
    assert curves(sampling.panels()) == {}  # drawn now
    watched._seen = sampling._seen = {}
    assert curves(sampling.panels())["losses"][1] == {(0,): [1.0, 3.0], (1,): [2.0]}


def test_without_anybody_to_look_on_only_lists_of_a_cell_that_ended_well_stay(ranks, monkeypatch):
    monkeypatch.setattr(module, "is_watched", lambda: False)
    ranks.variables = [{}, {}]
    watched = watch(ranks, "losses", "loss", "nothing")
    ranks.variables = [{"losses": [1.0], "loss": 1.0}, {"losses": [1.0], "loss": 2.0}]
    failed = watched.finish(watched.begin(ranks, [0, 1]), well=False)
    assert not failed.shows_more()
    ranks.variables[0]["losses"].append(1.0)
    last = watched.finish(watched.begin(ranks, [0, 1]), well=True)
    assert last.picture.text == "losses against the index: one curve per rank, on ranks 0–1."
    assert last.problems == []


def test_a_name_that_never_appears_is_said_once(ranks):
    ranks.unreadable = {"loss": "a tensor on cuda:0, which …: keep its .item()"}
    watched = watch(ranks, "lossse", "loss")
    sampling, shown = run(ranks, watched, lambda: None)
    assert text_of(shown[0]) == (
        "no variable lossse yetloss holds a tensor on cuda:0, which …: keep its .item()"
    )
    assert watched.finish(sampling, well=True).problems == [
        "lab.watch has found no variable lossse on ranks 0–1.",
        "lab.watch does not draw loss, which holds a tensor on cuda:0, which …: keep its .item().",
    ]
    sampling, _ = run(ranks, watched, lambda: None)
    assert watched.finish(sampling, well=True).problems == []


@pytest.mark.parametrize(("names", "of", "on"), [((), (0, 1), [0]), (("losses",), (1,), [0])])
def test_nothing_is_sampled_where_nothing_is_watched(ranks, names, of, on):
    assert watch(ranks, *names, of=of).begin(ranks, on) is None


def test_a_lost_controller_costs_the_last_look_and_nothing_else(ranks, monkeypatch):
    watched = watch(ranks, "losses")
    ranks.variables = [{"losses": [1.0]}, {}]
    sampling, _ = run(ranks, watched, lambda: None)

    def gone(*_):
        raise LabError("the controller has ended")

    monkeypatch.setattr(module.control, "ask", gone)
    assert watched.finish(sampling, well=False).picture is not None
