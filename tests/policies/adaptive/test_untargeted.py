"""Jobs that nothing was asked of, under the policy `adaptive`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.estimate.sketch import from_latencies
from dlsched.model.state import Progress
from dlsched.policies.adaptive.untargeted import expected_cores, heavy, place
from tests.policies.plant import job


def test_they_have_no_ceiling_and_weigh_as_their_share() -> None:
    jobs = [job("a", None), job("b", None)]
    placed = place(jobs, {"a": 1.0, "b": 0.5})
    assert placed.limits == {"a": None, "b": None}
    assert placed.weights == {"a": 1.0, "b": 0.5}
    assert "1.000 of 1.50 cores" in placed.why["a"]


def test_what_one_does_not_use_is_not_kept_for_it() -> None:
    assert expected_cores(job("a", None, cores=None, used=0.2, throttled=None), 1.0) == (
        pytest.approx(0.25)
    )


@pytest.mark.parametrize(
    "held",
    [
        job("a", None, cores=0.2, used=0.1, throttled=0.5),
        job("a", None, cores=0.2, used=0.19, throttled=0.0),
        job("a", None, cores=None, used=None, throttled=None),
    ],
    ids=["throttled", "at its ceiling", "unread"],
)
def test_one_that_may_want_more_counts_with_its_whole_share(held) -> None:
    assert expected_cores(held, 1.0) == 1.0


def test_an_idle_one_keeps_its_floor() -> None:
    idle = job("a", None, cores=None, used=0.0, throttled=None)
    assert expected_cores(idle, 1.0) == idle.spec.bounds.floor_cores


def test_heavy_is_what_takes_more_than_an_equal_share_until_it_is_known_to_want_less() -> None:
    jobs = [job(name, None, cores=None, used=used) for name, used in (("a", 0.9), ("b", 1.1))]
    assert heavy(jobs, (), 1.0, full=True) == ("b",)
    less = [job("b", None, cores=None, used=0.4)]
    assert heavy(less, ("b",), 1.0, full=True) == ("b",), "on a full host use is not demand"
    assert heavy(less, ("b",), 1.0, full=False) == ()
    assert heavy([job("b", None, cores=None, used=0.9)], ("b",), 1.0, full=False) == ("b",)
    assert heavy([job("c", None, cores=None, used=1.9, weight=2.0)], (), 1.0, full=False) == ()


def test_one_that_serves_requests_is_never_heavy() -> None:
    served = Progress(window=from_latencies([0.01] * 30))
    asked = replace(job("a", None, cores=None, used=1.9), progress=served)
    assert heavy([asked], ("a",), 1.0, full=True) == ()
