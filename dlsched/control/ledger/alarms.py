"""Alarms that the ledger raises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact, Observation
from dlsched.model.state import JobView


def file_alarms(
    waiting: Mapping[str, ContainerFact], spared: Mapping[str, str]
) -> tuple[Alarm, ...]:
    """`waiting`: jobs whose file waits for a container; `spared`: by job, why it is left alone."""
    waits = [
        Alarm(
            job,
            AlarmKey.FILE_WAITS,
            f"{job}: its file waits: container {one.container_id[:12]} of another has the name",
        )
        for job, one in sorted(waiting.items())
    ]
    left = [
        Alarm(job, AlarmKey.JOB_LEFT_ALONE, f"{job}: left alone: {why}")
        for job, why in sorted(spared.items())
    ]
    return (*waits, *left)


def divergence_alarms(jobs: Iterable[JobView]) -> tuple[Alarm, ...]:
    return tuple(
        Alarm(job.name, AlarmKey.DIVERGED, f"{job.name}: diverged: {job.diverged}")
        for job in jobs
        if job.diverged is not None and job.runs
    )


def engine_alarms(observed: Observation) -> tuple[Alarm, ...]:
    """An alarm while the engine does not answer."""
    if observed.engine_problem is None:
        return ()
    return (Alarm("engine", AlarmKey.ENGINE_DOWN, f"engine: {observed.engine_problem}"),)
