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
    Work,
    goals,
    least_s,
    makespan_s,
    mean_s,
    one_node,
    satisfied_job_s,
)
from tests.properties import examples


def test_the_cheapest_are_packed_first() -> None:
    demands = [Demand(0, 10, cores) for cores in (3.0, 1.0, 1.0, 2.5)]
    assert satisfied_job_s(demands, 4.0) == 20.0
    assert satisfied_job_s(demands, 4.5) == 30.0


def test_who_leaves_makes_room_and_what_cannot_be_is_left_out() -> None:
    demands = [Demand(0, 10, 2.0), Demand(5, 20, 2.0), Demand(0, 20, math.inf)]
    assert satisfied_job_s(demands, 2.0) == 5 + 5 + 10
    assert satisfied_job_s([], 2.0) == 0.0


def test_what_may_queue_costs_nothing_so_long_but_nobody_is_there_for_longer() -> None:
    demands = [Demand(0, 10, 0.9), Demand(0, 10, 0.9)]
    assert satisfied_job_s(demands, 1.0) == 10.0
    assert satisfied_job_s(demands, 1.0, deferred_s=4.0) == 14.0
    assert satisfied_job_s(demands, 1.0, deferred_s=16.0) == 20.0


def test_the_shortest_first() -> None:
    wanted = [Goal(0, 30, 4), Goal(0, 10, 4), Goal(0, 20, 4)]
    assert mean_s(wanted, one_node(2.0)) == pytest.approx((5 + 15 + 30) / 3)


def test_times_count_from_the_arrival() -> None:
    assert mean_s([Goal(0, 10, 1), Goal(2, 1, 1)], one_node(1.0)) == pytest.approx((11 + 1) / 2)


def test_what_one_cannot_use_goes_to_the_next() -> None:
    assert mean_s([Goal(0, 4, 1), Goal(0, 6, 8)], one_node(3.0)) == pytest.approx((4 + 3) / 2)


def test_the_narrow_may_go_first_so_that_the_wide_fill_what_is_left() -> None:
    wanted = [Goal(0, 32, 8), Goal(0, 24, 2), Goal(0, 24, 2)]
    assert mean_s(wanted, one_node(8.0)) == pytest.approx((8 + 12 + 12) / 3)


def test_neighbours_change_places_where_that_is_better() -> None:
    wanted = [Goal(0, 6, 1), Goal(0, 5, 2), Goal(1, 4, 4), Goal(2, 9, 3)]
    orders = itertools.permutations(range(4))
    every = [bounds._under(bounds._by_rank(one), wanted, one_node(4.0))[0] for one in orders]
    assert mean_s(wanted, one_node(4.0)) <= min(every) + 1e-9


def test_who_leaves_makes_room_and_counts_with_the_time_that_it_had() -> None:
    assert mean_s([Goal(0, 100, 1, 10.0), Goal(0, 200, 1)], one_node(1.0)) == pytest.approx(
        (10 + 200) / 2
    )


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


def test_the_makespan_is_the_longest_of_width_and_work() -> None:
    assert makespan_s([Work(0, 10, 1), Work(0, 10, 1)], one_node(4.0)) == 10.0
    assert makespan_s([Work(0, 40, 8), Work(0, 40, 8)], one_node(4.0)) == 20.0
    assert makespan_s([Work(5, 10, 8), Work(100, 40, 8), Work(100, 4, 8)], one_node(4.0)) == 106.0


HALF_JOINS = (Period(0.0, ((1.0, 4.0),)), Period(10.0, ((1.0, 4.0), (0.5, 8.0))))
"""Four cores, and from the tenth second on also eight of half the speed."""


def test_several_nodes_do_work_together_but_one_training_runs_on_one() -> None:
    assert makespan_s([Work(0, 40, 2)], HALF_JOINS) == 20.0
    assert makespan_s([Work(0, 80, 8)], HALF_JOINS) == 20.0
    assert makespan_s([Work(0, 60, 8), Work(0, 60, 8)], HALF_JOINS) == 20.0
    assert makespan_s([Work(0, 4, 1)], (Period(5.0, ((1.0, 4.0),)),)) == 9.0
    assert makespan_s([Work(0, 4, 1)], (Period(0.0, ()),)) == math.inf


def test_the_first_in_order_have_the_fastest_cores() -> None:
    both = (Period(0.0, ((1.0, 2.0), (0.5, 2.0))),)
    assert mean_s([Goal(0, 8, 2), Goal(0, 4, 2)], both) == pytest.approx((2 + 6 / 2 + 2) / 2)
    assert mean_s([Goal(0, 9, 4)], both) == pytest.approx(3)
    assert mean_s([Goal(0, 60, 4), Goal(0, 80, 8)], HALF_JOINS) == pytest.approx((15 + 25) / 2)


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
