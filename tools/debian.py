"""Installs or unpacks Debian packages that the set-up lacks, and bootstraps whole Debians.

It installs only as root on a machine with apt-get, and otherwise says what to install. Standard
library only, Python 3.8 and later.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Callable, Sequence

from tools.steps import SetupError, run_step

SUITES = {12: "bookworm", 13: "trixie"}
"""Debian's releases by number."""
RELEASE = 12
SUITE = SUITES[RELEASE]
"""Of images and hosts that are made here."""

# Wait for another apt (unattended upgrades) instead of failing.
APT_GET = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300")


def installable() -> bool:
    """Whether packages can be installed here: as root, with apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: Sequence[str], purpose: str) -> None:
    """Install Debian packages without their recommendations. Raises SetupError naming the command
    to type when this user cannot, or when apt-get fails."""
    names = " ".join(packages)
    if not installable():
        raise SetupError(f"{purpose} needs: apt-get install --no-install-recommends {names}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run_step("Debian package lists", [*APT_GET, "update"], env=quiet)
    run_step(
        f"Debian packages for {purpose}: {names}",
        [*APT_GET, "install", "--no-install-recommends", *packages],
        env=quiet,
    )


def unpack(package: str, folder: Path, purpose: str) -> None:
    """Unpack a Debian package into `folder`, unless that is there: nothing is installed, and no
    service starts. The folder appears complete or not at all. Raises SetupError."""
    if folder.is_dir():
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise SetupError(f"{purpose} needs apt-get and dpkg, to unpack the package {package}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{package}-", dir=str(folder.parent)) as name:
        load = ["apt-get", "-q", "download", package]
        title = f"Debian package for {purpose}: {package}"
        try:
            run_step(title, load, cwd=Path(name))
        except SetupError:
            if not installable():
                raise
            run_step("Debian package lists", [*APT_GET, "update"])
            run_step(title, load, cwd=Path(name))
        (archive,) = Path(name).glob("*.deb")
        root = Path(name) / "root"
        run_step(f"{title}: unpacking", ["dpkg", "-x", str(archive), str(root)])
        try:
            root.rename(folder)
        except OSError:
            if not folder.is_dir():  # not made by another process meanwhile
                raise


def bootstrap(
    root: Path,
    packages: Sequence[str],
    title: str,
    *,
    suite: str = SUITE,
    variant: str = "minbase",
) -> None:
    """Make the tree of a minimal Debian, or its archive (*.tar), with these packages; the variant
    `extract` unpacks them and configures none. Of the host's apt only the keys are used. Raises
    SetupError."""
    if shutil.which("mmdebstrap") is None:
        install(["mmdebstrap"], f"the {title}")
    # Half the time of debootstrap: it unpacks all packages together.
    command = ["mmdebstrap", f"--variant={variant}"]
    command += [f"--include={','.join(packages)}"] if packages else []
    run_step(f"{title} (a minute)", [*command, suite, str(root)])


def bootstrap_archive(
    archive: Path, title: str, packages: Sequence[str], finish: Callable[[Path], None]
) -> None:
    """Make the archive of a minimal Debian with these packages, after `finish` on its tree. The
    archive appears complete or not at all. Raises SetupError."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bootstrap-", dir=str(archive.parent)) as folder:
        root = Path(folder) / "root"
        bootstrap(root, packages, title)
        finish(root)
        fresh = Path(folder) / "root.tar"
        packing = ["tar", "--numeric-owner", "-C", str(root), "-cf", str(fresh), "."]
        run_step(f"{title}: packing", packing)
        fresh.replace(archive)
