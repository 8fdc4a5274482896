"""Cleaning of what containers and files say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.cli.output import LogText, clean


@pytest.mark.parametrize(
    ("dirty", "bare"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x1bcreset", "reset"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\x9b31mC1", " 31mC1"),
        ("bell\x07", "bell "),
        ("\u202ereversed", " reversed"),
        ("größe € 日本", "größe € 日本"),
    ],
)
def test_clean(dirty: str, bare: str) -> None:
    assert clean(dirty) == bare


@given(st.text())
def test_nothing_that_steers_is_left(text: str) -> None:
    assert all(char in "\n\t" or char.isprintable() for char in clean(text))


@given(st.lists(st.binary(max_size=8)))
def test_a_log_in_any_pieces_is_safe_and_whole(pieces: list[bytes]) -> None:
    log = LogText()
    shown = "".join(log.feed(piece) for piece in pieces) + log.feed(b"", last=True)
    assert all(char in "\n\t" or char.isprintable() for char in shown)


@given(st.integers(0, 30))
def test_a_sequence_cut_in_two_is_still_one(cut: int) -> None:
    raw = "a\x1b[31mréd\x1b[0m\r\nb€\x1b]0;t\x07c".encode()
    log = LogText()
    shown = log.feed(raw[:cut]) + log.feed(raw[cut:]) + log.feed(b"", last=True)
    assert shown == "aréd\nb€c"
