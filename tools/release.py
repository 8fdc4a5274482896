"""`make release`: what users install, from one commit alone, into dist/.

It is made in an export of the commit, so that nothing else of the checkout gets in, and every file
has the commit's time: two checkouts of a commit give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Optional, Sequence

from dlsched import __version__
from tools.debian_package import package
from tools.environment import BUILD, ROOT
from tools.install import MAN
from tools.materials import WRITER, bill_of_materials
from tools.steps import SetupError, run_step, say
from tools.wheels import WHEELS

SUMS = "SHA256SUMS"
DOCS = BUILD / "docs-venv"
"""The environment of `make man`."""


def export(commit: str, folder: Path) -> int:
    """Write the commit's files into `folder`; returns the commit's time."""
    git = ["git", "-C", str(ROOT)]
    archive = folder.with_suffix(".tar")
    run_step(f"files of {commit}", [*git, "archive", "-o", str(archive), commit])
    folder.mkdir()
    shutil.unpack_archive(str(archive), str(folder))
    said = subprocess.run(
        [*git, "log", "-1", "--format=%ct", commit], check=True, capture_output=True, text=True
    )
    return int(said.stdout)


def build(folder: Path, epoch_s: int, level: int) -> None:
    """Everything of the tree that this module lies in, into `folder`. Raises SetupError."""

    os.environ.update(
        SOURCE_DATE_EPOCH=str(epoch_s), PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1"
    )
    folder.mkdir(parents=True, exist_ok=True)
    wheels(folder)
    (wheel,) = folder.glob("dlsched-*.whl")
    pages = [str(DOCS / "bin" / "python"), "-m", "sphinx", "-W", "-E", "-q", "-b", "man"]
    run_step("man pages", [*pages, "-d", str(BUILD / "docs" / "trees"), "docs", str(MAN)], cwd=ROOT)
    package(wheel, __version__, epoch_s, folder, level=level)
    bill_of_materials(__version__, epoch_s, folder)
    files = sorted(folder.iterdir())
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / SUMS).write_text("".join(sums), encoding="ascii")


def wheels(folder: Path) -> None:
    """The wheels dlsched and dlsched-report, into `folder`."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    sources = [str(ROOT), str(ROOT / "packaging" / "report")]
    run_step("wheels", [*pip, "--wheel-dir", str(folder), *sources])


def release(commit: str, folder: Path, level: int = 6) -> None:
    """Build the commit's files into `folder`, which appears complete or not at all. `level`: how
    small packages become, 0 to 9. Raises SetupError."""
    with tempfile.TemporaryDirectory(prefix="dlsched-release-") as name:
        tree, made = Path(name) / "tree", Path(name) / "made"
        epoch_s = export(commit, tree)
        # What was downloaded is kept; what is made of the tree is not.
        (tree / ".build").mkdir()
        for kept in (WHEELS, DOCS, WRITER.parents[1]):
            kept.mkdir(parents=True, exist_ok=True)
            (tree / ".build" / kept.name).symlink_to(kept)
        command = [sys.executable, "-m", "tools.release", "--tree", str(epoch_s)]
        command += ["--level", str(level), str(made)]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        if subprocess.run(command, cwd=tree, env=environment, check=False).returncode != 0:
            raise SetupError(f"release of {commit}: see above")
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(made, folder)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Build what users of a release install."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=main.__doc__)
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--tree", type=int, metavar="TIME", help="of this tree, not of a commit")
    parser.add_argument("--level", type=int, default=6, help="0 to 9: how small packages become")
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "dist")
    options = parser.parse_args(arguments)
    os.umask(0o022)
    try:
        if options.tree is not None:
            build(options.folder, options.tree, options.level)
            return 0
        release(options.commit, options.folder.resolve(), options.level)
    except (SetupError, OSError, subprocess.CalledProcessError) as error:
        say(f"error: {error}")
        return 1
    print((options.folder / SUMS).read_text(encoding="ascii"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
