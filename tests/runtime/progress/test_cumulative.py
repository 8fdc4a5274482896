"""What was added to growing counts, as a sketch."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.estimate.sketch import Bounds, quantile_bounds
from dlsched.report.buckets import LONGEST_S
from dlsched.runtime.progress.cumulative import Cumulative, sketch

INF = math.inf


def test_added_requests_lie_between_the_bounds_of_their_bucket() -> None:
    before = Cumulative(10, 1.0, {0.1: 10, 0.2: 10, INF: 10})
    now = Cumulative(13, 1.4321, {0.1: 11, 0.2: 13, INF: 13})
    added = sketch(now.since(before), 1.0)
    assert (added.count, added.sum_s) == (3, pytest.approx(0.4321))
    assert added.spans == ((0.0, 0.1, 1), (0.1, 0.2, 2))


def test_restarted_server_counts_from_zero() -> None:
    before = Cumulative(10, 1.0, {0.1: 10, INF: 10})
    now = Cumulative(4, 0.2, {0.1: 4, INF: 4})
    assert sketch(now.since(before), 1.0).count == 4


def test_other_bounds_cannot_be_compared() -> None:
    before = Cumulative(10, 1.0, {0.1: 10, INF: 10})
    with pytest.raises(ValueError, match="bounds changed"):
        Cumulative(12, 1.2, {0.5: 12, INF: 12}).since(before)


def test_sum_bounds_what_lies_above_the_last_bound() -> None:
    added = sketch(Cumulative(2, 10.05, {0.1: 1, INF: 2}), 1.0)
    assert added.spans == ((0.0, 0.1, 1), (0.1, LONGEST_S, 1))
    assert quantile_bounds(added, 1.0) == Bounds(0.1, pytest.approx(10.05))


@pytest.mark.parametrize("is_summary", [False, True])
def test_without_buckets_only_the_mean_is_known(is_summary: bool) -> None:
    added = sketch(Cumulative(40, 2_000_000.0, is_summary=is_summary), 1e-6)
    assert added.mean_s == pytest.approx(0.05)
    # Three of 40 may share the whole sum.
    assert quantile_bounds(added, 0.95) == Bounds(0.0, pytest.approx(2.0 / 3))


@pytest.mark.parametrize(
    "added",
    [
        Cumulative(2, 1.0, {0.1: 2, 0.2: 1, INF: 2}),
        Cumulative(5, None),
        Cumulative(2, None, {0.1: 2, INF: 2}),
        Cumulative(2e9, 1.0),
        Cumulative(2, 1.0, {1e300: 2}),
    ],
)
def test_contradicting_counts_are_refused(added: Cumulative) -> None:
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
    added = sketch(Cumulative(None, total, edges), 1.0)
    assert added.count == so_far == sum(count for _, _, count in added.spans)
    # No request takes longer than the reporter's last bucket holds.
    assert added.sum_s == pytest.approx(min(total, LONGEST_S * so_far), rel=1e-9)
