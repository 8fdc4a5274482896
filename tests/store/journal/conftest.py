"""Where a case's journal is."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The journal's file; it is not there yet."""
    return tmp_path / "journal.db"
