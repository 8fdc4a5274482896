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

PID = 7
WAITED_S = 10.0
"""A call that takes longer hangs."""

SERVER = """
import ctypes, os, struct, sys
folder, changes_root = sys.argv[1], sys.argv[2] == "root"
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 0x44000, None):
    sys.exit("unshare")
fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
if libc.mount(b"hostile", os.fsencode(folder), b"fuse", 0, options.encode()):
    sys.exit("mount")

def answer(request, body):
    os.write(fuse, struct.pack("<IiQ", 16 + len(body), 0, request) + body)

if changes_root:
    pid = os.fork()
    if not pid:
        os.close(fuse)
        os.chroot(folder)
        os.write(1, f"{os.getpid()}\\n".encode())
        os.read(0, 1)
        os._exit(0)
else:
    os.write(1, f"{os.getpid()}\\n".encode())
while True:
    data = os.read(fuse, 1 << 20)
    operation, request = struct.unpack_from("<IQ", data, 4)
    if operation == 26:  # the kernel says hello
        major, minor = 7, 31
        answer(request, struct.pack("<IIIIHHIIHHI7I", major, minor, 0, 0, 1, 1, 4096, 1, *[0] * 10))
    elif operation == 34:  # whether it may be the root
        answer(request, b"")
    elif operation == 3 and changes_root:  # what the root is; nothing else is ever answered
        attributes = struct.pack("<6Q10I", 1, *[0] * 5, *[0] * 3, 0o40755, 1, *[0] * 5)
        answer(request, struct.pack("<QII", 1000, 0, 0) + attributes)
"""


@contextmanager
def hostile(folder: Path, *, changes_root: bool = False) -> Iterator[int]:
    """A process with a file system at that folder that never answers, or with it as its root."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("only root mounts such a file system")
    command = [sys.executable, "-c", SERVER, str(folder), "root" if changes_root else "folder"]
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
@pytest.mark.parametrize("changes_root", [False, True], ids=["folder", "root"])
def test_no_read_waits_for_a_file_system_that_never_answers(
    tmp_path: Path, changes_root: bool
) -> None:
    with hostile(tmp_path, changes_root=changes_root) as pid:
        found: list[SourceReading] = []
        path = "/out/metrics.jsonl" if changes_root else f"{tmp_path}/out/metrics.jsonl"
        with closing(SidecarReader(pid, path, expect=lambda: True)) as reader:
            assert within(lambda: found.append(reader.read(0.0)))
        assert "may never answer" in str(found[0].problem)

        def peer() -> None:
            with pytest.raises(PermissionError, match="never"):
                _peer(pid, "eth0", Path("/proc"))

        assert not changes_root or within(peer)


@pytest.mark.parametrize(
    ("line", "kind", "hangs"),
    [
        ("{} 1 9:x / /a rw - ext4 /dev/a rw", "ext4", False),
        ("{} 1 9:x / /a rw - fuse.a a rw", "fuse.a", True),
        ("{} 1 9:x / /a rw - nfs4 a rw", "nfs4", True),
        ("{} 1 DEVICE / /a rw - nfs4 a rw", "nfs4", False),
        ("9999999 1 9:x / /a\u2028{} 1 9:x / /b rw - tmpfs a rw", "", True),
    ],
    ids=["disk", "own", "network", "host's", "forged"],
)
def test_a_mount_is_known_by_its_number(tmp_path: Path, line: str, kind: str, hangs: bool) -> None:
    device = Path("/proc/self/mountinfo").read_bytes().split()[2].decode()
    (tmp_path / str(PID)).mkdir()
    descriptor = os.open(tmp_path, os.O_PATH)
    try:
        text = line.format(mount_of(descriptor).decode()).replace("DEVICE", device)
        (tmp_path / str(PID) / "mountinfo").write_text(f"broken\n{text}\n", encoding="utf-8")
        assert kind_of(descriptor, PID, tmp_path) == kind
        assert may_hang(descriptor, PID, tmp_path) is hangs
    finally:
        os.close(descriptor)
