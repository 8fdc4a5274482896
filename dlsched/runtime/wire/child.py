"""The process that reads packets: without privileges, with nothing but two pipes.

Frames come in on its standard input: what to watch, blocks of packets, and the time to report;
each report goes out as one line of JSON. It imports all that it needs, gives up all its rights, and
only then reads the first byte.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import struct
import sys
from contextlib import suppress
from typing import BinaryIO

from dlsched.runtime.wire.meter import Meter

FRAME = struct.Struct("=BxxxII")
"""Kind, ring, length of what follows."""
WATCH, BLOCK, TICK = 1, 2, 3
TIME = struct.Struct("=q")
"""Of a tick: the wall clock in nanoseconds."""

UNPRIVILEGED = 65534
READ_BYTES = 256 << 10
"""Read at a time: some blocks."""
MEMORY_BYTES = 512 << 20
"""Address space: some ten times what full tables take."""
_PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE = 38, 4


def confine() -> None:
    """Give up all rights for good. Raises OSError where root cannot give up being root."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
        os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    bounds = {
        resource.RLIMIT_AS: MEMORY_BYTES,
        resource.RLIMIT_NOFILE: 3,  # those that it has
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
    }
    for kind, most in bounds.items():
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))


def serve(frames: BinaryIO, lines: BinaryIO) -> None:
    """Read frames until they end."""
    meter = Meter()
    while len(header := frames.read(FRAME.size)) == FRAME.size:
        kind, ring, length = FRAME.unpack(header)
        data = frames.read(length)
        if len(data) < length:
            return
        if kind == BLOCK:
            meter.block(ring, data)
        elif kind == TICK:
            report = meter.report(*TIME.unpack(data))
            lines.write(json.dumps(report, separators=(",", ":")).encode() + b"\n")
            lines.flush()
        elif kind == WATCH:
            asked = json.loads(data)
            meter.watch(
                {int(r): {int(p): n for p, n in one.items()} for r, one in asked["ports"].items()},
                {int(number): one for number, one in asked["skips"].items()},
            )


def main() -> None:
    os.chdir("/")
    confine()
    with open(0, "rb", buffering=READ_BYTES) as frames:
        serve(frames, sys.stdout.buffer)


if __name__ == "__main__":
    main()
