"""Trainings are held back where weights do not bring a service what it needs, and let go again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.estimate.latency.arrivals import Arrivals
from dlsched.estimate.latency.law import LatencyModel
from dlsched.estimate.sketch import from_latencies
from dlsched.model.bottleneck import Bottleneck, Cause
from dlsched.model.decision import Decision
from dlsched.model.facts import Usage
from dlsched.model.spec import AccuracyTarget, Bounds
from dlsched.model.state import JobView, Progress, ThreadUse
from dlsched.policies.adaptive.holding import (
    NOT_HELD,
    Held,
    Hold,
    Lack,
    held,
    helps,
    lacking,
    left_cores,
    stepped,
)
from dlsched.policies.adaptive.services.model import ServiceMemory
from dlsched.policies.registry import load
from tests.policies.plant import job, snapshot

WINDOW_S = 30.0
LACK = Lack("a", False, 0.081, 0.05)


def service(name: str = "a", latency_s: float = 0.081, count: int = 40) -> JobView:
    view = job(name, 0.05, cores=None, used=0.5, throttled=0.0)
    window = from_latencies([latency_s] * count)
    return replace(view, progress=Progress(window=window, as_of_s=10.0))


UNMENDED = {*Cause} - {Cause.CPU, Cause.THREADS, Cause.NOT_KNOWN}


def waiting(cause: Cause) -> JobView:
    """A service that misses its target for that cause."""
    return replace(service(), bottleneck=Bottleneck(cause, "", "", 0.0))


def known(name: str = "a", **changes: object) -> ServiceMemory:
    model = LatencyModel(0.02, requests=100.0, span_s=5.0, measured_s=0.08)
    one = ServiceMemory(name, 0.05, None, 9.0, 1.0, 1, model, arrivals=Arrivals(span_s=60.0))
    return replace(one, **changes)  # type: ignore[arg-type]


def training(name: str = "t", *, idle: bool = True, floor: float = 0.01, **more: object) -> JobView:
    view = job(name, cores=None, used=1.0, throttled=0.0, bounds=Bounds(floor))
    spec = replace(view.spec, target=AccuracyTarget("accuracy", 0.8, 0.9))
    return replace(view, spec=spec, can_idle=idle, container_id=name, starts=1, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("view", "one"),
    [
        (service(latency_s=0.054), known()),  # noise
        (service(latency_s=0.0), known()),  # it says that its answers take no time
        (service(count=19), known()),
        (service(), known(hopeless=True)),
        (service(), known(kept=False)),  # there is no room for it
        (service(), known(model=None)),
        *((waiting(cause), known()) for cause in Cause if cause in UNMENDED),
    ],
)
def test_no_training_is_held_for_what_cpu_does_not_mend(view: JobView, one: ServiceMemory) -> None:
    assert lacking([view], [one]) == []


@pytest.mark.parametrize(
    "view", [service(), *(waiting(cause) for cause in Cause if cause not in UNMENDED)]
)
def test_a_service_that_misses_a_target_with_room_for_it_lacks(view: JobView) -> None:
    assert lacking([view], [known()]) == [Lack("a", False, pytest.approx(0.081), 0.05)]


@pytest.mark.parametrize(
    ("wait_ratio", "requests_a_s", "waits"),
    # Two requests a second of 81 ms: .16 are under way in the mean, .06 for more than the target.
    [
        (None, 2.0, True),
        (0.0, 2.0, False),
        (0.03, 2.0, False),
        (0.032, 2.0, True),
        # A queue.
        (0.04, 40.0, False),
        (0.06, 40.0, True),
    ],
)
def test_a_service_waits_for_cpu_if_that_is_felt_in_its_latency(
    wait_ratio: float | None, requests_a_s: float, waits: bool
) -> None:
    one = known(arrivals=Arrivals(60.0 * requests_a_s, 60.0, 60.0, 60.0 / requests_a_s))
    view = replace(service(), usage=Usage(cpu_wait_ratio=wait_ratio))
    assert [lack.waits for lack in lacking([view], [one])] == [waits]


def test_for_a_service_that_does_not_wait_trainings_are_held_later() -> None:
    """Caches and shared cores may be why it is slow, and so may its own pauses."""
    calm = replace(LACK, waits=False)
    hold = after(NOT_HELD, [calm], 5.0)
    hold = after(hold, [calm], 124.0)
    assert (hold.steps, hold.unexplained_s) == (0, 5.0)
    assert after(hold, [calm], 125.0).steps == 1
    assert after(hold, [calm, LACK], 124.0).steps == 1
    again = after(after(hold, [], 124.5), [calm], 126.0)
    assert (again.steps, again.unexplained_s) == (0, 126.0)


def after(
    hold: Hold,
    lacks: list[Lack],
    now_s: float,
    *trainings: JobView,
    left_cores: float = 1.0,
    helped: bool = True,
) -> Hold:
    held_back = trainings or (training(idle=False),)
    return stepped(hold, lacks, held_back, left_cores, now_s, WINDOW_S, helped=helped)


def test_what_helps_stays_and_is_given_back_after_a_while() -> None:
    hold = after(NOT_HELD, [LACK], 0.0)
    assert (hold.steps, hold.lacks) == (1, (LACK,))
    assert after(hold, [LACK], 29.0) is hold
    assert after(hold, [], 29.0) is hold
    calm = after(hold, [], 30.0)
    assert (calm.steps, calm.again_s) == (0, 0.0)
    other = replace(LACK, name="b", adopted=True)
    assert after(calm, [other], 31.0).lacks == (other,)


def test_a_hold_that_is_needed_again_soon_lasts_longer() -> None:
    """Up to two minutes. After as long without a need it is short again."""
    hold, now_s = NOT_HELD, 0.0
    for lasts_s in (30.0, 60.0, 120.0, 120.0):
        hold = after(hold, [LACK], now_s)
        assert after(hold, [], now_s + lasts_s - 1.0).steps == 1
        now_s += lasts_s
        hold = after(hold, [], now_s)
        assert hold.steps == 0
    hold = after(hold, [LACK], now_s + 120.0)
    assert after(hold, [], now_s + 150.0).steps == 0


def test_what_helps_too_little_goes_a_step_further() -> None:
    hold = after(NOT_HELD, [LACK], 0.0)
    better = replace(LACK, latency_s=0.06)
    hold = after(hold, [better], 30.0)
    assert (hold.steps, hold.ratio) == (2, pytest.approx(1.2))
    # It goes back by one, and the service that lacks again is no proof against it.
    hold = after(hold, [], 60.0)
    assert hold.steps == 1
    assert after(hold, [LACK], 90.0).steps == 2


def test_in_the_idle_class_there_is_no_further_step() -> None:
    hold = after(NOT_HELD, [LACK], 0.0, training())
    assert after(hold, [replace(LACK, latency_s=0.06)], 30.0, training()) is hold


@pytest.mark.parametrize(
    ("view", "helped"),
    [
        (service(latency_s=0.054), True),
        (service(count=19), True),  # too few requests to judge it
        (service(latency_s=0.056), False),
        (service("b", latency_s=0.04), False),  # the one that it is for has gone
    ],
)
def test_a_hold_helps_while_its_service_is_on_target_or_cannot_be_judged(
    view: JobView, helped: bool
) -> None:
    assert helps(after(NOT_HELD, [LACK], 0.0), [view]) is helped


def test_trainings_are_not_held_for_a_service_that_has_gone_or_turned_out_hopeless() -> None:
    hold = after(NOT_HELD, [LACK], 0.0)
    assert after(hold, [], 29.0, helped=False) is hold
    hold = after(hold, [], 30.0, helped=False)
    assert hold.steps == 0
    assert after(hold, [LACK], 149.0).steps == 0
    assert after(hold, [LACK], 150.0).steps == 1


def test_what_does_not_help_is_taken_back_and_not_tried_again_soon() -> None:
    hold = after(NOT_HELD, [LACK], 0.0)
    hold = after(hold, [LACK], 30.0)
    assert hold.steps == 0
    assert after(hold, [LACK], 149.0).steps == 0
    assert after(hold, [LACK], 150.0).steps == 1


def hold_of(lack: Lack, steps: int, *trainings: JobView, left_cores: float = 1.0) -> Held:
    least = {one.name: max(one.spec.bounds.floor_cores, 0.05) for one in trainings}
    return held(Hold(steps, lacks=(lack,), left_cores=left_cores), trainings, least)


def test_services_in_each_others_way_explain_what_they_miss_for_a_window() -> None:
    hold = NOT_HELD.after(1.8, 10.0, WINDOW_S).after(0.5, 39.0, WINDOW_S)
    assert hold.explains(2.0)
    assert not hold.explains(2.2)
    assert not hold.after(0.5, 40.0, WINDOW_S).explains(2.0)


def test_siblings_go_to_the_idle_class() -> None:
    got = hold_of(LACK, 1, training("t"), training("u"))
    assert (set(got.behind), got.ceilings) == ({"t", "u"}, {})
    assert got.why["t"] == (
        "the training runs on idle CPU alone, because a missed its target: its latency was 81 ms, "
        "target 50 ms"
    )


def test_where_weights_or_the_class_do_not_reach_a_ceiling_leaves_room_for_the_services() -> None:
    adopted = replace(LACK, adopted=True)
    got = hold_of(adopted, 1, training("t"), training("u"))
    assert got.ceilings == {"t": pytest.approx(0.5), "u": pytest.approx(0.5)}
    assert got.why["t"] == (
        "the training is limited to 0.50 cores, because a missed its target: its latency was 81 "
        "ms, target 50 ms; a is in another control group, so weights do not help"
    )
    assert hold_of(LACK, 1, training(idle=False)).ceilings == {"t": pytest.approx(1.0)}
    assert hold_of(adopted, 3, training()).ceilings == {"t": pytest.approx(0.25)}
    assert left_cores(2.0, 0.85) == pytest.approx(1.0)


def test_no_ceiling_is_below_what_a_training_was_promised() -> None:
    adopted = replace(LACK, adopted=True)
    got = hold_of(adopted, 3, training(floor=0.6), training("u"), left_cores=0.0)
    assert got.ceilings == {"t": 0.6, "u": 0.05}


def course(seconds: int, latency_s: float, trained: JobView) -> Decision:
    """The last decision: a service that needs .4 of two cores, beside a training."""
    policy, memory, decision = load("adaptive"), None, Decision()
    for second in range(seconds):
        fresh, window = (from_latencies([latency_s] * count) for count in (20, 40))
        told = Progress(fresh=fresh, window=window, in_flight=2, as_of_s=10.0 + second)
        view = replace(
            service(), container_id="a", starts=1, progress=told, attained_core_s=0.4 * second
        )
        view = replace(view, usage=Usage(cpu_cores=0.4, window_cores=0.4, throttled_ratio=0.0))
        seen = snapshot(view, trained, now_s=10.0 + second)
        decision = policy.decide(seen, memory)
        memory = decision.memory
    return decision


def test_a_training_beside_a_service_that_lacks_runs_on_idle_cpu_alone() -> None:
    trained = training(idle=True)
    assert course(45, 0.04, trained).weights["t"] > 0.0
    assert course(45, 0.08, trained).weights["t"] == 0.0


def test_a_training_whose_threads_spin_is_held_back_all_the_same() -> None:
    """Weights do not reach what it is held back for, and a container may spin on purpose."""
    trained = training(idle=False)
    spins = replace(trained, threads=ThreadUse(spun=True))
    decisions = [course(45, 0.08, one) for one in (trained, spins)]
    assert decisions[0].limits["t"].cpu_cores is not None
    assert decisions[1].limits["t"] == decisions[0].limits["t"]
    assert decisions[1].why["t"] == decisions[0].why["t"]


def test_a_training_that_starves_there_comes_back() -> None:
    starved = replace(training(idle=True), usage=Usage(cpu_cores=0.01, window_cores=0.01))
    assert course(45, 0.08, starved).weights["t"] > 0.0
