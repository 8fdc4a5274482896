"""The commands `dlsched adopt` and `dlsched drop`: check a running container, record the request,
give limits back. Called from the API's threads; waits for the engine, never for the loop."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from dlsched.model.errors import AdoptionRefused
from dlsched.model.spec import LatencyTarget
from dlsched.model.units import plain_text, shown
from dlsched.runtime.cgroup.read import CgroupReader
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.identity.adoption import NotAdoptable, adopted_job, counting, job_name
from dlsched.runtime.docker.identity.claims import image_labels
from dlsched.runtime.docker.identity.labels import (
    ENABLE,
    INSTANCE,
    JOB,
    PREFIX,
    compose_service,
    elsewhere,
    forbids_wire,
    inspected,
    labels_in,
)
from dlsched.runtime.docker.instance import Instance
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.docker.listing import Listings
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.machine.outcomes import ELSEWHERE, GivenBack
from dlsched.store.adoptions import Adopted

DROP_S = 20.0
"""Maximum wait of a drop until the loop has let the container go and no update of it is left."""

_POLL_S = 0.05

USE_S = 0.5
"""Time over which the CPU use of listed containers is measured: five periods of a quota."""

_NO_SOURCE = (
    "no source of the container's progress is given: give --metrics PRESET or KEY=VALUE; "
    "`dlsched probe` proposes one"
)

_FORBIDDEN = (
    "the label dlsched.wire=false forbids to measure the container's sockets: give --metrics "
    "PRESET or "
    "KEY=VALUE"
)

_OPTIONS = {
    "target.latency": "--latency",
    "target.quantile": "--quantile",
    "target.max_failed": "--max-failed",
    "target.of": "--of",
    "target.deadline": "--deadline",
    "target.deliver": "--good-enough",
    "target.finish": "--reach",
    "cpus.min": "--minimum",
    "cpus.max": "--maximum",
    "memory.max": "--memory-maximum",
    "weight": "--weight",
    "wire": "--wire",
    "background": "--background",
}
"""The option of `adopt` that gives each label."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The answer to `dlsched adopt`."""

    job: str
    container_id: str
    limit_cores: float | None
    """The container's own ceiling, which a drop gives back; None: none."""
    successors: str | None
    """The Compose service whose next containers are adopted, too."""


@dataclass(frozen=True, slots=True)
class Found:
    """A container, as it is listed before a question about several."""

    container_id: str
    name: str
    image: str = ""
    """Empty: it is gone, and the next container of its service is awaited."""
    cpu_cores: float | None = None
    """Its mean use over `USE_S`; None: unread."""


@dataclass(frozen=True, slots=True)
class FoundContainers:
    """The containers of others on this host, by name."""

    adopted: tuple[Found, ...]
    others: tuple[Found, ...]
    """The running ones that are not managed, by this instance or another."""


