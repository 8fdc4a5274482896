"""A host with cgroup v2, systemd and Docker as files: kernel, first file system, disk.

Owns .build/v2host, which is made once and again only when what it is made from has changed. It
must not start anything.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools import debian
from tools.environment import BUILD, Stamp
from tools.steps import SetupError, run_step, step

# ---------------------------------------------------------------------- kernel, first file system

MODULES = (
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "overlay",
)
"""What Debian's cloud kernel has not built in, each after those that it needs."""

_SECTOR_BYTES = 512
_SETUP_SECTORS_AT = 0x1F1
_PAYLOAD_AT = 0x248
_LZ4_MAGIC = b"\x02\x21\x4c\x18"


def uncompressed(bz_image: Path) -> bytes:
    """The kernel itself: emulated, unpacking it would take longer than booting it.

    Raises SetupError where it is packed otherwise than Debian packs it.
    """
    image = bz_image.read_bytes()
    offset, length = struct.unpack_from("<II", image, _PAYLOAD_AT)
    begin = (image[_SETUP_SECTORS_AT] + 1) * _SECTOR_BYTES + offset
    payload = image[begin : begin + length - 4]  # the last four bytes are the unpacked length
    if not payload.startswith(_LZ4_MAGIC):
        raise SetupError(f"{bz_image.name}: not packed with lz4")
    done = subprocess.run(["lz4", "-dcq"], input=payload, capture_output=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"{bz_image.name}: lz4: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def first_file_system(first: Path, busybox: Path, modules: Path) -> bytes:
    """A cpio archive with `first` as what runs first, busybox, and the drivers under `modules`."""
    found = [next(modules.rglob(f"{name}.ko")) for name in MODULES]
    entries = [
        *((name, 0o40755, b"", (0, 0)) for name in ("bin", "modules", "dev", "proc", "root")),
        ("init", 0o100755, first.read_bytes(), (0, 0)),
        ("bin/busybox", 0o100755, busybox.read_bytes(), (0, 0)),
        # The order of the names is the order in which they are loaded.
        *(
            (f"modules/{number:02}-{path.name}", 0o100644, path.read_bytes(), (0, 0))
            for number, path in enumerate(found)
        ),
        ("dev/console", 0o20600, b"", (5, 1)),
    ]
    return b"".join(_cpio(entries))


def _cpio(entries: list[tuple[str, int, bytes, tuple[int, int]]]) -> Iterator[bytes]:
    for inode, (name, mode, data, device) in enumerate([*entries, ("TRAILER!!!", 0, b"", (0, 0))]):
        links, owner, group, time, check = 1, 0, 0, 0, 0
        numbers = (inode, mode, owner, group, links, time, len(data), 0, 0, *device)
        fields = b"".join(b"%08X" % number for number in (*numbers, len(name) + 1, check))
        yield _padded(b"070701" + fields + name.encode() + b"\0")
        yield _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


FOLDER = BUILD / "v2host"
KERNEL = "linux-image-cloud-amd64"
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "lz4": "lz4",
    "mke2fs": "e2fsprogs",
}
"""Debian packages by the command that is needed of them."""

PACKAGES = ("busybox-static", "dbus", "docker.io", "procps", "python3", "systemd-sysv")
GUEST = Path(__file__).parent / "guest"
DISK = "3G"

# What boots slower than it is worth, or waits for devices that are not there.
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "getty.target",
    "modprobe@.service",
    "serial-getty@ttyS0.service",
    "systemd-binfmt.service",
    "systemd-journal-flush.service",
    "systemd-logind.service",
    "systemd-pstore.service",
    "systemd-timesyncd.service",
)
FILES = {
    "etc/hostname": "v2host\n",
    "etc/hosts": "127.0.0.1 localhost v2host\n",
    "etc/fstab": "",
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "etc/docker/daemon.json": '{"bridge": "none", "iptables": false, "ip6tables": false}\n',
}


