"""Sketches: within 1 % of the truth, and sums that do not depend on order."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.estimate.sketch import cv, from_latencies, measured_s, merge, quantile_s
from dlsched.model.facts import LatencySketch

LATENCIES = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=60)
SKETCHES = st.builds(from_latencies, st.lists(st.floats(0, 1e4), max_size=20), st.integers(0, 9))
EMPTY = LatencySketch()


def same(one: LatencySketch, other: LatencySketch) -> bool:
    return (one.count, one.buckets, one.errors) == (
        other.count, other.buckets, other.errors,
    ) and math.isclose(one.sum_s, other.sum_s, rel_tol=1e-9, abs_tol=1e-6)  # fmt: skip


@given(LATENCIES, st.floats(0.001, 1.0))
def test_any_quantile_is_within_one_percent(latencies: list[float], quantile: float) -> None:
    exact = sorted(latencies)[max(1, math.ceil(quantile * len(latencies) * (1 - 1e-12))) - 1]
    assert quantile_s(from_latencies(latencies), quantile) == pytest.approx(exact, rel=0.01 + 1e-9)


@given(SKETCHES, SKETCHES, SKETCHES)
def test_merging_is_associative_and_commutative(
    one: LatencySketch, two: LatencySketch, three: LatencySketch
) -> None:
    assert same(merge(merge(one, two), three), merge(one, merge(two, three)))
    assert same(merge(one, two, three), merge(three, one, two))
    assert merge(one, EMPTY) == one


@given(st.lists(st.floats(0, 1e4), max_size=20), st.lists(st.floats(0, 1e4), max_size=20))
def test_merged_sketches_are_the_sketch_of_all(one: list[float], two: list[float]) -> None:
    assert same(merge(from_latencies(one), from_latencies(two)), from_latencies(one + two))


def test_the_95th_of_20_is_the_19th() -> None:
    latencies = [0.01 * number for number in range(1, 21)]
    assert quantile_s(from_latencies(latencies), 0.95) == pytest.approx(0.19, rel=0.01)


def test_a_target_is_held_against_the_mean_or_its_quantile() -> None:
    sketch = from_latencies([0.1] * 9 + [1.1])
    assert measured_s(sketch, None) == pytest.approx(0.2)
    assert measured_s(sketch, 0.5) == pytest.approx(0.1, rel=0.01)
    assert measured_s(sketch, 0.99) == pytest.approx(1.1, rel=0.01)


def test_nothing_measured_is_none_and_not_zero() -> None:
    assert measured_s(EMPTY, None) is None
    assert measured_s(EMPTY, 0.95) is None
    assert cv(EMPTY) is None
    assert quantile_s(LatencySketch(count=3, sum_s=0.3), 0.5) is None


@pytest.mark.parametrize("quantile", [0.0, -0.1, 1.01, math.nan])
def test_a_quantile_that_is_none_is_refused(quantile: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        quantile_s(from_latencies([1.0]), quantile)


@given(st.lists(st.floats(1e-3, 10.0), min_size=2, max_size=60))
def test_the_spread_is_that_of_the_latencies(latencies: list[float]) -> None:
    exact = statistics.pstdev(latencies) / statistics.fmean(latencies)
    # Each value moves by up to 1 %, and so may the deviation by 1 % of the root mean square.
    assert cv(from_latencies(latencies)) == pytest.approx(
        exact, abs=0.021 * math.sqrt(1 + exact**2) + 0.011 * exact
    )
