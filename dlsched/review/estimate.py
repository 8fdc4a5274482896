"""An estimate of what plain Docker would have done with the recorded load, and the model's error.

The record becomes a trace, as of `dlsched trace record`, and is simulated twice: without limits,
and under the recorded ones. The second is compared with the record itself, counted in the same way:
what differs is the model's error on this node.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dlsched.api.review_schema import Estimate, PlainDocker
from dlsched.control.decider import NamedPolicy
from dlsched.control.guards import GuardOptions
from dlsched.estimate.tuning import FEW_REQUESTS
from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.errors import DlschedError
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Limits, Tier
from dlsched.model.state import Snapshot
from dlsched.model.units import CORES_MIN, render_seconds
from dlsched.policies.protocol import NoParameters
from dlsched.review.tally import Given, JobTally, Tally
from dlsched.simulation.node.workloads import Trace
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN
from dlsched.simulation.trace.recording import (
    Note,
    NothingRecorded,
    Record,
    Recorded,
    remarks_of,
    trace_of,
)

PLAYBACK = "recorded limits"


class Playback:
    """Gives each job the mean limits of the recorded slice. One that has no record has no limit."""

    Parameters: ClassVar[type[NoParameters]] = NoParameters
    Memory: ClassVar[type[Any] | None] = None
    traits: ClassVar[PolicyTraits] = PolicyTraits(heeds_progress=False)

    def __init__(
        self,
        given: Mapping[str, Mapping[int, Given]],
        slice_s: float,
        cycle_s: float,
        names: Mapping[str, str],
    ) -> None:
        """`given`: by recorded name and slice. `names`: the recorded names of simulated jobs."""
        self._given = given
        self._ahead_s = cycle_s / 2.0
        """To the middle of the time for which a decision is valid."""
        self._slice_s = slice_s
        self._names = names
        self._last: dict[str, Given] = {}

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:  # noqa: ARG002
        number = int((snapshot.now_s + self._ahead_s) / self._slice_s)
        limits: dict[str, Limits] = {}
        weights: dict[str, float] = {}
        for job in snapshot.running:
            recorded = self._given.get(self._names.get(job.name, job.name), {})
            # A simulated job may run where the recorded one did not: what it had last, then.
            given = recorded.get(number) or self._last.get(job.name)
            if given is None:
                limits[job.name], weights[job.name] = Limits(), 1024.0
                continue
            self._last[job.name] = given
            ceiling = given.ceiling_cores
            limits[job.name] = Limits(None if ceiling is None else max(CORES_MIN, ceiling))
            weights[job.name] = 0.0 if given.idle and job.may_idle else max(2.0, given.cpu_shares)
        return Decision(limits=limits, weights=weights)


SHORTEST_S = 60.0
"""A shorter record shows no load."""
CYCLES_PER_SLICE = 5
"""The simulator draws few latencies a cycle, however many requests it had: two cycles make a
quantile of a slice too noisy."""
MISFIT_RATIO, MISFIT_FACTOR = 0.15, 1.25
"""Where the model under the recorded limits is off by more, in the part of the time, or in the
latency or the time to a tier, it says nothing about other limits. In simulated records of 96
services it was off by at most 0.05 and 1.12 for 90 of them, by 0.16 or 2.5 or more for the rest."""
_MOMENT_S = 2.0
"""Times that differ by less differ by the cycle by which they were read."""
_UNGUARDED = GuardOptions(dead_band_ratio=0.0, cooldown_s=0.0)


@dataclass(frozen=True, slots=True)
class Estimated:
    """The estimate, in all and by job."""

    whole: Estimate
    jobs: Mapping[str, PlainDocker]


def estimate(record: Record, tally: Tally) -> Estimated:
    """The estimate for what `record` and `tally` gathered of the same cycles."""
    if tally.observed_s < SHORTEST_S:
        return no_estimate(
            tally, f"the record has {tally.observed_s:.0f} s, at least {SHORTEST_S:g} s are needed"
        )
    try:
        recorded = trace_of(record)
        trace = _as_counted(recorded.trace, tally)
        plain = _simulated(trace, PLAIN, recorded, tally)
        given = {name: job.given for name, job in tally.jobs.items()}
        player = Playback(given, tally.slice_s, trace.cycle_s, recorded.lives)
        replayed = _simulated(trace, NamedPolicy(PLAYBACK, player), recorded, tally)
    except NothingRecorded as error:
        return no_estimate(tally, error.why, error.notes)
    except DlschedError as error:
        return no_estimate(tally, str(error))
    jobs = {
        name: _of_job(job, plain.jobs.get(name), replayed.jobs.get(name), recorded)
        for name, job in tally.jobs.items()
    }
    return Estimated(_whole(tally, jobs, trace, recorded), jobs)


def no_estimate(tally: Tally, why_not: str, notes: Sequence[Note] = ()) -> Estimated:
    """No estimate of any job, and why: each has the first note on it, if there is one."""
    own = {job: f"{job}: {text}" for job, text in reversed(notes)}
    why = "; ".join((why_not, *remarks_of(notes)))
    whole = Estimate(why, 0, None, None, None, None, None, 0.0, ())
    return Estimated(whole, {name: PlainDocker(own.get(name, why_not)) for name in tally.jobs})


def _as_counted(trace: Trace, tally: Tally) -> Trace:
    """The trace with some cycles for each slice, by which limits are played back and counted."""
    idle = any(one.idle for job in tally.jobs.values() for one in job.given.values())
    return replace(trace, cycle_s=tally.slice_s / CYCLES_PER_SLICE, idle_class=idle)


def _simulated(trace: Trace, policy: NamedPolicy | str, recorded: Recorded, tally: Tally) -> Tally:
    counted = Tally(tally.slice_s, recorded.lives)
    simulate(trace, policy, guards=_UNGUARDED, publish=counted.take)
    counted.close()
    return counted


# ---------------------------------------------------------------------- one job


def _of_job(
    job: JobTally, plain: JobTally | None, replayed: JobTally | None, recorded: Recorded
) -> PlainDocker:
    remarks = _remarks(job.name, recorded)
    why_not = _why_not(job, plain, remarks)
    if why_not is not None or plain is None or replayed is None:
        return PlainDocker(why_not or "the job was not simulated", remarks=remarks)
    service = isinstance(job.last.spec.target, LatencyTarget)
    misfit = _misfit(job, replayed) if service else _training_misfit(job, replayed)
    if misfit is not None:
        return PlainDocker(misfit, remarks=remarks)
    if service:
        return PlainDocker(
            None,
            met_ratio=plain.met_ratio,
            measured_s=plain.measured_s,
            replayed_met_ratio=replayed.met_ratio,
            replayed_measured_s=replayed.measured_s,
            remarks=remarks,
        )
    return PlainDocker(
        None,
        deliver_s=reached_s(plain, Tier.DELIVER),
        finish_s=reached_s(plain, Tier.FINISH),
        replayed_deliver_s=reached_s(replayed, Tier.DELIVER),
        replayed_finish_s=reached_s(replayed, Tier.FINISH),
        remarks=remarks,
    )


def reached_s(job: JobTally, tier: Tier) -> float | None:
    """Seconds from its start in the range to that tier; None: not reached in it."""
    reached = job.reached.get(tier)
    return None if reached is None or job.begun_s is None else max(0.0, reached[0] - job.begun_s)


def _why_not(job: JobTally, plain: JobTally | None, remarks: tuple[str, ...]) -> str | None:
    target = job.last.spec.target
    if job.last.gpus or job.last.spec.container.gpus:
        return "the job computes on a GPU, which is not simulated"
    if target is None:
        return "the job has no target"
    if not job.ran_s:
        return "the job did not run"
    if not job.used_core_s:
        return "the job's CPU time is not known"
    if job.retargeted:
        return "the job's target changed in the range"
    if isinstance(target, LatencyTarget) and job.latency.count < FEW_REQUESTS:
        return f"too few requests: {job.latency.count} of at least {FEW_REQUESTS}"
    if isinstance(target, AccuracyTarget) and job.ran_before:
        return "the job ran before the range, so its progress at the range's start is not known"
    if plain is None:
        return next(iter(remarks), "the record does not show the job's work")
    return None


def _misfit(job: JobTally, replayed: JobTally) -> str | None:
    """Why the model does not hold for this service; None: it does."""
    own, model = job.met_ratio, replayed.met_ratio
    if own is None or model is None:
        return "the job has too few requests to compare"
    if abs(own - model) > MISFIT_RATIO:
        return (
            "the model does not fit the job: simulated under the recorded limits, the target is "
            f"met {model:.0%} of the time; in the record it is met {own:.0%}"
        )
    factor = _factor(job, replayed)
    if factor is not None and max(factor, 1.0 / factor) > MISFIT_FACTOR:
        return (
            f"the model does not fit the job: its latency in the simulation is {factor:.2g} times "
            "the recorded one"
        )
    return None


def _training_misfit(job: JobTally, replayed: JobTally) -> str | None:
    """Why the model does not hold for this training; None: it does."""
    for tier in Tier:
        own_s, model_s = reached_s(job, tier), reached_s(replayed, tier)
        if own_s is None and model_s is not None and model_s * MISFIT_FACTOR < job.ran_s:
            own = f"not in {render_seconds(round(job.ran_s))}"
        elif own_s is not None and not _close(own_s, model_s):
            own = f"in {render_seconds(round(own_s))}"
        else:
            continue
        model = "never" if model_s is None else f"in {render_seconds(round(model_s))}"
        return (
            "the model does not fit the job: simulated under the recorded limits, the job reaches "
            f"{tier.value} {model}; in the record, {own}"
        )
    return None


def _close(own_s: float, model_s: float | None) -> bool:
    """Whether two times to a tier are close, or both at a training's very beginning."""
    if model_s is None:
        return False
    low_s, high_s = sorted((own_s, model_s))
    return high_s <= MISFIT_FACTOR * low_s + _MOMENT_S


