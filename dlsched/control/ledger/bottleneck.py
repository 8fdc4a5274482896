"""Names the bottleneck of each service that misses its target, and of each training that hardly
computes, and keeps the name."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlsched.estimate.bottleneck import Callee, Found, Reading, judge, misses
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.bottleneck import Bottleneck, Cause
from dlsched.model.facts import ContainerFact
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import JobView, NodeView

READINGS = 10
"""Samples that are judged together: 20 s of one every two seconds."""
CONFIRMED = 2
"""Judgements of each sample in a row until a first cause is named."""
CHANGED = 5
"""The same until another one is named. It covers half of `READINGS`, so half of them are new."""
UNKNOWN = 6
"""The same until it is said that the cause is not known: the first samples are of few requests."""
NUMBERS_S = 300.0
"""The numbers of a cause that stays are renewed so often: each time the alarm is logged again."""
APART_S = 60.0
"""Samples with a longer time between them are not judged together, and a name is not kept longer
without one."""
TRAININGS_MAX = 10
"""Trainings that are sampled at a time: each sample takes time from those of services."""
COMPARED_S = 1.9
"""Services are compared with their targets so often: that costs 10 us each."""
MET_S = 15.0
"""A target that is met for so long has no bottleneck any more."""


@dataclass(slots=True)
class _Job:
    start: tuple[str, int, float | None]
    missed_s: float
    """When it last missed its target."""
    missed: bool = True
    """Whether it did when that was last compared."""
    readings: deque[Reading] = field(default_factory=lambda: deque(maxlen=READINGS))
    last: Cause | None = None
    """The last judgement, and how often in a row it was made."""
    times: int = 0
    named: Bottleneck | None = None
    named_s: float = 0.0

    def take(self, found: Found, now_s: float) -> None:
        self.times = self.times + 1 if found.cause is self.last else 1
        self.last = found.cause
        before = self.named
        if before is not None and found.cause is before.cause:
            # For good: else a policy that gives it less CPU for that would go to and fro.
            if now_s - self.named_s >= NUMBERS_S:
                self._name(found, before.since_s, now_s, before.lacks_cpu or found.lacks_cpu)
            elif found.lacks_cpu and not before.lacks_cpu:
                self.named = replace(before, lacks_cpu=True)
            return
        needed = CONFIRMED if before is None or before.cause is Cause.NOT_KNOWN else CHANGED
        if self.times >= (UNKNOWN if found.cause is Cause.NOT_KNOWN else needed):
            self._name(found, now_s, now_s, found.lacks_cpu)

    def _name(self, found: Found, since_s: float, now_s: float, lacks_cpu: bool) -> None:
        self.named = Bottleneck(found.cause, found.evidence, found.remedy, since_s, lacks_cpu)
        self.named_s = now_s


class Bottlenecks:
    """The services that miss their targets, and trainings that hardly compute, by name."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._compared_s = float("-inf")

    @property
    def missed(self) -> Collection[str]:
        """The jobs whose threads are to be sampled."""
        return self._jobs.keys()

    def named(
        self,
        jobs: Sequence[JobView],
        facts: Mapping[str, ContainerFact],
        node: NodeView,
        now_s: float,
        window_s: float,
    ) -> tuple[JobView, ...]:
        """The same views, with what is known of their bottlenecks."""
        before, self._jobs = self._jobs, {}
        calls: dict[str, list[Callee]] | None = None
        views, trainings = list(jobs), 0
        compares = now_s - self._compared_s >= COMPARED_S
        self._compared_s = now_s if compares else self._compared_s
        for at, job in enumerate(jobs):
            fact, kept = facts.get(job.name), before.get(job.name)
            if fact is None or (kept is None and not compares):
                continue
            missed = misses(job) if compares or kept is None else kept.missed
            if (kept is None and not missed) or not job.runs:
                continue
            if not isinstance(job.spec.target, LatencyTarget):
                if trainings == TRAININGS_MAX:
                    continue
                trainings += 1
            if kept is None or kept.start != fact.start:
                kept = _Job(fact.start, now_s)
            kept.missed, kept.missed_s = missed, now_s if missed else kept.missed_s
            if now_s - kept.missed_s > MET_S:
                continue
            self._jobs[job.name] = kept
            known = kept.readings[-1].waits if kept.readings else None
            if known is not None and now_s - known.at_s > APART_S:
                kept.named = None
            if fact.waits is not None and fact.waits is not known:
                calls = _calls(jobs, facts) if calls is None else calls
                if known is not None and fact.waits.at_s - known.at_s > APART_S:
                    kept.readings.clear()
                kept.readings.append(
                    Reading(
                        fact.waits,
                        job.attained_core_s,
                        job.progress.in_flight,
                        job.usage.throttled_ratio,
                        _bounded(calls.get(fact.name, ()), job.progress.recent.mean_s),
                    )
                )
                found: Found | None = None
                if missed:
                    found = judge(tuple(kept.readings), job, node.capacity_cores, window_s)
                if found is not None:
                    kept.take(found, now_s)
            if kept.named is not None:
                views[at] = replace(job, bottleneck=kept.named)
        return tuple(views)


def _calls(jobs: Sequence[JobView], facts: Mapping[str, ContainerFact]) -> dict[str, list[Callee]]:
    """Whom each container calls, by the name of the container."""
    found: dict[str, list[Callee]] = {}
    for job in jobs:
        wire, mean_s = job.progress.wire, job.progress.recent.mean_s
        if wire is None or mean_s is None:
            continue
        own = facts[job.name].name if job.name in facts else ""
        for caller, rate in wire.callers:
            if caller != own:
                found.setdefault(caller, []).append(Callee(job.name, rate, mean_s))
    return found


def _bounded(calls: Sequence[Callee], own_s: float | None) -> tuple[Callee, ...]:
    """A callee's mean is of all its clients: this one did not wait longer than its own requests
    took."""
    return tuple(one._replace(mean_s=min(one.mean_s, own_s or one.mean_s)) for one in calls)


def bottleneck_alarms(jobs: Sequence[JobView]) -> tuple[Alarm, ...]:
    """Of services that CPU does not help. Threads that spin have an alarm of their own."""
    return tuple(
        Alarm(job.name, AlarmKey.BOTTLENECK, f"{job.name}: {job.bottleneck.text}")
        for job in jobs
        if job.bottleneck is not None
        and isinstance(job.spec.target, LatencyTarget)
        and not job.bottleneck.cause.is_cpu
    )
