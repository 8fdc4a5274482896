"""`make install` and `make uninstall`: dlsched as a service of this host, or of a package.

The agent gets its own environment under PREFIX/lib/dlsched, made beside the old one and put in its
place as a whole. The agent is never started, and settings are never overwritten. Standard library
only, Python 3.8 and later.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List, Optional, Sequence

from tools.environment import BUILD, ROOT, python_for_environments
from tools.steps import SetupError, run_step, say

CONFIG = ROOT / "config"
REQUIREMENTS = ROOT / "requirements" / "runtime.txt"
MAN = BUILD / "docs" / "man"
"""Where `make man` leaves the man pages."""
MAN_PAGES = ("dlsched.1", "dlsched.yaml.5")
COMPLETIONS = {
    "bash": Path("bash-completion") / "completions" / "dlsched",
    "zsh": Path("zsh") / "site-functions" / "_dlsched",
    "fish": Path("fish") / "vendor_completions.d" / "dlsched.fish",
}
"""Where each shell looks by itself, in PREFIX/share."""
SETTINGS = Path("/etc/dlsched")
STATE = Path("/var/lib/dlsched")
SYSTEMD_RUNS = Path("/run/systemd/system")
UNIT = "dlsched.service"
CLUSTER_UNIT = "dlsched-cluster.service"
"""For managers of a cluster; enabled by hand."""

# A service of root must not run a Python from a user's home.
PYTHON_PATH = "/usr/local/bin:/usr/bin:/bin"

# Where systemd looks by itself; units of any other prefix go to /etc.
SYSTEMD_PREFIXES = (Path("/usr"), Path("/usr/local"))
# -s, -P: ignore root's own packages and the command's folder.
TARGET = Path("..") / "lib" / "dlsched" / "bin" / "dlsched"
"""Where the command's link leads."""
LAUNCHER = """#!{python} -sP
from dlsched.cli import main

main()
"""


class Layout:
    """Where everything goes: as the host will see it, and as it is written now."""

    def __init__(self, prefix: Path, destdir: Optional[Path]) -> None:
        """`destdir` stands for the root of the host's file system; None: it is the host's."""
        if not prefix.is_absolute():
            raise SetupError(f"PREFIX={prefix}: not an absolute path")
        self.destdir = destdir
        self.prefix = prefix
        self.library = prefix / "lib" / "dlsched"
        self.command = prefix / "bin" / "dlsched"
        own = prefix in SYSTEMD_PREFIXES
        units = (prefix / "lib" if own else Path("/etc")) / "systemd" / "system"
        self.unit, self.cluster_unit = units / UNIT, units / CLUSTER_UNIT
        self.groups = (prefix / "lib" if own else Path("/etc")) / "sysusers.d" / "dlsched.conf"
        self.folders = (prefix / "lib" if own else Path("/etc")) / "tmpfiles.d" / "dlsched.conf"
        self.man_pages = {
            page: prefix / "share" / "man" / f"man{page[-1]}" / page for page in MAN_PAGES
        }
        self.completions = {shell: prefix / "share" / place for shell, place in COMPLETIONS.items()}

    def at(self, path: Path) -> Path:
        """Where that path of the host is written now."""
        return path if self.destdir is None else self.destdir / path.relative_to("/")

    @property
    def here(self) -> bool:
        """Whether the host itself is the destination, not a package."""
        return self.destdir is None

    @property
    def systemd(self) -> bool:
        """Whether there is a systemd to talk to."""
        return self.here and SYSTEMD_RUNS.is_dir()