def _factor(job: JobTally, replayed: JobTally) -> float | None:
    own, model = job.measured_s, replayed.measured_s
    return model / own if own and model else None


def _remarks(name: str, recorded: Recorded) -> tuple[str, ...]:
    names = {life for life, own in recorded.lives.items() if own == name} | {name}
    return tuple(text for life, text in recorded.notes if life in names)


# ---------------------------------------------------------------------- in all


def _whole(
    tally: Tally, jobs: Mapping[str, PlainDocker], trace: Trace, recorded: Recorded
) -> Estimate:
    services: list[tuple[float, float, float, float]] = []
    factors: list[float] = []
    for name, found in jobs.items():
        job = tally.jobs[name]
        own, plain, again = job.met_ratio, found.met_ratio, found.replayed_met_ratio
        if own is None or plain is None or again is None:
            continue
        services.append((job.met_s + job.slow_s, own, plain, again))
        if found.replayed_measured_s and job.measured_s:
            factor = found.replayed_measured_s / job.measured_s
            factors.append(max(factor, 1.0 / factor))
    estimated = [one for one in jobs.values() if one.why_not is None]
    whole_s = math.fsum(time_s for time_s, *_ in services)

    def mean(index: int) -> float | None:
        return math.fsum(one[0] * one[index] for one in services) / whole_s if services else None

    own_names = {*recorded.lives, *tally.jobs}
    remarks = remarks_of(note for note in recorded.notes if note[0] not in own_names)
    return Estimate(
        why_not=None if estimated else "no job has an estimate: see the reason of each",
        jobs=len(services),
        recorded_met_ratio=mean(1),
        plain_met_ratio=mean(2),
        replayed_met_ratio=mean(3),
        error_ratio=(
            math.fsum(time_s * abs(again - own) for time_s, own, _, again in services) / whole_s
            if services
            else None
        ),
        error_factor=statistics.median(factors) if factors else None,
        simulated_s=trace.duration_s,
        remarks=remarks,
    )
