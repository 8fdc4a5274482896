"""The environments of packages that real programs run in: made from requirements/NAME.txt."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.environment import BUILD
from tools.steps import run_step

PLACE = "DLSCHED_STACKS"
REQUIREMENTS = Path(__file__).parent / "requirements"
"""One file an environment, with all versions pinned."""

_VERSIONS = """
import sys
from importlib.metadata import PackageNotFoundError, version
for name in sys.argv[1:]:
    try:
        print(f"{name} {version(name)}")
    except PackageNotFoundError:
        print("")
"""


def folder(name: str) -> Path:
    """Where that environment is."""
    return Path(os.environ.get(PLACE) or BUILD / "stacks") / name


def requirements(name: str) -> Path:
    """The file of its pinned versions."""
    return REQUIREMENTS / f"{name}.txt"


def ensure(name: str) -> None:
    """Make it if it is not there, or has other versions. Raises SetupError."""
    place, wanted = folder(name), requirements(name).read_text(encoding="utf-8")
    made = place / "requirements.txt"
    if PLACE in os.environ or (made.is_file() and made.read_text(encoding="utf-8") == wanted):
        return
    run_step(f"packages of {name}", [sys.executable, "-m", "venv", "--clear", str(place)])
    install = [str(place / "bin" / "pip"), "install", "--no-deps", "-r", str(requirements(name))]
    run_step(f"packages of {name}", install)
    made.write_text(wanted, encoding="utf-8")


def versions(environment: Path, packages: Sequence[str]) -> list[str]:
    """Those packages with their versions; of a program of the system its own word."""
    found = _said([str(environment / "bin" / "python"), "-c", _VERSIONS, *packages]).splitlines()
    named = zip(packages, found, strict=True)
    return [line or f"{name} {_system_version(name)}" for name, line in named]


def _system_version(program: str) -> str:
    # nginx tells its version on stderr, as "nginx version: nginx/1.22.1".
    return _said([f"/usr/sbin/{program}", "-v"]).split("/")[-1].split()[0]


def _said(command: Sequence[str]) -> str:
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
    ).stdout
