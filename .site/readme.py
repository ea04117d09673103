"""Let the site's own pages quote the README: its words are written once.

A line ``%README% Start`` becomes that section of the README with its heading; the
line ``%README%`` alone, what stands above its first section, without the title.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

MARK = re.compile(r"^%README%(?: (.+))?$", re.MULTILINE)
#: A link or an image of the README that leads to a file of the repository.
RELATIVE = re.compile(r"\]\((?!https?:|#)")


def section(text: str, title: str | None) -> str:
    """Return a section of the README, or its beginning.

    Raises
    ------
    ExtensionError
        If it has no section of this title.
    """
    beginning, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    if title is None:
        return beginning.partition("\n")[2].strip()
    for found in sections:
        if found.partition("\n")[0] == f"## {title}":
            return found.strip()
    raise ExtensionError(f"README.md has no section {title!r}")


def quote(app: Sphinx, docname: str, content: list[str]) -> None:
    """Put the README's sections where a page of the site names them."""
    if not MARK.search(content[0]) or not docname.startswith(".site/"):
        return
    path = Path(app.srcdir) / "README.md"
    app.env.note_dependency(str(path))
    readme = RELATIVE.sub("](../", path.read_text("utf-8"))
    content[0] = MARK.sub(lambda match: section(readme, match[1]), content[0])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", quote)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
