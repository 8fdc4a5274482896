"""Downloads the wheels for installations without a package index, except dlsched's own. They are
for a Python of Debian's, whatever this host's is."""

from __future__ import annotations

import fcntl
import shutil
import sys
from pathlib import Path

from tools.environment import BUILD, ROOT, digest_of
from tools.images import PYTHON_VERSION, platforms
from tools.steps import run_step

REQUIREMENTS = tuple(ROOT / "requirements" / f"{name}.txt" for name in ("runtime", "build"))
WHEELS = BUILD / "wheels"


def debian_wheels(architecture: str, python: str = PYTHON_VERSION) -> Path:
    """Folder with every wheel of the daemon and of its build for that Python; cached by content.
    Raises SetupError."""
    pinned = [file.read_bytes() for file in REQUIREMENTS]
    filled = WHEELS / python / digest_of([architecture.encode(), *pinned])[:16]
    WHEELS.mkdir(parents=True, exist_ok=True)
    with (WHEELS / "lock").open("w") as lock:
        # Tests in several processes ask for them, and must not empty each other's folder.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not filled.is_dir():
            shutil.rmtree(filled.parent, ignore_errors=True)
            _download(architecture, python, filled)
    return filled


def _download(architecture: str, python: str, filled: Path) -> None:
    partial = filled.with_name("partial")
    partial.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    command += ["--require-hashes", "--no-deps", "--only-binary=:all:", "--dest", str(partial)]
    command += ["--python-version", python]
    for platform in platforms(architecture):
        command += ["--platform", platform]
    for file in REQUIREMENTS:
        command += ["--requirement", str(file)]
    run_step(f"wheels for Python {python}", command)
    partial.rename(filled)
