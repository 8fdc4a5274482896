"""Recommended limits, held to records whose truth is known: simulated again with the limits, the
targets are met; what is out of reach is named, and truly is. Rows of `dlsched recommend` contradict
neither themselves nor what their record shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from dlsched.control.decider import NamedPolicy
from dlsched.estimate.sketch import from_latencies, measured_s, merge
from dlsched.model.cycle import CycleReport
from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import AccuracyTarget, Bounds, ContainerSpec, JobSpec, LatencyTarget, Limits
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.protocol import NoParameters
from dlsched.review.advice import Advice, Adviser, NothingToAdvise
from dlsched.review.advice.adviser import Latencies
from dlsched.review.advice.result import Recommended
from dlsched.simulation.node.learning_curves import Curve
from dlsched.simulation.node.workloads import HostLoad, ServiceLoad, Shift, Trace, TrainingLoad
from dlsched.simulation.run import simulate
from dlsched.simulation.trace.observed import SLICE_S, ObservedJob
from tests.lanes import but_the_first_long
from tests.simulation.worlds import asked, day, job, run, seen

SETTLED_S = 20.0
"""Of a run under limits that begin with it: containers start."""


def advice_of(reports: Iterable[CycleReport]) -> Advice:
    adviser = Adviser()
    for report in reports:
        adviser.take(report)
    return adviser.advice()


def advised(trace: Trace, policy: str = "none") -> Advice:
    return advice_of(run(trace, policy))


def named(advice: Advice) -> Mapping[str, Recommended]:
    return {one.name: one for one in advice.jobs}


def limited(trace: Trace, advice: Advice, *, alone: str | None = None) -> Trace:
    """The same day under plain Docker with the recommended limits; `alone`: with its MIN only."""
    found = named(advice)
    jobs = []
    for one in trace.jobs:
        given = found[one.spec.name]
        ceiling = given.min_cores if alone else given.max_cores
        if alone in (None, one.spec.name):
            jobs.append(replace(one, spec=replace(one.spec, bounds=Bounds(ceiling_cores=ceiling))))
    return replace(trace, jobs=tuple(jobs))


def measured(trace: Trace, name: str, from_s: float = SETTLED_S) -> float:
    """The latency of a service's target over a run under plain Docker with another seed."""
    sketch, target = LatencySketch(), None
    for report in run(trace, seed=2):
        for view in report.snapshot.jobs:
            if view.name == name:
                target = view.spec.target
                if report.snapshot.now_s >= from_s:
                    sketch = merge(sketch, view.progress.fresh)
    assert sketch.count > 50
    found = measured_s(sketch, target.quantile)
    assert found is not None
    return found


CLOSED = ServiceLoad(work_core_s=0.06, overhead_s=0.02, threads=2.0, noise=0.3)
OPEN = ServiceLoad(work_core_s=0.05, overhead_s=0.005, threads=1.0, noise=0.3, arrivals_per_s=6.0)


@pytest.mark.parametrize("policy", but_the_first_long(["adaptive", "none", "fair"]))
@pytest.mark.parametrize(
    ("load", "target"),
    [
        (CLOSED, LatencyTarget(0.15)),
        (CLOSED, LatencyTarget(0.25, 0.95)),
        (OPEN, LatencyTarget(0.15)),
        (OPEN, LatencyTarget(0.3, 0.9)),
    ],
)
def test_a_service_held_to_its_min_alone_meets_its_target(
    load: ServiceLoad, target: LatencyTarget, policy: str
) -> None:
    trace = day(job("one", load, target))
    advice = advised(trace, policy)
    (one,) = advice.jobs
    assert one.need.out_of_reach is None
    assert one.min_cores < 4.0
    under = limited(trace, advice, alone="one")
    assert measured(under, "one") <= target.seconds
    # And it is no waste: with a third of it the target is missed.
    third = Bounds(ceiling_cores=one.min_cores / 3)
    (held,) = under.jobs
    scarce = replace(under, jobs=(replace(held, spec=replace(held.spec, bounds=third)),))
    assert measured(scarce, "one") > target.seconds


def test_a_target_below_the_wait_of_a_request_is_out_of_reach() -> None:
    waits = ServiceLoad(work_core_s=0.01, overhead_s=0.09, threads=1.0)
    trace = day(job("slow", waits, LatencyTarget(0.05)))
    (one,) = advised(trace).jobs
    assert (one.min_cores, one.need.cores) == (None, None)
    assert "mean is 1" in one.need.out_of_reach or "mean is 9" in one.need.out_of_reach
    assert "is not spent computing; the target is 50 ms" in one.need.out_of_reach
    # The truth: with the whole node it is as slow.
    assert measured(trace, "slow") > 0.05


