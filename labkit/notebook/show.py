"""Show what ranks printed, returned and raised: in rank order, equal outputs once.

Short outputs are plain text. A long one is folded in the middle: HTML that needs no script, with
a shorter plain text beside it, so that GitHub, nbconvert and nbval read it too.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ..base.rank_names import block, bold_label, fold, label, rank_colour
from ..runtime.error_texts import fold_warnings
from ..wire.state import Bundle, CellTime, Outcome
from . import rich_html, shell

#: Lines of a long output that are shown at each end, and of all long outputs of a cell together.
#: One with at most ``SPARED`` more is shown as it is: what is not worth a click.
END_LINES, ALL_LINES, SPARED = 10, 80, 10
#: Said of what ranks wrote while no cell waited for them, as their threads do.
LATE = " (came after an earlier cell had ended)"
#: JupyterLab's, where there is one.
FONT = "var(--jp-code-font-family, monospace)"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def show(outcomes: Sequence[Outcome], *, results: bool = True) -> None:
    """Write what the ranks printed and displayed, then their results."""
    for stream, target in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        texts = {o.rank: getattr(o, stream) for o in outcomes if getattr(o, stream)}
        _show_texts(texts, target)
    for changed in update_displays(outcomes):
        publish(*changed.data(), name=changed.name, update=True)
    for position in range(max((len(o.displays) for o in outcomes), default=0)):
        here = [o for o in outcomes if position < len(o.displays)]
        shown = {o.rank: o.displays[position] for o in here}
        names = {o.rank: o.names[position] for o in here if position < len(o.names)}
        _show_bundles(shown, {rank: name for rank, name in names.items() if name})
    if results:
        _show_bundles({o.rank: o.result for o in outcomes if o.result}, {})


def show_times(times: Mapping[int, CellTime]) -> None:
    """Write how long a cell took on each rank."""
    names = {rank: label([rank]) for rank in times}
    width = max(map(len, names.values()), default=0)
    for rank, time in times.items():
        print(f"{names[rank]:<{width}}  {time.wall:9.3f} s  (CPU {time.cpu:.3f} s)")


def show_late(texts: Mapping[int, Mapping[str, str]]) -> None:
    """Write what came of ranks (rank -> stream -> text) when no cell waited for it."""
    for stream, target in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        late = {rank: told[stream] for rank, told in texts.items() if told[stream]}
        _show_texts(late, target, LATE)


def _show_texts(texts: Mapping[int, str], target: Any, note: str = "") -> None:
    is_err = target is sys.stderr
    blocks = fold_warnings(texts) if is_err else fold(texts)
    ends = end_lines(len(blocks))
    for ranks, text in blocks:
        lines = text.rstrip("\n").split("\n")
        if shell.of_notebook() is None or len(lines) <= 2 * ends + SPARED:
            target.write(block(ranks, text, coloured=not is_err, note=note))
            continue
        target.flush()
        publish(
            {
                "text/html": folded(ranks, lines, ends, is_err=is_err, note=note),
                "text/plain": plain(block(ranks, cut(lines, ends), note=note)).rstrip("\n"),
            }
        )
    target.flush()


def end_lines(blocks: int) -> int:
    """Return how many lines to show at each end of a long output among so many."""
    return min(END_LINES, max(3, ALL_LINES // (2 * max(blocks, 1))))


def cut(lines: Sequence[str], ends: int) -> str:
    """Replace the middle of a long text by the number of its lines."""
    return "\n".join([*lines[:ends], f"… {len(lines) - 2 * ends:,} more lines …", *lines[-ends:]])


def folded(
    ranks: Sequence[int], lines: Sequence[str], ends: int, *, is_err: bool, note: str = ""
) -> str:
    """Return a long text as HTML that shows both ends and opens the middle on a click."""
    head, middle, tail = (
        escape(plain("\n".join(part))) for part in (lines[:ends], lines[ends:-ends], lines[-ends:])
    )
    pre = '<pre style="margin-left: 2ch">'
    return text_html(
        f"{html_label(ranks, coloured=not is_err)}{note}:\n{pre}{head}</pre>"
        f'<details><summary style="margin-left: 2ch; cursor: pointer">'
        f"{len(lines) - 2 * ends:,} more lines</summary>{pre}{middle}</pre></details>"
        f"{pre}{tail}</pre>",
        is_err=is_err,
    )


def text_html(content: str, *, is_err: bool) -> str:
    """Set HTML as JupyterLab sets text: what ranks wrote to stderr on the colour of errors."""
    ground = "; background: var(--jp-rendermime-error-background, transparent)" if is_err else ""
    return (
        f'<div style="font-family: {FONT}; font-size: var(--jp-code-font-size, inherit); '
        f"line-height: var(--jp-code-line-height, normal); "
        f'padding-left: var(--jp-code-padding, 0){ground}">{content}</div>'
    )


def plain(text: str) -> str:
    """Return a text without its colours."""
    return _ANSI.sub("", text)


def html_label(ranks: Sequence[int], *, coloured: bool = True) -> str:
    """Name some ranks in bold, a single one in its own colour."""
    colour = ""
    if coloured and len(ranks) == 1:
        # Mixed with the theme's own ink, each can be read on a light page and on a dark one.
        colour = f"; color: color-mix(in srgb, {rank_colour(ranks[0])} 70%, currentcolor)"
    return f'<b style="font-family: {FONT}{colour}">{label(ranks)}</b>'


def _show_bundles(bundles: Mapping[int, Bundle], names: Mapping[int, str]) -> None:
    """Show one mime bundle a rank; plain text goes with its label, the rest below it, and side by
    side what differs.

    Those that have a name (``display_id``) are displays of the notebook too: a later cell may
    update them.
    """
    texts: dict[int, str] = {}
    groups = fold(bundles, lambda bundle: json.dumps(bundle, sort_keys=True))
    if shell.of_notebook() is not None and fit_side_by_side([bundle for _, bundle in groups]):
        kept = share(bundles, names, html_label, labelled=False)
        publish(*kept.data(), name=kept.name if names else "")
        return
    for ranks, bundle in groups:
        named = {rank: names[rank] for rank in ranks if rank in names}
        if named and shell.of_notebook() is not None:
            _show_texts(texts, sys.stdout)
            texts = {}
            kept = share(dict.fromkeys(ranks, bundle), named, html_label)
            if not is_text(bundle):
                sys.stdout.write(f"{bold_label(ranks)}:\n")
            sys.stdout.flush()
            publish(*kept.data(), name=kept.name)
            continue
        if is_text(bundle):
            texts |= dict.fromkeys(ranks, bundle["data"]["text/plain"])
            continue
        _show_texts(texts, sys.stdout)
        texts = {}
        sys.stdout.write(f"{bold_label(ranks)}:\n")
        sys.stdout.flush()
        publish(bundle["data"], bundle.get("metadata"))
    _show_texts(texts, sys.stdout)


def fit_side_by_side(bundles: Sequence[Bundle]) -> bool:
    """Return whether different bundles become one output: two or more are rich, all are static."""
    rich = [bundle for bundle in bundles if not is_text(bundle)]
    return len(rich) > 1 and all(map(rich_html.fits, rich))


def publish(
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    *,
    name: str = "",
    update: bool = False,
) -> None:
    """Show a mime bundle; outside IPython its text.

    Under a ``name`` it can be shown anew in its place, with ``update``.
    """
    if shell.current() is not None:
        from IPython.display import display

        named: dict[str, Any] = {"display_id": name, "update": update} if name else {}
        display(data, metadata=metadata, raw=True, **named)
    else:
        sys.stdout.write(data.get("text/plain", f"<{next(iter(data))}>") + "\n")


# -- displays under a display_id, which a later cell may update ----------------------------------

#: Displays that are kept; those before can no longer be updated.
KEPT = 500


@dataclass
class Shared:
    """A display of the notebook that stands for those of some ranks.

    In a notebook ``handle.update(…)`` changes the output of the cell that made the handle, wherever
    it is called. When the displays of the ranks are no longer the same, this one holds all of them.
    """

    bundles: dict[int, Bundle]  #: by rank
    label: Callable[[Sequence[int]], str]  #: names ranks in HTML
    labelled: bool = True  #: a line above it names the ranks, while their displays are the same
    name: str = field(default_factory=lambda: uuid.uuid4().hex)  #: its own ``display_id``

    def data(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the mime bundle that shows all of them, and its metadata."""
        groups = fold(self.bundles, lambda bundle: json.dumps(bundle, sort_keys=True))
        if self.labelled and len(groups) == 1 and not is_text(groups[0][1]):
            return groups[0][1]["data"], groups[0][1]["metadata"]
        plain = "".join(block(ranks, text_of(bundle)) for ranks, bundle in groups).rstrip("\n")
        made = {"text/plain": plain}
        if not all(is_text(bundle) for _, bundle in groups):
            made["text/html"] = rich_html.columns(
                [f"<div>{self.label(ranks)}:</div>{rich_html.html(b)}" for ranks, b in groups]
            )
        return made, {}


