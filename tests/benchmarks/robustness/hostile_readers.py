"""Readers that break each promise in turn, to see that fuzzing sees it."""

from __future__ import annotations

import os
import time
from random import Random

from benchmarks.robustness.fuzzing.trial import Broken, Target, told_line

_kept: list[bytes] = []
_descriptors: list[int] = []


def _one_byte(rng: Random) -> bytes:
    return rng.randbytes(1) * rng.randrange(1, 40)


def _target(answer: object, within_s: float = 1.0) -> Target:
    return Target("planted", _one_byte, answer, within_s)  # type: ignore[arg-type]


def well_behaved() -> Target:
    """Answers with what it was asked."""
    return _target(lambda data: data.hex())


def raises() -> Target:
    """Cannot read one byte in 256."""

    def answer(data: bytes) -> str:
        if 0x41 in data:
            raise KeyError("A")
        return "read"

    return _target(answer)


def steers() -> Target:
    """Tells text as it came."""
    return _target(lambda data: told_line(data.decode("latin-1")))


def dies() -> Target:
    """Ends its whole process at one byte in 256."""

    def answer(data: bytes) -> str:
        if 0x41 in data:
            os._exit(9)
        return "read"

    return _target(answer)


def hangs() -> Target:
    """Waits for ever, without spending any CPU, at one byte in 256."""

    def answer(data: bytes) -> str:
        if 0x41 in data:
            time.sleep(3600)
        return "read"

    return _target(answer)


def spins() -> Target:
    """Thinks for ever at one byte in 256."""

    def answer(data: bytes) -> str:
        while 0x41 in data:
            pass
        return "read"

    return _target(answer, within_s=0.05)


def grows() -> Target:
    """Keeps 64 KiB of every input."""

    def answer(data: bytes) -> str:
        _kept.append(data[:1] * 65_536)
        return "read"

    return _target(answer)


def leaks() -> Target:
    """Leaves a descriptor open at one byte in 16."""

    def answer(data: bytes) -> str:
        if data[0] < 16:
            _descriptors.append(os.open("/dev/null", os.O_RDONLY))
        return "read"

    return _target(answer)


def forgets() -> Target:
    """Answers otherwise each time."""
    return _target(lambda data: f"{data.hex()} {os.urandom(4).hex()}")


def breaks() -> Target:
    """Says itself that a promise is broken."""

    def answer(data: bytes) -> str:
        raise Broken("as it was meant to be")

    return _target(answer)
