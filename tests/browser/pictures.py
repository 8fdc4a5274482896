"""Takes the pictures of the page for the documentation: a simulated afternoon, played.

python -m tests.browser.pictures
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.conftest import ARGUMENTS, CHROMIUM
from tests.browser.driver import Opened, serving
from tools.environment import ROOT

SIZE = {"width": 1440, "height": 990}
JOB = "lane-keeping"


def save(picture: bytes, path: Path) -> None:
    """With a palette, which makes it a third as large."""
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(
        256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    ).save(path, optimize=True)


def main() -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        serving("played", Path(folder)) as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        for theme in ("light", "dark"):
            page = browser.new_context(color_scheme=theme, viewport=SIZE).new_page()
            one = Opened(page, server.url)
            one.go(f"#job={JOB}")
            one.shows("#changes", "requests)")
            save(page.screenshot(), ROOT / "docs" / "images" / f"page-{theme}.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
