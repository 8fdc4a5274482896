"""Creates and starts a job's container; the only caller of the engine's create. Calls block on the
engine: they belong in a background thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlsched.control.gpus.placement import memory_on
from dlsched.model.actions import Start
from dlsched.model.errors import DlschedError, EngineUnavailable
from dlsched.model.facts import GpuAccess, GpuFact
from dlsched.model.spec import JobSpec, Limits
from dlsched.runtime.allotment import (
    IN,
    LIB,
    OUT,
    OUT_TMPFS_OPTIONS,
    Allotment,
    container_environment,
    install_reporter,
    job_dir,
    write_allotment,
)
from dlsched.runtime.confinement import Confinement
from dlsched.runtime.docker.carrying import Arrivals, Brought, NotShared
from dlsched.runtime.docker.create.containers import (
    Surroundings,
    create_body,
    fitting_threads,
    restart_update,
)
from dlsched.runtime.docker.engine import Body, EngineRefused
from dlsched.runtime.docker.gpus.injection import (
    Injector,
    MpsClient,
    NotInjectable,
    client_of,
    paced,
    running_pipes,
)
from dlsched.runtime.docker.identity.claims import inherits_labels
from dlsched.runtime.docker.identity.labels import (
    ORIGIN,
    container_name,
    gpu_labels,
    inspected,
    labels_in,
    labels_of,
)
from dlsched.runtime.docker.instance import Instance
from dlsched.runtime.docker.limits.group import ParentGroup
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.host import physical_cores
from dlsched.runtime.machine.outcomes import CallFailed, Own, Untouchable, Waits, one_line

_PASSING = (
    "port is already allocated",
    "address already in use",
    "is marked for removal",
    "No such container",
)
"""Temporary refusals: they last until another job ends, or the container was removed while it was
being started, as when a job is stopped at that moment."""


class StartFailed(CallFailed):
    """The container cannot be started."""


_NO_HOST_NAME = ("host", "container:")
"""Network modes in which the engine refuses a host name of the container's own."""


@dataclass(frozen=True, slots=True)
class Heritage:
    """What one container passes on to its replacement."""

    origin: str
    """The id of the first container in the chain."""
    image: str
    """The id of its image."""
    image_moved: bool = False
    """Whether the image's name refers to another image by now."""
    host_name: str | None = None
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Names of volumes by mount path."""

    def give(self, body: Body) -> None:
        """Add it to the body of a create call; the spec's own mounts have precedence."""
        if self.image_moved:
            body["Image"] = self.image
        if self.host_name is not None:
            body.setdefault("Hostname", self.host_name)
        host = body["HostConfig"]
        taken = {mount["Target"] for mount in host["Mounts"] if mount.get("Source")}
        taken |= {bind.split(":")[1] for bind in host.get("Binds") or ()} | set(host["Tmpfs"])
        left = {place: name for place, name in self.volumes.items() if place not in taken}
        host["Mounts"] = [mount for mount in host["Mounts"] if mount["Target"] not in left]
        for place, name in sorted(left.items()):
            host["Mounts"].append({"Type": "volume", "Source": name, "Target": place})


def heritage_of(body: Body) -> Heritage:
    """The heritage of an inspected container; raises whatever a malformed description causes."""
    config, host = body["Config"], body["HostConfig"]
    mode = str(host.get("NetworkMode") or "")
    mounts = (one for one in body.get("Mounts") or () if one.get("Type") == "volume")
    return Heritage(
        origin=labels_in(body).get(ORIGIN) or str(body["Id"]),
        image=str(body["Image"]),
        host_name=None if mode.startswith(_NO_HOST_NAME) else str(config["Hostname"]),
        volumes={str(one["Destination"]): str(one["Name"]) for one in mounts},
    )


