"""Block-buffered output is recognized, and other output is not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.runtime.progress.log_lines import BLOCK_BYTES, BURSTS, Bursts, LogBatch, LogLines


def after(*sizes: int, apart_s: float = 20.0, line: int = 80) -> bool:
    bursts = Bursts()
    for number, size in enumerate(sizes):
        lines = b"x" * (line - 1) + b"\n"
        bursts.add(apart_s * number, (lines * (size // line + 1))[:size])
    bursts.add(apart_s * len(sizes), b"x")
    return bursts.buffered


@pytest.mark.parametrize("block", [BLOCK_BYTES, 2 * BLOCK_BYTES])
def test_bursts_of_full_buffers_are_recognized(block: int) -> None:
    first = 700  # whatever was printed before
    assert after(first, block - 30, block + 41, block - 3)
    assert not after(first, block - 30, block + 41)
    assert not after(first, block - 30, block + 41, block - 3, 400), "it flushes since"
    assert not after(first, *[block - 30] * 5, apart_s=0.1), "it prints all the time"
    assert not after(first, *[block - 1000] * 5), "blocks of its own"


@given(sizes=st.lists(st.integers(1, 3500), max_size=20))
def test_small_writes_are_never_taken_for_buffers(sizes: list[int]) -> None:
    assert not after(*sizes)


@given(
    sizes=st.lists(st.integers(0, 20_000), min_size=1, max_size=12),
    line=st.integers(1, 8000),
    apart_s=st.floats(0.0, 100.0),
)
def test_any_log_gets_an_answer_and_loss_begins_anew(
    sizes: list[int], line: int, apart_s: float
) -> None:
    bursts = Bursts()
    for number, size in enumerate(sizes):
        bursts.add(apart_s * number, b"x" * size + b"\n" * (size % line == 0))
        assert bursts.buffered in (False, True)
    bursts.missed()
    assert not bursts.buffered


PROGRAM = "for step in range(2000): print(f'step {step} loss {1 / (step + 1):.5f}')"


@pytest.mark.process
@pytest.mark.parametrize(("unbuffered", "found"), [("", True), ("1", False)])
def test_what_python_writes_into_a_pipe(unbuffered: str, found: bool) -> None:
    """Its writes as they are, a minute apart; the engine hands on whole lines only."""
    ours, theirs = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=theirs,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONPATH": ""},
    ) as program:
        os.close(theirs)
        with os.fdopen(ours, "rb") as pipe:
            printed = pipe.read()
        assert program.wait() == 0
    lines = LogLines(r"step (?P<step>\d+) loss (?P<loss>\S+)")
    size = 2 * BLOCK_BYTES if found else 40
    whole = 0
    for write in range(len(printed) // size):
        end = printed.rfind(b"\n", 0, size * (write + 1)) + 1
        chunk, whole = printed[whole:end], end
        lines.take(chunk, lines.parsed(chunk), 60.0 * write, LogBatch())
    assert lines.fact.buffered == found
    assert len(printed) > (BURSTS + 1) * 2 * BLOCK_BYTES
