"""How the documentation is built: Markdown by MyST, drawn by Furo, with nothing fetched from the network."""

import re
from pathlib import Path

from sphinx.application import Sphinx

project = "Interlock"
author = "The Interlock developers"
project_copyright = "The Interlock developers"
version = release = "0.1.0"

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
nitpicky = True
# The dialect's examples have parameters ($1), which the highlighter of plain SQL does not know.
suppress_warnings = ["misc.highlighting_failure"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = "Interlock"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_search_scorer = str(Path(__file__).with_name("search-order.js"))

_SECTION = re.compile(r"^```\{toctree\}\n(?:(?!```).*\n)*?(?P<folder>[\w-]+)/\*\n```\n", re.MULTILINE)


def drop_empty_sections(app: Sphinx, docname: str, content: list[str]) -> None:
    """Leave a section out of the contents while its folder has no page: Sphinx calls an empty glob a mistake."""
    if docname == "index":
        docs = Path(app.srcdir)
        content[0] = _SECTION.sub(
            lambda found: found[0] if any(docs.glob(f"{found['folder']}/*.md")) else "", content[0]
        )


def setup(app: Sphinx) -> None:
    """Called by Sphinx at the start of a build."""
    app.connect("source-read", drop_empty_sections)
