"""A recorded run of some time with known numbers, for tests of history and usage."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dlsched.estimate.sketch import from_latencies
from dlsched.model.actions import Outcome, Resize
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import Usage
from dlsched.model.spec import ContainerSpec, JobSpec, LatencyTarget, Limits
from dlsched.model.state import JobState, JobView, NodeView, Progress, Snapshot
from dlsched.store.journal.minutes import wall_text
from dlsched.store.journal.writer import Journal

BEGIN_S = 1_763_718_000.0
"""Unix seconds of cycle 0: a whole hour."""
TARGET = LatencyTarget(0.1, 0.95)


def view(
    name: str,
    *,
    ratio: float | None = 1.0,
    usage_cores: float | None = 0.5,
    limit_cores: float | None = 1.0,
    owner: int | None = None,
    state: JobState = JobState.RUNNING,
) -> JobView:
    """A job that answers in `ratio` of its target; None: it is silent."""
    latencies = () if ratio is None else (TARGET.seconds * ratio,) * 10
    return JobView(
        JobSpec(name, ContainerSpec("image"), target=TARGET, owner=owner),
        state,
        actual=Limits(limit_cores),
        usage=Usage(cpu_cores=usage_cores, memory_bytes=1 << 20),
        progress=Progress(recent=from_latencies(latencies)),
    )


def cycle(
    number: int,
    *jobs: JobView,
    at_s: float | None = None,
    changed: Iterable[str] = (),
    capacity_cores: float = 4.0,
) -> CycleReport:
    """Cycle of that number, one a second. `at_s`: its wall time, if the clock was set."""
    outcomes = tuple(
        Outcome(Resize(name, "id", Limits(0.5), Limits(0.75), 768, "late"), "done")
        for name in changed
    )
    return CycleReport(
        Snapshot(
            number,
            500.0 + number,
            NodeView(capacity_cores, capacity_cores, 8 << 30, foreign_cores=0.25),
            jobs,
        ),
        policy="adaptive",
        outcomes=outcomes,
        wall_time=wall_text(BEGIN_S + number if at_s is None else at_s),
    )


def write(path: Path, reports: Iterable[CycleReport], frame_s: float = 300.0) -> None:
    """One run of the daemon."""
    reports = tuple(reports)
    journal = Journal(path, frame_s=frame_s, queue_reports=len(reports))
    for one in reports:
        journal.write(one)
    journal.flush()  # however long it takes: closing waits ten seconds
    journal.close()
    assert journal.problem() is None
    assert journal.lost_cycles == 0
