"""What is told of a change of limits, from the requests before and after it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from dlsched.estimate.effect import CycleLatency, Verdict, effect, not_judged
from dlsched.estimate.sketch import from_latencies

AT_S = 1000.0


def requests(
    before_s: float,
    after_s: float,
    *,
    a_second: int = 4,
    spread: float = 0.2,
    settling_s: float | None = None,
) -> Iterator[CycleLatency]:
    """A service's requests in each second, log-normal about these times. `settling_s`: the latency
    in the first ten seconds after the change."""
    draw = random.Random(7)
    for second in range(-60, 60):
        middle_s = before_s if second <= 0 else after_s
        if settling_s is not None and 0 < second <= 10:
            middle_s = settling_s
        latencies = [middle_s * draw.lognormvariate(0.0, spread) for _ in range(a_second)]
        yield CycleLatency(AT_S + second, from_latencies(latencies))


@pytest.mark.parametrize(
    ("before_s", "after_s", "told"),
    [
        (0.081, 0.044, "helped: 8"),
        (0.044, 0.081, "slower: 4"),
        (0.044, 0.0445, "no effect: 4"),
    ],
)
@pytest.mark.parametrize("quantile", [None, 0.95])
def test_the_verdict_is_that_of_the_targets_latency(
    before_s: float, after_s: float, told: str, quantile: float | None
) -> None:
    found = effect(requests(before_s, after_s, a_second=9), quantile, AT_S)
    verdict, start = told.split(": ")
    assert found.verdict == verdict
    assert (found.requests_before, found.requests_after) == (270, 270)
    assert str(found).startswith(verdict if quantile else f"{verdict}: {start}")
    assert str(found).endswith(" ms (540 requests)")
    assert found.before_s is not None
    if quantile is not None:
        assert found.before_s > 1.2 * before_s, "the quantile, not the mean"


def test_what_is_measured_while_a_queue_drains_does_not_count() -> None:
    assert effect(requests(0.05, 0.05, settling_s=5.0), None, AT_S).verdict is Verdict.NONE


def test_a_difference_within_the_noise_is_no_effect_and_not_told_as_none() -> None:
    few = effect(requests(0.05, 0.065, a_second=1, spread=1.0), None, AT_S)
    assert few.verdict is Verdict.FEW
    assert str(few).startswith("too few requests to tell: ")
    assert str(few).endswith(" ms (60 requests)")
    many = effect(requests(0.05, 0.065, a_second=40, spread=1.0), None, AT_S)
    assert many.verdict is Verdict.SLOWER
    equal = effect(requests(0.05, 0.05, a_second=1, spread=1.5), None, AT_S)
    assert equal.verdict is Verdict.FEW, "an effect would not have shown either"


def test_chance_alone_seldom_shows_an_effect() -> None:
    draw = random.Random(3)
    told = []
    for _ in range(300):
        measured = [
            CycleLatency(
                AT_S + second, from_latencies(0.05 * draw.lognormvariate(0, 0.5) for _ in "1234")
            )
            for second in range(-30, 41)
        ]
        told += [effect(measured, quantile, AT_S).verdict for quantile in (None, 0.95)]
    assert sum(one in (Verdict.HELPED, Verdict.SLOWER) for one in told) <= 6


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (range(-30, 1), "too few requests (0 after the change)"),
        (range(8, 14), "too few requests (0 before the change)"),
        ((*range(-30, 1), 39, 40, 41), "too few requests (2 after the change)"),
    ],
)
def test_of_too_few_requests_their_number_is_told(seconds: range, told: str) -> None:
    measured = [CycleLatency(AT_S + second, from_latencies([0.05])) for second in seconds]
    assert str(effect(measured, None, AT_S)) == told


def test_a_high_quantile_needs_more_requests() -> None:
    steady = list(requests(0.081, 0.044, a_second=2, spread=0.01))
    assert effect(steady, 0.95, AT_S).verdict is Verdict.HELPED
    assert str(effect(steady, 0.99, AT_S)) == "too few requests (60 after the change)"


def test_requests_from_before_the_jobs_earlier_change_do_not_count() -> None:
    steady = list(requests(0.081, 0.044))
    assert effect(steady, None, AT_S, earlier_s=AT_S - 10).requests_before == 40
    assert effect(steady, None, AT_S, earlier_s=AT_S - 50).requests_before == 120


def test_a_latency_of_nothing_is_no_division_by_it() -> None:
    measured = [CycleLatency(AT_S + second, from_latencies([0.0])) for second in range(-30, 41)]
    assert effect(measured, None, AT_S).verdict is Verdict.FEW


@pytest.mark.parametrize(
    ("others", "told"),
    [(0, " requests)"), (1, ", 1 other job changed too"), (2, "2 other jobs changed too")],
)
def test_it_says_how_many_others_changed(others: int, told: str) -> None:
    assert str(effect(requests(0.081, 0.044), None, AT_S, others=others)).endswith(told)


def test_a_change_that_another_follows_is_not_judged() -> None:
    unjudged = "not judged: the job's limits changed again after 6 s"
    assert str(not_judged(AT_S, AT_S + 6.2, AT_S + 100)) == unjudged
    assert not_judged(AT_S, AT_S + 40.0, AT_S + 100) is None


def test_an_effect_takes_its_time() -> None:
    assert str(not_judged(AT_S, None, AT_S + 28)) == "effect: measured in 12 s"
    assert not_judged(AT_S, None, AT_S + 40) is None
