"""Recognises machine code of x86-64 that only waits: loops around an instruction that has no other
use, and calls of sched_yield. Pure. The code is a container's, and hostile."""

from __future__ import annotations

import platform
import re
from bisect import bisect_left

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