def test_more_requests_than_one_server_answers_ask_for_replicas() -> None:
    busy = ServiceLoad(work_core_s=0.1, threads=1.0, noise=0.2, arrivals_per_s=9.0)
    (one,) = advised(day(job("busy", busy, LatencyTarget(0.12)))).jobs
    assert "more workers or replicas" in one.need.out_of_reach


def test_needs_that_do_not_fit_together_name_the_dearest() -> None:
    trace = day(
        job("cheap", CLOSED, LatencyTarget(0.15)),
        job("dear", replace(CLOSED, work_core_s=0.6, threads=4.0), LatencyTarget(0.19)),
        cores=4.0,
    )
    found = named(advised(trace))
    assert found["cheap"].need.out_of_reach is None
    why = found["dear"].need.out_of_reach
    assert "and all 2 together" in why
    # What cannot be met gets what the other leaves, and takes nothing from it.
    assert (found["dear"].min_cores, found["dear"].max_cores) == (None, None)
    weights = {name: one.cpu_shares for name, one in found.items()}
    assert weights["cheap"] / sum(weights.values()) >= found["cheap"].min_cores / 4.0


def test_the_busiest_load_counts() -> None:
    trace = day(
        job("one", CLOSED, LatencyTarget(0.2), shifts=(Shift(200.0, work=1.8),)), duration_s=400.0
    )
    advice = advised(trace)
    (one,) = advice.jobs
    assert any("had 2 levels" in note for note in one.need.notes)
    under = limited(trace, advice, alone="one")
    assert measured(under, "one", from_s=220.0) <= 0.2


def test_a_training_with_a_deadline_needs_its_work_in_that_time() -> None:
    load = TrainingLoad(4000, 0.5, 20, Curve(0.1, 0.95, 300, "exponential"), threads=3.0)
    # 0.5 after about 191 steps: 95 core-seconds.
    target = AccuracyTarget("accuracy", 0.5, 0.9, deadline_s=120.0)
    trace = day(job("train", load, target))
    (one,) = advised(trace).jobs
    assert 0.75 <= one.min_cores <= 1.0
    early = replace(target, deadline_s=20.0)
    (one,) = advised(day(job("train", load, early))).jobs
    assert "with all that it can use (3 cores), not 20 s" in one.need.out_of_reach


def test_a_curve_that_levels_off_below_is_out_of_reach() -> None:
    load = TrainingLoad(10**6, 0.05, 20, Curve(0.1, 0.55, 300, "exponential"), threads=3.0)
    (one,) = advised(day(job("train", load, AccuracyTarget("accuracy", 0.5, 0.8)))).jobs
    assert "levels off at 0.55" in one.need.out_of_reach
    assert "accuracy 0.8 (finish)" in one.need.out_of_reach
    few = replace(load, evaluate_every=1500)  # 12 evaluations in that time
    (one,) = advised(day(job("train", few, AccuracyTarget("accuracy", 0.5, 0.8)))).jobs
    assert one.need.out_of_reach is None


def test_a_container_without_a_target_gets_no_limit() -> None:
    (one,) = advised(day(job("plain", OPEN, None))).jobs
    # Six requests a second of 0.05 core-seconds.
    assert one.use.mean_cores == pytest.approx(0.3, rel=0.1)
    assert (one.min_cores, one.max_cores, one.cpu_shares) == (None, None, None)
    assert one.why == "no target: no limit"


@dataclass(frozen=True)
class _Weights:
    """Plain Docker with limits and CPU weights that never change."""

    limits: Mapping[str, Limits]
    weights: Mapping[str, float]
    Parameters: ClassVar[type[Any]] = NoParameters
    Memory: ClassVar[type[Any] | None] = None
    traits: ClassVar[PolicyTraits] = PolicyTraits(heeds_progress=False)

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        return Decision(limits=dict(self.limits), weights=dict(self.weights))


