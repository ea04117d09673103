"""Make the parts of the package's metadata that depend on where this repository lies.

Hatchling calls it for the wheel and the sdist. Nobody knows an address from here, so whoever
builds for the public passes one: ``LABKIT_REPOSITORY=https://host/owner/name``. The package's page
then has links to that repository, at the tag of the version; without it the page has none, because
relative links and pictures lead nowhere there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "LABKIT_REPOSITORY"
#: A target in the repository: neither an address nor a place on the same page.
INSIDE = r"(?![a-z+]+:|//|#)"
PICTURE = re.compile(rf"!\[([^\]]*)\]\({INSIDE}([^)\s]+)\)")
HTML_PICTURE = re.compile(rf'<img\s[^>]*?src="{INSIDE}[^"]+"[^>]*>')
SOURCE = re.compile(rf'(?<=src="){INSIDE}([^"]+)')
LINK = re.compile(rf"\[([^\]]*)\]\({INSIDE}([^)\s]+)\)")
CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


class MetadataHook(MetadataHookInterface):
    """Fill in ``readme`` and ``urls``, which pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them; hatchling has read the version already."""
        address = os.environ.get(VARIABLE, "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": portable(text, address, f"v{metadata['version']}"),
        }
        metadata["urls"] = urls(address, f"v{metadata['version']}")


def urls(address: str, tag: str) -> dict[str, str]:
    """Return the links beside a package's description; none without an address."""
    if not address:
        return {}
    return {
        "Repository": address,
        "Documentation": f"{address}/blob/{tag}/docs/USING.md",
        "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def portable(text: str, address: str, tag: str) -> str:
    """Return a document of the repository for a page elsewhere.

    Links and pictures inside the repository get its address; without one the links become their
    words, and the pictures go.
    """
    parts = CODE.split(text)
    parts[::2] = [_portable(part, address, tag) for part in parts[::2]]
    return "".join(parts)


def _portable(text: str, address: str, tag: str) -> str:
    if not address:
        return LINK.sub(r"\1", HTML_PICTURE.sub("", PICTURE.sub("", text)))
    text = PICTURE.sub(rf"![\1]({address}/raw/{tag}/\2)", text)
    text = SOURCE.sub(rf"{address}/raw/{tag}/\1", text)
    return LINK.sub(rf"[\1]({address}/blob/{tag}/\2)", text)
