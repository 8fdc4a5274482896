"""Jobs that nothing was asked of, under the policy `adaptive`."""

from __future__ import annotations

import pytest

from dlsched.policies.adaptive.untargeted import expected_cores, place
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
