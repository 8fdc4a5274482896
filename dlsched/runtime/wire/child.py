"""The process that reads packets: without privileges, with nothing but two pipes.

Frames come in on its standard input: what to watch, blocks of packets, and the time to report;
each report goes out as lines of JSON. It imports all that it needs, gives up all its rights, and
only then reads the first byte.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO

from dlsched.runtime.wire.bpf import filter_of
from dlsched.runtime.wire.meter import Meter

FRAME = struct.Struct("=BxxxII")
"""Kind, ring, length of what follows."""
WATCH, BLOCK, TICK = 1, 2, 3
TIME = struct.Struct("=q")
"""Of a tick: the wall clock in nanoseconds."""

LINE_BYTES_MAX = 128 << 10
"""Longest line of a report. What reads it holds Python's lock while it parses a line: 1 ms of this
length. One port has at most some 110 KiB, with a count in every bucket."""

UNPRIVILEGED = 65534
READ_BYTES = 256 << 10
"""Read at a time: some blocks."""
MEMORY_BYTES = 512 << 20
"""Address space: some ten times what full tables take."""
_PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 38, 4, 22
_SECCOMP_MODE_FILTER = 2
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4

_CALLS = {
    "x86_64": (0xC000003E, (0, 1, 3, 9, 10, 11, 12, 13, 14, 15, 25, 28, 60, 202, 219, 228, 231)),
    "aarch64": (
        0xC00000B7,
        (63, 64, 57, 222, 226, 215, 214, 134, 135, 139, 216, 233, 93, 98, 128, 113, 94),
    ),
}
"""By machine: its name in linux/audit.h, and the numbers of read, write, close, mmap, mprotect,
munmap, brk, rt_sigaction, rt_sigprocmask, rt_sigreturn, mremap, madvise, exit, futex,
restart_syscall, clock_gettime and exit_group."""


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


def refuse_calls() -> bool:
    """Have the kernel refuse all but reading, writing, memory and the end; whether it does. User
    `nobody` alone could signal, and read and write the memory of, all other processes of `nobody`,
    such as a metrics exporter in a container."""
    known = _CALLS.get(os.uname().machine)
    if known is None or sys.maxsize < 2**32:
        return False
    architecture, calls = known
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER_AT),
        *((_JUMP_IF_EQUAL, len(calls) - at, 0, call) for at, call in enumerate(calls)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    libc = ctypes.CDLL(None, use_errno=True)
    with filter_of(lines) as program:
        return not libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0)


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
            for line in lines_of(meter.report(*TIME.unpack(data))):
                lines.write(line)
            lines.flush()
        elif kind == WATCH:
            asked = json.loads(data)
            meter.watch(
                {int(r): {int(p): n for p, n in one.items()} for r, one in asked["ports"].items()},
                {int(number): one for number, one in asked["skips"].items()},
            )


def lines_of(report: dict[str, Any]) -> Iterator[bytes]:
    """The report in lines: as many ports in each as there is room for; the last one has the rest,
    and so says that the report is whole."""
    rest = {key: value for key, value in report.items() if key != "ports"}
    room = LINE_BYTES_MAX - len(_json(rest)) - len(b'{"ports":{}}\n')
    ports: list[bytes] = []
    for number, counted in report["ports"].items():
        port = b'"%b":%b' % (number.encode(), _json(counted))
        if ports and sum(map(len, ports)) + len(ports) + len(port) > room:
            yield b'{"ports":{%b}}\n' % b",".join(ports)
            ports = []
        ports.append(port)
    yield b'{"ports":{%b},%b\n' % (b",".join(ports), _json(rest)[1:])


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def main() -> None:
    os.chdir("/")
    confine()
    with open(0, "rb", buffering=READ_BYTES) as frames:
        refuse_calls()
        serve(frames, sys.stdout.buffer)


if __name__ == "__main__":
    main()
