"""The jobs that the cluster has given this node, beside those of the node's own folder."""

from __future__ import annotations

from dataclasses import replace

from dlsched.cluster.agent.assignments import Assignment
from dlsched.cluster.agent.ports import OrderRefused
from dlsched.cluster.core.following import LEFT, RUNNING
from dlsched.cluster.core.records import Order, Phase, Verb
from dlsched.config.job import parse_spec
from dlsched.control.ledger.desired import Desired
from dlsched.model.alarms import Alarm
from dlsched.model.cycle import RejectedFile
from dlsched.model.errors import SpecError
from dlsched.model.facts import ContainerFact
from dlsched.model.spec import JobSpec
from dlsched.store.records import Records

_DESIRED = (*RUNNING, Phase.ENDED)
"""One that has ended is kept with its container, for its output, until it is cleared."""


class GivenJobs:
    """Desired jobs by their durable files."""

    def __init__(self, held: Records[Assignment]) -> None:
        self._held = held
        self._specs: dict[str, tuple[str, JobSpec | None]] = {}
        """By job: what was parsed, and what came of it."""

    def spec_of(self, own: Assignment) -> JobSpec | None:
        """The spec, parsed once; None: this version of dlsched cannot read the file."""
        text, spec = self._specs.get(own.job, (None, None))
        if text != own.text:
            try:
                spec = parsed(own.job, own.text)
            except OrderRefused:
                spec = None
            self._specs[own.job] = (own.text, spec)
        return spec

    def here(self) -> set[str]:
        """Jobs whose names are the cluster's on this node now."""
        return {own.job for own in self._held.all().values() if own.phase not in LEFT}

    def merged(self, desired: Desired, alarms: tuple[Alarm, ...]) -> Desired:
        """The node's own jobs and those that the cluster has given it."""
        held = self._held.all()
        for job in self._specs.keys() - held.keys():
            del self._specs[job]
        specs = {
            own.job: spec
            for own in held.values()
            if own.phase in _DESIRED and (spec := self.spec_of(own)) is not None
        }
        here = self.here()
        twice = [
            RejectedFile(
                desired.sources.get(job, job),
                job,
                (
                    (
                        f"{job}: this file is not used, as the cluster has given this node a job "
                        "of the same name: rename one of the two"
                    ),
                ),
            )
            for job in sorted(here & desired.specs.keys())
        ]
        local = {job: spec for job, spec in desired.specs.items() if job not in here}
        sources = {job: path for job, path in desired.sources.items() if job not in here}
        return replace(
            desired,
            specs={**local, **specs},
            sources={**sources, **{job: self._source(job) for job in specs}},
            rejected=(*desired.rejected, *twice),
            spares=lambda fact: self._spared(fact, desired),
            claimed=(*desired.claimed, *specs),
            alarms=(*desired.alarms, *alarms),
        )

    def _spared(self, fact: ContainerFact, desired: Desired) -> str | None:
        """Why a container of a job that is not desired is left alone; None: it is removed."""
        if fact.source != self._source(fact.job):
            return desired.spares(fact)
        own = self._held.of(fact.job)
        if own is None:
            return (
                f"the job's file {fact.source} is lost, and no controller has given the job to "
                "another node"
            )
        if own.phase in _DESIRED:
            return f"the job's file {fact.source} cannot be read"
        if own.phase is Phase.ARRIVING and own.source is None:
            return "the cluster gives the job to this node again"  # whose file was lost
        return None

    def _source(self, job: str) -> str:
        return str(self._held.path(job))


def check(order: Order, own: Assignment | None, is_local: bool) -> None:
    """Raises OrderRefused: a later one was followed, the node has a job of its own of that name, or
    the job file has problems."""
    if own is not None and order.epoch < own.epoch:
        raise OrderRefused(
            f"{order.job}: the order is refused, as this node follows a newer one (epoch "
            f"{own.epoch})"
        )
    needs_file = order.verb in (Verb.PREPARE, Verb.ARRIVE)
    if needs_file or (order.verb is Verb.GIVE_BACK and own is None):
        if is_local:
            text = f"{order.job}: {order.node} has a job of its own of that name"
            raise OrderRefused(text, is_for_good=True)
        parsed(order.job, order.text)


def parsed(job: str, text: str) -> JobSpec:
    """The job's spec. Raises OrderRefused with the first problem."""
    try:
        spec = parse_spec(text, f"{job}.yaml")
    except SpecError as error:
        raise OrderRefused(str(error.problems[0]), is_for_good=True) from None
    if spec.name != job:
        text = f"the job file of {job} is for another job, {spec.name}"
        raise OrderRefused(text, is_for_good=True)
    return replace(spec, owner=0)  # only an operator writes to a manager's folder
