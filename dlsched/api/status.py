"""What a cycle's report says to people and programs: the JSON of the API, and of `--output json`.

Owns the words and figures of a job's row, and what counts as satisfied. It must not read anything
but a CycleReport: no clock, no files, no engine.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from dlsched.api.gpu_status import gpu_of, gpu_rows
from dlsched.control.ledger.tiers import in_words
from dlsched.estimate.sketch import measured_s
from dlsched.model.actions import Action
from dlsched.model.cycle import CycleReport, Shadow
from dlsched.model.forecast import Forecast, givers, in_full, in_short
from dlsched.model.spec import AccuracyTarget, ContainerSpec, JobSpec, LatencyTarget, Target
from dlsched.model.state import JobView, Reached
from dlsched.model.units import render_seconds

STATUS_SOCKET_NAME, CONTROL_SOCKET_NAME = "status.sock", "control.sock"
"""The API's sockets in the run directory: for reading, and for changing too."""

BAND_RATIO = 0.10
"""Half width of the satisfied band, as a ratio of the target."""

REQUESTS_MIN = 5
"""Fewer requests than that say nothing about a target."""


def node_status(report: CycleReport) -> dict[str, Any]:
    """Everything that `ps` shows: the node, the engine, every job, and every rejected file."""
    snapshot = report.snapshot
    running = snapshot.running
    given = [job.actual.cpu_cores for job in running]
    return {
        "now": report.wall_time,
        "cycle": snapshot.cycle,
        "policy": report.policy,
        "shadow": None if report.shadow is None else report.shadow.policy,
        "engine": {
            "ok": report.engine_ok,
            "trouble": next((a for a in report.alarms if a.startswith("engine: ")), None),
        },
        "node": {
            "capacity_cores": snapshot.node.capacity_cores,
            "cores": snapshot.node.cores,
            "memory_bytes": snapshot.node.memory_bytes,
            "foreign_cores": snapshot.node.foreign_cores,
            "gpus": gpu_rows(snapshot),
            "gpu_trouble": snapshot.node.gpu_trouble,
            "used_cores": sum(job.usage.cpu_cores or 0.0 for job in running),
            "given_cores": sum(cores for cores in given if cores is not None),
            "unlimited_jobs": given.count(None),
        },
        "alarms": list(report.alarms),
        "rejected": [plain(file) for file in report.rejected],
        "jobs": [
            job_status(job, snapshot.now_s, report.outlooks.get(job.name, ()))
            for job in snapshot.jobs
        ],
    }


def job_status(job: JobView, now_s: float, outlooks: Sequence[Forecast] = ()) -> dict[str, Any]:
    """One job's row. `ratio` and both kinds of satisfied are None below REQUESTS_MIN requests.

    `outlooks` are the policy's last on its targets; a job that holds nothing has none.
    """
    progress, usage, bounds = job.progress, job.usage, job.spec.bounds
    return {
        "name": job.name,
        "state": job.state.value,
        "reason": job.reason,
        "source": "container" if job.adopted else "file",
        "container": None if job.container_id is None else job.container_id[:12],
        "target": _target(job.spec.target),
        **_measured(job),
        "tiers": _tiers(job, now_s),
        "outlook": [_outlook(one, now_s) for one in outlooks if job.state.holds],
        "cpu": {
            "desired_cores": job.desired.cpu_cores,
            "actual_cores": job.actual.cpu_cores,
            "floor_cores": bounds.floor_cores,
            "ceiling_cores": bounds.ceiling_cores,
            "usage_cores": usage.cpu_cores,
        },
        "gpu": gpu_of(job),
        "memory_bytes": usage.memory_bytes,
        "throttled_ratio": usage.throttled_ratio,
        "sidecar": {
            "age_s": None if progress.as_of_s is None else max(now_s - progress.as_of_s, 0.0),
            "bad_lines": progress.bad_lines,
            "trouble": progress.trouble,
        },
        "blind": job.blind,
        "starts": job.starts,
        "owner": job.spec.owner,
        "weight": job.spec.weight,
        "attained_core_s": job.attained_core_s,
    }


def job_now(name: str, report: CycleReport) -> dict[str, Any]:
    """What the last cycle made of a job: the decision, the guard's word, the outcomes, and what a
    shadow would have given it.
    """
    decision = report.decision
    limits = report.limits.get(name)
    return {
        "why": None if decision is None else decision.why.get(name),
        "guard": report.guarded.get(name),
        "limits": None if limits is None else plain(limits),
        "outcomes": [plain(out) for out in report.outcomes if out.action.job == name],
        "shadow": None if report.shadow is None else _would(name, report.shadow),
    }


