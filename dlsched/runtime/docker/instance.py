"""One instance on one engine: its options, what its parts share, and the agent's own container."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from dlsched.config.metrics.resolving import Presets
from dlsched.control.ports import Clock
from dlsched.model.spec import JobSpec
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.confinement import Confinement
from dlsched.runtime.docker.engine import Engine, EngineFacts
from dlsched.runtime.docker.gpus.injection import GpuOptions
from dlsched.runtime.docker.identity.labels import DEFAULT_INSTANCE
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.originals import Originals
from dlsched.store.adoptions import Adoptions

UNHURRIED_S = 120.0
"""For starts and removals, which run in the background: on a busy host a start takes a minute."""

_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class DockerOptions:
    instance: str = DEFAULT_INSTANCE
    state_dir: Path = Path("/var/lib/dlsched")
    host: str = "unix:///var/run/docker.sock"
    timeout_s: float = 10.0
    """A call that takes longer has failed."""
    config_file: Path | None = None
    """Docker's own config.json with the registries' credentials; None: where Docker has it."""
    group_weight: float | None = None
    """Weight of all jobs together, in multiples of one container's; None: left alone."""
    call_wait_s: float = 0.5
    """The loop waits for the engine at most so long in a cycle."""
    cgroup_under: str = ""
    """Group above the instance's own (cgroupfs alone)."""
    gpus: GpuOptions = field(default_factory=GpuOptions)
    wire: bool = True
    """Whether response times may be measured at containers' sockets."""
    read_only: bool = False
    """Whether nothing in the state directory may be written, as in a dry run."""
    presets: Presets | None = None
    """Those that labels may name; None: those of the package."""
    confine: Callable[[JobSpec], Confinement | None] = lambda _: None
    """What a user's container is held to; None: it is the operator's."""


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

    def start(self, container: str) -> None:
        """Start a container, which cannot be inspected meanwhile; blocks on the engine."""
        with self.busy.of(container):
            self.unhurried.start(container)

    def came_with(self, described: Inspected) -> float | None:
        """The ceiling that a container had before any change of ours, in cores."""
        return self.originals.cores_before(described.container_id, described.limit_cores)

    def came_with_bytes(self, described: Inspected) -> int | None:
        """The memory limit that a container had before any change of ours; None: none."""
        return self.originals.memory_before(described.container_id, described.limits)


def own_containers(proc: Path = PROC) -> frozenset[str]:
    """Ids that may be the agent's own container; empty on a host."""
    found: set[str] = set()
    with suppress(OSError):
        found.update(_ID.findall((proc / "self" / "cgroup").read_text(encoding="utf-8")))
    with suppress(OSError):
        for line in (proc / "self" / "mountinfo").read_text(encoding="utf-8").splitlines():
            fields = line.split()
            # In its own cgroup namespace only the files that the engine binds reveal the id.
            if len(fields) > 4 and fields[4] in ("/etc/hostname", "/etc/resolv.conf"):
                found.update(_ID.findall(fields[3]))
    return frozenset(found)
