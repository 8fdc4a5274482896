"""The emulated machine's kernel and first file system, from Debian's packages.

Owns their formats. It must not download anything, nor know what runs in the machine.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tools.steps import SetupError

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