def _would(name: str, shadow: Shadow) -> dict[str, Any]:
    limits = shadow.limits.get(name)
    return {
        "policy": shadow.policy,
        "why": shadow.why.get(name),
        "guard": shadow.guarded.get(name),
        "limits": None if limits is None else plain(limits),
        "trouble": shadow.trouble,
    }


def plain(value: object) -> Any:
    """Any value of the model as JSON can carry it.

    A number that is not finite becomes text, and an environment's values become `***`: they may
    be secrets, which whoever may look at the schedule need not know. Nor are digests told, by which
    a guess at a secret could be checked.
    """
    if isinstance(value, JobSpec):
        value = dataclasses.replace(value, digest="", container_digest="")
    if isinstance(value, ContainerSpec):
        value = value.discreet
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, Action):
            return {"kind": type(value).__name__.lower(), **fields}
        return fields
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _target(target: Target | None) -> dict[str, Any] | None:
    if isinstance(target, LatencyTarget):
        quantile = target.quantile
        which = "mean" if quantile is None else f"p{quantile * 100:g}"
        text = f"{which} {render_seconds(target.seconds)}"
        return {"kind": "latency", "text": text, "seconds": target.seconds, "quantile": quantile}
    if isinstance(target, AccuracyTarget):
        text = f"{target.metric} {target.deliver:g}, {target.finish:g}"
        return {"kind": "accuracy", "text": text, **plain(target)}
    return None


def _tiers(job: JobView, now_s: float) -> dict[str, Any] | None:
    """Which tiers of its target the job has reached; None without such a target."""
    target = job.spec.target
    if not isinstance(target, AccuracyTarget):
        return None

    def told(reached: Reached | None, tier: str, asked: float) -> dict[str, Any] | None:
        if reached is None:
            return None
        return {
            "value": reached.value,
            "step": reached.step,
            "age_s": max(now_s - reached.at_s, 0.0),
            "text": in_words(target.metric, reached, tier, asked),
        }

    return {
        "delivered": told(job.tiers.delivered, "deliver", target.deliver),
        "finished": told(job.tiers.finished, "finish", target.finish),
    }


def _outlook(outlook: Forecast, now_s: float) -> dict[str, Any]:
    """Times are seconds from now; 0: at any moment, and for a target that is met: it was before."""

    def ahead_s(at_s: float | None) -> float | None:
        return None if at_s is None else max(at_s - now_s, 0.0)

    return {
        "tier": outlook.tier,
        "kind": outlook.kind.value,
        "in_s": ahead_s(outlook.at_s),
        "earliest_in_s": ahead_s(outlook.earliest_s),
        "latest_in_s": ahead_s(outlook.latest_s),
        "needs_cores": outlook.needs_cores,
        "best": outlook.best,
        "lacks": [{"job": name, "cores": cores} for name, cores in outlook.lacks],
        "givers": givers(outlook),
        "why": outlook.why,
        "text": in_short(outlook, now_s),
        "sentence": in_full(outlook, now_s),
    }


def _measured(job: JobView) -> dict[str, Any]:
    recent, target = job.progress.recent, job.spec.target
    row: dict[str, Any] = {
        "measured_s": None,
        "requests": recent.count,
        "errors": recent.errors,
        "in_flight": job.progress.in_flight,
        "oldest_s": job.progress.oldest_s,
        "metric": None,
        "ratio": None,
        "satisfied_band": None,
        "satisfied_slo": None,
    }
    if isinstance(target, AccuracyTarget):
        told = (dict(sample.metrics) for sample in reversed(job.progress.samples))
        row["metric"] = next((one[target.metric] for one in told if target.metric in one), None)
        return row
    quantile = target.quantile if target is not None else None
    measured = row["measured_s"] = measured_s(recent, quantile)
    if target is not None and measured is not None and recent.count >= REQUESTS_MIN:
        ratio = measured / target.seconds
        row["ratio"] = ratio
        row["satisfied_band"] = abs(ratio - 1.0) <= BAND_RATIO + 1e-9
        row["satisfied_slo"] = ratio <= 1.0 + 1e-9
    return row