@dataclass(frozen=True, slots=True, eq=False)
class AdoptionCommands:
    """Adopts and drops containers of one engine."""

    instance: Instance
    listings: Listings
    writer: LimitWriter

    def adopt(self, name: str, labels: Mapping[str, str]) -> Taken:
        """Adopt the running container of that name or id as these labels ask; durable before it
        returns. Raises KeyError (no such container), AdoptionRefused, OSError, EngineUnavailable.
        """
        described, every, own = self._inspect(name)
        job = job_name(described.name)
        self._check(described, every, job)
        service = compose_service(every)
        if own.get(ENABLE) == "true":
            if labels or not self.instance.adoptions.is_dropped(described.container_id):
                raise AdoptionRefused(
                    f"{described.name}: not changed: the container's own labels adopt it, and take "
                    "precedence"
                )
            self.instance.adoptions.readmit(described.container_id)
        else:
            if not labels.keys().isdisjoint((ENABLE, INSTANCE)):
                raise AdoptionRefused(
                    f"{described.name}: `enable` and `instance` can only be given as labels"
                )
            try:
                spec = adopted_job(
                    described,
                    job,
                    labels,
                    every,
                    self.instance.came_with(described),
                    self.instance.came_with_bytes(described),
                    self.listings.presets,
                )
            except (NotAdoptable, ValueError) as error:
                raise AdoptionRefused(_as_options(f"{described.name}: {error}")) from None
            measured = isinstance(spec.target, LatencyTarget) and spec.wire is not None
            if spec.target is not None and not spec.sources and not measured:
                why = _FORBIDDEN if forbids_wire(every) else _NO_SOURCE
                raise AdoptionRefused(f"{described.name}: {why}")
            self.instance.adoptions.adopt(
                Adopted(
                    job=job,
                    container_id=described.container_id,
                    name=described.name,
                    service=service,
                    labels=dict(labels),
                    wall_time=self.instance.clock.wall_time(),
                )
            )
        self.listings.want(described.container_id)
        return Taken(job, described.container_id, self.instance.came_with(described), service)

    def drop(self, name: str) -> GivenBack:
        """Let an adopted container go, durably, and give its limits back. Raises KeyError,
        AdoptionRefused, OSError, EngineUnavailable."""
        adopted = self._adopted(name)
        if adopted is None:
            described, _, own = self._inspect(name)
            adopted = self._adopted(described.container_id)
        if adopted is None:
            container, job = described.container_id, job_name(described.name)
            # A request whose answer was lost may be repeated.
            if own.get(ENABLE) != "true" and not self.instance.adoptions.is_dropped(container):
                raise AdoptionRefused(f"{described.name}: not adopted, so nothing is dropped")
        else:
            container, job = adopted
        self.instance.adoptions.drop(container, job)
        self.listings.want(container)
        self._await_dropped(container)
        original = self.instance.originals.of(container)
        if original is None:
            return GivenBack(
                job, container, adopted=True, now="unchanged: dlsched had set no limits"
            )
        return replace(self.writer.give_back(original), job=job)

    def found(self) -> FoundContainers:
        """What can be dropped, and what could be adopted. Takes `USE_S` and an inspection of each
        container. Raises EngineUnavailable, EngineRefused."""
        last = self.listings.last
        listed = {} if last is None else last.containers
        adopted = {
            key: Found(key, one.name, one.image)
            for key, one in listed.items()
            if one.adopted is not None
        }
        for record in self.instance.adoptions.all:
            adopted.setdefault(record.container_id, Found(record.container_id, record.name))
        others: list[Found] = []
        with ExitStack() as ending:
            groups: dict[str, CgroupReader] = {}
            for summary in self.instance.unhurried.containers({}):
                container = str(summary["Id"])
                if summary.get("State") != "running" or container in listed.keys() | adopted.keys():
                    continue
                if (one := self._unmanaged(container)) is not None:
                    others.append(Found(container, one.name, one.image))
                    groups[container] = CgroupReader(
                        one.pid, self.instance.proc, container=container
                    )
                    ending.callback(groups[container].close)
            used_cores = _uses(groups)
        others = [replace(one, cpu_cores=used_cores[one.container_id]) for one in others]

        def sorted_by_name(found: Iterable[Found]) -> tuple[Found, ...]:
            return tuple(sorted(found, key=lambda one: one.name))

        return FoundContainers(sorted_by_name(adopted.values()), sorted_by_name(others))

    def _unmanaged(self, container: str) -> Inspected | None:
        """The description of a container that no instance manages; None: one does, or it is gone
        or cannot be described."""
        try:
            described, every, own = self._inspect(container)
        except (AdoptionRefused, KeyError):
            return None
        managed = (
            container in self.instance.left_out
            or every.get(JOB)
            or own.get(ENABLE) == "true"
            or self.writer.claims.is_elsewhere(container)
        )
        return None if managed else described

    def labels(self, name: str) -> Mapping[str, str]:
        """What `adopt` asked for the job or container of that name. Raises KeyError."""
        record = self.instance.adoptions.named(name)
        if record is None:
            raise KeyError(name)
        return record.labels

    def _inspect(self, name: str) -> tuple[Inspected, Mapping[str, str], Mapping[str, str]]:
        """The container, all its labels, and ours that did not come with its image."""
        try:
            body = self.instance.unhurried.inspect(name)
        except EngineRefused as error:
            if error.status == 404:
                raise KeyError(name) from None
            raise AdoptionRefused(f"{shown(name)}: {error.reason}") from error
        try:
            described, every = inspected(body), labels_in(body)
            own = counting(every, image_labels(self.instance.unhurried, body) or {})
        except (TypeError, ValueError) as error:
            raise AdoptionRefused(f"{shown(name)}: {error}") from None
        if own.get(ENABLE) == "true" and (why := elsewhere(own, self.instance.name)) is not None:
            raise AdoptionRefused(f"{described.name}: {why}")
        return described, every, own

    def _check(self, described: Inspected, every: Mapping[str, str], job: str) -> None:
        if described.container_id in self.instance.left_out:
            raise AdoptionRefused(f"{described.name}: dlsched itself runs in this container")
        if every.get(JOB):
            started = f"dlsched started this container, as job {shown(every[JOB])}"
            raise AdoptionRefused(f"{described.name}: {started}")
        if not described.alive:
            raise AdoptionRefused(
                f"{described.name}: the container does not run ({described.state})"
            )
        if self.writer.claims.is_elsewhere(described.container_id):
            raise AdoptionRefused(f"{described.name}: {ELSEWHERE}")
        last = self.listings.last
        for container, one in {} if last is None else last.containers.items():
            if one.job == job and container != described.container_id:
                raise AdoptionRefused(
                    f"{described.name}: another container, {one.name}, already runs as job {job}: "
                    "rename this container, or end or drop that one first"
                )

    def _adopted(self, name: str) -> tuple[str, str] | None:
        """Id and job of the adopted container of that name, job or id, as listed last."""
        last = self.listings.last
        for container, one in {} if last is None else last.containers.items():
            if one.adopted is not None and name in (one.name, one.job, container):
                return container, one.job
        record = self.instance.adoptions.named(name)
        return None if record is None else (record.container_id, record.job)

    def _await_dropped(self, container: str) -> None:
        """Wait until a listing no longer has it; a change that began before is undone by the
        loop's own check of records."""
        now_s = self.instance.clock.now_s
        until_s = now_s() + DROP_S
        while now_s() < until_s:
            last = self.listings.last
            if last is None or container not in last.containers:
                return
            time.sleep(_POLL_S)


def _uses(groups: Mapping[str, CgroupReader]) -> dict[str, float | None]:
    """The mean use of each group over `USE_S`, in cores; None: unread."""

    def read() -> dict[str, tuple[float, float | None]]:
        return {key: (time.monotonic(), group.read().usage_core_s) for key, group in groups.items()}

    before = read()
    if before:
        time.sleep(USE_S)
    return {
        key: None if used is None or was is None else max(0.0, used - was) / (now_s - began_s)
        for key, (now_s, used) in read().items()
        for began_s, was in (before[key],)
    }


def _as_options(problem: str) -> str:
    """A label's problem, without the labels' prefix that the command line does not have."""
    for label, option in _OPTIONS.items():
        problem = problem.replace(f"{PREFIX}{label}", option)
    return plain_text(problem.replace("label ", "").replace(PREFIX, ""))
