"""The Timeline: what every rank did and when, what it adds up to, and how it is recorded."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from ...base.errors import UsageError
from ...base.rank_names import fold, label
from ...runtime import request
from ...runtime.follow import Finished
from ...runtime.process_group import GroupManager
from ...runtime.request import values
from ...wire import recording, remote_calls
from ...wire.recording import CONTINUED, KINDS, WORK, Recording, Span
from . import merge, trace

if TYPE_CHECKING:
    from ...figures import Picture
    from .figure import Part


@dataclass(frozen=True)
class Cell:
    """The text of a cell, to be run among the variables of the ranks' cells."""

    text: str
    name: str  #: in errors: ``In[7]``


def record(
    group: GroupManager,
    ranks: Sequence[int],
    what: Callable[..., Any] | Cell,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    run: Callable[[request.Request], Finished],
) -> Timeline:
    """Run a function (with these arguments) or a cell on some ranks and record it.

    Parameters
    ----------
    run
        Waits for what was sent, and raises what went wrong.

    Raises
    ------
    RankError
        What it raises on the ranks; there is no timeline then.
    """
    fn = None if isinstance(what, Cell) else what
    if isinstance(what, Cell):
        args = (what.text, what.name)
    places = group.cluster.places
    hosts = {rank: places[rank].host for rank in ranks}
    key = f"labkit/notebook/timeline/{uuid.uuid4().hex}"
    asked = remote_calls.record(fn, tuple(args), dict(kwargs or {}), key, hosts)
    payload = cloudpickle.dumps((remote_calls.on_rank, (asked,), {}))
    return Timeline(values(run(request.call(group, ranks, payload)).outcomes))


