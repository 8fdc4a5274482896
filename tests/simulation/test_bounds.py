"""Bounds that one who knows all work beforehand reaches."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.model.spec import Tier
from dlsched.simulation import bounds
from dlsched.simulation.bounds import (
    Demand,
    Goal,
    Period,
    Supply,
    Work,
    goals,
    least_s,
    makespan_s,
    mean_s,
    one_node,
    satisfied_job_s,
)
from tests.properties import examples

FOUR = [Demand(0, 10, cores) for cores in (3.0, 1.0, 1.0, 2.5)]
COMING = [Demand(0, 10, 2.0), Demand(5, 20, 2.0), Demand(0, 20, math.inf)]
BOTH = [Demand(0, 10, 0.9), Demand(0, 10, 0.9)]


@pytest.mark.parametrize(
    ("demands", "cores", "deferred_s", "satisfied"),
    [
        pytest.param(FOUR, 4.0, 0.0, 20.0, id="the cheapest are packed first"),
        pytest.param(FOUR, 4.5, 0.0, 30.0, id="and all that fit"),
        pytest.param(
            COMING, 2.0, 0.0, 5 + 5 + 10, id="who leaves makes room, what cannot be is out"
        ),
        pytest.param([], 2.0, 0.0, 0.0, id="nobody"),
        pytest.param(BOTH, 1.0, 0.0, 10.0, id="one of two"),
        pytest.param(BOTH, 1.0, 4.0, 14.0, id="what may queue costs nothing so long"),
        pytest.param(BOTH, 1.0, 16.0, 20.0, id="nobody is there for longer"),
    ],
)
def test_the_most_job_seconds(
    demands: list[Demand], cores: float, deferred_s: float, satisfied: float
) -> None:
    assert satisfied_job_s(demands, cores, deferred_s=deferred_s) == satisfied


HALF_JOINS = (Period(0.0, ((1.0, 4.0),)), Period(10.0, ((1.0, 4.0), (0.5, 8.0))))
"""Four cores, and from the tenth second on also eight of half the speed."""
TWO_SPEEDS = (Period(0.0, ((1.0, 2.0), (0.5, 2.0))),)


@pytest.mark.parametrize(
    ("wanted", "supply", "mean"),
    [
        pytest.param(
            [Goal(0, 30, 4), Goal(0, 10, 4), Goal(0, 20, 4)], one_node(2.0), (5 + 15 + 30) / 3,
            id="the shortest first",
        ),
        pytest.param(
            [Goal(0, 10, 1), Goal(2, 1, 1)], one_node(1.0), (11 + 1) / 2,
            id="times count from the arrival",
        ),
        pytest.param(
            [Goal(0, 4, 1), Goal(0, 6, 8)], one_node(3.0), (4 + 3) / 2,
            id="what one cannot use goes to the next",
        ),
        pytest.param(
            [Goal(0, 32, 8), Goal(0, 24, 2), Goal(0, 24, 2)], one_node(8.0), (8 + 12 + 12) / 3,
            id="the narrow may go first so that the wide fill what is left",
        ),
        pytest.param(
            [Goal(0, 100, 1, 10.0), Goal(0, 200, 1)], one_node(1.0), (10 + 200) / 2,
            id="who leaves makes room and counts with the time that it had",
        ),
        pytest.param(
            [Goal(0, 8, 2), Goal(0, 4, 2)], TWO_SPEEDS, (2 + 6 / 2 + 2) / 2,
            id="the first in order have the fastest cores",
        ),
        pytest.param([Goal(0, 9, 4)], TWO_SPEEDS, 3, id="and the slower ones too"),
        pytest.param(
            [Goal(0, 60, 4), Goal(0, 80, 8)], HALF_JOINS, (15 + 25) / 2, id="a node that joins"
        ),
    ],
)  # fmt: skip
def test_the_least_mean_time(wanted: list[Goal], supply: Supply, mean: float) -> None:
    assert mean_s(wanted, supply) == pytest.approx(mean)


def test_neighbours_change_places_where_that_is_better() -> None:
    wanted = [Goal(0, 6, 1), Goal(0, 5, 2), Goal(1, 4, 4), Goal(2, 9, 3)]
    orders = itertools.permutations(range(4))
    every = [bounds._under(bounds._by_rank(one), wanted, one_node(4.0))[0] for one in orders]
    assert mean_s(wanted, one_node(4.0)) <= min(every) + 1e-9


def test_a_tier_counts_its_own_work_and_only_jobs_that_reach_it() -> None:
    jobs = [Work(0, 30, 1, {Tier.DELIVER: 3.0}), Work(0, 20, 1)]
    assert goals(jobs, Tier.DELIVER) == {0: Goal(0, 3.0, 1)}
    assert goals(jobs, Tier.FINISH) == {}
    assert goals(jobs, None) == {0: Goal(0, 30, 1), 1: Goal(0, 20, 1)}


def test_the_quickest_take_what_they_take_alone_and_what_all_of_them_take() -> None:
    wanted = [Goal(0, 8, 1), Goal(0, 8, 1), Goal(0, 30, 8)]
    assert least_s(wanted, 4.0, 1) == 7.5
    assert least_s(wanted, 4.0, 2) == 8.0
    assert least_s(wanted, 4.0, 3) == 11.5
    # Who comes later leaves time before.
    assert least_s([*wanted, Goal(2, 100, 8)], 4.0, 3) == 9.5
    # What is not there so long counts before all of it is done.
    assert least_s([*wanted, Goal(0, 100, 8, 9.0)], 4.0, 3) == 9.0


@pytest.mark.parametrize(
    ("jobs", "supply", "makespan"),
    [
        pytest.param([Work(0, 10, 1), Work(0, 10, 1)], one_node(4.0), 10.0, id="width"),
        pytest.param([Work(0, 40, 8), Work(0, 40, 8)], one_node(4.0), 20.0, id="work"),
        pytest.param(
            [Work(5, 10, 8), Work(100, 40, 8), Work(100, 4, 8)],
            one_node(4.0),
            106.0,
            id="late work",
        ),
        pytest.param([Work(0, 40, 2)], HALF_JOINS, 20.0, id="one training runs on one node"),
        pytest.param([Work(0, 80, 8)], HALF_JOINS, 20.0, id="the faster one"),
        pytest.param(
            [Work(0, 60, 8), Work(0, 60, 8)], HALF_JOINS, 20.0, id="several work together"
        ),
        pytest.param([Work(0, 4, 1)], (Period(5.0, ((1.0, 4.0),)),), 9.0, id="a node that is late"),
        pytest.param([Work(0, 4, 1)], (Period(0.0, ()),), math.inf, id="no node"),
    ],
)
def test_the_makespan_is_the_longest_of_width_and_work(
    jobs: list[Work], supply: Supply, makespan: float
) -> None:
    assert makespan_s(jobs, supply) == makespan


GOALS = st.lists(
    st.builds(
        Goal,
        st.floats(0, 50),
        st.floats(0.1, 100),
        st.sampled_from([1.0, 2.0, 4.0]),
        st.just(math.inf) | st.floats(1, 100),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(60))
@given(GOALS, st.floats(0.5, 8))
def test_no_mean_is_below_what_no_schedule_can_beat(wanted: list[Goal], cores: float) -> None:
    count = len(wanted)
    alone = [goal.alone_s(cores) for goal in wanted]
    least = [least_s(wanted, cores, rank) for rank in range(1, count + 1)]
    assert least == sorted(least)
    mean = mean_s(wanted, one_node(cores))
    assert mean >= math.fsum(alone) / count - 1e-6
    assert mean >= math.fsum(least) / count - 1e-6
    works = [Work(goal.arrives_s, goal.needed_core_s, goal.threads) for goal in wanted]
    whole = [min(goal.threads, cores) for goal in wanted]
    needed = [goal.needed_core_s / width for goal, width in zip(wanted, whole, strict=True)]
    assert makespan_s(works, one_node(cores)) >= max(needed) - 1e-6
