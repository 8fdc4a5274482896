"""How satisfaction is judged: enough requests, both readings, when it settled."""

from __future__ import annotations

import pytest

from benchmarks.judge.services import judge, requests_needed, satisfied
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
