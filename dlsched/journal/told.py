"""What a cycle tells for quick questions: changes of limits, and events in a job's life.

Pure: read off a report and what was told before it. It must not touch the database.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.model import CycleReport, JobState, Outcome, Remove, Resize


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
    """A job arrived, left, or went from one state to another."""

    cycle: int
    now_s: float
    wall_time: str
    job: str
    kind: str
    """arrived, left or state."""
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


def events(
    report: CycleReport, before: dict[str, JobState]
) -> tuple[list[Event], dict[str, JobState]]:
    """What became of the jobs since the states `before`, and the states now."""
    told: list[Event] = []

    def tell(
        job: str, kind: str, was: JobState | None, state: JobState | None, reason: str | None
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
            tell(name, "arrived", None, job.state, job.reason)
        elif was is not job.state:
            tell(name, "state", was, job.state, job.reason)
    for name in sorted(before.keys() - now.keys()):
        tell(name, "left", before[name], None, None)
    return told, {name: job.state for name, job in now.items()}
