"""Programs of the kernel's classic packet filter, as sockets and seccomp take them
(linux/filter.h)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

Line = tuple[int, int, int, int]
"""Opcode, distance of the jump if true, if false, and the constant."""


@contextmanager
def filter_of(lines: Iterable[Line]) -> Iterator[bytes]:
    """The structure that the kernel takes; its memory lives as long as the context."""
    packed = [struct.pack("=HBBI", *line) for line in lines]
    memory = ctypes.create_string_buffer(b"".join(packed))
    yield struct.pack("HL", len(packed), ctypes.addressof(memory))
