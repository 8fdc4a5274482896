"""Which container represents a job, if several could, and the alarms that the ledger raises.

A job file's container comes before one that would be adopted under the same name, and the container
known so far before a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlsched.control.ledger.desired import Desired
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import Begun, ContainerFact, ContainerState, Observation
from dlsched.model.spec import JobSpec
from dlsched.model.state import JobView


def _by_job(
    containers: Sequence[ContainerFact], known: Mapping[str, str | None]
) -> tuple[dict[str, ContainerFact], list[ContainerFact]]:
    """The container of each job (`known`, else running, else by ID), and the other containers."""
    facts = {fact.job: fact for fact in containers}
    if len(facts) == len(containers):
        return facts, []
    facts.clear()
    doubles: list[ContainerFact] = []

    def rank(fact: ContainerFact) -> tuple[bool, bool, str]:
        new = known.get(fact.job) != fact.container_id
        return new, fact.state is not ContainerState.RUNNING, fact.container_id

    for fact in sorted(containers, key=lambda fact: (fact.job, rank(fact))):
        if fact.job in facts:
            doubles.append(fact)
        else:
            facts[fact.job] = fact
    return facts, doubles


@dataclass(frozen=True, slots=True)
class Roster:
    """The jobs of one cycle, by their files and their containers."""

    observed: Observation
    desired: Desired
    """Without the files that wait."""
    specs: Mapping[str, JobSpec]
    """Of files, and of containers that are adopted."""
    facts: Mapping[str, ContainerFact]
    begun: Mapping[str, Begun]
    spared: Mapping[str, str]
    """By job without a file, why its container is left alone."""
    alarms: tuple[Alarm, ...]


def roster(observed: Observation, desired: Desired, known: Mapping[str, str | None]) -> Roster:
    """`known`: ID of each job's container so far."""
    waiting = desired.waiting(observed.containers)
    if waiting:
        kept = {name: spec for name, spec in desired.specs.items() if name not in waiting}
        desired = replace(desired, specs=kept)
    mine = [
        one for one in observed.containers if one.adopted is None or one.job not in desired.specs
    ]
    taken = [
        one for one in observed.containers if one.adopted is not None and one.job in desired.specs
    ]
    facts, doubles = _by_job(mine, known)
    adopted = {name: fact.adopted for name, fact in facts.items() if fact.adopted is not None}
    specs = {**adopted, **desired.specs}
    spared = {
        name: why
        for name, fact in facts.items()
        if name not in specs and (why := desired.spares(fact)) is not None
    }
    return Roster(
        observed,
        desired,
        specs,
        facts,
        {item.job: item for item in observed.begun},
        spared,
        (*name_alarms(doubles, taken), *observed.left_alone, *file_alarms(waiting, spared)),
    )


def name_alarms(
    doubles: Iterable[ContainerFact], taken: Iterable[ContainerFact]
) -> tuple[Alarm, ...]:
    """An alarm for each container that is left alone."""
    # A job's container has a unique name, so this agent never creates a second. A double is someone
    # else's, such as one from a committed image, which inherits the labels.
    twice = [
        Alarm(
            fact.container_id[:12],
            AlarmKey.CONTAINER_DOUBLE,
            f"{fact.job}: another container, {fact.container_id[:12]}, has the labels of this "
            "job's container, and is left alone: remove it, or run it without dlsched's labels",
        )
        for fact in doubles
    ]
    named = [
        Alarm(
            fact.container_id[:12],
            AlarmKey.NAME_TAKEN,
            f"container {fact.job} ({fact.container_id[:12]}) is left alone: a job has its name",
        )
        for fact in taken
    ]
    return (*twice, *named)


def file_alarms(
    waiting: Mapping[str, ContainerFact], spared: Mapping[str, str]
) -> tuple[Alarm, ...]:
    """`waiting`: jobs whose file waits for a container; `spared`: by job, why it is left alone."""
    waits = [
        Alarm(
            job,
            AlarmKey.FILE_WAITS,
            f"{job}: the job's file waits: another container, {one.container_id[:12]}, has the "
            "job's name",
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
