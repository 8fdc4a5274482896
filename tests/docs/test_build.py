"""`make docs`: every page without a warning, and the man pages from the same sources."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = ROOT / ".build" / "docs"


@pytest.mark.slow
def test_the_documentation_is_built_without_warnings() -> None:
    done = subprocess.run(
        ["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr  # sphinx takes warnings for errors (-W)
    for page in (ROOT / "docs").rglob("*.md"):
        html = BUILT / "html" / page.relative_to(ROOT / "docs").with_suffix(".html")
        assert "<!-- generated:" not in html.read_text(), page
    for name, word in (("dlsched.1", "DLSCHED SIMULATE"), ("dlsched.yaml.5", "DLSCHED_PERIOD")):
        assert word in (BUILT / "man" / name).read_text()
