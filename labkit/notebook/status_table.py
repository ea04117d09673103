"""What each rank is and does, as a table in a notebook and in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..wire.state import RankState

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
