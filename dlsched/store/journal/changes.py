"""Finds the changes and events of a cycle. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.control.ledger.tiers import reached_text
from dlsched.estimate.measured import unclear
from dlsched.model.actions import Action, Memory, Move, Outcome, Resize, Start
from dlsched.model.bottleneck import Cause
from dlsched.model.cycle import CycleReport
from dlsched.model.forecast import TargetStates, in_full, recalled, turned
from dlsched.model.spec import AccuracyTarget, Limits
from dlsched.model.state import JobState, JobView, NodeView, Tiers
from dlsched.model.units import render_bytes, same_cores
from dlsched.store.journal.rows import Change, Event


def changes(
    report: CycleReport, before: dict[tuple[str, str], tuple[object, ...]]
) -> tuple[list[Change], dict[tuple[str, str], tuple[object, ...]]]:
    """The changes, a repeated failure only once, and the attempts to pass as `before` next time."""
    recorded: list[Change] = []
    tries: dict[tuple[str, str], tuple[object, ...]] = {}
    for outcome in report.outcomes:
        change = _change(report, outcome)
        if outcome.status in ("failed", "withheld"):
            after = change.changed.partition(" -> ")[2] if change.kind == "memory" else ""
            limits = (change.after_cores, change.after_share, change.gpus, after)
            what = (change.kind, limits, change.guard, change.status, change.detail)
            which = change.job, "memory" if change.kind == "memory" else "other"
            tries[which] = what
            if before.get(which) == what:
                continue
        recorded.append(change)
    return recorded, tries


def _change(report: CycleReport, outcome: Outcome) -> Change:
    action = outcome.action
    job = action.job
    decided = report.decision.why.get(job, "") if report.decision else ""
    return Change(
        cycle=report.snapshot.cycle,
        now_s=report.snapshot.now_s,
        wall_time=report.wall_time,
        job=job,
        kind=type(action).__name__.lower(),
        before_cores=action.before.cpu_cores if isinstance(action, Resize) else None,
        after_cores=action.limits.cpu_cores if isinstance(action, Start | Resize) else None,
        why=decided if isinstance(action, Start) else action.why,
        guard=report.guarded.get(job, ""),
        status=outcome.status,
        detail=outcome.detail,
        before_share=action.before.gpu_share if isinstance(action, Resize) else None,
        after_share=action.limits.gpu_share if isinstance(action, Start | Resize) else None,
        gpus=",".join(_gpus(action)),
        expected_s=_expected_s(report, outcome),
        changed=_changed(action),
    )


def _changed(action: Action) -> str:
    if isinstance(action, Start):
        return limits_changed("start", Limits(), action.limits)
    if isinstance(action, Memory):
        before_bytes, limit_bytes = action.before_bytes, action.limit_bytes
        return f"limit of memory {render_bytes(before_bytes)} -> {render_bytes(limit_bytes)}"
    if not isinstance(action, Resize):
        return ""
    before, after = action.before, action.limits
    parts = [limits_changed("resize", before, after)]
    if action.gives_back:
        parts.append("all limits given back as the container's owner set them")
    elif not action.only_notifies:
        if action.cpu_idle is not action.idle_before:
            parts.append(f"idle class {'on' if action.cpu_idle else 'off'}")
        elif action.shares_before not in (None, action.cpu_shares) and not action.cpu_idle:
            parts.append(f"CPU weight {action.shares_before} -> {action.cpu_shares}")
        # With its limit, its burst changes in proportion.
        old, new = action.burst_before, action.burst_cores
        if same_cores(before.cpu_cores, after.cpu_cores) and old is not None and new is not None:
            parts += [] if same_cores(old, new) else [f"CPU burst {_turn(old, new)} cores"]
    return ", ".join(part for part in parts if part)


def limits_changed(kind: str, before: Limits, after: Limits) -> str:
    """The limits that an action of this kind changed, such as `limit 2.000 -> 1.500 cores, GPU
    share 0.25 -> 0.5`; empty: none."""
    old, new = before.cpu_cores, after.cpu_cores
    parts = []
    if kind == "start":
        parts.append("no limit" if new is None else f"limit {new:.3f} cores")
    elif kind != "resize" or same_cores(old, new):
        pass
    elif old is None:
        parts.append(f"limit set to {new:.3f} cores")
    elif new is None:
        parts.append(f"limit of {old:.3f} cores removed")
    else:
        parts.append(f"limit {_turn(old, new)} cores")
    share = after.gpu_share
    if share is not None and share != before.gpu_share:
        since = "" if before.gpu_share is None else f"{before.gpu_share:g} -> "
        parts.append(f"GPU share {since}{share:g}")
    return ", ".join(parts)


def _turn(before: float, after: float) -> str:
    """Two numbers of cores, with as many decimals as show that they differ: an engine's grain is a
    hundred-thousandth of a core."""
    decimals = 3 if round(before, 3) != round(after, 3) else 5
    return f"{before:.{decimals}f} -> {after:.{decimals}f}"


def _expected_s(report: CycleReport, outcome: Outcome) -> float | None:
    action, decision = outcome.action, report.decision
    if decision is None or not isinstance(action, Resize) or action.gives_back:
        return None
    if not outcome.ok or action.job in report.guarded:
        return None
    return decision.expected_s.get(action.job)


def _gpus(action: Action) -> tuple[str, ...]:
    if isinstance(action, Move):
        return action.start.gpus
    return action.gpus if isinstance(action, Start) else ()


@dataclass(frozen=True, slots=True)
class Reported:
    """What was recorded of a job so far."""

    state: JobState
    tiers: Tiers
    blind: str | None = None
    idle: bool = False
    gpu_problem: str | None = None
    targets: TargetStates = ()
    diverged: bool = False
    unclear: str | None = None
    """The last reason for which its latency could not be judged."""
    oom_kills: int | None = None
    """None: unknown, so that the next count is no news."""
    bottleneck: Cause | None = None


_NOTHING = Reported(JobState.WAITING, Tiers())
"""Of a job that is new."""


def reported(
    job: JobView, node: NodeView, before: Reported | None, targets: TargetStates
) -> Reported:
    """What is recorded of a job after this cycle. A tier stays while its target cannot be read."""
    tiers = before.tiers if before is not None and job.tiers.delivered is None else job.tiers
    diverged = job.diverged is not None
    why = unclear(job.spec.target, job.progress.recent)
    blind = None if why is not None else job.blind
    why = why or (before.unclear if before is not None else None)
    idle, problem = job.idle is not None, _gpu_problem(job, node)
    kills = job.memory.oom_kills
    cause = None if job.bottleneck is None else job.bottleneck.cause
    return Reported(job.state, tiers, blind, idle, problem, targets, diverged, why, kills, cause)


def last_reported(last: CycleReport) -> dict[str, Reported]:
    """What an earlier run recorded of each job, from its last cycle."""
    snapshot = last.snapshot
    return {
        job.name: reported(
            job, snapshot.node, None, recalled(last.outlooks.get(job.name, ()), snapshot.now_s)
        )
        for job in snapshot.jobs
    }


def _gpu_problem(job: JobView, node: NodeView) -> str | None:
    if job.gpu_lost is not None or not job.gpus or not job.state.holds:
        return job.gpu_lost
    mine = [gpu.fact for gpu in node.gpus if gpu.uuid in job.gpus]
    return "; ".join(f"GPU {one.index}: {one.trouble}" for one in mine if one.trouble) or None


def events(
    report: CycleReport, before: dict[str, Reported]
) -> tuple[list[Event], dict[str, Reported]]:
    """The events since `before`, and what is recorded of each job now."""
    recorded: list[Event] = []

    def record(
        job: str,
        kind: str,
        reason: str | None,
        was: JobState | None = None,
        state: JobState | None = None,
    ) -> None:
        snapshot = report.snapshot
        recorded.append(
            Event(
                cycle=snapshot.cycle,
                now_s=snapshot.now_s,
                wall_time=report.wall_time,
                job=job,
                kind=kind,
                before=was.value if was else None,
                after=state.value if state else None,
                reason=reason or "",
            )
        )

    now = {job.name: job for job in report.snapshot.jobs}
    node, now_s = report.snapshot.node, report.snapshot.now_s
    after: dict[str, Reported] = {}
    for name, job in now.items():
        was = before.get(name)
        known = was or _NOTHING
        outlooks = report.outlooks.get(name, ()) if job.state.holds else ()
        targets, turns = turned(outlooks, known.targets, now_s)
        after[name] = reported(job, node, was, targets)
        if was is None:
            record(
                name, "arrived", job.reason or ("adopted" if job.adopted else None), None, job.state
            )
        elif was.state is not job.state:
            record(name, "state", job.reason, was.state, job.state)
        now_blind = after[name].blind
        if after[name].unclear != known.unclear:
            record(name, "unclear", after[name].unclear)
        elif now_blind is not None and known.blind is None:
            record(name, "blind", now_blind)
        elif job.idle is not None:
            if not known.idle:
                record(name, "idle", job.idle.text(now_s))
        elif job.blind is None and known.blind is not None and job.runs:
            record(name, "sighted", None)
        elif job.blind is None and known.idle and job.runs:
            record(name, "busy", None)
        problem = after[name].gpu_problem
        if problem is not None and problem != known.gpu_problem:
            record(name, "gpu-trouble", problem)
        elif problem is None and known.gpu_problem is not None and job.gpus:
            record(name, "gpu-well", None)
        if job.diverged is not None and not known.diverged:
            record(name, "diverged", str(job.diverged))
        elif job.diverged is None and known.diverged and job.runs:
            record(name, "finite", None)
        kills, before_kills = after[name].oom_kills or 0, known.oom_kills
        if before_kills is not None and kills > before_kills:
            record(name, "oom-kill", _killed(job, kills - before_kills))
        for kind, reason in (*_reached(job, known.tiers), *_blocked(job, known.bottleneck)):
            record(name, kind, reason)
        for kind, outlook in turns:
            record(name, kind, f"{outlook.tier}: {in_full(outlook, now_s)}")
    gone = {name: was for name, was in before.items() if name not in now}
    if not report.engine_ok:  # unknown: after a restart no job has been observed yet
        after |= gone
        gone = {}
    for name, was in sorted(gone.items()):
        record(name, "left", None, was.state)
    for run in report.hooks:
        record(run.delivered.name, "hook", f"{run.status}: {run.detail}")
    return recorded, after


def _killed(job: JobView, count: int) -> str:
    memory, what = job.memory, "a process" if count == 1 else f"{count} processes"
    why = "the host ran out of memory"
    if memory.limit_bytes is not None:
        limit = render_bytes(memory.limit_bytes)
        reached = f"its memory limit of {limit} was reached"
        why = reached if memory.limit_reached else f"memory ran out; its limit is {limit}"
    return f"The kernel killed {what} of {job.name} because {why}."


def _blocked(job: JobView, before: Cause | None) -> list[tuple[str, str]]:
    found = job.bottleneck
    if found is not None and found.cause is not before:
        return [("bottleneck", found.text.removeprefix("Bottleneck: "))]
    return [("no-bottleneck", "")] if found is None and before is not None and job.runs else []


def _reached(job: JobView, before: Tiers) -> list[tuple[str, str]]:
    target, tiers = job.spec.target, job.tiers
    recorded = []
    if isinstance(target, AccuracyTarget):
        if tiers.delivered is not None and tiers.delivered != before.delivered:
            reason = reached_text(target.metric, tiers.delivered, "deliver", target.deliver)
            recorded.append(("deliverable", reason))
        if tiers.finished is not None and tiers.finished != before.finished:
            reason = reached_text(target.metric, tiers.finished, "finish", target.finish)
            recorded.append(("finish", reason))
    return recorded
