"""Guards: the rules that every policy's decisions must satisfy. First limits, by `guard_rules`,
then moves. No guard prefers one job to another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dlsched.control.gpus.moves import moving
from dlsched.control.gpus.rebalance import Wanted
from dlsched.control.guard_rules import GuardOptions, steadied
from dlsched.control.ledger.updated import State
from dlsched.model.decision import Answer, Decision
from dlsched.model.errors import PolicyError
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.gpu_time import (
    as_node,
    gpu_name,
    in_steps,
    of_gpu,
    shared_gpus,
    starts_on,
)
from dlsched.model.spec import Limits
from dlsched.model.state import JobView
from dlsched.model.units import on_grain, same_cores, shown

__all__ = ["Approved", "GuardOptions", "guard", "guard_limits", "refuse_nonsense"]

_TIERS = ("latency", "deliver", "finish", "end")
_MOST = 1e9
"""More cores than any node has. Sums of values up to this stay finite."""


@dataclass(frozen=True, slots=True)
class Approved:
    """Limits and a move to apply, and by job what a guard changed and why."""

    limits: Mapping[str, Limits] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    move: Wanted | None = None


def guard(state: State, answer: Answer, options: GuardOptions) -> Approved:
    """The approved part of an answer. Guards also apply in cycles without a decision."""
    approved = guard_limits(state, answer, options)
    move, notes = moving(state, answer.decision or Decision(), options.gpus)
    return Approved(approved.limits, {**notes, **approved.notes}, move)


def guard_limits(state: State, answer: Answer, options: GuardOptions) -> Approved:
    """Approved limits: within bounds and capacity, after dead-band and cool-down.

    If the policy depends on progress, a blind job gets an equal share by weight instead. A job
    without a decision keeps its last desired limit. A policy that reserves leaves room for
    containers that do not run yet and for `state.starts`. GPU time stays within capacity under any
    policy. Call `refuse_nonsense` first.
    """
    snapshot, decision = state.snapshot, answer.decision or Decision()
    running = {job.name: job for job in snapshot.running}
    notes: dict[str, str] = {}
    kept = steadied(
        snapshot,
        {name: limits.cpu_cores for name, limits in decision.limits.items()},
        options,
        notes,
        reserves=answer.traits.reserves,
        heeds_progress=answer.traits.heeds_progress,
        starts=state.starts,
    )
    shares = _gpu_shares(state, answer, options, notes)
    limits: dict[str, Limits] = {}
    for name, job in running.items():
        grain = snapshot.node.grain_cores
        least, actual = job.spec.bounds.least_cores(grain), job.actual.cpu_cores
        share = shares.get(name)
        if observed_only(job, answer) and not job.altered:
            limits[name] = job.actual
            notes.pop(name, None)
            continue
        if not same_cores(kept[name], actual):
            actual = on_grain(kept[name], least, grain)
        elif share == job.actual.gpu_share:
            limits[name] = job.actual
            continue
        limits[name] = Limits(actual, share)
    return Approved(limits, notes)


def observed_only(job: JobView, answer: Answer) -> bool:
    """Whether the job's container stays as its owner made it, but for giving it back."""
    return answer.traits.observes_only and job.adopted


def _gpu_shares(
    state: State, answer: Answer, options: GuardOptions, notes: dict[str, str]
) -> dict[str, float]:
    """Shares of GPU time for jobs on shared GPUs, by the same guards as cores. A job on several
    GPUs gets the smallest share that any of them allows. Exclusive GPUs are not divided."""
    snapshot, decision = state.snapshot, answer.decision or Decision()
    decided = {name: limits.gpu_share for name, limits in decision.limits.items()}
    share_options = replace(options, ceilings_of=lambda _: None)
    shares: dict[str, float] = {}
    for uuid in shared_gpus(snapshot):
        node, said = as_node(snapshot, uuid), dict[str, str]()
        kept = steadied(
            node,
            {job.name: decided[job.name] for job in node.jobs if job.name in decided},
            share_options,
            said,
            reserves=True,
            heeds_progress=answer.traits.heeds_progress,
            starts=starts_on(uuid, state.starts, state.placements),
        )
        for job in node.running:
            share, actual = kept[job.name], job.actual.cpu_cores
            if share is None or actual is None or not same_cores(share, actual):
                actual = in_steps(1.0 if share is None else share, job.spec.bounds.floor_cores)
            shares[job.name] = min(actual, shares.get(job.name, 1.0))
        name = gpu_name(snapshot, uuid)
        for job_name, note in said.items():
            before = f"{notes[job_name]}; " if job_name in notes else ""
            notes[job_name] = before + of_gpu(note, name)
    return shares


def refuse_nonsense(decision: Decision, names: set[str]) -> None:
    """Raise PolicyError for an invalid answer: NaN, negative or huge numbers, unknown jobs."""
    if not (math.isfinite(decision.next_s) and decision.next_s >= 0):
        raise PolicyError(f"decided next_s {decision.next_s!r}; must be 0 or more seconds")
    for name, reason in decision.why.items():
        if not isinstance(reason, str):
            raise PolicyError(f"`why` of {name} must be text, not {reason!r}")
    named: Mapping[str, Mapping[str, object]] = {
        "GPUs": decision.gpus,
        "a weight": decision.weights,
        "a forecast": decision.outlooks,
        "a latency": decision.expected_s,
        "limits": decision.limits,
    }
    for what, by_job in named.items():
        for name in by_job:
            if name not in names:
                raise PolicyError(f"decided {what} for a job that does not exist: {name!r}")
    for name, gpus in decision.gpus.items():
        if not isinstance(gpus, tuple) or not all(isinstance(uuid, str) for uuid in gpus):
            raise PolicyError(f"`gpus` of {name} must be a tuple of UUIDs, not {gpus!r}")
    for name, outlooks in decision.outlooks.items():
        if not isinstance(outlooks, tuple) or not all(map(_is_plain, outlooks)):
            raise PolicyError(
                f"`outlooks` of {name} must be a tuple of Forecasts, not {shown(outlooks)}"
            )
    for name, expected_s in decision.expected_s.items():
        if not 0 < expected_s < math.inf:
            raise PolicyError(
                f"expects a latency of {expected_s!r} s for {name}; must be above 0 and finite"
            )
    limits = decision.limits.items()
    numbers = [
        *(("weight", name, weight) for name, weight in decision.weights.items()),
        *(("cpu_cores", name, one.cpu_cores) for name, one in limits if one.cpu_cores is not None),
        *(("gpu_share", name, one.gpu_share) for name, one in limits if one.gpu_share is not None),
    ]
    for what, name, value in numbers:
        if not 0 <= value <= _MOST:
            bound = f"must be 0 or more, at most {_MOST:g}"
            raise PolicyError(f"decided {what} {value!r} for {name}; {bound}")


def _is_plain(outlook: object) -> bool:
    """Whether it is a forecast with finite numbers only, which can be shown and stored."""
    if not isinstance(outlook, Forecast) or not isinstance(outlook.why, str):
        return False
    one = outlook
    if not isinstance(one.kind, ForecastKind) or one.tier not in _TIERS:
        return False
    numbers = (one.at_s or 0.0) + (one.earliest_s or 0.0) + (one.latest_s or 0.0)
    numbers += (one.needs_cores or 0.0) + (one.best or 0.0)
    return math.isfinite(numbers + sum(cores for _, cores in one.lacks))
