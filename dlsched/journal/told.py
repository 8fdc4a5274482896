"""What a cycle tells for quick questions: changes of limits, and events in a job's life.

Pure: read off a report and what was told before it. It must not touch the database.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.model import (
    AccuracyTarget,
    CycleReport,
    JobState,
    JobView,
    Outcome,
    Remove,
    Resize,
    Tiers,
)
from dlsched.tiers import in_words


@dataclass(frozen=True, slots=True)
class Change:
    """One action that changed something or tried to. Cores are ceilings; None: none."""

    cycle: int
    now_s: float
    wall_time: str
    job: str
    kind: str
    """start, resize or remove."""
    before_cores: float | None
    after_cores: float | None
    why: str
    guard: str
    """What a guard made of the decision; empty: nothing."""
    status: str
    detail: str


@dataclass(frozen=True, slots=True)
class Event:
    """A job arrived, left, went from one state to another, or reached a tier of its target."""

    cycle: int
    now_s: float
    wall_time: str
    job: str
    kind: str
    """arrived, left, state, blind, sighted, deliverable, finish, or hook (the operator's command
    has run)."""
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
            what = (change.kind, change.after_cores, change.guard, change.status, change.detail)
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
        after_cores=None if isinstance(action, Remove) else action.limits.cpu_cores,
        why=action.why if isinstance(action, Resize | Remove) else decided,
        guard=report.guarded.get(job, ""),
        status=outcome.status,
        detail=outcome.detail,
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """What was told of a job so far."""

    state: JobState
    tiers: Tiers
    blind: str | None = None


def seen(job: JobView, before: Seen | None = None) -> Seen:
    """What is told of a job by now. A tier stays told while its target cannot be read."""
    tiers = before.tiers if before is not None and job.tiers.delivered is None else job.tiers
    return Seen(job.state, tiers, job.blind)


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
    for name, job in now.items():
        was = before.get(name)
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
        for kind, reason in _reached(job, was.tiers if was is not None else Tiers()):
            tell(name, kind, reason)
    for name in sorted(before.keys() - now.keys()):
        tell(name, "left", None, before[name].state)
    for run in report.hooks:
        tell(run.delivered.name, "hook", f"{run.status}: {run.detail}")
    return told, {name: seen(job, before.get(name)) for name, job in now.items()}


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
