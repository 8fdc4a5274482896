"""Texts that commands and pages show, a file each: `UPDATE_LOOKS=1` writes them again.

Read each change of a file as a user would before it is committed. Long decimals are rounded, as
their last digits differ between machines.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

FOLDER = Path(__file__).parent / "fixtures" / "texts"


def same_text(name: str, found: str) -> None:
    """Fail where the text is not that of `fixtures/texts/NAME.txt`."""
    file = FOLDER / f"{name}.txt"
    found = re.sub(r"\d+\.\d{7,}", lambda number: f"{float(number[0]):.5g}", found)
    if os.environ.get("UPDATE_LOOKS"):
        file.write_text(found)
    assert found == file.read_text()
