"""Drawn conversations and bytes of a fixed seed; the fuzz of the wire draws many more."""

from __future__ import annotations

from random import Random

import pytest

from dlsched.runtime.wire.connection import Connection
from tests.mutation import Broken
from tests.runtime.wire.drawn_blocks import make_blocks, read_blocks
from tests.runtime.wire.drawn_talks import read_talk

SEED, TALKS = 5, 250


def answers(number: int) -> str:
    return read_talk(Random(f"{SEED}:{number}").randbytes(8))


def test_what_is_counted_of_drawn_talks_is_true() -> None:
    kinds = {answers(number).split()[0] for number in range(TALKS)}
    assert kinds == {"clean", "cut", "faults", "odd", "all"}


def test_any_bytes_are_read_within_bounds() -> None:
    for number in range(TALKS):
        assert read_blocks(make_blocks(Random(f"{SEED}:{number}")))


@pytest.mark.parametrize("name", ["client_missed", "server_missed", "server_ends", "_chunks"])
def test_a_connection_with_a_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, name, lambda *_, **__: None)
    with pytest.raises(Broken):
        for number in range(TALKS * 4):
            answers(number)
