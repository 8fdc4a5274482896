"""Makes the virtual environments: which Python, which pinned packages, and when to renew them.

It never touches the system's own Python packages. A stamp holds the digest of an environment's
sources, so that a second run only compares. Standard library only, Python 3.8 and later: the
Makefile runs this first.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Optional, Sequence

from tools import debian
from tools.steps import SetupError, run_step, say

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / ".build"
REQUIREMENTS = ROOT / "requirements" / "dev.txt"
BROWSER_REQUIREMENTS = ROOT / "requirements" / "browser.txt"
CHROMIUM = "/usr/bin/chromium"
FOR_MAKE = {
    "models": ROOT / "examples" / "images" / "inference" / "requirements-train.txt",
    "docs": ROOT / "requirements" / "docs.txt",
    "dashboard": ROOT / "requirements" / "grafana.txt",
    "release": ROOT / "requirements" / "release.txt",
}
"""Requirements of the environments that one target of the Makefile alone needs."""

# The pins were compiled under 3.11, so that one comes first.
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3")
PROBE = "import sys, ensurepip, venv; print(sys.executable); sys.exit(sys.version_info < (3, 11))"


def first_python(path: Optional[str] = None) -> Optional[str]:
    """Path of the first Python of 3.11 or later that can make virtual environments, or None.

    `path` is where to look, as in PATH; None: in PATH itself.
    """
    for name in PYTHONS:
        python = shutil.which(name, path=path)
        if python is None:
            continue
        probe = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
        if probe.returncode == 0:
            return probe.stdout.strip()
    return None


def python_for_environments(path: Optional[str] = None) -> str:
    """As first_python, but installs Debian's python3-venv where it is missing."""
    found = first_python(path)
    if found is None and debian.installable():
        debian.install(["python3-venv"], "the virtual environment")
        found = first_python(path)
    if found is None:
        raise SetupError(
            "no Python of 3.11 or later with venv found: install python3 (>= 3.11) and python3-venv"
        )
    return found


def compiler_for_tests() -> None:
    """Make sure of a C compiler: the tests' stand-in for the GPU driver's library is in C. Installs
    Debian's if needed; raises SetupError naming what to install."""
    compiler = shutil.which("cc")
    # With headers: Debian's gcc only recommends the package that has them.
    probe = ["-E", "-include", "stdio.h", "-x", "c", "-o", "/dev/null", "/dev/null"]
    if compiler is None or subprocess.run([compiler, *probe], check=False).returncode != 0:
        debian.install(["gcc", "libc6-dev"], "the tests' stand-in for the GPU driver")


def browser_for_tests(folder: Path) -> None:
    """Make sure of Debian's Chromium, and of what drives it in `folder`. Raises SetupError."""
    if not Path(CHROMIUM).exists():
        debian.install(["chromium"], "the tests in a browser")
    # With the other packages' digest: when those are made again, these are gone.
    made_from = [REQUIREMENTS.read_bytes(), BROWSER_REQUIREMENTS.read_bytes()]
    packages = Stamp("browser-packages", [str(folder).encode(), *made_from])
    probe = [str(folder / "bin" / "python"), "-c", "import playwright"]
    if packages.fits() and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        return
    packages.clear()
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    title = f"pinned packages of {BROWSER_REQUIREMENTS.relative_to(ROOT)}"
    run_step(title, [*pip, "-r", str(BROWSER_REQUIREMENTS)])
    packages.set()


def digest_of(parts: Sequence[bytes]) -> str:
    """A hexadecimal digest of several byte strings, with their lengths."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big"))
        whole.update(part)
    return whole.hexdigest()


class Stamp:
    """The digest of the sources that something was made from."""

    def __init__(self, name: str, made_from: Sequence[bytes]) -> None:
        self.path = BUILD / f"{name}.stamp"
        self.digest = digest_of(made_from)

    def fits(self) -> bool:
        """Whether it was last made from the same sources."""
        return self.path.is_file() and self.path.read_text(encoding="ascii") == self.digest

    def set(self) -> None:
        """Mark it as made."""
        self.path.write_text(self.digest, encoding="ascii")

    def clear(self) -> None:
        """Mark it as changing or gone."""
        self.path.unlink(missing_ok=True)


def prepare(folder: Path, requirements: Path, *, install_project: bool) -> None:
    """Make `folder` a virtual environment with exactly these pinned requirements in it.

    A requirements file with hashes in it is checked against them, all of it, by pip itself. With
    install_project, the project is added in editable form. What the stamps of the last time say
    is done already is not done again. Raises SetupError.
    """
    if not requirements.is_file():
        raise SetupError(f"{requirements.relative_to(ROOT)}: not found")
    name = folder.relative_to(ROOT)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    mark = folder.name.lstrip(".")
    packages = Stamp(f"{mark}-packages", [str(folder).encode(), requirements.read_bytes()])
    project = Stamp(f"{mark}-project", [(ROOT / "pyproject.toml").read_bytes()])
    if not python.exists() or not packages.fits():
        if folder.is_symlink():
            raise SetupError(f"{name} is a link, and what it leads to would be cleared: remove it")
        packages.clear()
        project.clear()
        # --clear: what an older list had installed must not linger beside the new one.
        venv = [python_for_environments(), "-m", "venv", "--clear", str(folder)]
        run_step(f"virtual environment {name}", venv)
        source = requirements.relative_to(ROOT)
        run_step(f"pinned packages of {source} into {name}", [*pip, "-r", str(requirements)])
        packages.set()
    if install_project and not project.fits():
        editable = ["--no-deps", "--no-build-isolation", "-e", str(ROOT)]
        run_step(f"dlsched itself into {name}", [*pip, *editable])
        project.set()


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Prepare the environment for development, or that of one target of the Makefile."""
    parser = argparse.ArgumentParser(prog="python3 -m tools.environment", description=main.__doc__)
    parser.add_argument("--make", choices=FOR_MAKE, help="that of `make models` and the like")
    parser.add_argument("--tests", action="store_true", help="what tests need beside it")
    parser.add_argument("--browser", action="store_true", help="what tests in a browser need")
    options = parser.parse_args(arguments)
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "environment.lock").open("w") as lock:
        # Two makes at once must not fill the same folder.
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if options.make is None:
                prepare(ROOT / ".venv", REQUIREMENTS, install_project=True)
            else:
                folder, own = BUILD / f"{options.make}-venv", options.make == "docs"
                prepare(folder, FOR_MAKE[options.make], install_project=own)
            if options.tests:
                compiler_for_tests()
            if options.browser:
                browser_for_tests(ROOT / ".venv")
        except SetupError as error:
            say(f"error: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
