"""Machine code that only waits, and code that computes, as compilers and libraries have it."""

from __future__ import annotations

import pytest

from dlsched.runtime.threads.places import waits

PAUSE, NOPS, TPAUSE = b"\xf3\x90", b"\x90" * 8, b"\x66\x0f\xae\xf1"
WORK = b"\xf2\x0f\x59\xc1\xf2\x0f\x58\xc2"
"""mulsd, addsd."""
PADDING = b"\xcc" * 600


def loop(body: bytes) -> bytes:
    """It, and a jump back to its begin while a word in memory stays the same."""
    body += b"\x39\x06"
    back = -(len(body) + 2)
    if back >= -128:
        return body + b"\x74" + back.to_bytes(1, "little", signed=True)
    return body + b"\x0f\x84" + (back - 4).to_bytes(4, "little", signed=True)


def at(code: bytes, offset: int) -> bool:
    return waits(PADDING + code + PADDING, len(PADDING) + offset)


@pytest.mark.parametrize("mark", [PAUSE, NOPS, TPAUSE, b"\xf2\x0f\xae\xf5"])
def test_a_loop_around_an_instruction_of_waiting_waits(mark: bytes) -> None:
    code = loop(mark)
    assert all(at(code, offset) for offset in range(len(code)))


def test_a_longer_loop_waits_everywhere_in_it() -> None:
    code = loop(WORK * 20 + PAUSE)  # ONNX Runtime's looks for work meanwhile
    assert at(code, 0)
    assert at(code, 160)
    assert not at(loop(WORK * 80 + PAUSE), 0), "more than a wait"


@pytest.mark.parametrize("code", [
    loop(WORK),
    NOPS + loop(WORK),  # what assemblers fill with, before a loop
    loop(PAUSE) + loop(WORK),
    PAUSE + WORK * 8,
    loop(WORK) + NOPS,
])  # fmt: skip
def test_a_loop_that_computes_does_not_wait_for_its_surroundings(code: bytes) -> None:
    assert not at(code, code.index(WORK) + 4)


def test_a_call_of_sched_yield_waits() -> None:
    code = b"\xf3\x0f\x1e\xfa\xb8\x18\x00\x00\x00\x0f\x05\x48\x3d\x01\xf0\xff\xff\x73\x01\xc3"
    assert at(code, 11)
    assert not at(code.replace(b"\xb8\x18", b"\xb8\x19"), 11), "another call"


def test_code_of_any_length_is_read() -> None:
    code = loop(PAUSE)
    assert waits(code, 1)
    assert not waits(b"", 0)
    assert not waits(code[:3], 1)
    assert not waits(b"\x74\x80" * 300, 300)
