"""Sketches: within 1 % of the truth, and sums that do not depend on order."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.estimate.sketch import (
    against_target_s,
    cv,
    from_latencies,
    measured_s,
    merge,
    quantile_bounds,
)
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import LatencyTarget
from dlsched.report.buckets import LONGEST_S

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
    assert measured_s(from_latencies(latencies), quantile) == pytest.approx(exact, rel=0.01 + 1e-9)


@given(st.lists(st.floats(0, 1e4), max_size=20), st.lists(st.floats(0, 1e4), max_size=20))
def test_merged_sketches_are_the_sketch_of_all(one: list[float], two: list[float]) -> None:
    assert same(merge(from_latencies(one), from_latencies(two)), from_latencies(one + two))


def test_the_95th_of_20_is_the_19th() -> None:
    latencies = [0.01 * number for number in range(1, 21)]
    assert measured_s(from_latencies(latencies), 0.95) == pytest.approx(0.19, rel=0.01)


def test_a_target_is_held_against_the_mean_or_its_quantile() -> None:
    sketch = from_latencies([0.1] * 9 + [1.1])
    assert measured_s(sketch, None) == pytest.approx(0.2)
    assert measured_s(sketch, 0.5) == pytest.approx(0.1, rel=0.01)
    assert measured_s(sketch, 0.99) == pytest.approx(1.1, rel=0.01)


def test_nothing_measured_is_none_and_not_zero() -> None:
    assert measured_s(EMPTY, None) is None
    assert measured_s(EMPTY, 0.95) is None
    assert cv(EMPTY) is None
    assert measured_s(LatencySketch(count=3, sum_s=0.3), 0.5) is None


@pytest.mark.parametrize("quantile", [0.0, -0.1, 1.01, math.nan])
def test_a_quantile_that_is_none_is_refused(quantile: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        measured_s(from_latencies([1.0]), quantile)


@given(st.lists(st.floats(1e-3, 10.0), min_size=2, max_size=60))
def test_the_spread_is_that_of_the_latencies(latencies: list[float]) -> None:
    exact = statistics.pstdev(latencies) / statistics.fmean(latencies)
    # Each value moves by up to 1 %, and so may the deviation by 1 % of the root mean square.
    assert cv(from_latencies(latencies)) == pytest.approx(
        exact, abs=0.021 * math.sqrt(1 + exact**2) + 0.011 * exact
    )


EDGES = st.lists(st.floats(1e-3, 10.0), min_size=1, max_size=8, unique=True).map(sorted)


def in_buckets(latencies: list[float], edges: list[float]) -> LatencySketch:
    """What a histogram with these upper bounds says of them."""
    lows, highs = [0.0, *edges], [*edges, LONGEST_S]
    spans = [
        (low, high, sum(low < one <= high for one in latencies))
        for low, high in zip(lows, highs, strict=True)
    ]
    kept = tuple(one for one in spans if one[2])
    return LatencySketch(len(latencies), math.fsum(latencies), spans=kept)


@given(LATENCIES, EDGES, st.floats(0.001, 1.0))
def test_bounds_of_buckets_hold_the_quantile(
    latencies: list[float], edges: list[float], quantile: float
) -> None:
    exact = sorted(latencies)[max(1, math.ceil(quantile * len(latencies) * (1 - 1e-12))) - 1]
    wide = in_buckets(latencies, edges)
    by_edges = quantile_bounds(wide, quantile, by_sum=False)
    low = max((edge for edge in edges if edge < exact), default=0.0)
    assert by_edges == (low, min((edge for edge in edges if edge >= exact), default=LONGEST_S))
    bounds = quantile_bounds(wide, quantile)
    assert bounds is not None
    assert by_edges[0] <= bounds.lowest_s <= exact <= bounds.highest_s * (1 + 1e-9)
    assert bounds.highest_s <= by_edges[1]


@given(LATENCIES, LATENCIES, st.integers(0, 9), st.floats(0.001, 1.0))
def test_bounds_hold_the_quantile_whatever_is_missing(
    measured: list[float], missing: list[float], more: int, quantile: float
) -> None:
    whole = sorted(measured + missing)
    exact = whole[max(1, math.ceil(quantile * len(whole) * (1 - 1e-12))) - 1]
    sketch = replace(from_latencies(measured), missed=len(missing))
    bounds = quantile_bounds(sketch, quantile)
    assert bounds is not None
    assert bounds.lowest_s * 0.99 - 1e-6 <= exact <= bounds.highest_s * 1.01 + 1e-6
    wider = quantile_bounds(merge(sketch, LatencySketch(missed=more)), quantile)
    assert wider is not None


def test_what_is_missing_may_move_a_number_or_not() -> None:
    sketch = from_latencies([0.1] * 900 + [0.3] * 100)
    few, many = replace(sketch, missed=5), replace(sketch, missed=60)
    target = LatencyTarget(0.2, 0.95)
    assert measured_s(few, 0.95) == pytest.approx(0.3, rel=0.01)
    assert against_target_s(few, target) == pytest.approx(0.3, rel=0.01)
    assert measured_s(many, 0.95) is None
    assert against_target_s(many, target) == pytest.approx(0.3, rel=0.01), "it is above for sure"
    assert against_target_s(replace(sketch, missed=1000), target) is None
    assert measured_s(few, None) == pytest.approx(0.12)
    assert measured_s(many, None) is None
    assert quantile_bounds(LatencySketch(missed=3), 0.95) is None


def test_a_mean_alone_bounds_a_quantile() -> None:
    """At most a twentieth of the requests can take twenty times the mean."""
    bounds = quantile_bounds(LatencySketch(100, 1.0), 0.95)
    assert bounds == (0.0, pytest.approx(1.0 / 6))


@pytest.mark.parametrize(
    ("target_s", "judged_s"),
    [(0.01, 0.025), (0.025, 0.025), (0.04, None), (0.05, 0.046), (0.1, 0.046)],
)
def test_only_the_bound_next_to_the_target_is_compared(
    target_s: float, judged_s: float | None
) -> None:
    """The slowest of 1, 30 and 40 ms took 25 to 50 ms by its bucket, at most 46 ms by the sum."""
    sketch = in_buckets([0.001, 0.03, 0.04], [0.025, 0.05])
    found_s = against_target_s(sketch, LatencyTarget(target_s, 0.95))
    assert found_s == (None if judged_s is None else pytest.approx(judged_s))