def install(layout: Layout, wheels: Optional[Path]) -> None:
    """Install everything; nothing is started. Raises SetupError and OSError. `wheels` is a folder
    with all packages needed; None: they come from the package index."""
    if wheels is not None and not list(wheels.glob("*.whl")):
        raise SetupError(f"WHEELS={wheels}: no wheels there (requirements/README.md)")
    refuse_others(layout)
    library = layout.at(layout.library)
    fresh, former = library.with_name(".dlsched-new"), library.with_name(".dlsched-old")
    for left in (fresh, former):
        shutil.rmtree(left, ignore_errors=True)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    try:
        fill(fresh, layout.library, wheels)
        if library.exists():
            library.rename(former)
        try:
            fresh.rename(library)
        except OSError:
            if former.exists():
                former.rename(library)
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(former, ignore_errors=True)
    place_files(layout)
    if layout.here and shutil.which("systemd-sysusers"):
        run_step("groups dlsched and dlsched-admin", ["systemd-sysusers", str(layout.groups)])
    say(f"installed {layout.at(layout.command)}; settings: {layout.at(SETTINGS / 'dlsched.yaml')}")
    if layout.systemd:
        run_step("telling systemd", ["systemctl", "daemon-reload"])
        say(f"now: systemctl {'restart' if active() else 'enable --now'} dlsched")


def place_files(layout: Layout) -> None:
    """Write all but the environment: the command's link, units, groups, completions, man pages, and
    settings where there are none."""
    link(layout.at(layout.command), TARGET)
    for path in (layout.unit, layout.cluster_unit):
        unit = (CONFIG / path.name).read_text(encoding="utf-8")
        place(layout.at(path), unit.replace("/usr/local/bin/dlsched", str(layout.command)))
    for path, source in ((layout.groups, "sysusers"), (layout.folders, "tmpfiles")):
        place(layout.at(path), (CONFIG / f"dlsched.{source}").read_text(encoding="utf-8"))
    for shell, path in layout.completions.items():
        script = CONFIG / "completion" / f"dlsched.{shell}"
        place(layout.at(path), script.read_text(encoding="utf-8"))
    for page, path in layout.man_pages.items():
        if (MAN / page).is_file():
            place(layout.at(path), (MAN / page).read_text(encoding="utf-8"))
        else:
            say(f"  no man page {page}: `make man` makes it")
    settings = layout.at(SETTINGS / "dlsched.yaml")
    if settings.exists():
        say(f"  left as it is: {settings}")
    else:
        place(settings, (CONFIG / "dlsched.yaml").read_text(encoding="utf-8"))
    layout.at(SETTINGS / "jobs.d").mkdir(exist_ok=True)


def fill(fresh: Path, library: Path, wheels: Optional[Path]) -> None:
    """Make an environment with dlsched in it at `fresh`, to be used at `library`."""
    python = fresh / "bin" / "python"
    run_step(
        "virtual environment", [python_for_environments(PYTHON_PATH), "-m", "venv", str(fresh)]
    )
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    pip += ["--no-warn-script-location"]
    if wheels is not None:
        pip += ["--no-index", "--find-links", str(wheels.resolve())]
    run_step("pinned packages", [*pip, "--require-hashes", "-r", str(REQUIREMENTS)])
    run_step("dlsched", [*pip, "--no-deps", str(ROOT)])
    for script in (fresh / "bin").iterdir():
        # The others contain the build path, and are for interactive use.
        if not script.name.startswith("python"):
            script.unlink()
    launcher = fresh / "bin" / "dlsched"
    launcher.write_text(LAUNCHER.format(python=library / "bin" / "python"), encoding="utf-8")
    launcher.chmod(0o755)
    # Replace the build path by the final path.
    about = fresh / "pyvenv.cfg"
    about.write_text(about.read_text(encoding="utf-8").replace(str(fresh), str(library)), "utf-8")
    # The service cannot write beside its modules.
    renamed = ["-s", str(fresh), "-p", str(library)]
    run_step("byte code", [str(python), "-m", "compileall", "-qf", *renamed, str(fresh / "lib")])