@dataclass(frozen=True, slots=True)
class Built:
    """What a machine is started from."""

    kernel: Path
    first: Path
    disk: Path
    """Never written: a machine keeps its changes to itself."""


def build() -> Built:
    """Make it, unless it is there. Raises SetupError, in one line, where it cannot be made."""
    _ready()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _made()


def _made() -> Built:
    built = Built(FOLDER / "vmlinux", FOLDER / "first.cpio", FOLDER / "disk.img")
    sources = [Path(__file__), *sorted(GUEST.iterdir())]
    stamp = Stamp("v2host", [source.read_bytes() for source in sources])
    if stamp.fits() and all(path.is_file() for path in (built.kernel, built.first, built.disk)):
        return built
    stamp.clear()
    # Not in the temporary folder of the machine, which may be small or without device files.
    with tempfile.TemporaryDirectory(prefix="build-", dir=FOLDER) as folder:
        _build(built, Path(folder))
    stamp.set()
    return built


def _ready() -> None:
    if platform.machine() != "x86_64":
        raise SetupError(f"the emulated cgroup v2 host needs x86_64; this is {platform.machine()}")
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        debian.install(missing, "the emulated cgroup v2 host")
    if not debian.installable():
        raise SetupError("the emulated cgroup v2 host is built as root, on Debian")


def _build(built: Built, work: Path) -> None:
    run_step("Debian package lists", [*debian.APT_GET, "update"])
    run_step("downloading the kernel", ["apt-get", "-q", "download", _kernel_package()], cwd=work)
    (package,) = work.glob("*.deb")
    unpacked, root = work / "kernel", work / "root"
    run_step("unpacking the kernel", ["dpkg", "-x", str(package), str(unpacked)])
    debian.bootstrap(root, PACKAGES, "Debian with systemd and Docker")
    (packed,) = (unpacked / "boot").glob("vmlinuz-*")
    built.kernel.write_bytes(uncompressed(packed))
    first = first_file_system(GUEST / "first", root / "bin" / "busybox", unpacked / "lib")
    built.first.write_bytes(first)
    with step("settling in"):
        _settle(root)
    make_disk(root, built.disk, DISK)


def _kernel_package() -> str:
    """The package that the cloud kernel's name stands for now. Raises SetupError."""
    done = subprocess.run(
        ["apt-cache", "depends", KERNEL], capture_output=True, text=True, check=False
    )
    words = [line.split() for line in done.stdout.splitlines()]
    found = [word[1] for word in words if word[:1] == ["Depends:"] and "linux-image" in word[1]]
    if not found:
        raise SetupError(f"the emulated cgroup v2 host needs Debian's {KERNEL}, which apt lacks")
    return found[0]


def _settle(root: Path) -> None:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")
    shutil.copy2(GUEST / "perform", root / "usr" / "local" / "sbin")
    units = root / "etc" / "systemd" / "system"
    shutil.copy2(GUEST / "perform.service", units)
    (units / "multi-user.target.wants" / "perform.service").symlink_to("../perform.service")
    base = root / "usr" / "local" / "lib" / "base" / "bin"
    base.mkdir(parents=True)
    shutil.copy2(root / "bin" / "busybox", base)
    for name in ("sh", "sleep"):
        (base / name).symlink_to("busybox")
    for unit in MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to(os.devnull)
    for surplus in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
        shutil.rmtree(root / surplus, ignore_errors=True)


def make_disk(folder: Path, disk: Path, size: str) -> None:
    """Make `disk` a file system of that size with what is in `folder`. Raises SetupError."""
    disk.unlink(missing_ok=True)
    features = ["-O", "^has_journal,^metadata_csum,^64bit"]
    make = ["mke2fs", "-q", "-F", "-t", "ext4", *features, "-d", str(folder), str(disk), size]
    run_step(f"disk {disk.name}", make)
