"""Which containers have their threads sampled, and how often."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path

import pytest

from dlsched.estimate.spinning import FORGOTTEN_S
from dlsched.model.facts import ThreadsFact
from dlsched.runtime.threads.reader import Group, Samples
from dlsched.runtime.threads.sampler import (
    COMPARED_S,
    CONTAINERS_MAX,
    EVERY_S,
    HANGS_MAX,
    LOST_S,
    ROUND_S,
    SELDOM_S,
    ThreadSampler,
)

SPINS = ThreadsFact(0.0, 2, 1.0, 1.0, 0.6, "libgomp.so.1")
CLEAN = ThreadsFact(0.0, 8, 1.0, 7.0, 0.0)


class Node:
    """Containers that use so much of their time, each with the part of its periods throttled."""

    def __init__(self, uses: Mapping[str, tuple[float, float]], busy_cores: float = 1.0) -> None:
        self.uses, self.busy_cores, self.now_s, self.start = uses, busy_cores, 0.0, 1
        self.answer: ThreadsFact | Exception | None = SPINS
        """None: a sample hangs."""
        self.clean: set[str] = set()
        """Their threads do not spin."""
        self.hostile: set[str] = set()
        """Their samples hang."""
        self.sampled: list[tuple[float, list[str]]] = []
        self.sampler = ThreadSampler(self.begin, self.read)

    def begin(self, call: Callable[[], Samples], _name: str) -> Future[Samples]:
        future = Future[Samples]()
        try:
            result = call()
        except OSError as error:
            future.set_exception(error)
        else:
            if self.answer is not None and not self.hostile & result.keys():
                future.set_result(result)
        return future

    def read(self, groups: Sequence[Group]) -> Samples:
        self.sampled.append((self.now_s, [one.container for one in groups]))
        if isinstance(self.answer, Exception):
            raise self.answer
        spins = self.answer or CLEAN
        names = [one.container for one in groups]
        return {one: CLEAN if one in self.clean else spins for one in names}

    def pass_s(self, seconds: int) -> list[str]:
        """The containers of which a sample was taken up."""
        found: list[str] = []
        for _ in range(seconds):
            self.now_s += 1.0
            groups = [
                Group(
                    name, (name, self.start), Path(), False, self.now_s * used,
                    round(10 * self.now_s), round(10 * self.now_s * throttled),
                )
                for name, (used, throttled) in self.uses.items()
            ]  # fmt: skip
            found += self.sampler.sample(self.now_s, self.now_s * self.busy_cores, 2.0, groups)
        return found


@pytest.mark.parametrize(("use", "busy_cores", "lacks"), [
    ((0.9, 0.5), 1.0, True),  # throttled
    ((0.9, 0.01), 1.0, False),
    ((0.9, 0.0), 1.98, True),  # computes on a full host
    ((0.01, 0.0), 1.98, False),  # uses little
    ((0.01, 1.0), 1.0, False),
])  # fmt: skip
def test_only_what_may_lack_cpu_is_sampled(
    use: tuple[float, float], busy_cores: float, lacks: bool
) -> None:
    node = Node({"a": use}, busy_cores)
    assert bool(node.pass_s(20)) is lacks


def test_what_spins_is_sampled_often_and_what_does_not_seldom() -> None:
    node = Node({"a": (0.9, 0.5)})
    node.pass_s(61)
    times = [at_s for at_s, _ in node.sampled]
    assert times[0] <= 2 * COMPARED_S + 1
    gaps = [after - before for before, after in pairwise(times)]
    assert set(gaps) == {EVERY_S}
    node.answer = CLEAN
    node.pass_s(300)
    assert node.sampled[-1][0] - node.sampled[-2][0] == SELDOM_S


def test_of_many_a_few_are_sampled_at_a_time_and_all_of_them_in_turns() -> None:
    names = [f"c{index}" for index in range(3 * CONTAINERS_MAX)]
    node = Node(dict.fromkeys(names, (0.9, 0.5)))
    assert set(node.pass_s(25)) == set(names)
    times = [at_s for at_s, _ in node.sampled]
    assert min(after - before for before, after in pairwise(times)) >= ROUND_S
    assert max(len(some) for _, some in node.sampled) == CONTAINERS_MAX


def test_of_many_what_spun_is_sampled_again_before_that_is_forgotten() -> None:
    node = Node(dict.fromkeys([f"c{index}" for index in range(60)], (0.9, 0.5)))
    node.clean = set(node.uses) - {f"c{index}" for index in range(15)}
    node.pass_s(400)
    for name in ("c0", "c14"):
        times = [at_s for at_s, who in node.sampled if name in who]
        assert max(after - before for before, after in pairwise(times)) < FORGOTTEN_S
    assert {one for _, who in node.sampled for one in who} == set(node.uses)


def test_another_start_is_compared_with_itself_alone() -> None:
    node = Node({"a": (0.9, 0.5)})
    node.pass_s(4)
    before = len(node.sampled)
    node.start = 2
    node.pass_s(2)
    assert len(node.sampled) == before


def test_a_start_whose_sample_hangs_is_sampled_no_more() -> None:
    node = Node({"a": (0.9, 0.5)})
    node.answer = None
    node.pass_s(5)
    node.answer = SPINS
    assert node.pass_s(int(2 * LOST_S)) == []
    node.start = 2
    assert node.pass_s(20)


def test_who_was_sampled_with_one_that_hangs_is_sampled_again() -> None:
    node = Node(dict.fromkeys("abc", (0.9, 0.5)))
    node.hostile = {"b"}
    found = node.pass_s(int(5 * LOST_S))
    assert {*found} == {"a", "c"}
    assert [who for _, who in node.sampled if "b" in who] == [["a", "b", "c"], ["b"]]
    assert not node.sampler._alone


def test_samples_that_hang_are_few() -> None:
    """Each has a thread and open files, and a container may start again and again."""
    node = Node({"a": (0.9, 0.5)})
    node.hostile = {"a"}
    for start in range(3 * HANGS_MAX):
        node.start = start
        node.pass_s(int(LOST_S) + 20)
    assert len(node.sampled) == HANGS_MAX
    for hung in node.sampler._hung:
        hung.set_result({})
    node.hostile = set()
    node.start += 1
    assert node.pass_s(20) and not node.sampler._hang


def test_a_sample_that_fails_is_tried_again() -> None:
    node = Node({"a": (0.9, 0.5)})
    node.answer = OSError("gone")
    assert node.pass_s(5) == []
    node.answer = SPINS
    assert node.pass_s(20)
