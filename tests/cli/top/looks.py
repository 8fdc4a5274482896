"""Compares what an app looks like with a picture in the repository: colours, styles and all.

`UPDATE_LOOKS=1` writes the pictures again: see each in a browser before it is committed.
"""

from __future__ import annotations

import difflib
import html
import os
import re
from contextlib import suppress
from pathlib import Path

from textual.app import App

from tests.cli.top.conftest import Shown

LOOKS = Path(__file__).with_name("looks")


async def looks(top: Shown, name: str) -> None:
    """Wait until the app's picture is that one: no pause says that all is painted."""
    if not os.environ.get("UPDATE_LOOKS"):
        wanted = (LOOKS / f"{name}.svg").read_text()
        with suppress(TimeoutError):
            await top.until(lambda: top.app.export_screenshot(title=name) == wanted)
    assert_looks(top.app, name)


def assert_looks(app: App[None], name: str) -> None:
    """Fail where the app's picture is not that of `looks/NAME.svg`, and keep it beside it."""
    file, found = LOOKS / f"{name}.svg", app.export_screenshot(title=name)
    if os.environ.get("UPDATE_LOOKS"):
        file.write_text(found)
    wanted = file.read_text()
    if found == wanted:
        return
    diff = "\n".join(difflib.unified_diff(_texts(wanted), _texts(found), lineterm="", n=0))
    raise AssertionError(
        f"{file.name} looks otherwise (UPDATE_LOOKS=1 writes it):\n{diff or 'only its styles'}"
    )


def _texts(svg: str) -> list[str]:
    return [html.unescape(one) for one in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
