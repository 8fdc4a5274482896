"""That fuzzing sees what it looks for; some inputs for every reader; all that was ever found."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.robustness import fuzz
from benchmarks.robustness.fuzzing.trial import (
    FIXTURES,
    Broken,
    Target,
    kept_inputs,
    told_line,
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
    told = list(fuzz.work(target, SEED, 0, INPUTS))
    target.close()
    assert [message for message in told if "finding" in message] == []
    end = next(message for message in told if "last" in message)
    assert end["at"] == INPUTS
    assert end["kinds"] > 30, "hardly any input gets past the reader's door"


@pytest.mark.timed
@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_what_was_found_once_stays_mended(name: str) -> None:
    target = fuzz.load(fuzz.TARGETS[name])
    found = {path.name: tried(target, path.read_bytes())[1] for path in kept_inputs(name)}
    target.close()
    assert not any(found.values()), found


def test_every_kept_input_is_one_of_a_known_reader() -> None:
    assert {path.name for path in FIXTURES.iterdir()} <= set(fuzz.TARGETS)


@pytest.mark.timed
def test_the_same_number_is_always_the_same_input() -> None:
    for name, maker in fuzz.TARGETS.items():
        first, second = fuzz.load(maker), fuzz.load(maker)
        once = [fuzz.input_of(first, SEED, number) for number in range(50)]
        assert once == [fuzz.input_of(second, SEED, number) for number in range(50)], name
        assert len(set(once)) > 25
        first.close()
        second.close()


@pytest.mark.process
def test_a_well_behaved_reader_is_found_to_be_one() -> None:
    tally = fuzzed("well_behaved", 3000)
    assert (tally.executions, tally.findings) == (3000, [])
    assert tally.first["RSS"] > 0
    assert tally.answers > 100


@pytest.mark.process
def test_an_exception_is_found_with_its_input() -> None:
    tally = fuzzed("raises")
    (finding,) = tally.findings
    assert "KeyError" in finding.what
    assert finding.data.startswith(b"A")
    assert tally.executions == 2000, "the others are tried all the same"


@pytest.mark.process
def test_a_process_that_dies_is_found_with_its_input_and_replaced() -> None:
    tally = fuzzed("dies", 600)
    assert all("the process ended" in finding.what for finding in tally.findings)
    assert tally.executions == 600
    assert {finding.data[:1] for finding in tally.findings} == {b"A"}
    assert tally.last["RSS"] > 0, "a later process came to the end"


@pytest.mark.process
@pytest.mark.parametrize(
    ("reader", "inputs", "told"),
    [
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
    assert any(told in finding.what for finding in tally.findings)


@pytest.mark.timed
@pytest.mark.parametrize("often", [True, False])
def test_an_answer_is_slow_that_is_slow_each_time(often: bool) -> None:
    tries: list[bytes] = []

    def answer(data: bytes) -> str:
        tries.append(data)
        end_s = time.process_time() + (0.1 if often or len(tries) == 1 else 0.0)
        while time.process_time() < end_s:
            pass
        return "read"

    _, finding, _ = tried(
        Target("planted", lambda rng: rng.randbytes(1), answer, within_s=0.05), b"A"
    )
    assert (finding is not None and "slower than 0.05 s" in finding.what) is often
    assert len(tries) > 1


@pytest.mark.process
def test_the_whole_run_prints_and_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.publish.results.FOLDER", tmp_path)
    monkeypatch.setattr(fuzz, "QUOTED_FROM", 100)
    monkeypatch.setattr(fuzz, "TARGETS", {"planted": f"{READERS}breaks"})
    assert fuzz.main(["--inputs", "100"]) == 1
    assert "planted: as it was meant to be" in capsys.readouterr().out
    (row,) = fuzz.results.load("fuzz")["rows"]  # type: ignore[index]
    assert (row["executions"], row["findings"]) == (100, 1)


@pytest.mark.parametrize("line", ["", "a\nb", "\x1b[2J", "\u202e", "x" * 3000])
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(Broken):
        told_line(line)
