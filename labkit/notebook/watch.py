"""Draw variables of the ranks as curves while a cell runs: what ``lab.watch`` names.

Lists are drawn as they are; a number is sampled, so its curve says when somebody looked. Where
nobody looks on (nbval, papermill) nothing is sampled: one look when the cell has ended well gives
the last picture of the lists, the same one in every run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..base import times
from ..base.errors import LabError
from ..base.rank_names import fold, label
from ..runtime import control
from ..runtime.cluster import RankCluster
from ..wire.requests import MOST_POINTS, AskCurves, Curve, Curves
from . import pictures, shell
from .live import is_watched

if TYPE_CHECKING:
    from ..figures.curves import Panel
    from ..figures.picture import Picture

#: Variables that are drawn, panels of one picture, points of one curve.
MOST_NAMES, MOST_PANELS, MOST_KEPT = 4, 8, 2 * MOST_POINTS

#: A curve, and the rank that has it.
Key = tuple[str, int]
#: What of a curve is to be seen.
Points = tuple[tuple[float, ...], tuple[float | None, ...]]


@dataclass
class Line:
    """What is known of one curve of one rank."""

    xs: list[float] = field(default_factory=list)
    ys: list[float | None] = field(default_factory=list)
    source: int = 0  #: the list that it is of; 0: a number
    count: int = 0  #: values of the list that are known

    def add(self, new: Curve, seconds: float) -> None:
        """Add what a rank has answered so many ``seconds`` after the cell has begun."""
        if new.first is None:
            if self.source:
                self._restart(0)
            self.xs.append(seconds)
            self.ys += new.values
        else:
            if new.source != self.source or new.first < self.count:
                self._restart(new.source)
            last = new.first + new.every * len(new.values)
            self.xs += range(new.first, last, new.every)
            self.ys += new.values
            self.count = last - new.every + 1 if new.values else new.first
        if len(self.xs) > MOST_KEPT:
            self.xs, self.ys = self.xs[::-2][::-1], self.ys[::-2][::-1]

    def _restart(self, source: int) -> None:
        self.xs, self.ys, self.source, self.count = [], [], source, 0

    def points(self) -> Points:
        """Return what is to be seen."""
        return tuple(self.xs), tuple(self.ys)

    def moves(self) -> bool:
        """Return whether there is a curve: a list with a value, a number that has changed."""
        return bool(self.ys) if self.source else len(set(self.ys)) > 1


def shows_pictures() -> bool:
    """Return whether this is a notebook; a terminal or a script has no place for a curve."""
    return shell.of_notebook() is not None


def _variable(name: str) -> str:
    """Return the variable of a curve: of ``history['train']`` it is ``history``."""
    return name.partition("[")[0]


class Watch:
    """What a lab draws while its cells run.

    Attributes
    ----------
    names
        Variables of the ranks.
    ranks
        Of which ranks.
    """

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.ranks: tuple[int, ...] = ()
        self._seen: dict[Key, Points] = {}  # lists, as the last cell has left them
        self._unsaid: set[str] = set()

    def set(self, names: Sequence[str], ranks: Sequence[int], cluster: RankCluster) -> None:
        """Draw these from now on; what ranks have already is drawn when a cell changes it."""
        self.names, self.ranks = tuple(dict.fromkeys(names)), tuple(ranks)
        self._unsaid = set(self.names)
        self._seen = {}
        if names and shows_pictures():
            before = Sampling(self.names, self.ranks, cluster, {})
            before.look_last()
            self.note(before)

    def begin(self, cluster: RankCluster, ranks: Iterable[int]) -> Sampling | None:
        """Return what samples these variables while a cell runs on some ranks; None: nothing is
        watched there, or there is no page to draw on."""
        chosen = [rank for rank in ranks if rank in self.ranks]
        if not self.names or not chosen or not shows_pictures():
            return None
        return Sampling(self.names, chosen, cluster, self._seen)

    def note(self, sampling: Sampling) -> None:
        """Keep what a cell has left."""
        self._seen |= {k: line.points() for k, line in sampling.lines.items() if line.source}

    def finish(self, sampling: Sampling, *, well: bool) -> Last:
        """Look at the variables once more, and return what is to stay of them.

        ``well``: the cell has raised nothing. What an error leaves of a list differs from run to
        run, so it is drawn for somebody who looks on only.
        """
        sampling.look_last()
        looked_on = is_watched()
        panels = sampling.panels() if looked_on or well else []
        self.note(sampling)
        picture = None
        if panels:
            from ..figures.curves import as_picture

            picture = as_picture(panels)
        return Last(picture, self._problems(sampling) if looked_on else [])

    def _problems(self, sampling: Sampling) -> list[str]:
        """Return, of each variable once, why nothing of it was drawn."""
        said = []
        for name in (name for name in self.names if name in self._unsaid):
            if why := sampling.unreadable.get(name):
                said.append(f"lab.watch does not draw {name}, which holds {why}.")
            elif name not in sampling.found:
                said.append(f"lab.watch has found no variable {name} on {label(sampling.ranks)}.")
        self._unsaid.clear()
        return said


@dataclass(frozen=True)
class Last:
    """What stays of the watched variables when the cell has ended."""

    picture: Picture | None = None
    problems: Sequence[str] = ()

    def shows_more(self) -> bool:
        """Return whether there is something to show."""
        return self.picture is not None or bool(self.problems)

    def show(self) -> None:
        """Show it below the output of the cell."""
        if self.picture is not None:
            from IPython.display import display

            display(self.picture)
        for problem in self.problems:
            print(f"labkit: {problem}")


class Sampling:
    """The watched variables of some ranks while one cell runs.

    ``seen`` has the lists as earlier cells have left them: they are not drawn again.
    """

    def __init__(
        self,
        names: Sequence[str],
        ranks: Sequence[int],
        cluster: RankCluster,
        seen: Mapping[Key, Points],
    ) -> None:
        self.names, self.ranks = tuple(names), list(ranks)
        self.lines: dict[Key, Line] = {}
        self.found: set[str] = set()  #: variables that some rank had
        self.unreadable: dict[str, str] = {}
        self._cluster, self._clock = cluster, cluster.clock
        self._seen = seen
        self._posted: dict[int, control.Posted[Curves]] = {}
        self._began = self._due = self._clock.now()
        self._html = ""

    # -- while it runs ----------------------------------------------------------------------

    def poll(self) -> str | None:
        """Take in what ranks have answered, and ask them again when it is time; never wait.

        Returns the curves as HTML if something is new.
        """
        done = [rank for rank, posted in self._posted.items() if posted.future.done()]
        for rank in done:
            try:
                answer = self._posted.pop(rank).answer()
            except Exception:  # it has died, or is of another version
                continue
            self.take(rank, answer)
        if self._clock.now() >= self._due:
            self._due = self._clock.now() + times.PICTURES
            for rank in self.ranks:
                if rank not in self._posted:
                    posted_now = control.post(self._cluster, rank, self._question(rank))
                    if posted_now is not None:
                        self._posted[rank] = posted_now
        before = self._html
        self._html = self.as_html() if done else before
        return None if self._html == before else self._html

    def _question(self, rank: int) -> AskCurves:
        known = {
            name: (line.source, line.count)
            for (name, of), line in self.lines.items()
            if of == rank and line.source
        }
        return AskCurves(self.names, known)

    def take(self, rank: int, answer: Curves) -> None:
        """Add what a rank has answered."""
        seconds = self._clock.now() - self._began
        self.unreadable |= answer.unreadable
        for curve in answer.curves:
            name = _variable(curve.name)
            self.found.add(name)
            self.unreadable.pop(name, None)
            self.lines.setdefault((curve.name, rank), Line()).add(curve, seconds)

    # -- when it has ended ------------------------------------------------------------------

    def look_last(self) -> None:
        """Ask every rank once more for all of it: the curve of a list is the same however often it
        was sampled. One that does not answer, or has it no more, keeps what it had."""
        questions = dict.fromkeys(self.ranks, AskCurves(self.names, {}))
        answers: dict[int, Curves] = {}
        with contextlib.suppress(LabError):  # the controller has ended, or a version is another
            answers = control.ask(self._cluster, questions, times.QUICK_ANSWER)
        for rank, answer in answers.items():
            for curve in answer.curves:
                if curve.first is not None:
                    self.lines.pop((curve.name, rank), None)
            self.take(rank, answer)

    # -- what is to be seen -----------------------------------------------------------------

    def panels(self) -> list[Panel]:
        """Return the curves that this cell has changed, each with those of all ranks."""
        from ..figures.curves import Line as Drawn
        from ..figures.curves import Panel

        names = sorted(
            dict.fromkeys(name for name, _ in self.lines),
            key=lambda name: self.names.index(_variable(name)),
        )
        found = []
        for name in names:
            lines = {rank: line for (of, rank), line in self.lines.items() if of == name}
            shown = {rank: line.points() for rank, line in lines.items() if line.moves()}
            if not any(points != self._seen.get((name, rank)) for rank, points in shown.items()):
                continue
            sampled = not all(line.source for line in lines.values())
            drawn = [Drawn(ranks, *points) for ranks, points in fold(shown)]
            found.append(Panel(name, "seconds" if sampled else "index", drawn))
        return found[:MOST_PANELS]

    def as_html(self) -> str:
        """Return the curves so far as HTML, and which variables are not there yet."""
        from ..figures.curves import as_svg

        html = pictures.row([as_svg(panel) for panel in self.panels()])
        for name in self.names:
            if why := self.unreadable.get(name):
                html += pictures.note(f"{name} holds {why}")
            elif name not in self.found:
                html += pictures.note(f"no variable {name} yet")
        return html