def test_a_weight_holds_batch_jobs_back_as_a_limit_would() -> None:
    hog = TrainingLoad(10**6, 0.1, 100, Curve(0.1, 0.95, 120_000, "exponential"), threads=4.0)
    batches = [job(f"batch-{number}", hog, None) for number in range(6)]
    trace = day(job("s", CLOSED, LatencyTarget(0.06)), *batches)
    advice = advised(trace, "adaptive")
    found = named(advice)
    one, batch = found["s"], found["batch-0"]
    assert (batch.min_cores, batch.max_cores) == (None, None)
    assert "no target: no limit; the CPU weight gives it" in batch.why
    # All was measured on a full node.
    assert one.why.startswith("probably meets the target; the node was full all the time")
    policy = _Weights(
        {name: Limits(each.max_cores) for name, each in found.items()},
        {name: float(each.cpu_shares) for name, each in found.items()},
    )
    sketch, batch_core_s = LatencySketch(), 0.0

    def take(report: CycleReport) -> None:
        nonlocal sketch, batch_core_s
        views = {view.name: view for view in report.snapshot.jobs}
        if report.snapshot.now_s >= SETTLED_S:
            sketch = merge(sketch, views["s"].progress.fresh)
        batch_core_s = views["batch-0"].attained_core_s

    simulate(trace, NamedPolicy("weights", policy), 2, publish=take)
    weighted_s = measured_s(sketch, None)
    assert weighted_s < 0.8 * measured(trace, "s"), "better than without weights"
    assert weighted_s <= 1.02 * measured(limited(trace, advice, alone="s"), "s")
    # A ceiling of its part would have kept it from what the service leaves idle.
    assert batch_core_s > 1.05 * 300.0 * batch.cpu_shares / 1024


def test_a_record_without_a_container_says_so() -> None:
    with pytest.raises(NothingToAdvise, match="no cycle"):
        Adviser().advice()
    adviser = Adviser()
    late = job("late", CLOSED, LatencyTarget(0.1), arrives_s=30.0)
    for report in run(day(late, duration_s=40.0))[:10]:
        adviser.take(report)
    with pytest.raises(NothingToAdvise, match="no container ran in these 10 cycles"):
        adviser.advice()


def test_numbers_that_make_no_sense_cost_the_others_nothing() -> None:
    trace = day(job("good", CLOSED, LatencyTarget(0.15)), job("mad", CLOSED, LatencyTarget(0.15)))
    adviser, whole = Adviser(), Adviser()

    def maddened(view: JobView) -> JobView:
        fresh = replace(view.progress.fresh, sum_s=1e308, count=10**300)
        progress = replace(view.progress, fresh=fresh)
        return replace(view, progress=progress) if view.name == "mad" else view

    for report in run(trace):
        whole.take(report)
        adviser.take(seen(report, maddened))
    found = named(adviser.advice())
    assert found["good"].min_cores == named(whole.advice())["good"].min_cores
    assert found["mad"].min_cores is None or found["mad"].min_cores <= 4.0


def test_other_work_on_the_host_leaves_less_and_puts_nothing_out_of_reach_by_itself() -> None:
    jobs = (job("one", CLOSED, LatencyTarget(0.08)),)  # needs about 1.1 cores
    some = replace(day(*jobs), host=(HostLoad(0.0, 300.0, 2.0, 262_144),))
    advice = advised(some)
    assert advice.room_cores == pytest.approx(2.0, abs=0.1)
    assert any("other work on the host used 2 cores" in one for one in advice.remarks)
    assert named(advice)["one"].need.out_of_reach is None
    most = replace(some, host=(HostLoad(0.0, 300.0, 3.5, 262_144),))
    found = named(advised(most))["one"]
    assert found.need.cores is not None
    assert "other programs on the host leave 0.5 cores" in found.need.out_of_reach


def test_a_slice_in_which_requests_fail_is_not_met() -> None:
    target = LatencyTarget(0.1)
    found = Latencies(
        ObservedJob("a", JobSpec("a", ContainerSpec("image")), 0.0, ran_before=False), target
    )
    quick = from_latencies([0.01] * 20)
    for at, errors in enumerate((0, 30)):
        found.take(target, replace(quick, errors=errors), at * SLICE_S)
    found.close()
    assert (found.slices, found.met) == (2, 1)


SELDOM = ServiceLoad(work_core_s=0.1, overhead_s=0.005, threads=2.0, arrivals_per_s=1.0)
HOG = TrainingLoad(10**6, 0.1, 100, Curve(0.1, 0.95, 120_000, "exponential"), threads=4.0)


def holds(one: Recommended) -> None:
    """Whether the row says one thing."""
    out_of_reach, measured = one.need.out_of_reach, one.measured
    if out_of_reach is not None:
        assert one.min_cores is None, one
        assert one.need.does_not_fit is None, one
        if measured is not None and isinstance(one.target, LatencyTarget):
            assert measured.seconds > one.target.seconds, one
    if measured is not None:
        assert "no request" not in one.why, one
    if one.max_cores is not None:
        assert one.min_cores is not None and one.min_cores <= one.max_cores, one
    if one.target is None:
        assert (one.min_cores, one.max_cores) == (None, None), one


