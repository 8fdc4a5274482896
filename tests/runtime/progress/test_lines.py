"""Cutting bytes into lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlsched.runtime.progress.sidecar import Lines


def cut(chunks: list[bytes], most_bytes: int, *, amid: bool = False) -> list[bytes | None]:
    lines = Lines(most_bytes, amid=amid)
    return [line for chunk in chunks for line in lines.cut(chunk)]


def test_a_line_may_come_in_pieces() -> None:
    assert cut([b"a", b"b\nc\n", b"", b"d"], 10) == [b"ab", b"c"]


def test_a_line_that_is_too_long_is_left_out_once_and_no_more() -> None:
    assert cut([b"12345", b"67890", b"x\nnext\n"], 6) == [None, b"next"]
    assert cut([b"123456\nnext\n"], 6) == [None, b"next"]


def test_what_a_stream_begins_amid_is_left_out() -> None:
    assert cut([b"ail", b"\nwhole\n"], 10, amid=True) == [b"whole"]


@given(st.lists(st.binary(max_size=8)))
def test_how_it_is_cut_does_not_matter_and_nothing_grows(chunks: list[bytes]) -> None:
    whole = b"".join(chunks).split(b"\n")[:-1]
    assert [line for line in cut(chunks, 5) if line is not None] == [
        line for line in whole if len(line) < 5
    ]
