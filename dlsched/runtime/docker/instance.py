"""What the parts of one instance on one engine share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dlsched.control.ports import Clock
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.docker.engine import Engine, EngineFacts
from dlsched.runtime.docker.options import DockerOptions
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.originals import Originals
from dlsched.store.adoptions import Adoptions


class BusyContainers:
    """Containers that are being started, or whose files are being copied. Thread-safe.

    The engine holds such a container's lock all the time: an inspection waits for the end, which
    may take minutes.
    """

    def __init__(self, over: Callable[[str], None] = lambda _: None) -> None:
        self.over = over
        """Called, from a thread, with a container that may be inspected again."""
        self._lock = threading.Lock()
        self._copied: frozenset[str] = frozenset()

    def __contains__(self, container: str) -> bool:
        return container in self._copied

    @contextmanager
    def of(self, container: str) -> Iterator[None]:
        """A start of that container, or a copy of its files."""
        with self._lock:
            self._copied |= {container}
        try:
            yield
        finally:
            with self._lock:
                self._copied -= {container}
            self.over(container)


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One instance on one engine."""

    options: DockerOptions
    engine: Engine
    unhurried: Engine
    """The same engine, whose answers are waited for longer."""
    facts: EngineFacts
    clock: Clock
    originals: Originals
    adoptions: Adoptions
    left_out: frozenset[str] = frozenset()
    """Ids of containers that are never ours, whatever labels they carry."""
    proc: Path = PROC
    busy: BusyContainers = field(default_factory=BusyContainers)
    """Containers that cannot be inspected now: they stay as they are known."""

    @property
    def name(self) -> str:
        return self.options.instance

    @property
    def state_dir(self) -> Path:
        return self.options.state_dir

    def came_with(self, described: Inspected) -> float | None:
        """The ceiling that a container had before any change of ours, in cores."""
        return self.originals.cores_before(described.container_id, described.limit_cores)
