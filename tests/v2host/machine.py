"""One boot of the emulated host: runs a command in it and shows what that prints.

Owns the emulator's process, which ends with ours however ours ends. No port, no network: what goes
in is a disk, what comes out is a pipe. It must not know what the command is about.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from importlib.metadata import distribution
from pathlib import Path

from tests.v2host.build import FOLDER, Built, make_disk
from tools.engine import REQUIRE
from tools.environment import ROOT
from tools.steps import SetupError, say, step

# ---------------------------------------------------------------------- packages

PINNED = ROOT / "requirements" / "runtime.txt"
FOR_TESTS = (
    *("dlsched", "hypothesis", "iniconfig", "packaging", "pluggy", "pytest", "pytest-timeout"),
    *("psutil", "sortedcontainers"),
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


PROJECT = ("benchmarks", "config", "dlsched", "examples", "pyproject.toml", "tests", "tools")
_BULKY = ("images", "results")
SIZE = "400M"
SIZE_OF_ENGINE = "1G"
MEMORY_MIB = 2048
CORES = 2

_ENDED = re.compile(r"v2host: ended with (\d+)")
# Not the time stamp counter: measured while this machine is busy, it runs several times too fast.
_KERNEL_WORDS = (
    "console=ttyS0 root=/dev/vda rw panic=-1 quiet apparmor=0 mitigations=off nokaslr "
    "no_timer_check tsc=unstable clocksource=acpi_pm random.trust_cpu=on net.ifnames=0 "
    "systemd.unified_cgroup_hierarchy=1 systemd.show_status=0"
)


def perform(
    built: Built,
    command: str,
    packages: Iterable[Path],
    within_s: float,
    *,
    first: Sequence[str] = (),
    engine: Path | None = None,
) -> int:
    """Boot, run a shell command in a copy of the project, and return its exit code.

    `packages` are files and folders of Python packages for it. `first` runs here, in the copy,
    which gets the byte code of all that this imports. `engine` is the tree of another Debian whose
    Docker Engine runs there. All that the command prints is printed. Raises SetupError when it does
    not end within the time, or the machine stops before.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="boot-", dir=FOLDER) as folder:
        work = Path(folder)
        _stage(work / "input", command, packages)
        _compile(work / "input" / "project", first)
        make_disk(work / "input", work / "input.img", SIZE)
        if engine is not None:
            make_disk(engine, work / "engine.img", SIZE_OF_ENGINE)
        return _boot(built, work, within_s)


def _stage(folder: Path, command: str, packages: Iterable[Path]) -> None:
    (folder / "project").mkdir(parents=True)
    (folder / "packages").mkdir()
    for name in PROJECT:
        _copy(ROOT / name, folder / "project" / name, _BULKY)
    for path in packages:
        _copy(path, folder / "packages" / path.name)
    (folder / "command").write_text(f"{command}\n", encoding="utf-8")


def _compile(project: Path, first: Sequence[str]) -> None:
    """Keep byte code beside the sources: in there each file would take 20 times as long."""
    with step("byte code"):
        for folder in (project / "dlsched", project.with_name("packages")):
            compileall.compile_dir(folder, quiet=2)
        if first:
            # The engine is in the emulated host.
            kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": "", REQUIRE: "0"}
            subprocess.run(
                first,
                cwd=project,
                env={**os.environ, **kept},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                check=True,
            )


def _copy(source: Path, target: Path, left_out: tuple[str, ...] = ()) -> None:
    # With times, so that compiled modules are taken for what they are: compiling is slow in there.
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*left_out))
    else:
        shutil.copy2(source, target)


def _boot(built: Built, work: Path, within_s: float) -> int:
    code: int | None = None
    late = threading.Event()
    # Killed by the kernel, too, when this process is killed.
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *_emulator(built, work)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=(work / "emulator.log").open("wb"),
        start_new_session=True,
    ) as machine:
        assert machine.stdout is not None

        def give_up() -> None:
            late.set()
            machine.kill()

        timer = threading.Timer(within_s, give_up)
        timer.start()
        try:
            for line in machine.stdout:
                text = line.decode(errors="replace").rstrip()
                if (ended := _ENDED.fullmatch(text)) is not None:
                    code = int(ended[1])
                    break
                sys.stdout.write(f"{text}\n")
                sys.stdout.flush()
        finally:
            timer.cancel()
            machine.kill()
    if code is not None:
        return code
    for log in ("emulator.log", "console.log"):
        for said in (work / log).read_text(errors="replace").splitlines()[-15:]:
            say(f"         | {said}")
    how = f"did not end within {within_s:.0f} s" if late.is_set() else "stopped before the end"
    raise SetupError(f"the emulated host {how} (see above)")


def _emulator(built: Built, work: Path) -> list[str]:
    # Emulation on purpose: it works also where a virtual machine has no KVM of its own.
    (work / "console.log").touch()
    return [
        "qemu-system-x86_64",
        *("-M", "q35", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max"),
        *("-smp", str(CORES), "-m", str(MEMORY_MIB)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-kernel", str(built.kernel), "-initrd", str(built.first), "-append", _KERNEL_WORDS),
        *("-serial", f"file:{work / 'console.log'}"),
        *_disk("root", built.disk),
        *_disk("input", work / "input.img"),
        *(_disk("engine", engine) if (engine := work / "engine.img").exists() else ()),
        *("-device", "virtio-serial-pci", "-chardev", "file,id=told,path=/dev/fd/1"),
        *("-device", "virtserialport,chardev=told,name=told"),
    ]


def _disk(name: str, path: Path) -> tuple[str, ...]:
    # A snapshot: what the machine writes is gone with it, and several may run at once.
    drive = f"if=none,id={name},file={path},format=raw,cache=unsafe,snapshot=on"
    return "-drive", drive, "-device", f"virtio-blk-pci,drive={name}"
