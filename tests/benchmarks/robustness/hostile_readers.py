"""Readers that break each promise in turn, to see that fuzzing sees it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from random import Random

from benchmarks.robustness.fuzzing.trial import Target, told_line

_kept: list[object] = []


def _target(answer: Callable[[bytes], str], within_s: float = 1.0) -> Target:
    def make(rng: Random) -> bytes:
        return rng.randbytes(1) * rng.randrange(1, 40)

    return Target("planted", make, answer, within_s)


def _at(hurt: Callable[[bytes], object], bytes_: int = 1, within_s: float = 1.0) -> Target:
    """Does that at so many of 256 bytes, from A on."""

    def answer(data: bytes) -> str:
        if (data[0] - 0x41) % 256 < bytes_:
            hurt(data)
        return "read"

    return _target(answer, within_s)


def raises() -> Target:
    """Cannot read one byte."""
    return _at({}.__getitem__)


def steers() -> Target:
    """Tells text as it came."""
    return _target(lambda data: told_line(data.decode("latin-1")))


def dies() -> Target:
    """Ends its whole process at one byte."""
    return _at(lambda _: os._exit(9))


def hangs() -> Target:
    """Waits for ever, without spending any CPU, at one byte."""
    return _at(lambda _: time.sleep(3600))


def spins() -> Target:
    """Thinks for ever at one byte."""

    def spin(_: bytes) -> None:
        while True:
            pass

    return _at(spin, within_s=0.05)


def grows() -> Target:
    """Keeps 64 KiB of every input."""
    return _at(lambda data: _kept.append(data[:1] * 65_536), 256)


def leaks() -> Target:
    """Leaves a descriptor open at one byte in 16."""
    return _at(lambda _: _kept.append(os.open("/dev/null", os.O_RDONLY)), 16)


def forgets() -> Target:
    """Answers otherwise each time."""
    return _target(lambda data: f"{data.hex()} {os.urandom(4).hex()}")
