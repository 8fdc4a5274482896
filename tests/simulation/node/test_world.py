"""The node: who gets what, when things happen, and that pieces of time do not matter."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.simulation.node.learning_curves import Curve
from dlsched.simulation.node.training import Training
from dlsched.simulation.node.workloads import HostLoad, TrainingLoad
from dlsched.simulation.node.world import Process, World, divide
from tests.properties import examples

CURVE = Curve(0.0, 1.0, 20, "exponential")


def training(name: str, work_core_s: float, threads: float = 8.0) -> Process:
    load = TrainingLoad(100, work_core_s / 100, 10, CURVE, threads)
    return Process(name, Training(load, None, random.Random(name)), lambda: None)


def test_the_idle_class_has_what_the_others_leave_in_equal_parts() -> None:
    world = World(4.0, [HostLoad(at_s=0.0, for_s=10.0, cores=1.0)])
    first = training("first", 1e6, threads=2.0)
    behind = [training(name, 1e6) for name in ("light", "heavy")]
    behind[1].cpu_shares = 4096
    for one in behind:
        one.idle = True
    for one in (first, *behind):
        world.begin(one)
    world.advance(10.0)
    assert first.load.usage_core_s == pytest.approx(20.0)
    assert [one.load.usage_core_s for one in behind] == [pytest.approx(5.0)] * 2


def test_others_on_the_host_take_their_part_while_they_are_there() -> None:
    world = World(2.0, [HostLoad(at_s=5.0, for_s=10.0, cores=2.0)])
    one = training("one", 1e6)
    world.begin(one)
    world.advance(20.0)
    assert one.load.usage_core_s == pytest.approx(5 * 2 + 10 * 1 + 5 * 2)
    assert world.busy_core_s == pytest.approx(40.0)


def test_news_ends_a_passage_and_the_rest_can_follow() -> None:
    world = World(1.0)
    world.at(3.0, world.announce)
    world.advance(10.0, until_news=True)
    assert world.now_s == 3.0
    world.advance(10.0, until_news=True)
    assert world.now_s == 10.0


def test_what_is_planned_for_one_time_happens_in_the_order_of_planning() -> None:
    world, seen = World(1.0), []
    for word in ("first", "second", "third"):
        world.at(1.0, lambda word=word: seen.append(word))  # type: ignore[misc]
    world.advance(1.0)
    assert seen == ["first", "second", "third"]


@settings(max_examples=examples(40))
@given(
    st.lists(st.floats(0.5, 50), min_size=1, max_size=6),
    st.lists(st.floats(0.01, 9), min_size=1, max_size=20),
    st.floats(0.5, 8),
)
def test_when_a_training_ends_does_not_depend_on_the_pieces_that_time_comes_in(
    works: list[float], pieces: list[float], cores: float
) -> None:
    def ends(cuts: list[float]) -> list[float | None]:
        world = World(cores)
        running = [training(f"job-{index}", work, 2.0) for index, work in enumerate(works)]
        for one in running:
            world.begin(one)
        for cut in cuts:
            world.advance(cut)
        world.advance(1000.0)
        return [one.load.completed_s for one in running if isinstance(one.load, Training)]

    cuts = [sum(pieces[: index + 1]) for index in range(len(pieces))]
    assert ends(cuts) == pytest.approx(ends([]))


# ------------------------------------------------------------------ the division of cores

CLAIMS = st.lists(st.tuples(st.floats(2, 262_144), st.floats(0.001, 64)), min_size=1, max_size=30)


def test_by_weight_where_all_want_more() -> None:
    assert divide(4, [(1024, 8), (3072, 8)]) == pytest.approx([1, 3])


def test_who_wants_less_leaves_the_rest_to_the_others_by_weight() -> None:
    assert divide(4, [(1024, 0.4), (1024, 8), (2048, 8)]) == pytest.approx([0.4, 1.2, 2.4])


@given(st.floats(0.1, 64), CLAIMS)
def test_nothing_that_is_wanted_stays_idle_and_nobody_gets_more(
    cores: float, claims: list[tuple[float, float]]
) -> None:
    given_cores = divide(cores, claims)
    assert sum(given_cores) == pytest.approx(min(cores, sum(wanted for _, wanted in claims)))
    for got, (_, wanted) in zip(given_cores, claims, strict=True):
        assert 0 <= got <= wanted


@given(st.floats(0.1, 64), CLAIMS)
def test_who_is_left_short_has_as_much_by_weight_as_anybody(
    cores: float, claims: list[tuple[float, float]]
) -> None:
    pairs = list(zip(divide(cores, claims), claims, strict=True))
    level = max(got / weight for got, (weight, _) in pairs)
    for got, (weight, wanted) in pairs:
        assert got == wanted or got / weight == pytest.approx(level)
