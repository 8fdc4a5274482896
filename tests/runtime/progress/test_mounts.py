"""Files that a container has on a file system of its own, which never answers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dlsched.runtime.progress.mounts import kind_of, may_hang, mount_of
from dlsched.runtime.progress.sidecar import SidecarReader, SourceReading
from dlsched.runtime.wire.interfaces import _peer

PID, PARENT = 7, 6
WAITED_S = 10.0
"""A call that takes longer hangs."""

SERVER = """
import ctypes, os, struct, sys
folder, own = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)

def mount(source, target, kind, flags, options):
    if libc.mount(source, os.fsencode(target), kind, flags, options.encode()):
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")

if libc.unshare(0x20000):
    sys.exit("unshare")
mount(b"none", "/", None, 0x44000, "")
fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
inner = folder + "-inner" if own == "overlay" else folder
other = folder + "-other"
os.makedirs(inner, exist_ok=True)
os.makedirs(other, exist_ok=True)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
mount(b"hostile", inner, b"fuse", 0, options)
if os.fork():  # its parent is outside, as that of a container's first process
    os.close(fuse)
    if own == "root":
        os.chroot(inner)
    elif own == "overlay":
        mount(b"overlay", folder, b"overlay", 0, f"lowerdir={inner}:{other}")
    os.write(1, f"{os.getpid()}\\n".encode())
    os.read(0, 1)
    os._exit(0)
libc.prctl(1, 9)  # ends with the other

def answer(request, body, error=0):
    os.write(fuse, struct.pack("<IiQ", 16 + len(body), -error, request) + body)

while True:
    data = os.read(fuse, 1 << 20)
    operation, request = struct.unpack_from("<IQ", data, 4)
    if operation == 26:  # the kernel says hello
        major, minor = 7, 31
        answer(request, struct.pack("<IIIIHHIIHHI7I", major, minor, 0, 0, 1, 1, 4096, 1, *[0] * 10))
    elif operation == 34:  # whether it may be the root
        answer(request, b"")
    elif operation == 3 and own == "root":  # what the root is
        attributes = struct.pack("<6Q10I", 1, *[0] * 5, *[0] * 3, 0o40755, 1, *[0] * 5)
        answer(request, struct.pack("<QII", 1000, 0, 0) + attributes)
    elif operation == 17:  # how large names may be, for the overlay; nothing else is ever answered
        answer(request, struct.pack("<5Q10I", *[0] * 5, 4096, 255, 4096, *[0] * 7))
    elif operation == 22:
        answer(request, b"", 38)
"""


@contextmanager
def hostile(folder: Path, own: str) -> Iterator[int]:
    """A process with a file system that never answers at that folder, or as its root, or below an
    overlay at that folder."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("only root mounts such a file system")
    command = [sys.executable, "-c", SERVER, str(folder), own]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            if not (line := server.stdout.readline()):
                pytest.skip(f"this host allows no such file system: {server.stderr.read()!r}")
            yield int(line)
        finally:
            server.kill()  # which also ends the calls that wait for it


def within(call: Callable[[], None]) -> bool:
    """Whether it ends."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(WAITED_S)
    return not thread.is_alive()


@pytest.mark.process
@pytest.mark.parametrize("own", ["folder", "root", "overlay"])
def test_no_read_waits_for_a_file_system_that_never_answers(tmp_path: Path, own: str) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    with hostile(folder, own) as pid:
        found: list[SourceReading] = []
        path = "/out/metrics.jsonl" if own == "root" else f"{folder}/out/metrics.jsonl"
        with closing(SidecarReader(pid, path, expect=lambda: True)) as reader:
            assert within(lambda: found.append(reader.read(0.0)))
        assert "may never answer" in str(found[0].problem)

        def peer() -> None:
            with pytest.raises(PermissionError, match="never"):
                _peer(pid, "eth0", Path("/proc"))

        assert own != "root" or within(peer)


@pytest.fixture
def container(tmp_path: Path) -> Path:
    """The files of a container's first process; its mounts are to be written."""
    (tmp_path / str(PID)).mkdir()
    (tmp_path / str(PID) / "stat").write_text(f"{PID} (a) R 1) S {PARENT} {PID} {PID}\n")
    return tmp_path / str(PID)


@pytest.fixture
def held(container: Path) -> Iterator[int]:
    descriptor = os.open(container, os.O_PATH)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize(
    ("line", "kind", "hangs"),
    [
        ("{} 1 9:x / /a rw - ext4 /dev/a rw", "ext4", True),
        ("{} 1 9:x / / rw - overlay overlay rw", "overlay", True),
        ("{} 1 9:x / /a rw - fuse.a a rw", "fuse.a", True),
        ("{} 1 9:x / /a rw - tmpfs a rw", "tmpfs", False),
        ("{} 1 DEVICE / /a rw - nfs4 a rw", "nfs4", False),
        ("{} 1 DEVICE /1/maps /a rw - proc a rw", "proc", True),
        ("9999999 1 9:x / /a\u2028{} 1 9:x / /b rw - tmpfs a rw", "", True),
    ],
    ids=["own", "overlay", "fuse", "memory", "host's", "proc", "forged"],
)
def test_a_mount_is_known_by_its_number(
    container: Path, held: int, line: str, kind: str, hangs: bool
) -> None:
    device = Path("/proc/self/mountinfo").read_bytes().split()[2].decode()
    text = line.format(mount_of(held).decode()).replace("DEVICE", device)
    (container / "mountinfo").write_text(f"broken\n{text}\n", encoding="utf-8")
    assert kind_of(held, PID, container.parent) == kind
    assert may_hang(held, PID, container.parent) is hangs


@pytest.mark.parametrize(
    ("process", "hangs"), [(1, False), (PARENT, False), (8, True)], ids=["host", "engine", "other"]
)
def test_what_the_host_or_the_engine_has_mounted_is_trusted(
    container: Path, held: int, process: int, hangs: bool
) -> None:
    line = f"{mount_of(held).decode()} 1 9:x / / rw - overlay overlay rw\n"
    (container / "mountinfo").write_text(line)
    (container.parent / str(process)).mkdir()
    (container.parent / str(process) / "mountinfo").write_text(f"2 1 9:xy / / rw - a a rw\n{line}")
    assert may_hang(held, PID, container.parent) is hangs


def test_a_list_of_mounts_is_read_up_to_a_bound(container: Path, held: int) -> None:
    line = f"{mount_of(held).decode()} 1 9:x / /a rw - tmpfs a rw\n"
    (container / "mountinfo").write_text(line.ljust(1024 * 1024))
    assert not may_hang(held, PID, container.parent)
    (container / "mountinfo").write_text(line.ljust(1024 * 1024 + 1))
    with pytest.raises(OSError, match="too many mounts"):
        may_hang(held, PID, container.parent)


def test_a_mount_without_a_number_is_refused() -> None:
    with pytest.raises(OSError, match="does not show"):
        mount_of(-1)
