"""Each job's threads: whether they spin, and the alarm with the line that mends it."""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.estimate.spinning import SpinJudge, spinning_text
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact, ContainerState, Observation
from dlsched.model.state import JobView, ThreadUse


class ThreadTracker:
    """One job's threads over all of its starts."""

    def __init__(self) -> None:
        self.use = ThreadUse()
        """The same object while nothing changes."""
        self._start: tuple[str, int, float | None] | None = None
        self._judge = SpinJudge()

    def update(self, fact: ContainerFact | None, observed: Observation) -> None:
        """Take in the job's container; None: it has none."""
        start = None if fact is None else fact.start
        if start != self._start:
            self._start, self._judge, self.use = start, SpinJudge(), ThreadUse()
        if fact is None or observed.node is None or (self.use.sample is fact.threads is None):
            return
        alive = fact.state is ContainerState.RUNNING
        self._judge.update(
            fact.threads if alive else None,
            fact.actual.cpu_cores,
            observed.node.cores,
            observed.now_s,
        )
        spinning = self._judge.spinning
        use = ThreadUse(self._judge.sample, spinning, spun=self.use.spun or spinning is not None)
        if use != self.use:
            self.use = use


def spinning_alarms(jobs: Iterable[JobView]) -> tuple[Alarm, ...]:
    """An alarm for each job whose threads spin to its harm."""
    return tuple(
        Alarm(job.name, AlarmKey.THREADS_SPIN, f"{job.name}: {spinning_text(job.threads.spinning)}")
        for job in jobs
        if job.threads.spinning is not None and job.runs
    )
