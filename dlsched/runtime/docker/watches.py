"""The containers of the last listing, each of them watched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dlsched.model.spec import JobSpec
from dlsched.runtime.docker.identity.labels import Inspected
from dlsched.runtime.docker.listing import Listing
from dlsched.runtime.docker.reading import Outside
from dlsched.runtime.docker.watch import Watch


class Watches:
    """One watch for each container; used by the loop's thread, but for `ids`."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._watches: dict[str, Watch] = {}
        self.listing: Listing | None = None
        """The listing that is shown."""
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
            self._watches[container] = Watch(described, now_s, self._outside, from_end=first)
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

    def all(self) -> Collection[Watch]:
        """Every watch."""
        return self._watches.values()

    def own(self) -> dict[str, str]:
        """The ids of the containers that the agent made, by job."""
        watches = self._watches.items()
        return {one.described.job: key for key, one in watches if one.described.adopted is None}

    def close(self) -> None:
        """Release all resources."""
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()
