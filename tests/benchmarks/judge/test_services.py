"""How satisfaction is judged: enough requests, both readings, when it settled."""

from __future__ import annotations

import pytest

from benchmarks.judge.services import judge, requests_needed, rolling, satisfied, settle_s
from dlsched.estimate.sketch import from_latencies


@pytest.mark.parametrize(("variation", "needed"), [(0.0, 11), (0.2, 11), (0.5, 68), (1.0, 271)])
def test_noisier_latencies_need_more_requests(variation, needed):
    assert requests_needed(variation) == needed


@pytest.mark.parametrize(
    ("mean_s", "band", "slo"),
    [(0.88, 0, 1), (0.91, 1, 1), (1.0, 1, 1), (1.09, 1, 0), (1.12, 0, 0)],
)
def test_both_readings_of_satisfied(mean_s, band, slo):
    series = [(1.0, from_latencies([mean_s] * 20))]
    assert satisfied([judge("a", 1.0, series, 0.0)]) == (band, slo)


def test_what_arrived_before_the_judged_window_does_not_count():
    series = [(1.0, from_latencies([9.0])), (61.0, from_latencies([1.0] * 12))]
    judged = judge("a", 1.0, series, 60.0)
    assert (judged.requests, judged.enough, judged.band) == (12, True, True)


def test_a_silent_job_is_not_satisfied():
    judged = judge("a", 1.0, [], 0.0)
    assert (judged.ratio, judged.band, judged.slo, judged.enough) == (None, False, False, False)


def test_settled_means_from_then_on():
    counts = [(10.0, 6), (11.0, 5), (12.0, 6), (13.0, 7)]
    assert settle_s(counts, 6) == 12.0
    assert settle_s(counts, 8) is None


def test_rolling_counts_look_back_only_so_far():
    series = {"a": [(float(t), from_latencies([3.0 if t < 10 else 1.0])) for t in range(30)]}
    counts = dict(rolling({"a": 1.0}, series, 29.0, width_s=10.0))
    assert (counts[10.0], counts[19.0], counts[20.0], counts[29.0]) == (0, 0, 1, 1)