def uninstall(layout: Layout, *, purge: bool, force: bool) -> None:
    """Stop and disable the service, give every limit back, remove what was installed.

    Raises SetupError, before anything is removed, when limits cannot be given back; `force`
    continues. Settings and state stay unless `purge`.
    """
    refuse_others(layout)
    for unit in (layout.cluster_unit, layout.unit):
        if layout.systemd and unit.exists():
            run_step(f"stopping {unit.stem}", ["systemctl", "disable", "--now", unit.name])
    if layout.here and layout.command.exists():
        # After the service, whose agent would remember the release.
        try:
            run_step("giving limits back", [str(layout.command), "release"])
        except SetupError as error:
            if not force:
                raise SetupError(f"{error}: nothing is removed (FORCE=1 removes it)") from error
    units = (layout.unit, layout.cluster_unit)
    own = (layout.command, *units, layout.groups, layout.folders)
    for path in (*own, *layout.man_pages.values(), *layout.completions.values()):
        layout.at(path).unlink(missing_ok=True)
    shutil.rmtree(layout.at(layout.library), ignore_errors=True)
    if layout.systemd:
        run_step("telling systemd", ["systemctl", "daemon-reload"])
    kept: List[Path] = []
    for path in (layout.at(SETTINGS), layout.at(STATE)):
        if purge:
            shutil.rmtree(path, ignore_errors=True)
        elif path.exists():
            kept.append(path)
    where = f"; left (PURGE=1 removes): {', '.join(map(str, kept))}" if kept else ""
    say(f"uninstalled{where}")


def refuse_others(layout: Layout) -> None:
    """Raise SetupError where another program's files are in the places of ours."""
    library, command = layout.at(layout.library), layout.at(layout.command)
    there = library.is_symlink() or library.exists()
    if there and not (library / "bin" / "dlsched").is_file():
        raise SetupError(f"{library} is not of dlsched's making: move it away")
    # Path.readlink is of Python 3.9.
    linked = command.is_symlink() and os.readlink(str(command)) == str(TARGET)  # noqa: PTH115
    if (command.is_symlink() or command.exists()) and not linked:
        raise SetupError(f"{command} is not of dlsched's making: move it away")
    units = (layout.unit, layout.cluster_unit)
    for path in (*units, layout.groups, layout.folders, SETTINGS / "dlsched.yaml"):
        # As a masked unit: writing there, or its mode, would change /dev/null.
        if layout.at(path).is_symlink():
            raise SetupError(f"{layout.at(path)} is a link (is it masked?): move it away")


def active() -> bool:
    """Whether the service runs now."""
    return subprocess.run(["systemctl", "-q", "is-active", UNIT], check=False).returncode == 0


def place(path: Path, text: str) -> None:
    """Write a file of the installation, readable by all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)


def link(path: Path, target: Path) -> None:
    """Make the link, replacing an older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Install dlsched as a service, or uninstall it."""
    parser = argparse.ArgumentParser(prog="python3 -m tools.install", description=main.__doc__)
    parser.add_argument("--prefix", type=Path, default=Path("/usr/local"))
    parser.add_argument("--destdir", type=Path, help="in place of the host's root, for packagers")
    actions = parser.add_subparsers(dest="action", required=True)
    installing = actions.add_parser("install")
    installing.add_argument("--wheels", type=Path, help="folder with all packages: no index")
    removing = actions.add_parser("uninstall")
    removing.add_argument("--purge", action="store_true", help="settings and state, too")
    removing.add_argument("--force", action="store_true", help="also when limits stay behind")
    options = parser.parse_args(arguments)
    os.umask(0o022)
    try:
        destdir = options.destdir.resolve() if options.destdir is not None else None
        layout = Layout(options.prefix, destdir)
        if options.action == "install":
            install(layout, options.wheels)
        else:
            uninstall(layout, purge=options.purge, force=options.force)
    except SetupError as error:
        say(f"error: {error}")
        return 1
    except OSError as error:
        say(f"error: {options.action}: {error.filename}: {error.strerror}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
