"""What is counted of one port between two reports."""

from __future__ import annotations

import pytest

from dlsched.report.buckets import LAST_BUCKET, bucket_index
from dlsched.runtime.wire.counts import CALLERS_MAX, OTHER, PortCounts, Sketch


@pytest.mark.parametrize("ns", [-5, 0, 1, 999, 1000, 1001, 20_000, 1_517_000_000, 3_600 * 10**9])
def test_a_latency_is_in_the_bucket_that_reports_use(ns: int) -> None:
    sketch = Sketch()
    sketch.add(ns)
    assert sketch.plain()["buckets"] == {bucket_index(max(0, ns) / 1e9): 1}
    assert (sketch.count, sketch.sum_s) == (1, pytest.approx(max(0, ns) / 1e9))


def test_no_latency_is_beyond_the_last_bucket() -> None:
    sketch = Sketch()
    sketch.add(10**40)
    assert sketch.buckets == {LAST_BUCKET: 1}


def test_callers_beyond_the_bound_count_together() -> None:
    counts = PortCounts()
    for number in range(CALLERS_MAX + 5):
        counts.called_by(str(number))
        counts.called_by("0")
    assert len(counts.callers) == CALLERS_MAX + 1
    assert (counts.callers[OTHER], counts.callers["0"]) == (5, CALLERS_MAX + 6)


def test_a_report_begins_the_counting_again() -> None:
    counts = PortCounts()
    counts.arrivals = counts.lost = counts.failed = 2
    counts.whole.add(5_000_000)
    taken = counts.take([(3_000_000_000, None, None), (1_000_000_000, 7, None)])
    assert (taken["arrivals"], taken["lost"], taken["whole"]["errors"]) == (2, 2, 2)
    assert (taken["whole"]["in_flight"], taken["whole"]["oldest_s"]) == (2, 3.0)
    assert taken["first"]["in_flight"] == 1 and "oldest_s" not in taken["gaps"]
    assert not counts.has_news and counts.take([])["whole"]["count"] == 0