class Timeline:
    """What every rank did and when, on one clock. Made by ``lab.timeline(…)``.

    A notebook shows it as a figure.

    Attributes
    ----------
    ranks
        The ranks that recorded.
    spans
        A :class:`Span` for each thing that a rank did or waited for, by rank and start.
    clock_error
        How far apart, at most, two moments may be that seem to be one, in seconds: microseconds
        on one host; between hosts half the shortest round trip of a message more.
    notes
        What is left out or uncertain, one sentence each; empty as a rule.
    """

    def __init__(self, recordings: Sequence[Recording]) -> None:
        recordings = sorted(recordings, key=lambda r: r.rank)
        self.ranks = [r.rank for r in recordings]
        self.spans = merge.merge(recordings)
        self.clock_error = max(r.error for r in recordings) / 1e9
        told: dict[str, list[int]] = {}
        for r in recordings:
            for note in r.notes:
                told.setdefault(note, []).append(r.rank)
        self.notes = [f"{label(ranks).capitalize()}: {note}" for note, ranks in told.items()]
        self._recordings = recordings
        self._zero = merge.begin(recordings)

    # -- what it adds up to -------------------------------------------------------------------

    def seconds(self, kind: str | None = None, rank: int | None = None) -> float:
        """Return how long a kind of span lasted on a rank, or on all ranks together.

        Time in which several spans of that kind overlap counts once. Without a kind: how long the
        recording is, from the moment in which the code began on a rank to its end there.
        """
        if kind is None:
            chosen = [r for r in self._recordings if r.rank in self._chosen(rank)]
            return sum(r.stop - r.start for r in chosen) / 1e9
        if kind not in KINDS:
            raise UsageError(f"The kinds of a timeline are {', '.join(KINDS)}, not {kind!r}.")
        return sum(recording.length(self._stretches(kind, r)) for r in self._chosen(rank))

    def share(self, kind: str, rank: int | None = None) -> float:
        """Return the share of a rank's time that a kind takes, 0 to 1; of all ranks' time if None.

        That is ``seconds(kind, rank) / seconds(rank=rank)``. Kinds overlap, so their shares may
        add up to more than 1: a rank communicates *while* it computes.
        """
        part, whole = self.seconds(kind, rank), self.seconds(rank=rank)
        return part / whole if whole else 0.0

    def overlap(self, rank: int | None = None) -> float:
        """Return the share of communication that is hidden, 0 to 1: the time in which the rank
        communicates and its main thread does not stand still for it. Of all ranks if None.

        0 if nothing was communicated.
        """
        talk = shown = 0.0
        for r in self._chosen(rank):
            talking = self._stretches("communication", r)
            talk += recording.length(talking)
            shown += recording.length(recording.common(talking, self._stretches("blocked", r)))
        return (talk - shown) / talk if talk else 0.0

    def _chosen(self, rank: int | None) -> list[int]:
        if rank is not None and rank not in self.ranks:
            raise UsageError(f"This timeline is of {label(self.ranks)}; it has no rank {rank!r}.")
        return self.ranks if rank is None else [rank]

    def _stretches(self, kind: str, rank: int) -> list[recording.Interval]:
        return self._by_kind.get((rank, kind), [])

    @cached_property
    def _by_kind(self) -> dict[tuple[int, str], list[recording.Interval]]:
        found: dict[tuple[int, str], list[recording.Interval]] = {}
        for span in self.spans:
            found.setdefault((span.rank, span.kind), []).append((span.start, span.stop))
        return found

    # -- show and save ------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the timeline as a file, whole or not at all; its folder is made if there is none.

        Parameters
        ----------
        path
            Its ending says what: ``.html`` is a page to zoom into, for a browser, which needs
            nothing else; ``.png`` and ``.svg`` are the figure; ``.json`` and ``.json.gz`` are a
            trace that https://ui.perfetto.dev and chrome://tracing open, with torch's own events.
            An older file is replaced.

        Raises
        ------
        UsageError
            If it has another ending.
        DataError
            If it cannot be written.

        Examples
        --------
        >>> timeline = lab.timeline("train(model)")  # doctest: +SKIP
        >>> timeline.save("step.html")  # doctest: +SKIP
        """
        from ...figures.picture import write
        from . import page  # with all figures

        name = Path(path).name
        if name.endswith((".png", ".svg")):
            self.picture().save(path)
        elif name.endswith(".html"):
            write(path, page.page(self.spans, self._durations(), self.describe()))
        elif name.endswith((".json", ".json.gz")):
            zipped = name.endswith(".gz")
            write(path, trace.trace(self.spans, self._recordings, self._zero, compress=zipped))
        else:
            endings = ".html, .png, .svg, .json or .json.gz"
            raise UsageError(f"A timeline is saved as {endings}, not as {name!r}.")

    def picture(self) -> Picture:
        """Draw it."""
        from .figure import draw

        return draw([self._part("")], self.describe())

    def compare(self, other: Timeline, names: Sequence[str]) -> Picture:
        """Draw another timeline below this one, on the same scale of time.

        Parameters
        ----------
        other
            The lower one.
        names
            What each of the two shows.

        Raises
        ------
        UsageError
            If there are not two names.

        Examples
        --------
        >>> first.compare(second, ("one bucket", "two buckets"))  # doctest: +SKIP
        """
        from .figure import draw

        if len(names) != 2:
            raise UsageError(f"A pair of timelines has two names, not {len(names)}.")
        pair = (self, other)
        texts = [f"{name}: {t.describe()}" for name, t in zip(names, pair, strict=True)]
        parts = [t._part(name) for name, t in zip(names, pair, strict=True)]
        return draw(parts, "\n".join(texts))

    def _part(self, title: str) -> Part:
        from .figure import Part

        return Part(title, self.spans, self._durations())

    def _durations(self) -> dict[int, float]:
        return {rank: self.seconds(rank=rank) for rank in self.ranks}

    def describe(self) -> str:
        """Return what the ranks did, in words and counts that are the same in every run."""
        texts = {rank: self._counts(rank) for rank in self.ranks}
        lines = [f"Timeline of {label(self.ranks)}"]
        lines += [f"{label(ranks)}: {text}" for ranks, text in fold(texts)]
        return "\n".join([*lines, *self.notes])

    def _counts(self, rank: int) -> str:
        """Count what a rank did. Not zero_grad and losses: they belong to a step and a forward.
        Nor what goes on after a pause of a GPU, or what was waited for: that is different each
        time."""
        mine = [s for s in self.spans if s.rank == rank]
        counts = Counter(s.kind for s in mine if s.kind in WORK and not _is_part(s))
        parts = [f"{counts[kind]} × {kind}" for kind in WORK if counts[kind]]
        talk = Counter(s.name for s in mine if s.kind == "communication")
        parts += [f"{count} × {name}" for name, count in sorted(talk.items())]
        return ", ".join(parts) or "nothing that a timeline shows"

    def __repr__(self) -> str:
        return self.describe()

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.picture()._repr_mimebundle_()


def _is_part(span: Span) -> bool:
    return span.name == "loss" or span.name.endswith((".zero_grad", CONTINUED))
