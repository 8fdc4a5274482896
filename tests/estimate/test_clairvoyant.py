"""Bounds that one who knows all work beforehand reaches."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.estimate.clairvoyant import Demand, Work, makespan_s, mean_s, satisfied_job_s


def test_the_cheapest_are_packed_first() -> None:
    demands = [Demand(0, 10, cores) for cores in (3.0, 1.0, 1.0, 2.5)]
    assert satisfied_job_s(demands, 4.0) == 20.0
    assert satisfied_job_s(demands, 4.5) == 30.0


def test_who_leaves_makes_room_and_what_cannot_be_is_left_out() -> None:
    demands = [Demand(0, 10, 2.0), Demand(5, 20, 2.0), Demand(0, 20, math.inf)]
    assert satisfied_job_s(demands, 2.0) == 5 + 5 + 10
    assert satisfied_job_s([], 2.0) == 0.0


def test_the_shortest_first() -> None:
    jobs = [Work(0, 30, 4), Work(0, 10, 4), Work(0, 20, 4)]
    assert mean_s(jobs, 2.0, None) == pytest.approx((5 + 15 + 30) / 3)


def test_a_shorter_one_that_comes_later_goes_before() -> None:
    assert mean_s([Work(0, 10, 1), Work(2, 1, 1)], 1.0, None) == pytest.approx((11 + 1) / 2)


def test_what_one_cannot_use_goes_to_the_next() -> None:
    assert mean_s([Work(0, 4, 1), Work(0, 6, 8)], 3.0, None) == pytest.approx((4 + 3) / 2)


def test_a_tier_counts_its_own_work_and_only_jobs_that_reach_it() -> None:
    jobs = [Work(0, 30, 1, (3.0, None)), Work(0, 20, 1, (None, None))]
    assert mean_s(jobs, 1.0, 0) == pytest.approx(3.0)
    assert mean_s(jobs, 1.0, 1) is None


def test_the_makespan_is_the_longest_of_width_and_work() -> None:
    assert makespan_s([Work(0, 10, 1), Work(0, 10, 1)], 4.0) == 10.0
    assert makespan_s([Work(0, 40, 8), Work(0, 40, 8)], 4.0) == 20.0
    assert makespan_s([Work(5, 10, 8), Work(100, 40, 8), Work(100, 4, 8)], 4.0) == 106.0


WORKS = st.lists(
    st.builds(Work, st.floats(0, 50), st.floats(0.1, 100), st.sampled_from([1.0, 2.0, 4.0])),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(WORKS, st.floats(0.5, 8))
def test_no_mean_is_below_what_each_job_needs_alone(jobs: list[Work], cores: float) -> None:
    mean = mean_s(jobs, cores, None)
    alone = [job.total_core_s / min(job.threads, cores) for job in jobs]
    assert mean is not None and mean >= math.fsum(alone) / len(alone) - 1e-6
    assert makespan_s(jobs, cores) >= max(alone) - 1e-6
