"""Configure the course site: Sphinx with MyST-NB, from the notebooks' stored outputs.

The sources are where they are in the repository (its root is Sphinx's source folder), so that
their links to each other hold here, too. Beside this file lie the extensions that adapt them.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import labkit

project = "labkit"
author = "the labkit authors"
copyright = "the labkit authors"
release = version = labkit.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "addresses",
    "cells",
    "glossary_links",
    "readme",
]

root_doc = ".site/index"
#: Pages are named one by one where a folder has other documents, too.
include_patterns = [
    ".site/*.md",
    "notebooks/*.ipynb",
    "notebooks/*.md",
    "data/README.md",
    "docs/*.md",
    "labkit/guard/README.md",
    "tests/README.md",
    "tests/gpu/README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "GLOSSARY.md",
    "SECURITY.md",
]
#: Folders that would only be walked through, and what cells of the course write.
exclude_patterns = [
    ".git",
    ".venv",
    "build",
    "work",
    "**/.*_cache",
    "notebooks/my_*",
    "*.executed.*",
]

# -- notebooks ------------------------------------------------------------------------------------
nb_execution_mode = "off"  # the stored outputs are compared with real ones by nbval
nb_merge_streams = True
nb_render_error_lexer = "myst-ansi"
nb_number_source_lines = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_heading_slug_func = "cells.anchor"
myst_links_external_new_tab = False

# -- the package ----------------------------------------------------------------------------------
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_rtype = False
# What is labkit's own has to resolve; other projects' names would need their inventories.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!labkit\b).*")]

# -- pages ----------------------------------------------------------------------------------------
html_theme = "sphinx_book_theme"
html_title = "labkit"
html_static_path = ["static"]
html_favicon = "static/favicon.svg"
html_css_files = ["labkit.css"]
html_show_sphinx = False
html_copy_source = True  # the download button gives the notebook
html_theme_options = {
    "path_to_docs": "",
    "use_download_button": True,
    "use_fullscreen_button": False,
    "navbar_persistent": [],
    "search_bar_text": "Search the course",
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
