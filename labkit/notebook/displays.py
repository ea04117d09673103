"""Keep what ranks displayed under a ``display_id``, so that a later cell can update it.

In a notebook ``handle.update(…)`` changes the output of the cell that made the handle, wherever it
is called. A display of ranks is shown once for all that have the same, so one of the notebook's
stands for those of several ranks: when they are no longer the same, it holds all of them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ..rank_names import block, fold
from ..wire.outcome import Bundle, Outcome

#: Displays that are kept; those before can no longer be updated.
KEPT = 500


@dataclass
class Shared:
    """A display of the notebook that stands for those of some ranks."""

    bundles: dict[int, Bundle]  #: by rank
    label: Callable[[Sequence[int]], str]  #: names ranks in HTML
    name: str = field(default_factory=lambda: uuid.uuid4().hex)  #: its own ``display_id``

    def data(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the mime bundle that shows all of them, and its metadata."""
        groups = fold(self.bundles, lambda bundle: json.dumps(bundle, sort_keys=True))
        if len(groups) == 1 and not is_text(groups[0][1]):  # labelled by a line above it
            return groups[0][1]["data"], groups[0][1]["metadata"]
        plain = "".join(block(ranks, text_of(bundle)) for ranks, bundle in groups).rstrip("\n")
        made = {"text/plain": plain}
        if not all(is_text(bundle) for _, bundle in groups):
            made["text/html"] = "".join(
                f"<div>{self.label(ranks)}:</div><div>{_html(bundle['data'])}</div>"
                for ranks, bundle in groups
            )
        return made, {}


#: (rank, its display_id) -> what stands for it, the oldest first
_shared: dict[tuple[int, str], Shared] = {}


def share(bundles: Mapping[int, Bundle], names: Mapping[int, str], label: Any) -> Shared:
    """Keep the display of some ranks, of which each has its own name for it."""
    made = Shared(dict(bundles), label)
    for rank in bundles:
        if rank in names:
            _shared.pop((rank, names[rank]), None)
            _shared[rank, names[rank]] = made
    while len(_shared) > KEPT:
        del _shared[next(iter(_shared))]
    return made


def update(outcomes: Sequence[Outcome]) -> list[Shared]:
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
    """Tell whether a bundle is text and nothing else."""
    return set(bundle["data"]) == {"text/plain"}


def text_of(bundle: Bundle) -> str:
    """Return the text of a bundle, or what kind it is."""
    data = bundle["data"]
    return str(data.get("text/plain", f"<{next(iter(data), 'nothing')}>"))


def _html(data: Mapping[str, Any]) -> str:
    """Return the richest form of some data that can stand in HTML."""
    for kind in ("image/png", "image/jpeg"):
        if kind in data:
            return f'<img src="data:{kind};base64,{str(data[kind]).strip()}">'
    rich = data.get("text/html") or data.get("image/svg+xml")
    return str(rich) if rich else f"<pre>{escape(str(data.get('text/plain', '')))}</pre>"
