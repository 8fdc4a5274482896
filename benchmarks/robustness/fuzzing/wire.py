"""Packets, read by the meter of the wire: conversations of a drawn truth, and blocks of anything.

Promised: what `tests.runtime.wire.drawn_talks` and `drawn_blocks` hold it to.
"""

from __future__ import annotations

from benchmarks.robustness.fuzzing.trial import Target
from tests.runtime.wire.drawn_blocks import make_blocks, read_blocks
from tests.runtime.wire.drawn_talks import read_talk


def talks() -> Target:
    return Target("wire-talks", lambda rng: rng.randbytes(8), read_talk)


def blocks() -> Target:
    return Target("wire-bytes", make_blocks, read_blocks)
