"""Draw what ranks print and do, as HTML without a script: one line per rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

from ..base import times
from ..base.rank_names import fold, fold_begun, label
from ..deadlock import message
from ..deadlock.cause import likely_cause
from ..runtime.watchdog import Suspicion
from ..wire.state import RankState
from . import show

#: Lines of output that are shown at a time, and characters at the end of a rank's text that can
#: have them.
LINES, TAIL = 24, 8192
#: Follows the theme in JupyterLab; the second colour is for other front ends.
_GREY = "color: var(--jp-ui-font-color2, #757575)"
#: As JupyterLab sets text output, so that nothing moves when that takes its place.
_SMALL = f"font-family: {show.FONT}; font-size: 90%; line-height: 1.5"
#: Shapes, for colours belong to ranks; what needs help is red.
_MARKS = {"running": "▶", "waiting": "Ⅱ", "idle": "○", "asking": "?"}
_ALARM = "var(--jp-error-color1, #D32F2F)"

#: What a rank has printed so far, by rank.
Texts = Mapping[int, str]


def output_html(out: Texts, err: Texts) -> str:
    """Return the last lines of what ranks printed, those that print the same joined."""
    blocks = [(ranks, text, False) for ranks, text in fold_begun(_not_empty(out))]
    blocks += [(ranks, text, True) for ranks, text in fold_begun(_not_empty(err))]
    room = max(1, LINES // max(1, len(blocks)))
    return "".join(_block_html(ranks, text, room, is_err) for ranks, text, is_err in blocks)


def _not_empty(texts: Texts) -> dict[int, str]:
    return {rank: text for rank, text in texts.items() if text.strip()}


def _block_html(ranks: Sequence[int], text: str, room: int, is_err: bool) -> str:
    lines = text[-TAIL:].rstrip("\n").split("\n")
    hidden = text.count("\n", 0, len(text) - TAIL) if len(text) > TAIL else 0
    hidden += max(0, len(lines) - room)
    tail = show.plain("\n".join(lines[-room:]))
    name = show.html_label(ranks, coloured=not is_err)
    if room == 1 or "\n" not in tail:
        note = f' <span style="{_GREY}">(line {hidden + 1:,})</span>' if hidden else ""
        content = f"{name}{note}: {escape(tail)}"
    else:
        plural = "s" if hidden > 1 else ""
        note = f' <span style="{_GREY}">… {hidden:,} line{plural} above</span>' if hidden else ""
        body = "\n".join(f"  {line}" for line in escape(tail).split("\n"))
        content = f"{name}:{note}\n{body}"
    return show.text_html(f'<pre style="white-space: pre-wrap">{content}</pre>', is_err=is_err)


def board_html(board: Sequence[RankState], seconds: float) -> str:
    """Return one line a rank: what it does, for how long, where, its memory, its GPU."""
    rows = "".join(_row_html(state) for state in _level(board))
    widths = "max-content max-content minmax(0, max-content) minmax(0, 1fr) max-content"
    return (
        f'<div style="margin-top: 6px; border-top: 1px solid var(--jp-border-color2, #BDBDBD); '
        f'padding-top: 3px; {_SMALL}"><span style="{_GREY}">{clock(seconds)} · '
        f"{escape(summary(board))}</span>"
        f'<div style="display: grid; grid-template-columns: {widths}; column-gap: 2ch">'
        f"{rows}</div></div>"
    )


def note_html(text: str) -> str:
    """Return one line about what the notebook itself does."""
    return f'<div style="{_GREY}; {_SMALL}">{escape(text)}</div>'


def suspicion_html(suspicion: Suspicion | None) -> str:
    """Return who blocks forever, it seems, since when, and what could still come; after a while
    with what to do."""
    if suspicion is None:
        return ""
    case, seconds = suspicion.case, suspicion.seconds()
    lines = [f"Suspected for {seconds:.0f} s: {message.headline(case)}"]
    lines += [f"It may still go on: {doubt}." for doubt in case.doubts]
    if seconds > times.STOP_OFFERED:
        lines += [f"If not: {likely_cause(case)}", "The stop button (■) ends the cell."]
    colour = f"color: {_ALARM}" if seconds > times.STOP_OFFERED else _GREY
    style = f"{colour}; white-space: pre-wrap; {_SMALL}"
    return f'<div style="{style}">{escape(chr(10).join(lines))}</div>'


def _level(board: Sequence[RankState]) -> list[RankState]:
    """Give ranks that came to a meeting within a second the same number of seconds: rounding
    would show a difference where there is none."""
    longest: dict[str, float] = {}
    for state in board:
        if state.seconds is not None:
            longest[state.detail] = max(state.seconds, longest.get(state.detail, 0.0))
    return [
        replace(state, seconds=longest[state.detail])
        if state.seconds is not None and longest[state.detail] - state.seconds < 1
        else state
        for state in board
    ]


def _row_html(state: RankState) -> str:
    alarm = state.state not in _MARKS
    mark = _MARKS.get(state.state, "✕")
    does = state.state
    if state.state == "waiting" and state.seconds is not None:
        does += f" {state.seconds:.0f} s"
    place = ": ".join(part for part in (state.where, state.line) if part)
    cell = "overflow: hidden; text-overflow: ellipsis; white-space: pre"
    soft = f"{cell}; {_GREY}"
    texts = [
        (cell, f"{mark} {show.html_label([state.rank])}"),
        (f"{cell}; color: {_ALARM}" if alarm else cell, escape(does)),
        (cell, escape(place)),
        (soft, escape(state.detail)),
        (f"{soft}; text-align: right", escape("  ".join(_usage(state)))),
    ]
    title = escape(state.describe(), quote=True)
    return "".join(f'<div style="{style}" title="{title}">{text}</div>' for style, text in texts)


def _usage(state: RankState) -> list[str]:
    parts = []
    if state.memory is not None:
        parts.append(size(state.memory))
    if state.gpu is not None:
        busy = "" if state.gpu.busy is None else f" {state.gpu.busy} %"
        parts.append(f"GPU {size(state.gpu.used)} of {size(state.gpu.total)}{busy}")
    return parts


def size(count: int) -> str:
    """Write a number of bytes: ``31 MiB``, ``2.1 GiB``."""
    mebi = count / 2**20
    return f"{mebi:.0f} MiB" if mebi < 1000 else f"{mebi / 1024:.1f} GiB"


def clock(seconds: float) -> str:
    """Write a time: ``0:07``, ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def summary(board: Sequence[RankState]) -> str:
    """Return in a few words who does what: ``ranks 0–2 waiting, rank 3 running``."""
    states = fold({state.rank: state.state for state in board})
    return ", ".join(f"{label(ranks)} {state}" for ranks, state in states)


