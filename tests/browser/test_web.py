"""`dlsched web` in a real browser: the token of the address opens the page once, and no more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Serve
from tests.browser.driver import Opened

pytestmark = [pytest.mark.browser]

REFUSED = "403 (Forbidden)"
"""What the browser says of the entrance, which is refused until the token is exchanged."""


@pytest.fixture
def address(own: Serve, tmp_path: Path) -> Iterator[str]:
    """What `dlsched web` prints, before a daemon of its own."""
    own("example")
    words = [sys.executable, "-m", "dlsched", "web", "--run-dir", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def test_the_address_opens_the_page_once(chromium: Any, address: str) -> None:
    with chromium.new_context() as mine, chromium.new_context() as other:
        url, _, token = address.partition("#")
        one = Opened(mine.new_page(), url)
        one.go(f"#{token}")
        one.state("news", "live")
        one.shows("#targets", "1 of 7 services on target")
        assert token not in one.page.url
        assert one.page.evaluate("document.cookie") == "", "no script reads it"
        one.page.reload()
        one.shows("#targets", "1 of 7 services on target")
        assert one.complained(REFUSED) == []
        assert one.foreign == []

        second = Opened(other.new_page(), url)
        second.page.goto(address)
        second.shows("#line", "this address has been used already, or is wrong")
        second.page.goto(one.page.url)
        second.shows("body", "not open to you: use the address that `dlsched web` printed")
        assert second.complained(REFUSED) == []
