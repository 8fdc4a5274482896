"""The fuzz of values: a wrong reader is found, and the real ones are right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.robustness.readings import READERS, Drawn, Numbers, Reader, tried


def test_a_reader_that_adds_one_is_wrong() -> None:
    gauges = READERS["gauge pages"]

    def read(drawn: Drawn) -> Iterator[Numbers | str]:
        for got in gauges.read(drawn):
            value = None if isinstance(got, str) else got.exact[0]
            yield Numbers((value + 1.0,)) if isinstance(value, float) else got

    classes, wrong = tried("gauge pages", Reader(gauges.draw, read), 1, range(50))
    assert classes["WRONG"] > 25
    assert wrong[0].startswith("input ") and "val_acc" in wrong[0]


def test_a_reader_that_refuses_all_is_found() -> None:
    draw = READERS["gauge pages"].draw
    refusing = Reader(draw, lambda drawn: ["no" for _ in drawn.parts])
    classes, _ = tried("gauge pages", refusing, 1, range(50))
    assert classes["refused, readable"] > 25 and not classes["WRONG"]
    silent = Reader(draw, lambda drawn: ["" for _ in drawn.parts])
    assert tried("gauge pages", silent, 1, range(50))[0]["WRONG"] == 50


@pytest.mark.parametrize("name", READERS)
def test_readers_read_what_is_true(name: str) -> None:
    classes, wrong = tried(name, READERS[name], 3, range(40))
    assert not wrong
    assert classes["exact"] + classes["interval"] > 20