#: JupyterLab sets tables to the right, as if all of it were numbers.
_LEFT = ' style="text-align: left"'


class Table(Sequence[RankState]):
    """A list of RankState that shows itself as a table, with notes below it."""

    HEAD = ("rank", "host", "pid", "device", "backend", "state")

    def __init__(self, states: Sequence[RankState], notes: Sequence[str] = ()) -> None:
        self.states = list(states)
        self.notes = [*notes, *sorted({s.left for s in self.states} - {""})]

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.states[index]

    def __len__(self) -> int:
        return len(self.states)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells as text, head first."""
        out: list[tuple[str, ...]] = [self.HEAD]
        for s in self.states:
            out.append((str(s.rank), s.host, str(s.pid), s.device, s.backend, s.describe()))
        return out

    def __repr__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.HEAD))]
        lines = [
            "  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, *self.notes])

    def to_html(self) -> str:
        """Return an HTML table that needs no style sheet."""
        head, *body = self.rows()
        cells = "".join(f"<th{_LEFT}>{escape(text)}</th>" for text in head)
        lines = [f"<table><thead><tr>{cells}</tr></thead><tbody>"]
        for row in body:
            lines.append(
                "<tr>" + "".join(f"<td{_LEFT}>{escape(text)}</td>" for text in row) + "</tr>"
            )
        notes = [f"<p>{escape(note)}</p>" for note in self.notes]
        return "\n".join([*lines, "</tbody></table>", *notes])

    _repr_html_ = to_html
