"""What the process that reads packets may still do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TRIES = """
import ctypes, os, socket
from dlsched.runtime.wire.child import confine, refuse_calls
libc = ctypes.CDLL(None, use_errno=True)
other = os.getpid()
tries = {
    "open": lambda: os.close(os.open("/", os.O_RDONLY)),
    "signal": lambda: os.kill(other, 0),
    "socket": lambda: socket.socket().close(),
    "process": os.fork,
}
confine()
assert refuse_calls()
os.close(2)
for name, attempt in tries.items():
    try:
        attempt()
    except PermissionError:
        print(name)
if libc.process_vm_readv(other, None, 0, None, 0, 0) < 0 and ctypes.get_errno() == 1:
    print("memory")
"""


@pytest.mark.process
@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="it has no filter")
def test_it_can_neither_open_signal_connect_nor_fork() -> None:
    ran = subprocess.run(
        (sys.executable, "-c", TRIES),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.split() == ["open", "signal", "socket", "process", "memory"]
