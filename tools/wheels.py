"""Downloads the wheels for installations without a package index, except dlsched's own. They are
for the Python of Debian 12, whatever this host's is."""

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


def debian_wheels(architecture: str) -> Path:
    """Folder with every wheel of the daemon and of its build; cached by content. Raises
    SetupError."""
    pinned = [file.read_bytes() for file in REQUIREMENTS]
    filled = WHEELS / digest_of([architecture.encode(), *pinned])[:16]
    with WHEELS.with_suffix(".lock").open("w") as lock:
        # Tests in several processes ask for them, and must not empty each other's folder.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not filled.is_dir():
            shutil.rmtree(WHEELS, ignore_errors=True)
            _download(architecture, filled)
    return filled


def _download(architecture: str, filled: Path) -> None:
    partial = WHEELS / "partial"
    partial.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    command += ["--require-hashes", "--no-deps", "--only-binary=:all:", "--dest", str(partial)]
    command += ["--python-version", PYTHON_VERSION]
    for platform in platforms(architecture):
        command += ["--platform", platform]
    for file in REQUIREMENTS:
        command += ["--requirement", str(file)]
    run_step(f"wheels for Python {PYTHON_VERSION}", command)
    partial.rename(filled)
