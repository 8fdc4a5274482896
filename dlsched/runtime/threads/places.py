"""Where threads are while they compute: the kernel notes the place in a program every few
milliseconds of their CPU time (perf_event_open), and the code there is read. Nothing is stopped."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import re
import struct
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.threads.loops import AROUND_BYTES, known_machine, waits

PERIOD_NS = 1_000_000
"""CPU time of a thread from place to place. A second at a tenth of a core has some 100."""
RING_BYTES = 8 << 10
"""256 places, a quarter of a second on a whole core; what comes later is left out. It is locked
memory of the kernel, of which a user may have half a MiB for each CPU without a right."""
MAPS_BYTES = 256 << 10
_NAME = re.compile(rb"/(?:[^\n]*/)?([A-Za-z0-9._+-]{1,64})(?: \(deleted\))?")
"""Of a file with a plain name: it is shown, and a container chooses it."""

_SYSCALL = 298
_SOFTWARE, _CPU_CLOCK = 1, 0
_SAMPLE_TID, _SAMPLE_REGS_USER = 1 << 1, 1 << 12
_REG_IP = 1 << 8
_EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 5, 1 << 6
_CLOEXEC = 8
_RECORD_SAMPLE, _SAMPLE_BYTES = 9, 32
_HEAD_AT = 1024
_DISABLED = 1
_REFRESH = 0x2402
"""Enables it for so many samples. So one that is never closed, since its reader hangs in a process
that does not answer, costs its thread nothing more."""
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQQQQIiQII")


class NotAllowed(Exception):
    """The kernel does not let this process sample places, with the reason."""


class Thread:
    """The places of one thread, from now on; to be closed."""

    def __init__(self, thread: int) -> None:
        """Raises NotAllowed; ProcessLookupError: it has ended; OSError."""
        self._file = _opened(thread)
        try:
            self._ring = mmap.mmap(self._file, mmap.PAGESIZE + RING_BYTES)
            fcntl.ioctl(self._file, _REFRESH, RING_BYTES // _SAMPLE_BYTES)
        except OSError as error:
            os.close(self._file)
            raise NotAllowed(f"perf event: {error.strerror}") from error

    def places(self) -> list[int]:
        """Addresses at which it was in its program, since the beginning."""
        (head,) = struct.unpack_from("=Q", self._ring, _HEAD_AT)
        data, at, found = self._ring[mmap.PAGESIZE :], 0, []
        while at + _SAMPLE_BYTES <= min(head, RING_BYTES):
            kind, _, length = struct.unpack_from("=IHH", data, at)
            if kind == _RECORD_SAMPLE and length == _SAMPLE_BYTES:
                found.append(struct.unpack_from("=Q", data, at + 24)[0])
            if length < 8:
                break
            at += length
        return found

    def close(self) -> None:
        self._ring.close()
        os.close(self._file)


def _opened(thread: int) -> int:
    if not known_machine():
        raise NotAllowed("machine code is understood on x86-64 alone")
    libc = ctypes.CDLL(None, use_errno=True)
    number = 0
    # Without the right to see the kernel at work, what a thread does there is left out.
    for flags in (_DISABLED | _EXCLUDE_HV, _DISABLED | _EXCLUDE_HV | _EXCLUDE_KERNEL):
        fields = (_SOFTWARE, _ATTRIBUTES.size, _CPU_CLOCK, PERIOD_NS)
        sampled = (_SAMPLE_TID | _SAMPLE_REGS_USER, 0, flags, 0, 0, 0, 0, 0, _REG_IP, 0, 0, 0, 0, 0)
        attributes = ctypes.create_string_buffer(_ATTRIBUTES.pack(*fields, *sampled))
        file = libc.syscall(_SYSCALL, attributes, thread, -1, -1, _CLOEXEC)
        if file >= 0:
            return int(file)
        number = ctypes.get_errno()
        if number == errno.ESRCH:
            raise ProcessLookupError(number, os.strerror(number))
    raise NotAllowed(f"perf_event_open: {os.strerror(number)}")


def spun(process: int, places: Iterable[int], proc: Path = PROC) -> tuple[int, str]:
    """How many of these places of a process are in code that only waits, and the name of the file
    that most of them are from; empty: they are from none. Raises OSError: its memory cannot be
    read."""
    waiting: Counter[int] = Counter()
    memory = os.open(proc / str(process) / "mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for place, count in Counter(places).items():
            if place > AROUND_BYTES and waits(*_code(memory, place)):
                waiting[place] = count
    finally:
        os.close(memory)
    if not waiting:
        return 0, ""
    return waiting.total(), _name(process, waiting.most_common(1)[0][0], proc)


def _code(memory: int, place: int) -> tuple[bytes, int]:
    """The code around a place, and its offset in it."""
    page = place & -mmap.PAGESIZE
    for begin in (place - AROUND_BYTES, max(page, place - AROUND_BYTES)):
        with suppress(OSError):  # the page before may not be mapped
            return os.pread(memory, 2 * AROUND_BYTES, begin), place - begin
    return b"", 0


def _name(process: int, place: int, proc: Path) -> str:
    """The name of the file that is mapped at that place; empty: none is."""
    with suppress(OSError, ValueError), (proc / str(process) / "maps").open("rb") as file:
        for line in file.read(MAPS_BYTES).splitlines():
            first, _, rest = line.partition(b"-")
            if int(first, 16) <= place < int(rest[: rest.find(b" ")], 16):
                path = line.split(None, 5)[5:] or [b""]
                found = _NAME.fullmatch(path[0])
                return found[1].decode("ascii") if found else ""
    return ""
