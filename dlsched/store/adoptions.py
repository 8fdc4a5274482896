"""Durable records of running containers that `dlsched adopt` took in, and of those that `dlsched
drop` let go. They live in `adopted` and `dropped` in the state directory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlsched.model.alarms import Alarm
from dlsched.model.spec import NAME
from dlsched.store.records import Records

_CONTAINER_ID = "[0-9a-f]{64}"

SHORT_ID = 12
"""Characters of a container's id where it is shown."""


@dataclass(frozen=True, slots=True)
class Adopted:
    job: str
    """The job's name: the container's when it was adopted, in lower case."""
    container_id: str
    name: str
    """The container's name when it was adopted."""
    service: str | None = None
    """`project/service` of Docker Compose."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What the command asked for, as labels of `dlsched adopt`'s options."""
    wall_time: str = ""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A container that is not adopted again until `dlsched adopt`, whatever its labels say."""

    container_id: str


class Adoptions:
    """What `dlsched adopt` and `dlsched drop` decided; from any thread."""

    def __init__(self, state_dir: Path, *, read_only: bool = False) -> None:
        """Load the records. Raises OSError. `read_only`: nothing is written."""
        self._read_only = read_only
        self._adopted = Records(
            state_dir / "adopted",
            Adopted,
            lambda record: record.job,
            NAME,
            "the container is no longer adopted: run `dlsched adopt` again",
            read_only=read_only,
        )
        self._dropped = Records(
            state_dir / "dropped",
            Dropped,
            lambda record: record.container_id,
            _CONTAINER_ID,
            "a dropped container may be adopted again by its labels",
            read_only=read_only,
        )
        self.job, self.readmit = self._adopted.of, self._dropped.lift
        """To readmit a container ends its drop: its own labels count again. Raises OSError."""

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        return (*self._adopted.alarms, *self._dropped.alarms)

    @property
    def any(self) -> bool:
        """Whether anything was adopted or dropped: then all containers are to be listed."""
        return bool(self._adopted.all() or self._dropped.all())

    def asks(self, container: str, names: Collection[str], service: str | None) -> bool:
        """Whether that container, or one before it of these names or service, was adopted."""
        return any(
            container == one.container_id or _succeeds(one, names, service) for one in self._records
        )

    def places(self, container: str, names: Collection[str], service: str | None) -> frozenset[str]:
        """The adopted containers, by id, whose place that one takes once they are gone."""
        return frozenset(
            one.container_id
            for one in self._records
            if container != one.container_id and _succeeds(one, names, service)
        )

    def of(
        self, container: str, name: str, service: str | None, there: Collection[str]
    ) -> Adopted | None:
        """The adoption of that container: by its id, else as the next one of an adopted container
        that is not `there` (ids) any more, by its name or its Compose service."""
        if (known := self.by_id(container)) is not None:
            return known
        if self.is_dropped(container):
            return None
        for one in self._records:
            if one.container_id not in there and _succeeds(one, (name,), service):
                return one
        return None

    @property
    def all(self) -> tuple[Adopted, ...]:
        """Every adoption by command."""
        return tuple(self._records)

    def by_id(self, container: str) -> Adopted | None:
        return next((one for one in self._records if one.container_id == container), None)

    def named(self, name: str) -> Adopted | None:
        """The adoption under that job's name, or of the container whose id begins so."""
        if (known := self._adopted.of(name.lower())) is not None or len(name) < SHORT_ID:
            return known
        found = [one for one in self._records if one.container_id.startswith(name)]
        return found[0] if len(found) == 1 else None

    def is_dropped(self, container: str) -> bool:
        return self._dropped.of(container) is not None

    def adopt(self, adopted: Adopted) -> None:
        """Write it; ends a drop. Raises OSError, and then nothing has changed."""
        self._adopted.secure(adopted)
        self._dropped.lift(adopted.container_id)

    def follow(self, adopted: Adopted, container: str, name: str) -> None:
        """Note the next container of an adoption, also where the disk refuses it."""
        if self._read_only:
            return
        with suppress(OSError):
            self._adopted.record(replace(adopted, container_id=container, name=name))

    def drop(self, container: str, job: str) -> None:
        """End that container's adoption as the job, and adopt it no more. Raises OSError."""
        self._dropped.secure(Dropped(container))
        known = self.job(job)
        if known is not None and known.container_id == container:  # not another's of that name
            self._adopted.lift(job)

    def forget(self, there: Collection[str]) -> None:
        """Remove the records of drops whose container is gone. `there`: the ids of all."""
        if self._read_only:
            return
        for container in self._dropped.all().keys() - set(there):
            with suppress(OSError):  # tried again with the next listing
                for one in self._adopted.all().values():
                    if one.container_id == container:
                        self._adopted.lift(one.job)
                self._dropped.lift(container)

    @property
    def _records(self) -> Collection[Adopted]:
        """A drop that was cut short leaves both records: the drop counts."""
        records = self._adopted.all().values()
        return [one for one in records if not self.is_dropped(one.container_id)]


def _succeeds(one: Adopted, names: Collection[str], service: str | None) -> bool:
    return one.name in names or (service is not None and service == one.service)
