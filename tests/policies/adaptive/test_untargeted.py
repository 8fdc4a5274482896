"""Jobs that nothing was asked of, under the policy `adaptive`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.model.state import JobView, Progress
from dlsched.policies.adaptive.untargeted import expected_cores, heavy, place, takes_little
from tests.policies.plant import job, snapshot


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


def taking(
    name: str, used_cores: float, weight: float = 1.0, latencies_s: list[float] | None = None
) -> JobView:
    return job(name, None, latencies_s, cores=None, used=used_cores, weight=weight, in_flight=0)


def found(
    *jobs: JobView, before: tuple[str, ...] = (), capacity: float = 2.0, full: bool = False
) -> tuple[str, ...]:
    even_cores = capacity / sum(one.spec.weight for one in jobs)
    seen = snapshot(*jobs, capacity=capacity)
    return heavy(jobs, before, seen, capacity, even_cores, full=full)


def test_heavy_is_what_uses_nearly_all_that_it_can_have() -> None:
    assert found(taking("a", 0.3), taking("b", 1.6)) == ("b",)
    assert found(taking("a", 0.3), taking("b", 1.3)) == (), "half a core is idle"
    assert found(taking("a", 0.3), taking("b", 0.9), taking("c", 0.9)) == ("b", "c")
    few = [taking(f"s{index}", 0.1) for index in range(8)]
    assert found(*few, taking("b", 0.5)) == (), "more than an equal share, of a node that has room"


def test_heavy_is_not_what_has_no_more_than_an_equal_share() -> None:
    assert found(taking("a", 1.0), taking("b", 1.0)) == ()
    assert found(taking("a", 0.5), taking("b", 1.5, weight=3.0)) == ()


def test_one_stays_heavy_until_it_is_known_to_want_less() -> None:
    beside = taking("a", 0.3)
    assert found(beside, taking("b", 0.4), before=("b",), full=True) == ("b",)
    assert found(beside, taking("b", 0.4), before=("b",)) == ()
    assert found(beside, taking("b", 1.2), before=("b",)) == ("b",)
    assert found(beside, taking("b", 1.2)) == ()


def test_one_that_serves_requests_is_never_heavy() -> None:
    beside = taking("a", 0.3)
    serving = taking("b", 1.6, latencies_s=[1.0] * 30)
    assert found(beside, serving, before=("b",), full=True) == ()
    waiting = replace(serving, progress=Progress(in_flight=1))
    assert found(beside, waiting, before=("b",), full=True) == ()


def test_requests_that_cannot_be_what_it_computes_for_do_not_excuse_it() -> None:
    notebook = taking("b", 1.6, latencies_s=[0.01] * 30)
    assert found(taking("a", 0.3), notebook) == ("b",)


def test_little_is_at_most_an_equal_share() -> None:
    assert takes_little(taking("a", 0.5), 0.5)
    assert not takes_little(taking("a", 0.6), 0.5)
    assert takes_little(taking("a", 0.9, weight=2.0), 0.5)
