"""Makes the Debian package: one file for Debian 12 and 13.

Its libraries are the pinned wheels, unpacked, for both releases' Pythons: Debian's own are too old
(pydantic 1, docker 5), and would differ from those that were tested. They lie as a virtual
environment that no tool has to make, as Python finds `lib/pythonX.Y/site-packages` by its own
version, beside a folder of what is the same for all. dpkg-deb packs it; debhelper would add its own
environment for one Python.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import sys
import tempfile
from email.utils import formatdate
from pathlib import Path
from typing import Sequence

from packaging.utils import parse_wheel_filename

from tools.environment import REQUIREMENTS as _DEV
from tools.environment import ROOT
from tools.images import platforms, remove_surplus
from tools.install import LAUNCHER, Layout, place, place_files
from tools.steps import run_step
from tools.wheels import debian_wheels

TEMPLATES = ROOT / "packaging" / "debian"
RUNTIME = _DEV.with_name("runtime.txt")
PYTHONS = ("3.11", "3.13")
"""Of Debian 12 and of Debian 13."""
ARCHITECTURE = "amd64"
SCRIPTS = ("postinst", "prerm", "postrm")

# No `version`: the Python is the host's. The host's packages are no part of it.
ENVIRONMENT = "home = /usr/bin\ninclude-system-site-packages = false\n"
SHARED = "../../../shared\n"
CHANGES = """dlsched ({version}) stable; urgency=medium

  * Release {version}. What changed: CHANGELOG.md.gz in this folder.

 -- the dlsched engineers <maintainers@dlsched.invalid>  {date}
"""


def package(wheel: Path, version: str, epoch_s: int, folder: Path, *, level: int = 6) -> Path:
    """The package with dlsched's own wheel, in `folder`. `epoch_s`: the time of all its files;
    `level`: how small it becomes, 0 to 9. Raises SetupError and OSError."""
    made = folder / f"dlsched_{version}_{ARCHITECTURE}.deb"
    with tempfile.TemporaryDirectory(prefix="dlsched-deb-") as name:
        root = Path(name)
        root.chmod(0o755)
        layout = Layout(Path("/usr"), root)
        fill(layout.at(layout.library), wheel)
        place_files(layout)
        documents(layout, version, epoch_s)
        control(root, version)
        normalise(root, epoch_s)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s)}
        packing = ["dpkg-deb", "--root-owner-group", "-Zxz", f"-z{level}", "--threads-max=1"]
        run_step(
            f"package {made.name}", [*packing, "--build", str(root), str(made)], env=environment
        )
    return made


def fill(library: Path, wheel: Path) -> None:
    """Unpack dlsched's wheel and all that it needs, for each Python."""
    (library / "bin").mkdir(parents=True)
    (library / "bin" / "python").symlink_to("../../../bin/python3")
    launcher = library / "bin" / "dlsched"
    launcher.write_text(LAUNCHER.format(python="/usr/lib/dlsched/bin/python"), encoding="utf-8")
    launcher.chmod(0o755)
    place(library / "pyvenv.cfg", ENVIRONMENT)
    found = {python: debian_wheels(ARCHITECTURE, python) for python in PYTHONS}
    wanted = required(RUNTIME)
    of_all = set.intersection(
        *({file.name for file in one.glob("*.whl")} for one in found.values())
    )
    for python, wheels in found.items():
        packages = library / "lib" / f"python{python}" / "site-packages"
        own = [file for file in wheels.glob("*.whl") if file.name not in of_all]
        unpack(own, wanted, [wheels], python, packages)
        place(packages / "shared.pth", SHARED)
    first = found[PYTHONS[0]]
    shared = [wheel, *(file for file in first.glob("*.whl") if file.name in of_all)]
    unpack(shared, {*wanted, "dlsched"}, [first, wheel.parent], PYTHONS[0], library / "shared")


def required(requirements: Path) -> set[str]:
    """The packages that a pinned list names."""
    lines = requirements.read_text(encoding="utf-8").splitlines()
    return {line.partition("==")[0] for line in lines if "==" in line and line[0] not in " #"}


def unpack(
    files: Sequence[Path], wanted: set[str], folders: Sequence[Path], python: str, target: Path
) -> None:
    """Unpack those of the wheels that are wanted as that Python's pip would, without byte code."""
    named = {parse_wheel_filename(file.name)[:2] for file in files}
    pins = sorted(f"{name}=={version}" for name, version in named if name in wanted)
    # The pinned pip, by name and version: by its path a package would note that path.
    (pip,) = debian_wheels(ARCHITECTURE, PYTHONS[0]).glob("pip-*.whl")
    command = [sys.executable, f"{pip}/pip", "install", "--no-index", "--no-deps", "--no-compile"]
    command += ["--only-binary=:all:", "--python-version", python, "--target", str(target)]
    for folder in folders:
        command += ["--find-links", str(folder)]
    for platform in platforms(ARCHITECTURE):
        command += ["--platform", platform]
    run_step(f"packages for Python {python}: {len(pins)}", [*command, *pins])
    remove_surplus(target, ())


def documents(layout: Layout, version: str, epoch_s: int) -> None:
    """Licence, changes, what others read of us; man pages compressed, as Debian has them."""
    share = layout.at(layout.prefix) / "share"
    shutil.move(str(layout.at(layout.library) / "shared" / "share" / "dlsched"), share / "dlsched")
    shutil.rmtree(layout.at(layout.library) / "shared" / "share")
    place(share / "doc" / "dlsched" / "copyright", (TEMPLATES / "copyright").read_text("utf-8"))
    place(
        share / "lintian" / "overrides" / "dlsched",
        (TEMPLATES / "lintian-overrides").read_text("utf-8"),
    )
    doc = share / "doc" / "dlsched"
    place(doc / "CHANGELOG.md", (ROOT / "CHANGELOG.md").read_text("utf-8"))
    place(doc / "changelog", CHANGES.format(version=version, date=formatdate(epoch_s)))
    pages = [layout.at(path) for path in layout.man_pages.values()]
    for page in (doc / "CHANGELOG.md", doc / "changelog", *pages):
        if page.is_file():
            packed = page.with_name(f"{page.name}.gz")
            packed.write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
            page.unlink()


def control(root: Path, version: str) -> None:
    """What dpkg reads: the package's head, its scripts, its settings, and digests of its files."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    size = sum(path.stat().st_size for path in files)
    folder = root / "DEBIAN"
    head = (TEMPLATES / "control").read_text("utf-8")
    place(
        folder / "control",
        head.format(version=version, architecture=ARCHITECTURE, kibibytes=size // 1024),
    )
    settings = [path for path in files if path.is_relative_to(root / "etc")]
    place(folder / "conffiles", "".join(f"/{path.relative_to(root)}\n" for path in settings))
    sums = ""
    for path in files:
        if path not in settings:
            digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
            sums += f"{digest}  {path.relative_to(root)}\n"
    place(folder / "md5sums", sums)
    for script in SCRIPTS:
        place(folder / script, (TEMPLATES / script).read_text("utf-8"))
        (folder / script).chmod(0o755)


def normalise(root: Path, epoch_s: int) -> None:
    """Modes by kind, and one time for all."""
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            runs = path.is_dir() or (
                path.parent.name in ("bin", "DEBIAN") and path.stat().st_mode & 1
            )
            path.chmod(0o755 if runs else 0o644)
        os.utime(path, (epoch_s, epoch_s), follow_symlinks=False)