@dataclass(slots=True, eq=False)
class Creation:
    """Creates the containers of one instance. Thread-safe."""

    instance: Instance
    group: ParentGroup
    writer: LimitWriter
    injector: Injector
    arrivals: Arrivals
    """Jobs that came with a checkpoint."""
    jobs_cores: Callable[[], float | None]
    """CPU that containers can have together; None: unknown."""
    mps_pipes: Callable[[], Path | None] = lambda: running_pipes(os.environ)
    """Where clients find MPS; None: it does not run."""
    _installing: threading.Lock = field(default_factory=threading.Lock)

    def start(self, action: Start, image: Body, heritage: Heritage | None = None) -> str:
        """Create the job's container and start it; returns its id.

        An existing container of the same name and spec is started instead, unless there is a
        `heritage`. Raises StartFailed, EngineUnavailable, OSError, after removing what it created.
        """
        name = container_name(self.instance.name, action.job)
        if len(action.gpus) != action.spec.container.gpus:
            raise StartFailed("the job's GPUs are not chosen yet", retryable=True)
        brought = self.arrivals.of(action.job, action.source)
        try:
            inside = job_dir(self.instance.state_dir, action.job)
            around = self._surroundings(action, image, inside)
            if heritage is not None:
                around = replace(around, labels={**around.labels, ORIGIN: heritage.origin})
            by_file = around.gpus.access is GpuAccess.LEGACY
            # The engine must not update it later: it gets its ceiling at creation.
            limits = Limits(action.spec.bounds.ceiling_cores) if by_file else action.limits
            shares = None if by_file else action.cpu_shares
            spec = action.spec
            if brought is not None:
                spec = self.arrivals.adapted(spec, brought)
            body = create_body(spec, limits, shares, around)
            if brought is not None:
                self.arrivals.label(body, brought)
        except ValueError as error:
            raise StartFailed(one_line(error), retryable=False) from error
        except NotInjectable as error:
            raise StartFailed(str(error), retryable=True) from error
        if heritage is not None:
            heritage.give(body)
        made = True
        try:
            if brought is not None and not brought.filled:
                # Refused with 409 where the attempt that left it half full is still there.
                self.arrivals.make_room(brought)
            container = self.instance.unhurried.create(name, body)
        except EngineRefused as error:
            if error.status != 409 or heritage is not None:
                raise StartFailed(error.reason, retryable=False) from error
            container, made = self._found(name, action, limits, shares, brought), False
        if made and brought is not None and not brought.filled:
            self._fill(container, action.spec, brought)
        try:
            # Before it runs: its ceiling can be restored whatever happens to the agent.
            self.writer.remember(container, _own(action))
            write_allotment(inside, self._allotment(action, around.mps))
            self.instance.start(container)
        except (EngineRefused, Untouchable) as error:
            if made:
                with suppress(DlschedError):
                    self.instance.unhurried.remove(container)
            passing = isinstance(error, Untouchable) or any(
                text in error.reason for text in _PASSING
            )
            raise StartFailed(str(error), retryable=passing) from error
        if by_file:
            # Until this succeeds, now or in a later cycle, it has its ceiling.
            with suppress(DlschedError, OSError, ValueError):
                self.writer.set(container, action.limits, action.cpu_shares, own=_own(action))
        return container

    def _fill(self, container: str, spec: JobSpec, brought: Brought) -> None:
        """Give a new container the checkpoint that its job came with; raises StartFailed,
        EngineUnavailable, after removing it with its volume."""
        try:
            self.arrivals.fill(container, spec, brought)
        except (DlschedError, OSError, ValueError) as error:
            with suppress(DlschedError):
                self.instance.unhurried.remove(container)
                self.arrivals.make_room(brought)
            if isinstance(error, EngineUnavailable):
                raise
            if isinstance(error, NotShared):
                raise StartFailed(one_line(error), retryable=error.retryable) from error
            why = f"the job's checkpoint from another node cannot be unpacked: {one_line(error)}"
            raise StartFailed(why, retryable=False) from error

    def _allotment(self, action: Start, mps: MpsClient | None) -> Allotment:
        # No bound for a whole GPU: a job that reads one initialises CUDA.
        bounds = [(memory_on(action.spec, gpu.memory_bytes), gpu) for gpu in self._gpus(action)]
        memory = [most_bytes for most_bytes, gpu in bounds if most_bytes < gpu.memory_bytes]
        return Allotment(
            cpu_cores=action.limits.cpu_cores,
            gpu_share=paced(action.limits.gpu_share, None if mps is None else mps.threads_percent),
            gpu_memory_bytes=min(memory, default=None),
            gpus=action.gpus,
        )

    def _gpus(self, action: Start) -> list[GpuFact]:
        return [gpu for gpu in self.injector.devices() if gpu.uuid in action.gpus]

    def _surroundings(self, action: Start, image: Body, inside: Path) -> Surroundings:
        config = image.get("Config") or {}
        confined = self.instance.options.confine(action.spec)
        if confined is not None:
            confined.check(action.spec.container.volumes)
        variables = dict(entry.partition("=")[::2] for entry in config.get("Env") or ())
        gpus = self.injector.of(action.gpus, self.instance.unhurried.info())
        pipes = self.mps_pipes() if gpus.access is not None and confined is None else None
        mps = None if pipes is None else client_of(action.spec, pipes, self._gpus(action))
        own = dict(action.spec.container.environment)
        threads = self._threads(action.spec, confined, own.keys() | variables.keys())
        # The operator may override it; a user could reach others' GPUs by it.
        added = gpus.environment
        if not action.gpus and confined is None:
            added = {name: text for name, text in added.items() if name not in own}
        return Surroundings(
            environment=container_environment(
                action.job,
                variables.get("PYTHONPATH"),
                {**threads, **own, **added, **({} if mps is None else mps.environment)},
            ),
            labels={
                **labels_of(action.spec, self.instance.name, action.source),
                **gpu_labels(action.gpus, gpus.access, mps),
            },
            cgroup_parent=self.group.name(self.instance.facts.cgroup_driver()),
            tmpfs={OUT: OUT_TMPFS_OPTIONS},
            read_only={IN: inside, LIB: self._reporter()},
            confined=confined,
            gpus=gpus,
            mps=mps,
        )

    def _threads(
        self, spec: JobSpec, confined: Confinement | None, owned: Set[str]
    ) -> dict[str, str]:
        """The variables of its libraries' threads."""
        if spec.container.threads == "own":
            return {}
        cpus = os.cpu_count() or 1
        # Its ceiling, not its present limit: that changes, and these last as long as it runs.
        owner_cores = None if confined is None else confined.cpu_cores
        bounds = (spec.bounds.ceiling_cores, owner_cores, self.jobs_cores(), float(cpus))
        may_use_cores = min(cores for cores in bounds if cores is not None)
        return fitting_threads(may_use_cores, cpus, physical_cores(), owned)

    def _reporter(self) -> Path:
        # Concurrent installations would remove each other's unfinished files.
        with self._installing:
            return install_reporter(self.instance.state_dir)

    def _found(
        self,
        name: str,
        action: Start,
        limits: Limits,
        shares: int | None,
        brought: Brought | None,
    ) -> str:
        """Start the container that already has the name, if it is the job's; raises StartFailed."""
        try:
            body = self.instance.unhurried.inspect(name)
            found, inherited = inspected(body), inherits_labels(self.instance.unhurried, body)
        except (EngineRefused, ValueError) as error:
            raise StartFailed(f"container {name}: {one_line(error)}", retryable=True) from error
        short = found.container_id[:12]
        if found.instance != self.instance.name or found.job != action.job or inherited:
            raise StartFailed(
                f"the name {name} is taken by container {short} (image {found.image}), which "
                "belongs to another instance or job",
                retryable=False,
            )
        if brought is not None and not brought.filled:
            if not found.alive:
                with suppress(EngineRefused):
                    self.instance.unhurried.remove(found.container_id)
            why = f"container {short} lacks the checkpoint from the job's last node"
            raise StartFailed(why, retryable=not found.alive)
        if found.container_digest != action.spec.container_digest:
            why = f"container {short}, made from an older version of the job, is still there"
            raise StartFailed(why, retryable=True)
        if set(found.gpus) != set(action.gpus) and not found.alive:
            with suppress(EngineRefused):
                self.instance.unhurried.remove(found.container_id)
            why = f"container {short} was made for other GPUs and is being replaced"
            raise StartFailed(why, retryable=True)
        try:
            self.writer.set(found.container_id, limits, shares, own=_own(action))
            if not found.risks_gpus:
                restart = restart_update(action.spec.container.restart)
                self.instance.unhurried.update(found.container_id, restart)
        except (EngineRefused, Untouchable, Waits) as error:
            raise StartFailed(f"container {short}: {one_line(error)}", retryable=True) from error
        return found.container_id


def _own(action: Start) -> Own:
    return Own(action.job, action.spec.bounds.ceiling_cores)
