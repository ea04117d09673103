"""Write a class as HTML: parts for a notebook, or a page in one file that needs nothing else."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from ..figures.picture import Picture
from .class_summary import Section

#: Both themes with a contrast of 7 or more, as WCAG 2.2 asks of text at level AAA.
_STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #4a4a4a; --page: #fff; --line: #c4c4c4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eee; --soft: #c6c6c6; --page: #151515; --line: #555; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 72rem; margin: 0 auto; padding: 1.5rem; }
.wide { overflow-x: auto; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; margin: 1.5rem 0; min-width: 34rem; }
caption { text-align: left; font-weight: bold; font-size: 1.15rem; padding-bottom: .4rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .9rem .25rem 0;
  border-bottom: 1px solid var(--line); }
th + th, td { font-variant-numeric: tabular-nums; }
tbody th { font-weight: 600; }
footer, .soft { color: var(--soft); }
"""
#: Nothing is fetched and no script runs, whatever a name holds.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(title: str, when: str, headline: str, body: str) -> str:
    """Return the page of a class: one file that loads nothing."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p>{escape(headline)}</p>
{body}
</main>
<footer><p>As of {escape(when)}.</p></footer>
</body>
</html>
"""


def body(pictures: Sequence[Picture], sections: Sequence[Section]) -> str:
    """Return the figures and the tables."""
    return "\n".join([*map(_figure, pictures), *map(_table, sections)])


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    return (
        f'<p><img src="data:image/png;base64,{data}" width="{picture.width}" '
        f'alt="{escape(picture.text)}"></p>'
    )


def _table(section: Section) -> str:
    if not section.rows:
        return f"<p><strong>{escape(section.caption)}</strong>: {escape(section.empty)}</p>"
    caption = escape(section.caption)
    head = "".join(f'<th scope="col"{_ALIGNED}>{escape(text)}</th>' for text in section.head)
    rows = "\n".join(_row(row) for row in section.rows)
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{caption}">'
        f'<table><caption style="text-align: left; font-weight: bold">{caption}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )


def _row(row: Sequence[str]) -> str:
    first, *others = row
    cells = "".join(f"<td{_whole(text)}>{escape(text)}</td>" for text in others)
    return f'<tr><th scope="row"{_whole(first)}>{escape(first)}</th>{cells}</tr>'


def _whole(text: str) -> str:
    """Return the style of a cell: what is short, such as a date, is not broken into lines."""
    return _ALIGNED if len(text) > SHORT else _ALIGNED.replace("left", "left; white-space: nowrap")


#: Characters.
SHORT = 24
#: JupyterLab sets the cells of tables to the right, as if all were numbers.
_ALIGNED = ' style="text-align: left"'
