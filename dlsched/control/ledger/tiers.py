"""Tier progress: which tiers of its accuracy target a job has reached, under any policy.

Decides what counts as an evaluation, and which deliveries need a durable record. Others write the
records and notify: this module only returns them. Part of the ledger's state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from dlsched.estimate.evaluations import TOGETHER_S, evaluations, reaches, still_diverged
from dlsched.model.facts import CheckpointAck, ContainerFact, ContainerState, Sample
from dlsched.model.spec import AccuracyTarget, JobSpec
from dlsched.model.state import Delivered, Diverged, Reached, Tiers

_NONE = Tiers()


def reached_text(metric: str, reached: Reached, tier: str, asked: float) -> str:
    """The evaluation that reached a tier: `accuracy 0.93 at step 500 (deliver 0.9)`."""
    step = "" if reached.step is None else f" at step {reached.step}"
    return f"{metric} {reached.value:.4g}{step} ({tier} {asked:g})"


@dataclass(frozen=True, slots=True)
class TierProgress:
    """Tier progress of one container towards one target."""

    container_id: str
    """`ContainerFact.life`, so that the progress survives moves."""
    target: AccuracyTarget
    tiers: Tiers = _NONE
    checkpoint: CheckpointAck | None = None
    starts: int | None = None
    """The start of the container in which the evaluations were counted."""
    latest_step: int | None = None
    delivers: int = 0
    """Number of consecutive evaluations that reach the first tier."""
    finishes: int = 0
    counted_step: int | None = None
    """The step of the last evaluation: further values at it are the same evaluation."""
    near: Tiers = _NONE
    """Tiers that the last evaluation reaches, unless a further value of it does not."""
    several: bool = False
    """Whether an evaluation has had several values, as of ranks, so that more may come."""
    diverged: tuple[Diverged, ...] = ()
    """Metrics that mean that the training diverged, oldest first."""

    def is_in(self, container_id: str | None) -> bool:
        """Whether it is of that container; None: of any."""
        return container_id in (None, self.container_id)

    def is_for(self, container_id: str | None, target: AccuracyTarget) -> bool:
        """Whether it is of that container and target. The deadline affects no tier."""
        same = replace(self.target, deadline_s=None) == replace(target, deadline_s=None)
        return same and self.is_in(container_id)


def advanced(progress: TierProgress, sample: Sample, in_a_row: int) -> TierProgress:
    """Tier progress after one more report. `in_a_row` consecutive evaluations reach a tier, for
    good. If the step goes back, a new attempt begins: counts restart, but a delivery stays.

    Several values at one step, or without a step at one time, are one evaluation, which reaches a
    tier only if all of them do. A diverged training reaches nothing until the metric that diverged
    is finite again.
    """
    target, step, latest = progress.target, sample.step, progress.latest_step
    values = evaluations(sample, target.metric)
    back = step is not None and latest is not None and step < latest
    again = sample.again or (step is not None and step == progress.counted_step and not back)
    if not again and (values or sample.diverged or step is not None):
        progress = settled(progress)
    if back:
        progress = replace(progress, delivers=0, finishes=0, counted_step=None)
    if step is not None:
        progress = replace(progress, latest_step=step)
    diverged = still_diverged(progress.diverged, sample, target)
    if diverged != progress.diverged:
        progress = replace(progress, diverged=diverged)
    if diverged:
        return replace(progress, delivers=0, finishes=0, counted_step=None, near=_NONE)
    for value in values:
        one_more = 0 if again else 1
        reached = Reached(sample.received_s, value, step)
        delivers = progress.delivers + one_more if reaches(target, target.deliver, value) else 0
        finishes = progress.finishes + one_more if reaches(target, target.finish, value) else 0
        near = Tiers(
            (progress.near.delivered or reached) if delivers >= in_a_row else None,
            (progress.near.finished or reached) if finishes >= in_a_row else None,
        )
        progress = replace(
            progress,
            delivers=delivers,
            finishes=finishes,
            near=near,
            several=progress.several or again,
            counted_step=step,
        )
    return progress


def settled(progress: TierProgress) -> TierProgress:
    """Tier progress once no further value of the last evaluation is expected."""
    before, near = progress.tiers, progress.near
    tiers = Tiers(before.delivered or near.delivered, before.finished or near.finished)
    return replace(progress, tiers=tiers, near=_NONE)


def observed(
    progress: TierProgress, fact: ContainerFact, in_a_row: int, now_s: float
) -> TierProgress:
    """Tier progress after one observation of its container. A new start is a new attempt. What the
    last evaluation reaches counts once all values that arrived with it are known; where evaluations
    have several values, once no more of them are expected."""
    if progress.starts != fact.starts:
        progress = TierProgress(
            progress.container_id,
            progress.target,
            settled(progress).tiers,
            progress.checkpoint,
            fact.starts,
        )
    for report in fact.reports:
        if report.checkpoint is not None:
            progress = replace(progress, checkpoint=report.checkpoint)
        if report.sample is not None:
            progress = advanced(progress, report.sample, in_a_row)
    reached_s = [one.at_s for one in (progress.near.delivered, progress.near.finished) if one]
    is_recent = bool(reached_s) and now_s - max(reached_s) < TOGETHER_S
    if progress.several and is_recent and fact.state is ContainerState.RUNNING:
        return progress
    return settled(progress)


class TierTracker:
    """Tier progress of all jobs, and the delivery records that should exist."""

    def __init__(self, records: Mapping[str, Delivered]) -> None:
        """`records` are an earlier agent's delivery records. They are not returned again."""
        self._records = dict(records)
        self._progress: dict[str, TierProgress] = {}
        self._higher: set[str] = set()
        """Jobs that reached a tier since the last call of `deliveries`."""
        self._doubted = set(self._records)
        """Jobs whose delivery record may no longer hold."""

    def observe(
        self, spec: JobSpec, fact: ContainerFact | None, in_a_row: int, now_s: float
    ) -> None:
        """Take in a job's spec and fact; None: it has no container at this moment."""
        name, target, progress = spec.name, spec.target, self._progress.get(spec.name)
        if not isinstance(target, AccuracyTarget):
            if progress is not None:
                self.forget(name)
            return
        container_id = fact.life if fact is not None else None
        if progress is None or progress.target is not target or not progress.is_in(container_id):
            progress = self._begun(name, container_id, target)
            if progress is None:
                return
        before = progress
        if fact is None:
            progress = settled(progress)
        elif fact.reports or progress.starts != fact.starts or progress.near != _NONE:
            progress = observed(progress, fact, in_a_row, now_s)
        if progress.tiers != before.tiers:
            self._higher.add(name)
        self._progress[name] = progress

    def tiers(self, name: str) -> Tiers:
        progress = self._progress.get(name)
        return progress.tiers if progress is not None else _NONE

    def diverged(self, name: str) -> Diverged | None:
        """How the job's training diverged; None: it did not."""
        progress = self._progress.get(name)
        return progress.diverged[0] if progress is not None and progress.diverged else None

    def forget(self, name: str) -> None:
        """Drop a job that is gone, or has no accuracy target any more."""
        self._progress.pop(name, None)
        self._doubted.add(name)

    def deliveries(self) -> tuple[Delivered, ...]:
        """Delivery records that are new or have one more tier; each is returned once."""
        new = []
        for name in sorted(self._higher):
            progress, record = self._progress.get(name), self._records.get(name)
            if progress is None or progress.tiers.delivered is None:
                continue
            if record is None or not _progress_of(record).is_for(
                progress.container_id, progress.target
            ):
                record = _record_of(name, progress)
            self._records[name] = replace(record, tiers=progress.tiers)
            new.append(self._records[name])
        self._higher.clear()
        return tuple(new)

    def voided(
        self, specs: Collection[str], present: Collection[str], *, settled: bool
    ) -> tuple[str, ...]:
        """Jobs whose delivery record no longer holds: other container, other target, or job gone.
        Each is returned once. A job is judged when its file is read (it is in `specs`). It is gone
        if it is not `present` although the folder is `settled`."""
        gone = []
        for name in sorted(self._doubted):
            if name not in self._records:
                self._doubted.discard(name)
            elif name in specs:
                self._doubted.discard(name)
                if self.tiers(name).delivered is None:
                    gone.append(name)
            elif settled and name not in present:
                self._doubted.discard(name)
                gone.append(name)
        for name in gone:
            del self._records[name]
        return tuple(gone)

    def _begun(
        self, name: str, container_id: str | None, target: AccuracyTarget
    ) -> TierProgress | None:
        """The progress so far if container and target still match, else the record's, else new."""
        progress, record = self._progress.get(name), self._records.get(name)
        for known in (progress, _progress_of(record) if record is not None else None):
            if known is not None and known.is_for(container_id, target):
                return replace(known, target=target)
        self.forget(name)
        return None if container_id is None else TierProgress(container_id, target)


def _progress_of(record: Delivered) -> TierProgress:
    target = AccuracyTarget(record.metric, record.deliver, record.finish)
    return TierProgress(record.container_id, target, record.tiers, record.checkpoint)


def _record_of(name: str, progress: TierProgress) -> Delivered:
    target = progress.target
    return Delivered(
        name=name,
        container_id=progress.container_id,
        metric=target.metric,
        deliver=target.deliver,
        finish=target.finish,
        tiers=progress.tiers,
        checkpoint=progress.checkpoint,
    )
