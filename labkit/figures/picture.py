"""A finished figure: an image for the eye, and the same facts as text."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from .style import DPI

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Picture:
    """A finished figure with a text that says the same."""

    def __init__(self, figure: Figure, text: str) -> None:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=DPI, bbox_inches="tight", facecolor="white")
        self.png = buffer.getvalue()
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        data = {"image/png": self.png, "text/plain": self.text}
        return data, {"image/png": {"alt": self.text}}