BUSY = (HostLoad(0.0, 300.0, 3.0, 1024),)


@pytest.mark.parametrize("policy", but_the_first_long(["adaptive", "none", "dqoes"]))
@pytest.mark.parametrize(
    "trace",
    [
        day(*(job(f"s{n}", SELDOM, LatencyTarget(0.07)) for n in range(8))),
        day(job("hog", HOG, None), job("too", HOG, None), job("s", CLOSED, LatencyTarget(0.035))),
        replace(day(job("a", CLOSED, LatencyTarget(0.2)), job("b", CLOSED, None)), host=BUSY),
        replace(day(*(job(f"s{n}", CLOSED, LatencyTarget(0.06)) for n in range(3))), host=BUSY),
        day(job("few", replace(SELDOM, arrivals_per_s=0.02), LatencyTarget(0.1, 0.95))),
    ],
    ids=["seldom-asked", "hogs", "busy-host", "crowded-busy-host", "few-requests"],
)
def test_each_row_says_one_thing(trace: Trace, policy: str) -> None:
    for one in advised(trace, policy).jobs:
        holds(one)


def test_needs_that_do_not_fit_put_nothing_out_of_reach_that_was_met() -> None:
    services = (job(f"s{n}", SELDOM, LatencyTarget(0.07)) for n in range(8))
    rows = advised(day(*services)).jobs
    assert [one.measured is not None and one.measured.met_ratio > 0.9 for one in rows] == [True] * 8
    assert all(one.need.out_of_reach is None for one in rows)
    lost = [one for one in rows if one.min_cores is None]
    assert lost
    for one in lost:
        assert one.why.startswith("target met so far with no limit; ")
    given = [one.min_cores for one in rows if one.min_cores is not None]
    assert sum(given) <= 4.0
    assert any("the larger limit does not fit beside the other jobs" in one.why for one in rows)
    assert any(one.why.startswith("probably meets the target; ") for one in rows)


def test_what_has_no_target_comes_after_all_that_have_one_and_misses_none() -> None:
    need = LatencyTarget(0.035)  # most of the node
    jobs = [job("s", replace(CLOSED, threads=4.0), need), *(job(n, CLOSED, None) for n in "ab")]
    found = named(advised(day(*jobs)))
    assert found["s"].need.out_of_reach is None and found["s"].min_cores is not None
    for name in "ab":
        one = found[name]
        assert (one.need.out_of_reach, one.min_cores, one.max_cores) == (None, None, None)
        assert one.why.startswith("no target: no limit; the CPU weight gives it ")


def test_a_few_requests_are_told() -> None:
    few = replace(SELDOM, arrivals_per_s=0.02)
    never = replace(SELDOM, arrivals_per_s=1e-6)
    found = named(advised(day(*(job(n, one, LatencyTarget(0.2)) for n, one in
                               (("few", few), ("never", never))))))  # fmt: skip
    requests = found["few"].measured
    assert requests is not None and requests.requests < 20
    assert f"only {requests.requests} requests were recorded" in found["few"].why
    assert found["never"].measured is None
    assert "no request was recorded" in found["never"].why


def test_requests_without_windows_are_not_called_none() -> None:
    """Its limit changed in every cycle, so no cycle is under one limit."""
    trace = day(job("s", CLOSED, LatencyTarget(0.2)))
    restless = [
        seen(report, lambda view, report=report: replace(view, changed_at_s=report.snapshot.now_s))
        for report in run(trace)
    ]
    (one,) = advice_of(restless).jobs
    assert one.measured is not None and one.measured.met_ratio > 0.9
    assert one.min_cores is None
    assert "too few requests were recorded to know what each one computes" in one.why


def test_another_target_is_measured_anew() -> None:
    trace = day(job("s", CLOSED, LatencyTarget(0.01)))
    later = LatencyTarget(0.2)
    reports = [
        one if one.snapshot.now_s < 200 else seen(one, lambda view: asked(view, later))
        for one in run(trace)
    ]
    (one,) = advice_of(reports).jobs
    assert one.target == later
    assert one.measured is not None and one.measured.met_ratio == 1.0
    whole = sum(view.progress.fresh.count for each in reports for view in each.snapshot.jobs)
    assert one.measured.requests < 0.5 * whole, "those before are of another target"
