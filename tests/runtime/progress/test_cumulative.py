"""What was added to growing counts, as a sketch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.estimate.sketch import Bounds, measured_s, quantile_bounds
from dlsched.report.buckets import LONGEST_S
from dlsched.runtime.progress.cumulative import TURN_PAGES, Cumulative, Held, PageGrowth, sketch

INF = math.inf
LABELS = (("a", "b"),)


def test_added_requests_lie_between_the_bounds_of_their_bucket() -> None:
    before = Cumulative(10, 1.0, {0.1: 10, 0.2: 10, INF: 10})
    now = Cumulative(13, 1.4321, {0.1: 11, 0.2: 13, INF: 13})
    added = sketch(now.since(before), 1.0)
    assert (added.count, added.sum_s) == (3, pytest.approx(0.4321))
    assert added.spans == ((0.0, 0.1, 1), (0.1, 0.2, 2))


def test_restarted_server_counts_from_zero() -> None:
    before = Cumulative(10, 1.0, {0.1: 10, INF: 10})
    assert sketch(Cumulative(4, 0.2, {0.1: 4, INF: 4}).since(before), 1.0).count == 4


def test_other_bounds_cannot_be_compared() -> None:
    before = Cumulative(10, 1.0, {0.1: 10, INF: 10})
    with pytest.raises(ValueError, match="the bounds of the histogram's buckets changed"):
        Cumulative(12, 1.2, {0.5: 12, INF: 12}).since(before)


def test_sum_bounds_what_lies_above_the_last_bound() -> None:
    added = sketch(Cumulative(2, 10.05, {0.1: 1, INF: 2}), 1.0)
    assert added.spans == ((0.0, 0.1, 1), (0.1, LONGEST_S, 1))
    assert quantile_bounds(added, 1.0) == Bounds(0.1, pytest.approx(10.05))


def test_without_buckets_only_the_mean_is_known() -> None:
    added = sketch(Cumulative(40, 2_000_000.0), 1e-6)
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
    if not added.sum_error_s:
        assert added.sum_s == pytest.approx(min(total, LONGEST_S * so_far), rel=1e-9)
    lowest_s = sum(low_s * count for low_s, _, count in added.spans)
    highest_s = sum(high_s * count for _, high_s, count in added.spans)
    assert 0.98 * lowest_s <= added.sum_s <= 1.02 * highest_s


def pages_of(*pages: Cumulative) -> list[tuple[int, float]]:
    """Requests and their time, added by each page to the one before; the first adds nothing."""
    held, found = Held(), []
    for before, now in pairwise(pages):
        added = held.sketch(LABELS, now.since(before), 1.0)
        assert not added.sum_error_s
        found.append((added.count, added.sum_s))
    return found


def test_a_sum_written_before_its_count_is_of_the_next_page() -> None:
    plain = [Cumulative(*page) for page in ((0, 0), (0, 100), (1, 100), (1, 200), (2, 200))]
    assert pages_of(*plain) == [(0, 0.0), (1, 100.0), (0, 0.0), (1, 100.0)]
    bounds = [{1.0: 0.0, INF: count} for count in (10.0, 10.0, 11.0)]
    sums = (50.0, 55.0, 55.0)
    buckets = [Cumulative(one[INF], total, one) for one, total in zip(bounds, sums, strict=True)]
    assert pages_of(*buckets) == [(0, 0.0), (1, 5.0)]


def test_time_that_waits_for_a_request_is_of_its_own_series() -> None:
    held, other = Held(), (("x", "y"),)
    assert not held.sketch(LABELS, Cumulative(0, 7.0), 1.0).count
    assert held.sketch(other, Cumulative(1, 2.0), 1.0).sum_s == 2.0
    assert not held.sketch(LABELS, Cumulative(0, 1.0), 1.0).count
    assert held.sketch(LABELS, Cumulative(1, 2.0), 1.0).sum_s == 10.0
    assert held.sketch(LABELS, Cumulative(1, 2.0), 1.0).sum_s == 2.0, "it counts once"


def test_a_sum_that_contradicts_its_buckets_is_not_known() -> None:
    added = sketch(Cumulative(1, 0.0, {1.0: 0, INF: 1}), 1.0)
    assert (added.count, measured_s(added, None)) == (1, None)


def test_a_request_at_the_bound_of_its_bucket_is_no_contradiction() -> None:
    added = Cumulative(1, 0.1 + 1e-12, {0.1: 1, INF: 1})
    found = sketch(added, 1.0)
    assert (found.count, found.sum_error_s) == (1, 0.0)


def counted(
    growth: PageGrowth, *counts: float, process_s: Iterable[float | None] = ()
) -> list[object]:
    """The requests added by each page; None: several processes answer."""
    started = [*process_s] or [None] * len(counts)
    found: list[object] = []
    for page, (count, process) in enumerate(zip(counts, started, strict=True)):
        compared = growth.take({LABELS: Cumulative(count, count)}, process, 1000.0 + page)
        if compared is None:
            found.append(None)
        else:
            found.append(sum(now.requests - old.requests for now, old in compared.values()))
    return found


def test_one_process_adds_what_is_new() -> None:
    assert counted(PageGrowth(None), 100, 103, 103, 110) == [0, 3, 0, 7]
    assert counted(PageGrowth({}), 100, 103) == [100, 3]


def test_two_processes_in_turn_are_found_and_no_history_is_news() -> None:
    pages = [100, 40, 101, 41, 102, 42, 103]
    found = counted(PageGrowth(None), *pages)
    assert found[3:] == [None] * 4
    assert not any(found[:3]), "nothing of either history"


def test_by_its_start_a_process_is_known_at_once() -> None:
    growth = PageGrowth(None)
    found = counted(growth, 40, 100, 101, 41, process_s=[500.0, 500.3, 500.3, 500.0])
    assert found == [0, None, None, None]


def test_a_restart_counts_from_zero_where_the_page_dates_it() -> None:
    assert counted(PageGrowth(None), 100, 4, 9, process_s=[500.0, 1000.5, 1000.5]) == [0, 4, 5]


def test_a_restart_that_is_not_dated_goes_on_from_its_first_page() -> None:
    assert counted(PageGrowth(None), 100, 4, 9, 30, 60, 99, 130) == [0, 0, 5, 21, 30, 39, 31]


def test_after_a_while_without_turns_it_is_believed_again() -> None:
    growth = PageGrowth(None)
    counted(growth, 100, 40, 101, 41)
    found = counted(growth, *range(50, 50 + TURN_PAGES + 3))
    assert found[0] is None and found[-1] == 1


def test_a_series_that_one_process_lacks_is_not_new_when_it_returns() -> None:
    growth, other = PageGrowth(None), (("x", "y"),)
    growth.take({LABELS: Cumulative(5, 5), other: Cumulative(50, 50)}, None, 1.0)
    growth.take({LABELS: Cumulative(6, 6)}, None, 2.0)
    compared = growth.take({LABELS: Cumulative(7, 7), other: Cumulative(51, 51)}, None, 3.0)
    now, before = compared[other]
    assert now.requests - before.requests == 1


def test_a_restart_of_many_series_is_no_turn() -> None:
    growth = PageGrowth(None)
    for page, count in enumerate((20, 25, 2, 4)):
        now = {(("code", str(one)),): Cumulative(count, float(count)) for one in range(5)}
        compared = growth.take(now, None, float(page))
        assert compared is not None
    assert [now.since(before).count for now, before in compared.values()] == [2] * 5
