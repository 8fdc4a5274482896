"""Turns on a GPU, by real locks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.report.turns import PATIENCE_S, Turns, turn_file


class Time:
    """A clock that `pause` moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []
        self.asked = False

    def clock(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> bool:
        self.now_s += seconds
        self.pauses.append(seconds)
        return self.asked


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "turn-GPU-1").touch(mode=0o444)
    return str(tmp_path / "turn-GPU-1")


@pytest.fixture
def both(time: Time) -> Iterator[tuple[Turns, Turns]]:
    turns = Turns(time.clock, watched=False), Turns(time.clock, watched=False)
    yield turns
    for each in turns:
        each.give()


def test_one_has_the_turn_and_the_next_gets_it_when_it_is_given_back(
    both: tuple[Turns, Turns], time: Time, path: str
) -> None:
    one, other = both
    one.take([path], time.pause)
    assert time.pauses == []

    def until_half_a_second(seconds: float) -> bool:
        time.pause(seconds)
        if time.now_s >= 0.5:
            one.give()
        return False

    other.take([path], until_half_a_second)
    assert 0.5 <= time.now_s < 0.51
    assert time.pauses[0] < 0.001, "a short turn's end is seen at once"
    assert max(time.pauses) == pytest.approx(0.005), "a long wait costs little"
    assert len(time.pauses) < 300


def test_who_keeps_it_is_waited_for_once_and_never_again_until_it_is_free(
    both: tuple[Turns, Turns], time: Time, path: str
) -> None:
    one, other = both
    one.take([path], time.pause)
    other.take([path], time.pause)
    assert time.now_s == pytest.approx(PATIENCE_S, abs=0.1)
    waited_s = time.now_s
    other.take([path], time.pause)
    assert time.now_s == waited_s
    one.give()
    other.take([path], time.pause)
    one.take([path], time.pause)
    assert time.now_s == pytest.approx(waited_s + PATIENCE_S, abs=0.1), "other had it"


def test_who_gives_it_back_for_a_moment_only_does_not_take_the_others_time(
    both: tuple[Turns, Turns], time: Time, path: str
) -> None:
    hog, mine = both
    taken_s = 0.0

    def pause(seconds: float) -> bool:
        nonlocal taken_s
        time.pause(seconds)
        if time.now_s - taken_s >= 0.95 * PATIENCE_S:
            hog.give()
            taken_s = time.now_s
        return False

    waited_s = 0.0
    while time.now_s < 30 * PATIENCE_S:
        began_s = time.now_s
        mine.take([path], pause, others=0.25)
        waited_s += time.now_s - began_s
        time.now_s += 0.02  # a step
        mine.give()
        hog.take([path], lambda _: True)
    assert waited_s <= PATIENCE_S + 0.25 * time.now_s + 0.1


def test_a_turn_that_nobody_waits_for_any_more_is_given_back(
    both: tuple[Turns, Turns], time: Time, path: str
) -> None:
    one, other = both
    one.take([path], time.pause)
    time.now_s = PATIENCE_S
    one.expire()
    other.take([path], lambda _: True)
    one.take([path], lambda _: True)
    time.now_s += 2 * PATIENCE_S
    other.expire()
    one.expire()
    other.take([path], lambda _: pytest.fail("it was given back"))


def test_a_wait_ends_when_it_is_asked_to(both: tuple[Turns, Turns], time: Time, path: str) -> None:
    one, other = both
    one.take([path], time.pause)
    time.asked = True
    other.take([path], time.pause)
    assert len(time.pauses) == 1


def test_where_there_is_nothing_to_lock_nobody_waits(
    both: tuple[Turns, Turns], time: Time, tmp_path: Path, path: str
) -> None:
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "fifo")
    for turns in both:
        turns.take([str(tmp_path / "none"), str(tmp_path / "link"), ""], time.pause)
    assert time.pauses == []


@pytest.mark.process
def test_a_process_that_dies_gives_its_turn_back(time: Time, path: str) -> None:
    text = f"""
import sys, time
from dlsched.report.turns import Turns
turns = Turns(time.monotonic, watched=False)
turns.take([{path!r}], lambda _: True)
print("taken", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "taken\n"
        turns = Turns(time.clock, watched=False)
        turns.take([path], time.pause)
        assert time.now_s >= PATIENCE_S, "it is the other's"
        process.kill()
    before_s = time.now_s
    turns.take([path], time.pause)
    again = Turns(time.clock, watched=False)
    again.take([path], time.pause)
    assert time.now_s >= before_s + PATIENCE_S, "now it is ours"
    turns.give()
    again.give()


@pytest.mark.process
def test_a_forked_child_leaves_the_parents_turn_alone(
    both: tuple[Turns, Turns], time: Time, path: str
) -> None:
    one, other = both
    one.take([path], time.pause)
    child = os.fork()
    if child == 0:
        one.forget()
        one.give()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    other.take([path], time.pause)
    assert time.now_s >= PATIENCE_S


def test_descriptors_that_the_job_has_closed_are_not_missed(time: Time, path: str) -> None:
    turns = Turns(time.clock, watched=False)
    turns.take([path], time.pause)
    held = [each for each in Path("/proc/self/fd").iterdir() if os.path.realpath(each) == path]
    os.close(int(held[0].name))
    turns.give()
    turns.take([path], lambda _: pytest.fail("it is free"))
    turns.give()


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("GPU-1b-2", "turn-GPU-1b-2"),
        ("MIG-GPU-1/3/0", "turn-MIG-GPU-1_3_0"),
        ("../..", "turn-_____"),
    ],
)
def test_a_gpus_file_has_a_name_that_leads_nowhere_else(gpu: str, name: str) -> None:
    assert turn_file(gpu) == name
