"""The containers of the last listing, each of them watched."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from dlsched.model.spec import JobSpec, LatencyTarget
from dlsched.runtime.docker.identity.labels import Inspected
from dlsched.runtime.docker.listing import Listing
from dlsched.runtime.docker.reading import Outside, wall_s
from dlsched.runtime.docker.watch import Watch

JUST_STARTED_S = 10.0
"""A container of which a listing says so is new: listings follow events within seconds."""


class Watches:
    """One watch for each container; used by the loop's thread, but for `ids`."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._watches: dict[str, Watch] = {}
        self.listing: Listing | None = None
        self.ids: Mapping[str, str] = {}
        """Container ids by job; replaced whole, so that other threads may read it."""

    def show(self, listing: Listing, now_s: float) -> list[Inspected]:
        """Watch the containers of a new listing, and no others; returns those just adopted."""
        first, adopted = self.listing is None, []
        for container, described in listing.containers.items():
            watch = self._watches.get(container)
            if watch is not None:
                watch.take(described, now_s)
                continue
            ran_before = _ran_before(described)
            # A service's old requests are not news; a training's old lines hold its present value.
            target = None if described.adopted is None else described.adopted.target
            self._watches[container] = Watch(
                described,
                now_s,
                self._outside,
                from_end=first or (ran_before and isinstance(target, LatencyTarget)),
                ran_before=ran_before,
            )
            if described.adopted is not None:
                adopted.append(described)
        for container in self._watches.keys() - listing.containers.keys():
            self._watches.pop(container).close()
        self.listing = listing
        self.ids = {watch.described.job: key for key, watch in self._watches.items()}
        return adopted

    def read_from(self, specs: Iterable[JobSpec]) -> None:
        """Read the progress of these jobs where their files say, too."""
        for spec in specs:
            watch = self._watches.get(self.ids.get(spec.name, ""))
            if watch is not None:
                watch.read_from(spec)

    def get(self, container: str) -> Watch | None:
        """That container's watch; None: it is not listed."""
        return self._watches.get(container)

    def of_job(self, job: str) -> Inspected | None:
        """That job's container; None: none is listed."""
        watch = self._watches.get(self.ids.get(job, ""))
        return None if watch is None else watch.described

    def all(self) -> Collection[Watch]:
        return self._watches.values()

    def own(self) -> dict[str, str]:
        """The ids of the containers that the agent made, by job."""
        watches = self._watches.items()
        return {one.described.job: key for key, one in watches if one.described.adopted is None}

    def close(self) -> None:
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()


def _ran_before(described: Inspected) -> bool:
    """Whether it ran before it was adopted."""
    started_s = None if described.adopted is None else wall_s(described.started_at)
    return started_s is not None and time.time() - started_s > JUST_STARTED_S
