"""What a cycle tells for quick questions: changes of limits, and events in a job's life.

Pure: read off a report and what was told before it. It must not touch the database.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.control.ledger.tiers import in_words
from dlsched.model.actions import Action, Move, Outcome, Resize, Start
from dlsched.model.cycle import CycleReport
from dlsched.model.forecast import Standings, in_full, recalled, turned
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import JobState, JobView, NodeView, Tiers


@dataclass(frozen=True, slots=True)
class Change:
    """One action that changed something or tried to. Cores are ceilings; None: none."""

    cycle: int
    now_s: float
    wall_time: str
    job: str
    kind: str
    """start, resize, move or remove."""
    before_cores: float | None
    after_cores: float | None
    why: str
    guard: str
    """What a guard made of the decision; empty: nothing."""
    status: str
    detail: str
    before_share: float | None = None
    """Of its GPUs' time; None: not divided."""
    after_share: float | None = None
    gpus: str = ""
    """UUIDs of the GPUs that it gets, comma separated; empty: none, or those that it has."""


@dataclass(frozen=True, slots=True)
class Event:
    """A job arrived, left, went from one state to another, or a target of it turned."""

    cycle: int
    now_s: float
    wall_time: str
    job: str
    kind: str
    """arrived, left, state, blind, sighted, gpu-trouble, gpu-well, deliverable, finish, hook (the
    operator's command has run), or how a target stands from now on: crowded, impossible, possible
    (again)."""
    before: str | None
    after: str | None
    reason: str


def changes(
    report: CycleReport, before: dict[str, tuple[object, ...]]
) -> tuple[list[Change], dict[str, tuple[object, ...]]]:
    """One change an outcome; a vain try is told once, not again in every cycle that repeats it."""
    told: list[Change] = []
    tries: dict[str, tuple[object, ...]] = {}
    for outcome in report.outcomes:
        change = _change(report, outcome)
        if outcome.status in ("failed", "withheld"):
            limits = (change.after_cores, change.after_share, change.gpus)
            what = (change.kind, limits, change.guard, change.status, change.detail)
            tries[change.job] = what
            if before.get(change.job) == what:
                continue
        told.append(change)
    return told, tries


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
    )


def _gpus(action: Action) -> tuple[str, ...]:
    if isinstance(action, Move):
        return action.start.gpus
    return action.gpus if isinstance(action, Start) else ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What was told of a job so far."""

    state: JobState
    tiers: Tiers
    blind: str | None = None
    gpu_trouble: str | None = None
    targets: Standings = ()


def seen(job: JobView, node: NodeView, before: Seen | None, targets: Standings) -> Seen:
    """What is told of a job by now. A tier stays told while its target cannot be read."""
    tiers = before.tiers if before is not None and job.tiers.delivered is None else job.tiers
    return Seen(job.state, tiers, job.blind, _gpu_trouble(job, node), targets)


def recollected(last: CycleReport) -> dict[str, Seen]:
    """What an earlier run told of each job, by its last cycle."""
    snapshot = last.snapshot
    return {
        job.name: seen(
            job, snapshot.node, None, recalled(last.outlooks.get(job.name, ()), snapshot.now_s)
        )
        for job in snapshot.jobs
    }


def _gpu_trouble(job: JobView, node: NodeView) -> str | None:
    """What is wrong with a job's GPUs; None: nothing, or it has none."""
    if job.gpu_lost is not None or not job.gpus or not job.state.holds:
        return job.gpu_lost
    mine = [gpu.fact for gpu in node.gpus if gpu.uuid in job.gpus]
    return "; ".join(f"GPU {one.index}: {one.trouble}" for one in mine if one.trouble) or None


def events(report: CycleReport, before: dict[str, Seen]) -> tuple[list[Event], dict[str, Seen]]:
    """What became of the jobs since what was seen `before`, and what is seen now."""
    told: list[Event] = []

    def tell(
        job: str,
        kind: str,
        reason: str | None,
        was: JobState | None = None,
        state: JobState | None = None,
    ) -> None:
        snapshot = report.snapshot
        told.append(
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
    after: dict[str, Seen] = {}
    for name, job in now.items():
        was = before.get(name)
        outlooks = report.outlooks.get(name, ()) if job.state.holds else ()
        targets, turns = turned(outlooks, was.targets if was is not None else (), now_s)
        after[name] = seen(job, node, was, targets)
        if was is None:
            tell(
                name, "arrived", job.reason or ("adopted" if job.adopted else None), None, job.state
            )
        elif was.state is not job.state:
            tell(name, "state", job.reason, was.state, job.state)
        blind = was.blind if was is not None else None
        if job.blind is not None and blind is None:
            tell(name, "blind", job.blind)
        elif job.blind is None and blind is not None and job.runs:
            tell(name, "sighted", None)
        trouble, before_it = after[name].gpu_trouble, was.gpu_trouble if was is not None else None
        if trouble is not None and trouble != before_it:
            tell(name, "gpu-trouble", trouble)
        elif trouble is None and before_it is not None and job.gpus:
            tell(name, "gpu-well", None)
        for kind, reason in _reached(job, was.tiers if was is not None else Tiers()):
            tell(name, kind, reason)
        for word, outlook in turns:
            tell(name, word, f"{outlook.tier}: {in_full(outlook, now_s)}")
    gone = {name: was for name, was in before.items() if name not in now}
    if not report.engine_ok:  # nobody knows: after a restart, none of its jobs was seen yet
        after |= gone
        gone = {}
    for name, was in sorted(gone.items()):
        tell(name, "left", None, was.state)
    for run in report.hooks:
        tell(run.delivered.name, "hook", f"{run.status}: {run.detail}")
    return told, after


def _reached(job: JobView, before: Tiers) -> list[tuple[str, str]]:
    """The tiers that were not told of yet, each with its evaluation."""
    target, tiers = job.spec.target, job.tiers
    told = []
    if isinstance(target, AccuracyTarget):
        if tiers.delivered is not None and tiers.delivered != before.delivered:
            reason = in_words(target.metric, tiers.delivered, "deliver", target.deliver)
            told.append(("deliverable", reason))
        if tiers.finished is not None and tiers.finished != before.finished:
            reason = in_words(target.metric, tiers.finished, "finish", target.finish)
            told.append(("finish", reason))
    return told
