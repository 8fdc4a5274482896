"""Decides which containers are ours or to be adopted: labels can be copied, inherited and wrong.
Used by one listing at a time."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.spec import NAME, Stop
from dlsched.model.units import plain_text
from dlsched.runtime.docker.engine import Body, Engine, EngineRefused
from dlsched.runtime.docker.gpus.injection import gpu_names
from dlsched.runtime.docker.identity.adoption import NotAdoptable, adopted_job, counting
from dlsched.runtime.docker.identity.labels import (
    ENABLE,
    INSTANCE,
    JOB,
    PREFIX,
    compose_service,
    container_name,
    elsewhere,
    inherits,
    inspected,
    labels_in,
    set_aside_name,
)
from dlsched.runtime.docker.instance import Instance
from dlsched.runtime.machine.inspected import Inspected

_log = logging.getLogger(__name__)

REASON_CHARACTERS = 300
REASONS_MOST = 8
"""Containers left alone that are listed one by one; of further ones only the number."""

_ENABLED = "true"


class Claims:
    """What is known about the containers with our labels."""

    def __init__(self, instance: Instance) -> None:
        self._adoptions, self._engine = instance.adoptions, instance.engine
        self._instance = instance
        self.presets = instance.options.presets
        self._settled: dict[str, str | None] = {}
        """Containers that are not ours, and the reason to report (None: none)."""
        self._places: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        """By container, when it was judged last: the adopted ones whose place it could take, and
        those of them that were still there."""
        self._images: dict[str, Mapping[str, str] | None] = {}
        """Our labels in a container's image; None: the image is gone."""
        self._left: dict[str, str] = {}
        """Containers left alone in the present listing, and why."""
        self._logged: set[str] = set()

    def may_be_ours(self, summary: Body, there: Collection[str], *, instances: bool) -> bool:
        """Whether a listed container needs an inspection; `instances`: it carries our instance,
        `there`: the ids of all. An earlier decision stays until `doubt`, or until the place of an
        adopted container becomes free."""
        container, labels = summary["Id"], summary.get("Labels") or {}
        if instances and JOB in labels:
            if not re.fullmatch(NAME, labels[JOB]):
                self.leave(container, f"the label {JOB}={labels[JOB]} is not a valid job name")
                return False
        elif labels.get(ENABLE) != _ENABLED and not self._adopted_by_command(summary):
            return False
        places = self._adoptions.places(container, _names(summary), compose_service(labels))
        now = places, places.intersection(there)
        if container not in self._settled or self._places.get(container) != now:
            self._places[container] = now
            self._settled.pop(container, None)
            return True
        if (why := self._settled[container]) is not None:
            self.leave(container, why)
        return False

    def judge(self, container: str, body: Body, there: Collection[str]) -> Inspected | None:
        """An inspected container as ours or adopted; None when it is neither. `there`: the ids of
        all listed containers."""
        try:
            return self._judged(body, there)
        except (NotAdoptable, ValueError) as error:
            self._settled[container] = why = str(error)
            self.leave(container, why)
            return None

    def doubt(self, containers: Iterable[str] | None) -> None:
        """Something happened to these containers (None: to all): inspect them again."""
        if containers is None:
            self._settled.clear()
        else:
            for container in containers:
                self._settled.pop(container, None)

    def rightful(
        self, found: Mapping[str, Inspected], names: Mapping[str, Iterable[str]]
    ) -> tuple[dict[str, Inspected], dict[str, Inspected]]:
        """Our containers, and those that are set aside for another to replace; `names` by id.

        A renamed container stays ours while no other has the job's name. One to be adopted under
        the name of a job of ours is left alone.
        """
        named = {
            one.job: container
            for container, one in found.items()
            if f"/{container_name(self._instance.name, one.job)}" in names[container]
            and one.adopted is None
        }
        jobs = {one.job for one in found.values() if one.adopted is None}
        adopted: dict[str, str] = {}
        ours, aside = {}, {}

        def rank(item: tuple[str, Inspected]) -> tuple[bool, bool]:
            """One adopted by command goes first, then one that has exactly its job's name."""
            container, one = item
            return self._adoptions.by_id(container) is None, one.name != one.job

        for container, one in sorted(found.items(), key=rank):
            if one.adopted is not None and one.job in jobs:
                self.leave(container, "a job from a file already has the container's name")
            elif one.adopted is not None and adopted.setdefault(one.job, one.name) != one.name:
                other = f"another container, {adopted[one.job]}"
                self.leave(container, f"{other}, is already adopted as job {one.job}")
            elif one.adopted is not None or named.get(one.job, container) == container:
                ours[container] = one
            elif f"/{set_aside_name(self._instance.name, one.job)}" in names[container]:
                aside[container] = one
            else:
                name = container_name(self._instance.name, one.job)
                self.leave(container, f"the container has the labels of {name}, another container")
        return ours, aside

    def leave(self, container: str, why: str) -> None:
        """Record why a container is left alone, and log it once."""
        self._left[container] = why = plain_text(why)[:REASON_CHARACTERS]
        if container not in self._logged:
            self._logged.add(container)
            _log.warning("container %s is left alone: %s", container[:12], why)

    def left_alone(self, listed: Mapping[str, Body]) -> tuple[Alarm, ...]:
        """The containers left alone since the last call; forgets those that are not listed."""
        alarms = [
            _left_alone(container, f"container {_name(listed[container])} is left alone: {why}")
            for container, why in self._left.items()
            if container in listed
        ]
        self._left = {}
        self._logged &= listed.keys()
        for known in (self._settled, self._images, self._places):
            for container in known.keys() - listed.keys():
                del known[container]
        if len(alarms) > REASONS_MOST:
            more = f"{len(alarms) - REASONS_MOST} more containers are left alone"
            alarms[REASONS_MOST:] = [_left_alone("others", more)]
        return tuple(alarms)

    def _adopted_by_command(self, summary: Body) -> bool:
        service = compose_service(summary.get("Labels") or {})
        return self._adoptions.asks(summary["Id"], _names(summary), service)

    def _judged(self, body: Body, there: Collection[str]) -> Inspected | None:
        described, labels, given = inspected(body), labels_in(body), self._image_labels(body)
        ours = JOB in labels and labels.get(INSTANCE) == self._instance.name
        if ours and (given is None or not inherits(labels, given)):
            return described
        own = counting(labels, given or {})
        container = described.container_id
        if own.get(ENABLE) == _ENABLED:
            if (why := elsewhere(own, self._instance.name)) is not None:
                self._settled[container] = None
                if INSTANCE not in own and container not in self._logged:
                    self._logged.add(container)
                    _log.info("container %s is not adopted: %s", plain_text(described.name), why)
                return None
            if given is None:
                raise NotAdoptable(
                    "the container's image is gone, so the image's labels are unknown"
                )
            if self._adoptions.is_dropped(container):
                self._settled[container] = None
                return None
            return self._adopted(body, described, described.name, own)
        if ours:
            raise NotAdoptable(
                "labels that come from the image do not count: set dlsched's labels on the "
                "container itself"
            )
        service = compose_service(labels)
        asked = self._adoptions.of(container, described.name, service, there)
        if asked is not None:
            adopted = self._adopted(body, described, asked.job, asked.labels)
            if asked.container_id != container:
                self._adoptions.follow(asked, container, described.name)
            return adopted
        self._settled[described.container_id] = None
        return None

    def _adopted(
        self, body: Body, described: Inspected, name: str, own: Mapping[str, str]
    ) -> Inspected:
        """The container under the job that these labels make of it."""
        spec = adopted_job(
            described,
            name,
            own,
            labels_in(body),
            self._instance.came_with(described),
            self._instance.came_with_bytes(described),
            self.presets,
            changed=self._instance.originals.holds(described.container_id),
        )
        return replace(
            described,
            instance=self._instance.name,
            job=spec.name,
            digest="",
            container_digest="",
            source="",
            stop=Stop(),
            restart=None,
            restart_strays=False,
            adopted=spec,
            sources=spec.sources,
            mps_threads_percent=None,
            mps_memory_bytes=None,
            origin=None,
            gpus=gpu_names(body),
        )

    def _image_labels(self, body: Body) -> Mapping[str, str] | None:
        container = body["Id"]
        if container not in self._images:
            self._images[container] = image_labels(self._engine, body)
        return self._images[container]


def inherits_labels(engine: Engine, body: Body) -> bool:
    """Whether an inspected container has our labels from its image; blocks on the engine."""
    given = image_labels(engine, body)
    # Without the image the container gets the benefit of the doubt.
    return given is not None and inherits(labels_in(body), given)


def image_labels(engine: Engine, body: Body) -> dict[str, str] | None:
    """Our labels in an inspected container's image; None: it was removed by force."""
    try:
        given = labels_in(engine.image(body["Image"]))
    except EngineRefused as error:
        if error.status != 404:
            raise
        return None
    return {label: value for label, value in given.items() if label.startswith(PREFIX)}


def _left_alone(container: str, text: str) -> Alarm:
    return Alarm(container[:12], AlarmKey.CONTAINER_LEFT_ALONE, text)


def _names(summary: Body) -> list[str]:
    return [name.lstrip("/") for name in summary.get("Names") or ()]


def _name(summary: Body) -> str:
    """A listed container's name for people."""
    names = _names(summary)
    short = str(summary["Id"])[:12]
    return f"{min(names, key=len)[:63]} ({short})" if names else short
