"""What a rank knows of a name in a cell that is being written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suggestion:
    """A way to go on from the cursor."""

    start: int  #: where the text begins that it replaces, in characters of the cell
    text: str  #: what that becomes
    type: str  #: "function", "instance", "module" … as IPython calls them, "" if unknown
