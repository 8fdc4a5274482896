"""What was added to growing counts, as a sketch."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.estimate.sketch import quantile_s
from dlsched.report.buckets import LONGEST_S, bucket_value_s
from dlsched.runtime.progress.cumulative import PLACES, Cumulative, sketch

INF = math.inf


def test_what_was_added_lies_within_its_bounds_and_the_sum_is_exact() -> None:
    before = Cumulative(10, 1.0, {0.1: 10, 0.2: 10, INF: 10})
    now = Cumulative(13, 1.4321, {0.1: 11, 0.2: 13, INF: 13})
    told = sketch(now.since(before), 1.0)
    assert (told.count, told.sum_s) == (3, pytest.approx(0.4321))
    values = [bucket_value_s(index) for index, count in told.buckets for _ in range(count)]
    assert 0.0 < values[0] <= 0.1 * 1.01
    assert all(0.1 * 0.99 <= value <= 0.2 * 1.01 for value in values[1:])


def test_a_server_that_began_anew_counts_from_zero() -> None:
    before = Cumulative(10, 1.0, {0.1: 10, INF: 10})
    now = Cumulative(4, 0.2, {0.1: 4, INF: 4})
    assert sketch(now.since(before), 1.0).count == 4


def test_other_bounds_cannot_be_compared() -> None:
    before = Cumulative(10, 1.0, {0.1: 10, INF: 10})
    with pytest.raises(ValueError, match="bounds changed"):
        Cumulative(12, 1.2, {0.5: 12, INF: 12}).since(before)


def test_what_lies_above_the_last_bound_is_placed_by_the_sum() -> None:
    told = sketch(Cumulative(2, 10.05, {0.1: 1, INF: 2}), 1.0)
    assert quantile_s(told, 1.0) == pytest.approx(10.0, rel=0.011)
    assert quantile_s(sketch(Cumulative(2, 0.0, {0.1: 1, INF: 2}), 1.0), 1.0) == pytest.approx(
        0.1, rel=0.011
    )


def test_of_a_sum_and_a_count_the_mean_alone_is_known() -> None:
    told = sketch(Cumulative(4, 200_000.0), 1e-6)
    assert told.mean_s == pytest.approx(0.05)
    assert quantile_s(told, 0.95) is None


def test_a_summary_is_placed_by_its_quantiles() -> None:
    told = sketch(Cumulative(100, 2.0, quantiles={0.5: 0.01, 0.99: 0.1}), 1.0)
    assert told.count == 100
    assert quantile_s(told, 0.5) == pytest.approx(0.01, rel=0.1)
    assert quantile_s(told, 0.99) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize(
    "added",
    [
        Cumulative(2, 1.0, {0.1: 2, 0.2: 1, INF: 2}),
        Cumulative(5, None),
        Cumulative(2e9, 1.0),
        Cumulative(2, 1.0, quantiles={0.5: 2.0, 0.9: 1.0}),
        Cumulative(2, None, {1e300: 2}),
    ],
)
def test_what_contradicts_itself_is_refused(added: Cumulative) -> None:
    with pytest.raises(ValueError):
        sketch(added, 1.0)


@given(
    st.lists(st.tuples(st.floats(1e-4, 1e4), st.integers(0, 10**6)), min_size=1, max_size=30),
    st.floats(0, 1e12),
)
def test_no_request_is_lost_or_made(parts: list[tuple[float, int]], total: float) -> None:
    edges: dict[float, float] = {}
    so_far = 0
    for bound, count in sorted(dict(parts).items()):
        so_far += count
        edges[bound] = so_far
    told = sketch(Cumulative(None, total, edges), 1.0)
    assert told.count == so_far == sum(count for _, count in told.buckets)
    # No request takes longer than the reporter's last bucket holds.
    assert told.sum_s == pytest.approx(min(total, LONGEST_S * so_far), rel=1e-9)
    assert len(told.buckets) <= PLACES * len(edges) + PLACES
