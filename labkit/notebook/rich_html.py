"""Write what ranks display as HTML, so that the outputs of several ranks fit into one.

There is no script in it, and no style that JupyterLab's sanitizer takes away from a notebook that
is not trusted.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from ..runtime.output import picture_of
from ..wire.state import Bundle

#: How a PNG begins, before its width and height.
_PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


def fits(bundle: Bundle) -> bool:
    """Return whether HTML can show a bundle as a front end would: it holds text, pictures or HTML,
    and no widget, Markdown or other thing that a front end draws by a script of its own."""
    return all(
        kind in ("text/html", "text/plain") or kind.startswith("image/") for kind in bundle["data"]
    )


def html(bundle: Bundle) -> str:
    """Return the richest form of a bundle that can stand in HTML."""
    if rich := bundle["data"].get("text/html"):
        return str(rich)
    if picture_of(bundle):
        return image(bundle)
    return f"<pre>{escape(str(bundle['data'].get('text/plain', '')))}</pre>"


def columns(blocks: Sequence[str]) -> str:
    """Return blocks of HTML beside each other, as many in a line as there is room for."""
    block = '<div style="min-width: 0; max-width: 100%; overflow-x: auto">'
    return (
        '<div style="display: flex; flex-wrap: wrap; gap: 8px 24px">'
        + "".join(f"{block}{content}</div>" for content in blocks)
        + "</div>"
    )


def image(bundle: Bundle) -> str:
    """Return a picture as HTML. Its size is in it, so that nothing moves while it is decoded."""
    address = source(bundle)
    kind = picture_of(bundle)
    given = (bundle.get("metadata") or {}).get(kind) or {}
    width, height = given.get("width"), given.get("height")
    natural = _size(address)
    if natural and not width:
        width, height = natural
    size = f' width="{int(width)}"' if width else ""
    if natural:
        size += f' style="max-width: 100%; height: auto; aspect-ratio: {natural[0]} / {natural[1]}"'
    else:
        size += f' height="{int(height)}"' if height else ""
        size += ' style="max-width: 100%"'
    described = given.get("alt") or bundle["data"].get("text/plain", "")
    alt = escape(str(described), quote=True)
    return f'<img alt="{alt}" decoding="sync" src="{address}"{size}>'


def source(bundle: Bundle) -> str:
    """Return the address of a picture that holds all of it; an SVG in it runs no script."""
    kind = picture_of(bundle)
    content = str(bundle["data"][kind])
    if kind == "image/svg+xml":
        return f"data:{kind},{quote(content)}"
    return f"data:{kind};base64,{''.join(content.split())}"


def _size(address: str) -> tuple[int, int] | None:
    """Return width and height of a PNG in pixels, None of any other picture."""
    _, _, encoded = address.partition("data:image/png;base64,")
    try:
        head = base64.b64decode(encoded[:32])
    except (ValueError, binascii.Error):
        return None
    if not head.startswith(_PNG):
        return None
    width, height = struct.unpack(">II", head[len(_PNG) : len(_PNG) + 8])
    return width, height
