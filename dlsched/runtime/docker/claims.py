"""Which of the containers that carry our labels are ours: labels can be copied and inherited.

Owns that judgement, and telling once why a container is left alone. It must not act on any.
Only one listing at a time may use it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from dlsched.logs import plain_text
from dlsched.runtime.docker.engine import Body, Engine, EngineRefused
from dlsched.runtime.docker.labels import JOB, Inspected, container_name, inherits
from dlsched.spec_schema import NAME

_log = logging.getLogger(__name__)

TOLD_CHARACTERS = 200


class Claims:
    """What was found out about the containers with this instance's labels."""

    def __init__(self, engine: Engine, instance: str) -> None:
        self._engine = engine
        self._instance = instance
        self._inherits: dict[str, bool] = {}
        self._told: set[str] = set()

    def names_a_job(self, summary: Body) -> bool:
        """Whether a listed container's labels name a job as a job can be named."""
        job = (summary.get("Labels") or {}).get(JOB)
        if job is None:
            return False
        if not re.fullmatch(NAME, job):
            self.leave(summary["Id"], f"no job can be named {job}")
            return False
        return True

    def inherited(self, body: Body) -> bool:
        """Whether an inspected container has its labels from its image; asks the engine once."""
        container = body["Id"]
        if container not in self._inherits:
            self._inherits[container] = inherits_labels(self._engine, body)
        if self._inherits[container]:
            self.leave(container, "its labels came with its image")
        return self._inherits[container]

    def rightful(
        self, found: Mapping[str, Inspected], names: Mapping[str, Iterable[str]]
    ) -> dict[str, Inspected]:
        """Without those that are not named as the job's container is, where one is; `names` by id.

        One that was renamed stays ours as long as no other has the name.
        """
        named = {
            one.job: container
            for container, one in found.items()
            if f"/{container_name(self._instance, one.job)}" in names[container]
        }
        ours = {}
        for container, one in found.items():
            if named.get(one.job, container) == container:
                ours[container] = one
            else:
                name = container_name(self._instance, one.job)
                self.leave(container, f"it carries the labels of {name}, which is another")
        return ours

    def leave(self, container: str, why: str) -> None:
        """Tell, once, why that container is left alone."""
        if container not in self._told:
            self._told.add(container)
            why = plain_text(why)[:TOLD_CHARACTERS]
            _log.warning("container %s is left alone: %s", container[:12], why)

    def forget_all_but(self, containers: Iterable[str]) -> None:
        """Drop what is known of containers that are gone."""
        kept = set(containers)
        self._told &= kept
        self._inherits = {one: word for one, word in self._inherits.items() if one in kept}


def inherits_labels(engine: Engine, body: Body) -> bool:
    """Whether an inspected container has our labels from its image; waits for the engine."""
    try:
        return inherits(body, engine.image(body["Image"]))
    except EngineRefused as error:
        if error.status != 404:
            raise
        return False  # removed by force: nothing can be said against the container
