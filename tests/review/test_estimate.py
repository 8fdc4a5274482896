"""The estimate of plain Docker, against the same world really simulated under plain Docker."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from dlsched.api.review_schema import PlainDocker
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import LatencyTarget, Tier
from dlsched.model.state import JobView, Progress
from dlsched.model.units import render_seconds
from dlsched.review.estimate import MISFIT_FACTOR, Estimated, estimate, reached_s
from dlsched.review.tally import Tally
from dlsched.simulation.node.workloads import Pause, Trace, TrainingLoad
from dlsched.simulation.trace.recording import Record
from tests.review.worlds import busy_node, counted, run
from tests.simulation.worlds import asked, seen

MET_BOUND, LATENCY_FACTOR, TIME_FACTOR = 0.15, 1.25, 1.25
"""How far an estimate may be from the truth."""


def estimated(
    trace: Trace, policy: str, changed: Callable[[CycleReport], CycleReport] = lambda one: one
) -> tuple[Estimated, Tally]:
    """The estimate from a record under that policy, and what was counted of the record."""
    record, tally = Record(), Tally(10.0)

    def take(report: CycleReport) -> None:
        report = changed(report)
        record.take(report)
        tally.take(report)

    run(trace, policy, take)
    tally.close()
    return estimate(record, tally), tally


@pytest.fixture(scope="module")
def found() -> tuple[Estimated, Tally]:
    return estimated(busy_node(), "adaptive")


@pytest.fixture(scope="module")
def truth() -> Tally:
    """Plain Docker on the same node, with other chances."""
    return counted(busy_node(), "none", seed=2)


@pytest.mark.long
def test_plain_docker_is_estimated_from_a_record_under_other_limits(
    found: tuple[Estimated, Tally], truth: Tally
) -> None:
    result, recorded = found
    hard = result.jobs["hard"]
    # A model that says that all stays as recorded would fail below.
    assert recorded.jobs["hard"].met_ratio > 0.8
    assert (truth.jobs["hard"].met_ratio or 0.0) < 0.2
    for name in ("easy", "hard"):
        own, plain = truth.jobs[name], result.jobs[name]
        assert plain.why_not is None
        assert plain.met_ratio is not None and own.met_ratio is not None
        factor = plain.measured_s / own.measured_s
        met = f"met {plain.met_ratio:.3f}, truly {own.met_ratio:.3f}"
        sys.stdout.write(f"{name}: {met}; latency x {factor:.3f}\n")
        assert abs(plain.met_ratio - own.met_ratio) <= MET_BOUND
        assert 1 / LATENCY_FACTOR <= factor <= LATENCY_FACTOR
    assert hard.met_ratio is not None and hard.met_ratio < 0.2


def test_times_of_trainings_are_estimated(found: tuple[Estimated, Tally], truth: Tally) -> None:
    result, _ = found
    names = ("bulk-a", "bulk-b", "bulk-c")
    fitting = [name for name in names if result.jobs[name].why_not is None]
    assert fitting
    for name in fitting:
        own_s, plain_s = reached_s(truth.jobs[name], Tier.DELIVER), result.jobs[name].deliver_s
        sys.stdout.write(f"{name}: deliver in {plain_s:.0f} s, truly {own_s:.0f} s\n")
        assert 1 / TIME_FACTOR <= plain_s / own_s <= TIME_FACTOR


def test_a_training_that_the_model_misses_has_no_estimate() -> None:
    """Its loader stalls, of which the model knows nothing."""
    trace = busy_node()
    stalls = (Pause(every_s=30.0, for_s=20.0),)
    jobs = tuple(
        replace(job, load=replace(job.load, pauses=stalls))
        if isinstance(job.load, TrainingLoad) and job.name == "bulk-a"
        else job
        for job in trace.jobs
    )
    result, recorded = estimated(replace(trace, jobs=jobs), "adaptive")
    missed = result.jobs["bulk-a"]
    assert (missed.deliver_s, missed.finish_s) == (None, None)
    own_s = reached_s(recorded.jobs["bulk-a"], Tier.DELIVER)
    assert own_s is not None and missed.why_not is not None
    assert re.fullmatch(
        "the model does not fit the job: simulated under the recorded limits, the job reaches "
        rf"deliver in .+; in the record, in {render_seconds(round(own_s))}",
        missed.why_not,
    )
    for name, job in recorded.jobs.items():
        one = result.jobs[name]
        for tier, model_s in (
            (Tier.DELIVER, one.replayed_deliver_s),
            (Tier.FINISH, one.replayed_finish_s),
        ):
            own_s = reached_s(job, tier)
            if one.why_not is None and own_s is not None and job.last.spec.name.startswith("bulk"):
                assert model_s is not None
                assert 1 / MISFIT_FACTOR - 0.05 <= model_s / own_s <= MISFIT_FACTOR + 0.05


def test_a_job_whose_target_changed_has_no_estimate() -> None:
    trace = busy_node(120.0)
    alone = replace(trace, jobs=tuple(one for one in trace.jobs if one.name == "easy"))

    def changed(report: CycleReport) -> CycleReport:
        target = LatencyTarget(0.2 if report.snapshot.now_s < 60.0 else 0.1)
        return seen(report, lambda view: asked(view, target))

    result, _ = estimated(alone, "none", changed)
    assert result.jobs["easy"].why_not == "the job's target changed in the range"


def test_the_models_error_is_what_the_recorded_limits_do_to_it(
    found: tuple[Estimated, Tally],
) -> None:
    result, recorded = found
    whole = result.whole
    assert whole.error_ratio is not None and whole.error_ratio <= MET_BOUND
    assert whole.error_factor is not None and 1.0 <= whole.error_factor <= LATENCY_FACTOR
    errors = [
        abs((one.replayed_met_ratio or 0.0) - (recorded.jobs[name].met_ratio or 0.0))
        for name, one in result.jobs.items()
        if one.met_ratio is not None
    ]
    assert whole.jobs == len(errors) == 2
    assert min(errors) <= whole.error_ratio <= max(errors)


def test_what_a_record_does_not_show_has_no_estimate() -> None:
    trace = busy_node(200.0)
    alone = replace(trace, jobs=tuple(one for one in trace.jobs if one.name in ("easy", "bulk-a")))

    def changed(view: JobView) -> JobView:
        """`bulk-a` has GPUs; of `easy` no CPU time was read."""
        if view.name != "bulk-a":
            return replace(view, attained_core_s=0.0)
        container = replace(view.spec.container, gpus=1)
        return replace(view, spec=replace(view.spec, container=container))

    result, _ = estimated(alone, "none", lambda report: seen(report, changed))
    jobs = result.jobs
    assert jobs["bulk-a"] == PlainDocker(
        "the job computes on a GPU, which is not simulated", remarks=jobs["bulk-a"].remarks
    )
    assert jobs["easy"].why_not == "the job's CPU time is not known"


def test_few_requests_and_a_short_record_have_no_estimate() -> None:
    result, _ = estimated(busy_node(30.0), "none")
    assert result.whole.why_not == "the record has 30 s, at least 60 s are needed"
    assert {one.why_not for one in result.jobs.values()} == {result.whole.why_not}
    trace = busy_node(120.0)
    slow = next(one for one in trace.jobs if one.name == "hard")
    # One request takes ten seconds of one thread.
    load = replace(slow.load, work_core_s=20.0)  # type: ignore[type-var]
    few = replace(slow, load=load, spec=replace(slow.spec, target=LatencyTarget(15.0)))
    result, recorded = estimated(replace(trace, jobs=(few,)), "none")
    count = recorded.jobs["hard"].latency.count
    assert 0 < count < 20
    assert result.jobs["hard"].why_not == f"too few requests: {count} of at least 20"
    assert result.whole.why_not == "no job has an estimate: see the reason of each"


def test_a_model_that_does_not_fit_gives_no_estimate() -> None:
    """Every other minute requests take forty times as long, without a reason in the record."""
    trace = busy_node(300.0)
    trace = replace(trace, jobs=tuple(one for one in trace.jobs if one.name == "easy"))

    def changed(report: CycleReport) -> CycleReport:
        wrong = 40.0 if report.snapshot.now_s % 120.0 < 60.0 else 1.0

        def slower(view: JobView) -> JobView:
            fresh = replace(view.progress.fresh, sum_s=view.progress.fresh.sum_s * wrong)
            return replace(view, progress=replace(view.progress, fresh=fresh))

        return seen(report, slower)

    result, _ = estimated(trace, "none", changed)
    one = result.jobs["easy"]
    assert one.why_not is not None and one.why_not.startswith("the model does not fit the job")
    assert one.met_ratio is None


def test_without_any_work_each_job_has_its_own_reason() -> None:
    trace = busy_node(100.0)
    services = [one for one in trace.jobs if isinstance(one.spec.target, LatencyTarget)]

    def mute(report: CycleReport) -> CycleReport:
        return seen(report, lambda view: replace(view, progress=Progress()))

    result, _ = estimated(replace(trace, jobs=tuple(services)), "none", mute)
    assert len(result.jobs) > 1
    for name, one in result.jobs.items():
        assert one.why_not.startswith(f"{name}: no request was answered")
        assert one.why_not in (result.whole.why_not or ""), "and not those of all"
