"""Give pages short addresses, and links to files of the repository a place to lead to.

The pages beside this file are at the top of the site: ``.site/index`` is ``index.html``. A link
to a file that is no page (a script, a module) leads to the repository on the web where the
environment variable ``SITE_REPOSITORY`` has its address, such as ``https://host/owner/name/blob/main``;
otherwise the site has a copy of the file.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

OWN = ".site/"


class SiteBuilder(StandaloneHTMLBuilder):
    """Write the pages of ``.site/`` to the top of the site."""

    def get_output_path(self, page_name: str, /) -> Path:
        return super().get_output_path(page_name.removeprefix(OWN))

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:
        return super().get_target_uri(docname.removeprefix(OWN), typ)

    def dump_search_index(self) -> None:
        """Write the index of the search, which makes addresses out of the names of pages."""
        super().dump_search_index()
        path = Path(self.outdir, self.searchindex_filename)
        before, names, after = re.split(
            r'("docnames": ?\[.*?\])', path.read_text("utf-8"), maxsplit=1
        )
        path.write_text(before + names.replace(f'"{OWN}', '"') + after, "utf-8")

    def get_doc_context(self, docname: str, body: str, metatags: str) -> dict[str, Any]:
        """Offer the source of notebooks to be downloaded, and of no other page."""
        context = super().get_doc_context(docname, body, metatags)
        if self.env.doc2path(docname).suffix != ".ipynb":
            context["sourcename"] = context["page_source_suffix"] = ""
        return context


def lead_to_the_repository(app: Sphinx, doctree: nodes.document) -> None:
    """Replace downloads by links to the repository, if it is known where that is."""
    repository = os.environ.get("SITE_REPOSITORY", "").rstrip("/")
    if not repository:
        return
    folder = posixpath.dirname(app.env.docname)
    for download in list(doctree.findall(addnodes.download_reference)):
        path = posixpath.normpath(posixpath.join(folder, download["reftarget"]))
        link = nodes.reference("", "", *download.children, refuri=f"{repository}/{path}")
        download.replace_self(link)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_builder(SiteBuilder, override=True)
    # Before Sphinx copies what is left to be downloaded.
    app.connect("doctree-read", lead_to_the_repository, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
