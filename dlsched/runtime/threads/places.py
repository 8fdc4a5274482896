"""Where threads are while they compute: the kernel notes the place in a program every few
milliseconds of their CPU time (perf_event_open), and the code there is read. Nothing is stopped.

Machine code of x86-64 that only waits is recognised: loops around an instruction that has no other
use, and calls of sched_yield. The code is a container's, and hostile.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import re
import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from dlsched.runtime.cgroup.read import PROC

AROUND_BYTES = 512
"""Code that is read before and after the place of a thread."""
LOOP_BYTES = 512
"""A longer loop does something. ONNX Runtime's, the longest known, also looks for work in it."""
YIELD_BYTES = 24
"""About what glibc's function sched_yield has."""

_MARK = re.compile(rb"\xf3\x90|\x90{8}|[\x66\xf2]\x0f\xae[\xf0-\xf7]", re.DOTALL)
"""pause (libgomp, libomp, ONNX Runtime, ggml, and most others), eight times nop (OpenBLAS), tpause
and umwait."""
_MARKS = (b"\xf3\x90", b"\x90" * 8, b"\x0f\xae")
"""One of them is in each `_MARK`."""
_JUMP_BYTES = 6
"""The longest: one at which the thread is counts, too."""
_BACK = re.compile(
    rb"[\x70-\x7f\xe0-\xe3\xeb][\x80-\xff]|(?:\x0f[\x80-\x8f]|\xe9)..\xff\xff", re.DOTALL
)
"""Jumps back, by at most 128 bytes or 64 KiB. What looks like one may be part of another
instruction: such a loop would have to be around a mark and the thread, too."""
_YIELD = b"\xb8\x18\x00\x00\x00\x0f\x05"
"""mov $24, %eax; syscall."""


def known_machine() -> bool:
    """Whether code of this host is understood."""
    return platform.machine() == "x86_64"


def waits(code: bytes, at: int) -> bool:
    """Whether a thread at that offset of the code only waits."""
    if code.find(_YIELD, max(at - YIELD_BYTES, 0), at + YIELD_BYTES) >= 0:
        return True
    begin, end = max(at - LOOP_BYTES, 0), at + LOOP_BYTES
    if not any(code.find(mark, begin, end) >= 0 for mark in _MARKS):
        return False  # nearly all code, and thirty times as cheap
    marks = [(one.start(), one.end()) for one in _MARK.finditer(code, begin, end)]
    starts = [first for first, _ in marks]
    for jump in _BACK.finditer(code, max(at - _JUMP_BYTES, begin), end):
        bottom, size = jump.end(), 1 if jump.end() - jump.start() == 2 else 4
        top = bottom + int.from_bytes(code[bottom - size : bottom], "little", signed=True)
        around = begin <= top <= at < bottom and bottom - top <= LOOP_BYTES
        if around:  # a few of honest code, hundreds of hostile code
            first = bisect_left(starts, top)
            if first < len(marks) and marks[first][1] <= bottom:
                return True
    return False


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
