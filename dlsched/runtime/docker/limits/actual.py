"""Reads a container's limits, in the engine and in the kernel, and its GPUs at one moment."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlsched.model.facts import GpuAccess
from dlsched.runtime.cgroup.group_limits import GroupLimits, LimitFiles
from dlsched.runtime.docker.engine import Body, Engine
from dlsched.runtime.docker.gpus.canary import Canary, GpuContainer
from dlsched.runtime.docker.gpus.injection import Injector
from dlsched.runtime.docker.identity.labels import gpu_access_in, gpus_in
from dlsched.runtime.docker.limits.dialect import (
    engine_limits,
    files_to_have,
    past_the_engine,
    unlike,
    wrong_at_next_start,
)
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.originals import EngineLimits, Original, Originals


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """One container's limits and GPUs."""

    container: str
    name: str
    pid: int
    engine: EngineLimits
    files: LimitFiles | None
    """None: it does not run, or its group was not found."""
    limits: GroupLimits
    access: GpuAccess | None
    """How it gets its GPUs at a start; None: it has none."""
    held: GpuContainer | None
    """Its GPUs; None: none, or it does not run."""
    barred: str | None
    """Why the engine must not update it, since that could take its GPUs; None: it may."""

    @property
    def alive(self) -> bool:
        return self.pid > 0

    @property
    def by_file(self) -> bool:
        """Whether its control group's files are written instead of an engine update."""
        return self.barred is not None


def as_listed(
    described: Inspected, proc: Path, known: LimitFiles | None = None
) -> ContainerLimits | None:
    """The same from the last listing, without an inspection, for a running container of ours
    without GPUs; None for any other, or after a restart.

    Outdated numbers of the engine only lead to one needless update. `known`: its files, if found
    before.
    """
    if described.adopted is not None or described.gpu_access is not None or not described.alive:
        return None
    files = known if known is not None and known.hold(described.pid) else None
    try:
        files = files or LimitFiles(described.pid, described.container_id, proc)
    except OSError:
        return None
    return ContainerLimits(
        container=described.container_id,
        name=described.name,
        pid=described.pid,
        engine=described.limits,
        files=files,
        limits=files.read(),
        access=None,
        held=None,
        barred=None,
    )


def read_limits(
    container: str, engine: Engine, injector: Injector, canary: Canary, proc: Path
) -> ContainerLimits:
    """Inspect a container; blocks on the engine. Raises EngineUnavailable or EngineRefused.
    `injector` provides its GPUs' nodes, and `canary` whether updates are safe."""
    body = engine.inspect(container)
    state, host = body.get("State") or {}, body.get("HostConfig") or {}
    pid, name = int(state.get("Pid") or 0), str(body.get("Name", "")).lstrip("/")
    access = gpu_access_in(body)
    files, held = None, None
    if pid > 0:
        with suppress(OSError):
            files = LimitFiles(pid, container, proc)
        if access is not None:
            held = GpuContainer(container, name, pid, access, injector.to_try(gpus_in(body), body))
    return ContainerLimits(
        container=container,
        name=name,
        pid=pid,
        engine=engine_limits(host),
        files=files,
        limits=GroupLimits({}) if files is None else files.read(),
        access=access,
        held=held,
        barred=None if held is None else canary.bar(held.access),
    )


def refusal(found: ContainerLimits, originals: Originals) -> str | None:
    """Why a container's present limits could not be restored later; None: they could."""
    if (broken := originals.lost(found.container)) is not None:
        return f"the record of the container's original limits cannot be read: {broken}"
    if not found.alive:
        return "the container does not run"
    if found.files is None or None in (found.limits.quota_us, found.limits.period_us):
        return "the container's control group cannot be read"
    engine, limits = found.engine, found.limits
    if engine.nano_cpus and engine.quota_us:
        return "the container has both --cpus and --cpu-quota: the engine cannot give both back"
    if found.by_file and not found.files.writable:
        return f"the container's control group cannot be written, and {found.barred}"
    if limits.burst_us and not found.files.burst_writable:
        return (
            "the container has a CPU burst that dlsched could not give back, as the container's "
            "control group cannot be written"
        )
    return past_the_engine(engine, limits)


def leave_idle_class(found: ContainerLimits) -> None:
    """Take it out of the idle class, in which the kernel refuses any weight."""
    if found.limits.idle and found.files is not None:
        with suppress(OSError):  # then the engine refuses, and says so
            found.files.write_idle(False)


def unrestored(original: Original, body: Body, now: ContainerLimits) -> list[str]:
    """Where engine and kernel (if it runs) differ from the original, which `body` restores; but for
    a memory limit that we have changed."""
    wrong = unlike(body, now.engine)
    if now.by_file:
        wrong = wrong_at_next_start(original, now.engine)
    if not now.alive:
        return wrong
    if not now.limits.files:
        return [
            *wrong,
            "the container's control group cannot be read, so its limits are not verified",
        ]
    wanted, has = files_to_have(original, body, now.engine, now.limits), now.limits.files
    return wrong + [
        f"the kernel's {name} is {has.get(name, 'unreadable')}, must be {text}"
        for name, text in wanted.items()
        if has.get(name) != text and not (original.memory and name.startswith("memory."))
    ]
