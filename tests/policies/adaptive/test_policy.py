"""The policy `adaptive` as a whole: who comes first, and that nothing is kept from anybody."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dlsched.estimate.sketch import from_latencies
from dlsched.model.decision import Decision
from dlsched.model.forecast import ForecastKind
from dlsched.model.spec import AccuracyTarget, Bounds, Limits
from dlsched.model.state import JobState, JobView, Progress, Snapshot, ThreadUse
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.policy import AdaptiveMemory, divided
from dlsched.policies.registry import load
from tests.policies.plant import job, snapshot

SLO = AdaptiveParameters()
LATENCY_S = 0.045


def service(name: str, target_s: float = 0.05, *, used: float = 0.5) -> JobView:
    """One request in flight after the other, each `LATENCY_S` long."""
    view = job(name, target_s, cores=None, used=used, throttled=0.0)
    return replace(
        view,
        container_id=name,
        starts=1,
        progress=Progress(fresh=from_latencies([LATENCY_S] * 25), in_flight=1, as_of_s=10.0),
    )


def training(name: str, *, used: float | None = None) -> JobView:
    view = job(name, cores=None, used=used, throttled=0.0)
    target = AccuracyTarget("accuracy", 0.8, 0.9)
    return replace(view, spec=replace(view.spec, target=target), container_id=name, starts=1)


def course(*jobs: JobView, seconds: int = 12, capacity: float = 2.0, mode: str = "slo") -> Decision:
    """The last decision after some seconds in which all of them did the same."""
    policy, memory, decision = load(f"adaptive?mode={mode}"), None, Decision()
    for second in range(seconds):
        seen = [replace(one, attained_core_s=second * (one.usage.cpu_cores or 0.0)) for one in jobs]
        decision = policy.decide(snapshot(*seen, now_s=10.0 + second, capacity=capacity), memory)
        memory = decision.memory
    return decision


def test_a_service_is_placed_first_and_weighs_more_than_a_training() -> None:
    decision = course(service("a"), training("b", used=1.5))
    parts = decision.weights
    assert parts["a"] > parts["b"]
    assert decision.limits["b"] == Limits()  # all that is idle may be used


@pytest.mark.parametrize("mode", ["band", "slo"])
def test_threads_that_spin_under_a_ceiling_have_none(mode: str) -> None:
    others = [service(name, used=0.9) for name in "bc"]
    decisions = [
        course(replace(service("a", 0.2), threads=ThreadUse(spun=spun)), *others, mode=mode)
        for spun in (False, True)
    ]
    assert decisions[1].limits["a"] == Limits()
    if mode == "band":
        assert decisions[0].limits["a"] != Limits()
        assert "threads would spin" in decisions[1].why["a"]


def test_only_a_job_without_a_target_that_takes_much_weighs_less_than_a_service() -> None:
    open_loop = service("a", used=0.2)
    open_loop = replace(open_loop, progress=replace(open_loop.progress, in_flight=0))
    light = job("light", None, cores=None, used=0.2, throttled=0.0)
    hog = job("hog", None, cores=None, used=1.5, throttled=0.0, in_flight=0)
    weights = course(open_loop, light, hog).weights
    assert weights["light"] == pytest.approx(weights["a"])
    assert weights["hog"] < weights["a"] / 10.0


def test_no_job_without_a_target_that_takes_much_precedes_a_service_that_does_not_fit() -> None:
    services = [service(name, used=0.8) for name in ("met", "short")]
    services = [replace(one, progress=replace(one.progress, in_flight=0)) for one in services]
    scorer = job("scorer", None, cores=None, used=0.6, throttled=0.0)
    requests = Progress(fresh=from_latencies([1.0]), recent=from_latencies([1.0] * 30))
    scorer = replace(scorer, progress=requests)
    decision = course(*services, scorer, capacity=1.0)
    kinds = {name: one[0].kind for name, one in decision.outlooks.items()}
    assert kinds["short"] is ForecastKind.CROWDED
    weights = decision.weights
    assert weights["scorer"] == weights["short"] < weights["met"]


def test_a_hog_that_others_squeeze_precedes_no_closed_loop() -> None:
    hog = job("hog", None, cores=None, used=0.6, throttled=0.0, in_flight=0)
    weights = course(service("a", used=0.1), hog).weights
    assert weights["hog"] <= weights["a"]


def test_beside_a_training_a_service_has_no_ceiling() -> None:
    assert course(service("a", 0.2), training("b", used=1.5)).limits["a"] == Limits()


def test_in_band_mode_it_is_held_to_its_band_also_alone() -> None:
    assert course(service("a", 0.2), mode="band").limits["a"].cpu_cores is not None


def test_a_latency_is_expected_where_a_ceiling_decides_it() -> None:
    held = course(service("a", 0.2), service("b", 0.001), mode="band")
    cores = held.limits["a"].cpu_cores
    # A request takes 20 ms of CPU time, and no ceiling meets the target of `b`.
    assert held.expected_s == {"a": pytest.approx(0.02 / cores, rel=0.05)}
    assert course(service("a", 0.2)).expected_s == {}  # it has no ceiling


def test_no_latency_is_expected_of_a_service_that_gets_what_is_left() -> None:
    services = [service(name, used=0.8) for name in "abc"]
    decision = course(*services, capacity=1.5, mode="band")
    crowded = {
        name for name, (one,) in decision.outlooks.items() if one.kind is ForecastKind.CROWDED
    }
    assert crowded
    assert all(decision.limits[name].cpu_cores is not None for name in crowded)
    assert decision.expected_s.keys() == decision.limits.keys() - crowded


def test_jobs_without_a_target_share_what_is_left_by_weight() -> None:
    light, heavy = job("a", None), job("b", None, weight=3.0)
    decision = course(light, heavy)
    assert decision.limits == {"a": Limits(), "b": Limits()}
    assert decision.weights["b"] == pytest.approx(3 * decision.weights["a"])


def test_room_is_kept_for_what_does_not_run_yet() -> None:
    starting = replace(job("z", None, bounds=Bounds(0.5)), state=JobState.STARTING)
    waiting = replace(job("y", None, bounds=Bounds(0.5)), state=JobState.WAITING)
    jobs = (service("a"), training("b"))
    alone = divided(snapshot(*jobs), AdaptiveMemory(), SLO).free_cores
    beside = divided(snapshot(*jobs, starting, waiting), AdaptiveMemory(), SLO).free_cores
    assert beside == pytest.approx(alone - 0.5)


def test_what_cannot_be_decided_counts_with_what_it_uses() -> None:
    lost = replace(job("z", None, used=1.2), state=JobState.UNMANAGED)
    parts = divided(snapshot(lost, training("b", used=0.5)), AdaptiveMemory(), SLO)
    assert math.fsum(parts.trainings.uses.values()) <= 0.8 + 1e-9


def test_decides_for_running_jobs_alone_and_remembers_the_others() -> None:
    paused = replace(service("a"), state=JobState.PAUSED)
    memory = course(service("a"), training("b")).memory
    decision = load("adaptive").decide(snapshot(paused, training("b"), now_s=30.0), memory)
    assert decision.limits.keys() == {"b"}
    assert [one.name for one in decision.memory.services] == ["a"]


def test_a_job_that_is_gone_is_forgotten() -> None:
    memory = course(service("a"), training("b")).memory
    decision = load("adaptive").decide(snapshot(now_s=30.0), memory)
    assert decision.memory == replace(
        decision.memory,  # type: ignore[type-var]
        services=(),
        trainings=(),
    )


def test_a_memory_of_another_policy_is_none() -> None:
    seen: Snapshot = snapshot(service("a"), training("b"))
    policy = load("adaptive")
    assert policy.decide(seen, ("of", "another")) == policy.decide(seen, None)


def test_idle_services_keep_nothing_from_busy_ones() -> None:
    idle = [replace(service(f"idle-{n}", used=0.0), progress=Progress(as_of_s=10.0)) for n in "abc"]
    jobs = (service("a", used=0.9), *idle)
    parts = divided(snapshot(*jobs), course(*jobs).memory, SLO)  # type: ignore[arg-type]
    assert math.fsum(parts.services.uses[one.name] for one in idle) < 0.1
    assert course(*jobs).outlooks["a"][0].kind is ForecastKind.MET


def test_a_service_that_cannot_be_satisfied_does_not_starve_beside_a_training() -> None:
    hopeless, met = service("hopeless", 0.001, used=0.9), service("met", used=0.5)
    decision = course(hopeless, met, training("t", used=0.6))
    assert decision.outlooks["hopeless"][0].kind is ForecastKind.IMPOSSIBLE
    assert decision.weights["hopeless"] >= 2.0 / 3
    # Of the three cores that the two and the training want, it may get what it needs.
    assert decision.weights["met"] > decision.weights["t"]


def test_without_weights_ceilings_sum_to_what_there_is() -> None:
    jobs = (service("a"), training("b"), job("c", None))
    seen = snapshot(*jobs, capacity=1.0)
    seen = replace(seen, node=replace(seen.node, weighs=False))
    limits = load("adaptive").decide(seen, None).limits
    assert math.fsum(one.cpu_cores or math.inf for one in limits.values()) == pytest.approx(1.0)
