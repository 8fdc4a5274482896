"""Jobs that nothing was asked of, under the policy `adaptive`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dlsched.model.facts import Usage
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


NOW_S = 100.0


def found(
    *others: JobView,
    beside: Sequence[JobView] = (),
    trainings: Sequence[JobView] = (),
    before: tuple[str, ...] = (),
    until_s: float = 0.0,
) -> tuple[str, ...]:
    """Those that are heavy on a node of two cores; those of `before` were to be until then."""
    every = (*others, *beside, *trainings)
    even_cores = 2.0 / sum(one.spec.weight for one in every)
    seen = snapshot(*every, capacity=2.0, now_s=NOW_S)
    was = dict.fromkeys(before, until_s)
    return tuple(heavy(others, trainings, was, seen, 2.0, even_cores))


def test_heavy_is_what_uses_nearly_all_that_it_can_have() -> None:
    assert found(taking("a", 0.3), taking("b", 1.6)) == ("b",)
    assert found(taking("a", 0.3), taking("b", 1.3)) == (), "much of the node is idle"
    assert found(taking("a", 0.3), taking("b", 0.86), taking("c", 0.83)) == ("b", "c")
    few = [taking(f"s{index}", 0.1) for index in range(8)]
    assert found(*few, taking("b", 0.5)) == (), "more than an equal share, of a node that has room"


def test_one_that_wants_less_than_its_share_is_not_heavy_beside_one_that_wants_more() -> None:
    services = [taking(name, 0.35) for name in "rst"]
    assert found(taking("a", 0.44), taking("b", 0.51), beside=services) == ("b",)


@pytest.mark.parametrize(("foreign_cores", "is_heavy"), [(0.0, False), (1.0, True)])
def test_beside_processes_outside_what_it_can_have_is_a_guess(foreign_cores, is_heavy) -> None:
    seen = snapshot(one := taking("a", 0.9), capacity=2.0, foreign=foreign_cores)
    assert ("a" in heavy([one], [], {}, seen, 1.0, 0.5)) is is_heavy


def test_several_are_heavy_that_have_an_equal_share_each() -> None:
    service = taking("service", 0.4)
    hogs = [taking(f"b{index}", 0.4) for index in range(4)]
    assert found(*hogs, beside=[service]) == ("b0", "b1", "b2", "b3")


def test_what_a_training_takes_is_no_share_that_is_used_up() -> None:
    assert found(taking("a", 0.4), trainings=[taking("t", 1.6)]) == ()
    assert found(taking("a", 1.0), trainings=[taking("t", 1.0)]) == ("a",)


def test_one_that_uses_clearly_less_than_an_equal_share_does_not_become_heavy() -> None:
    # The services leave less than that.
    services = [taking(name, 0.9) for name in "st"]
    assert found(taking("a", 0.2), beside=services) == ()
    assert found(taking("a", 0.2), beside=services, before=("a",)) == ("a",), "squeezed by them"


def test_one_stays_heavy_until_it_uses_clearly_less_than_it_can_have_for_a_window() -> None:
    beside = [taking("s", 0.4)]
    assert found(taking("b", 1.3), beside=beside) == ()
    assert found(taking("b", 1.3), beside=beside, before=("b",)) == ("b",)
    assert found(taking("b", 0.9), beside=beside, before=("b",), until_s=NOW_S + 1.0) == ("b",)
    assert found(taking("b", 0.9), beside=beside, before=("b",), until_s=NOW_S) == ()


def test_one_that_serves_requests_is_never_heavy() -> None:
    serving = taking("b", 1.6, latencies_s=[1.0] * 30)
    assert found(taking("a", 0.3), serving, before=("b",), until_s=math.inf) == ()
    waiting = replace(serving, progress=Progress(in_flight=1, oldest_s=29.0))
    assert found(taking("a", 0.3), waiting, before=("b",)) == ()


def test_requests_that_cannot_be_what_it_computes_for_do_not_excuse_it() -> None:
    notebook = taking("b", 1.6, latencies_s=[0.01] * 30)
    assert found(taking("a", 0.3), notebook) == ("b",)
    for oldest_s in (0.5, 31.0):  # a health check, and a stream that stays open
        open_one = replace(notebook, progress=Progress(in_flight=1, oldest_s=oldest_s))
        assert found(taking("a", 0.3), open_one) == ("b",)


def test_use_that_could_not_be_read_changes_nothing() -> None:
    unread = replace(taking("b", 1.6), usage=Usage())
    for before in ((), ("b",)):
        assert found(taking("a", 0.3), unread, before=before) == before
        assert takes_little([unread], before, 1.0) == before


def test_little_is_at_most_half_an_equal_share_or_all_of_it_if_it_was() -> None:
    jobs = [taking("a", 0.5), taking("b", 1.0), taking("c", 0.9, weight=2.0), taking("d", 1.1)]
    assert takes_little(jobs, (), 1.0) == ("a", "c")
    assert takes_little(jobs, ("b", "d"), 1.0) == ("a", "b", "c")
