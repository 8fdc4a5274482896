"""What of this environment's packages the emulated host needs.

Owns that choice: the agent's own, by the pinned list, and what runs the tests. It must not install
anything.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distribution
from pathlib import Path

from tools.environment import ROOT
from tools.steps import SetupError

PINNED = ROOT / "requirements" / "runtime.txt"
FOR_TESTS = (
    *("dlsched", "hypothesis", "iniconfig", "packaging", "pluggy", "pytest", "pytest-timeout"),
    "sortedcontainers",
)
GUEST_PYTHON = (3, 11)
"""Debian 12's: what is compiled for another cannot be loaded there."""


def needed() -> tuple[Path, ...]:
    """Files and folders of all those packages. Raises SetupError."""
    if sys.version_info[:2] != GUEST_PYTHON:
        wanted = ".".join(map(str, GUEST_PYTHON))
        raise SetupError(
            f"the emulated host has Python {wanted}, so make .venv with python{wanted}"
        )
    pinned = re.findall(r"^([\w.-]+)==", PINNED.read_text(encoding="utf-8"), re.MULTILINE)
    found: set[Path] = set()
    for name in (*pinned, *FOR_TESTS):
        package = distribution(name)
        for file in package.files or ():
            if file.parts[0] not in ("..", "__pycache__") and file.suffix != ".pth":
                found.add(Path(str(package.locate_file(file.parts[0]))))
    return tuple(sorted(found))
