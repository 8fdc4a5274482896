"""That fuzzing sees what it looks for; some inputs for every reader; all that was ever found."""

from __future__ import annotations

import pytest

from benchmarks.robustness import fuzz
from benchmarks.robustness.fuzzing.trial import (
    FIXTURES,
    Refused,
    kept_inputs,
    tried,
)
from tests.benchmarks.robustness import hostile_readers
from tests.lanes import but_the_first_long

INPUTS = 500
SEED = 2

READERS = f"{hostile_readers.__name__}:"


def fuzzed(reader: str, inputs: int = 2000, silent_s: float = 60.0) -> fuzz.Tally:
    """That planted reader, in a process of its own."""
    maker = f"{READERS}{reader}"
    return fuzz.run("planted", SEED, inputs, lambda _: None, maker=maker, silent_s=silent_s)


@pytest.mark.timed
@pytest.mark.parametrize("name", but_the_first_long(fuzz.TARGETS))
def test_a_first_handful_of_inputs_breaks_no_promise(name: str) -> None:
    target = fuzz.load(fuzz.TARGETS[name])
    tally = fuzz.Tally(name)
    for _ in fuzz.work(target, SEED, INPUTS, tally):
        pass
    target.close()
    assert (tally.found, tally.executions) == ([], INPUTS)
    assert tally.answers > 25, "hardly any input gets past the reader's door"


def test_most_drawn_patterns_come_to_read_lines() -> None:
    target = fuzz.load(fuzz.TARGETS["lines"])
    refused = 0
    for number in range(INPUTS):
        try:
            target.answer(fuzz.input_of(target, SEED, number))
        except Refused:
            refused += 1
    assert refused < INPUTS / 2
    target.close()


@pytest.mark.timed
@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_what_was_found_once_stays_mended(name: str) -> None:
    target = fuzz.load(fuzz.TARGETS[name])
    found = {path.name: tried(target, path.read_bytes())[1] for path in kept_inputs(name)}
    target.close()
    assert not any(found.values()), found


def test_every_kept_input_is_one_of_a_known_reader() -> None:
    assert {path.name for path in FIXTURES.iterdir()} <= set(fuzz.TARGETS)


@pytest.mark.process
def test_a_process_that_dies_is_found_with_its_input_and_replaced() -> None:
    tally = fuzzed("dies", 600)
    assert all("the process ended" in what for what, _, _ in tally.found)
    assert tally.executions == 600
    assert {data[:2] for _, data, _ in tally.found} == {b"A".hex()}
    assert tally.last["RSS"] > 0, "a later process came to the end"


@pytest.mark.process
@pytest.mark.parametrize(
    ("reader", "inputs", "told"),
    [
        ("raises", 2000, "KeyError"),
        ("steers", 2000, "U+####"),
        ("grows", 1500, "memory grew"),
        ("leaks", 2000, "descriptors"),
        ("forgets", 300, "another answer to the same input"),
        pytest.param("hangs", 400, "hung", marks=pytest.mark.long),
        pytest.param("spins", 400, "_TooLong", marks=pytest.mark.long),
    ],
)
def test_each_broken_promise_is_found(reader: str, inputs: int, told: str) -> None:
    # Of a host that is busy for 3 s every reader hangs, beside that one.
    tally = fuzzed(reader, inputs, silent_s=3.0 if reader == "hangs" else 60.0)
    assert any(told in what for what, _, _ in tally.found)
