"""The fits, on numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from dlsched.simulation.trace.fits import (
    SHIFTS_MAX,
    curve_points,
    service_law,
    step_work,
    threads,
    weighted_median,
)
from dlsched.simulation.trace.observed import Attempt, Window


def window(
    at_s: float, work: float, latency: float, rate: float = 0.0, **more: float | None
) -> Window:
    """Ten seconds of requests of that work and mean latency; without a rate, one client's."""
    count = round(10.0 * (rate or 1.0 / latency))
    ceiling = more.get("ceiling")
    contended_s = more.get("contended_s") or 0.0
    counted_s = count * latency
    return Window(
        at_s, ceiling, 10.0, count * work, count, count * latency, contended_s, counted_s,
        count * latency * latency,
    )  # fmt: skip


# ------------------------------------------------------------------ trainings


def test_the_weighted_median_is_where_half_of_the_weight_lies_below() -> None:
    assert weighted_median([(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]) == 2.0
    assert weighted_median([(1.0, 10.0), (2.0, 1.0), (3.0, 1.0)]) == 1.0


BENT = {40: 90.0, 120: 1.0}
STRAIGHT = [(step, BENT.get(step, 4.0 + 0.5 * step)) for step in range(10, 210, 10)]
CRASHING = [Attempt(None, [(step, 9.0 * step) for step in range(30)])] * 200
STEADY = [Attempt(None, [(step, 0.5 * step) for step in range(200)])] * 10


@pytest.mark.parametrize(
    ("attempts", "found"),
    [
        pytest.param(
            [Attempt(0.0, STRAIGHT)], (0.5, 4.0), id="outliers are withstood"
        ),
        pytest.param(
            [Attempt(2.0, [(10, 9.0), (20, 14.0)]),
             Attempt(30.0, [(10, 60.0), (20, 65.0), (30, 70.0)])],
            (0.5, 2.0), id="a second attempt adds to the slope and not to the intercept",
        ),
        pytest.param(
            [*CRASHING, *STEADY, *CRASHING], (0.5, 0.0), id="of very many the longest tell"
        ),
        pytest.param(
            [Attempt(None, [(10, 9.0), (20, 14.0)])], (0.5, 0.0),
            id="without a known beginning there is no intercept",
        ),
        pytest.param(
            [Attempt(1.0, [(10, 6.0)])], (0.5, 0.0), id="a single step is all work of steps"
        ),
        pytest.param([Attempt(None, [(10, 6.0)])], None, id="and without a beginning unknown"),
        pytest.param([], None, id="none"),
        pytest.param([Attempt(0.0, [(1, 5.0), (9, 5.0)])], None, id="steps that cost nothing"),
    ],
)  # fmt: skip
def test_work_of_steps_and_before_them(
    attempts: list[Attempt], found: tuple[float, float] | None
) -> None:
    assert step_work(attempts) == (None if found is None else pytest.approx(found))


def used(cores: float, ceiling: float | None = None, *, full: bool = False) -> Window:
    return Window(0.0, ceiling, 10.0, 10.0 * cores, contended_s=10.0 * full)


@pytest.mark.parametrize(
    ("windows", "found"),
    [
        ([used(1.4), used(1.6)], (1.5, True)),
        ([used(1.96)], (2.0, True)),
        ([used(0.5, 0.5), used(1.4), used(1.4, 3.0)], (1.4, True)),
        ([used(0.5, 0.5)], (1.0, False)),
        ([used(0.5, 0.5), used(1.7, full=True)], (2.0, False)),
        ([used(1.02, full=True)], (1.0, False)),
        ([used(1.5), used(2.5, 2.5)], (3.0, False)),
        ([], None),
        ([Window(0.0, None, 2.0, 4.0)], None),
        ([used(0.6, full=True), *[Window(0.0, 1.5, 1.0, 1.3)] * 3], (2.0, False)),
        ([used(0.6, full=True), *[Window(0.0, 1.5, 1.0, 1.3)] * 2], (1.0, False)),
        ([used(1.3), *[Window(0.0, 1.5, 1.0, 1.32)] * 3], (1.3, True)),
    ],
)
def test_threads_are_what_it_uses_when_nothing_holds_it_and_whole_when_something_does(
    windows: list[Window], found: tuple[float, bool] | None
) -> None:
    assert threads(windows) == (None if found is None else (pytest.approx(found[0]), found[1]))


def test_a_curve_keeps_its_ends_and_loses_its_outliers() -> None:
    values = [(step, step / 100.0) for step in range(0, 110, 10)]
    values[5] = (50, 9.0)
    assert curve_points(values, 200)[5] == (50, pytest.approx(0.6))
    assert curve_points(values, 200)[0] == (0, 0.0)
    assert curve_points(values, 200)[-1] == (100, 1.0)


def test_of_one_step_told_twice_the_middle_counts() -> None:
    assert curve_points([(5, 0.2), (5, 0.4), (1, 0.1)], 200) == ((1, 0.1), (5, pytest.approx(0.3)))


def test_a_long_curve_is_thinned_evenly_with_both_ends() -> None:
    points = curve_points([(step, float(step)) for step in range(1001)], 11)
    assert points == tuple((step, float(step)) for step in range(0, 1001, 100))


# ------------------------------------------------------------------ services


def test_two_ceilings_give_overhead_and_threads() -> None:
    """w = 30 ms, a = 5 ms, m = 2."""
    law = service_law(
        [
            *(window(10.0 * n, 0.03, 0.065, ceiling=0.5) for n in range(3)),
            *(window(30.0 + 10.0 * n, 0.03, 0.02, ceiling=8.0) for n in range(3)),
            window(60.0, 0.03, 0.02, ceiling=2.0),
        ],
        cores=8.0,
    )
    assert (law.threads, law.clients, law.known) == (2.0, 1.0, True)
    assert law.overhead_s == pytest.approx(0.005, abs=1e-4)
    (phase,) = law.phases
    assert phase.work_core_s == pytest.approx(0.03)


def test_a_queue_is_taken_out_of_an_open_loops_latency() -> None:
    """w = 50 ms at one core, 10 a second: half loaded, and without noise 25 ms of wait."""
    law = service_law([window(10.0 * n, 0.05, 0.075, 10.0) for n in range(5)], cores=4.0)
    assert law.clients is None
    assert (law.threads, law.overhead_s) == (1.0, pytest.approx(0.0, abs=1e-3))
    assert law.phases[0].rate_per_s == pytest.approx(10.0)


def test_several_clients_stand_as_one_with_their_work() -> None:
    law = service_law([window(10.0 * n, 0.05, 0.2, 20.0) for n in range(5)], cores=4.0)
    assert law is not None and law.clients == pytest.approx(4.0)
    assert law.phases[0].work_core_s == pytest.approx(0.2)
    assert law.threads == 1.0


def test_arrivals_that_do_not_follow_the_latency_are_an_open_loop() -> None:
    slow = [window(10.0 * n, 0.05, 0.5, 8.0) for n in range(4)]
    fast = [window(40.0 + 10.0 * n, 0.05, 0.06, 8.0) for n in range(4)]
    law = service_law([*slow, *fast], cores=4.0)
    assert law is not None and law.clients is None


def test_what_a_full_node_slowed_down_does_not_count_where_there_is_better() -> None:
    alone = [window(10.0 * n, 0.03, 0.035) for n in range(4)]
    crowded = [window(40.0 + 10.0 * n, 0.03, 0.3, contended_s=10.0) for n in range(4)]
    law = service_law([*alone, *crowded], cores=4.0)
    assert (law.threads, law.overhead_s) == (1.0, pytest.approx(0.005, abs=1e-3))


def test_without_requests_there_is_no_law() -> None:
    assert service_law([Window(0.0, None, 10.0, 3.0)], cores=4.0) is None
    assert service_law([], cores=4.0) is None


def test_what_counting_in_buckets_adds_is_no_noise() -> None:
    latency, count = 0.05, 200
    spread = 0.02 / math.sqrt(12.0) * latency
    one = window(0.0, 0.05, latency)
    one.squares_s2 = count * (latency**2 + spread**2)
    law = service_law([one], cores=1.0)
    assert law is not None and law.noise == pytest.approx(0.0, abs=1e-3)


@pytest.mark.long
def test_a_load_that_comes_and_goes_all_day_is_cut_only_so_often() -> None:
    day = [
        window(10.0 * at, 0.005, 0.006, rate=40.0 if at // 7 % 2 else 10.0) for at in range(8640)
    ]
    law = service_law(day, 4.0)
    assert len(law.phases) == SHIFTS_MAX + 1


def test_requests_answered_faster_than_anything_can_be_do_not_count() -> None:
    true = [window(10.0 * at, 0.03, 0.04) for at in range(6)]
    lie = Window(60.0, None, 10.0, 3.0, 10**9, 5e-324)
    assert service_law([*true, lie], 4.0) == service_law(true, 4.0)
    assert service_law([lie], 4.0) is None
