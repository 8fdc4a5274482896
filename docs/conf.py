"""How the documentation is built: Markdown by MyST, Furo, man pages from the same files."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1]))

from dlsched import __version__
from docs.generate import filled

project = "dlsched"
author = "the dlsched engineers"
version = release = __version__
project_copyright = f"{author}, Apache-2.0"

extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["generate"]
nitpicky = True
smartquotes = False

html_theme = "furo"
html_title = f"dlsched {version}"
html_copy_source = False
man_pages = [
    ("reference/commands", "dlsched", "keep the targets of deep-learning containers", author, 1),
    ("reference/settings", "dlsched.yaml", "settings of dlsched", author, 5),
]
man_show_urls = True


def _fill(_: Sphinx, __: str, source: list[str]) -> None:
    source[0] = filled(source[0])


def setup(app: Sphinx) -> None:
    """Put the generated parts into the pages as they are read."""
    app.connect("source-read", _fill)
