"""Which container stands for which job, where several could.

Owns that choice: a job file's container comes before one that would be adopted under its name, and
the one known so far before a newcomer. It must not judge in what state a job is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact
from dlsched.model.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Claimants:
    """The choice among the containers of one observation."""

    facts: Mapping[str, ContainerFact]
    """The container that stands for each job."""
    adopted: Mapping[str, JobSpec]
    """The jobs that are there by their containers' labels alone."""
    alarms: tuple[Alarm, ...]
    """The containers that are left alone."""


def claimants(
    containers: Sequence[ContainerFact],
    filed: Collection[str],
    known: Callable[[str], str | None],
) -> Claimants:
    """`filed` are the jobs that have a file in force; `known` tells a job's container so far."""
    taken = [one for one in containers if one.adopted is not None and one.job in filed]
    others = [one for one in containers if one.adopted is None or one.job not in filed]
    facts, doubles = _by_job(others, known)
    # A job's container has one name, so this agent never makes a second: it is somebody else's,
    # as one made from a committed image, which inherits the labels.
    alarms = [
        Alarm(
            fact.container_id[:12],
            AlarmKey.CONTAINER_DOUBLE,
            f"{fact.job}: left alone: {fact.container_id[:12]} carries the labels of its container",
        )
        for fact in doubles
    ]
    alarms += [
        Alarm(
            fact.container_id[:12],
            AlarmKey.NAME_TAKEN,
            f"container {fact.job} ({fact.container_id[:12]}) is left alone: a job has its name",
        )
        for fact in taken
    ]
    adopted = {name: fact.adopted for name, fact in facts.items() if fact.adopted is not None}
    return Claimants(facts, adopted, tuple(alarms))


def _by_job(
    containers: Sequence[ContainerFact], known: Callable[[str], str | None]
) -> tuple[dict[str, ContainerFact], list[ContainerFact]]:
    """The container that stands for each job, and the others.

    The one `known` so far stays; else a running one, then the first by id.
    """
    facts = {fact.job: fact for fact in containers}
    if len(facts) == len(containers):
        return facts, []
    facts.clear()
    doubles: list[ContainerFact] = []

    def rank(fact: ContainerFact) -> tuple[bool, bool, str]:
        new = known(fact.job) != fact.container_id
        return new, fact.state != "running", fact.container_id

    for fact in sorted(containers, key=lambda fact: (fact.job, rank(fact))):
        if fact.job in facts:
            doubles.append(fact)
        else:
            facts[fact.job] = fact
    return facts, doubles