#: (rank, its display_id) -> what stands for it, the oldest first
_shared: dict[tuple[int, str], Shared] = {}


def share(
    bundles: Mapping[int, Bundle], names: Mapping[int, str], label: Any, *, labelled: bool = True
) -> Shared:
    """Keep the display of some ranks, of which each has its own name for it, if any."""
    made = Shared(dict(bundles), label, labelled)
    for rank in bundles:
        if rank in names:
            _shared.pop((rank, names[rank]), None)
            _shared[rank, names[rank]] = made
    while len(_shared) > KEPT:
        del _shared[next(iter(_shared))]
    return made


def update_displays(outcomes: Sequence[Outcome]) -> list[Shared]:
    """Take in what displays of earlier cells shall be; return those that have changed.

    A name that nobody has displayed is passed over, as in a notebook.
    """
    changed: dict[str, Shared] = {}
    for outcome in outcomes:
        for name, bundle in outcome.updates.items():
            if (kept := _shared.get((outcome.rank, name))) is not None:
                kept.bundles[outcome.rank] = bundle
                changed[kept.name] = kept
    return list(changed.values())


def is_text(bundle: Bundle) -> bool:
    """Return whether a bundle is text and nothing else."""
    return set(bundle["data"]) == {"text/plain"}


def text_of(bundle: Bundle) -> str:
    """Return the text of a bundle, or what kind it is."""
    data = bundle["data"]
    return str(data.get("text/plain", f"<{next(iter(data), 'nothing')}>"))
