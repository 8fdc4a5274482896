"""Reads a container's limits, in the engine and in the kernel, and its GPUs at one moment; says
what may be changed of them, and what is not restored.

The kernel takes page cache back when a memory limit is lowered; below what else is held cgroup v1
refuses, and v2 kills. So no limit is lowered to less than that, with a margin."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dlsched.model.facts import GpuAccess
from dlsched.model.units import render_bytes
from dlsched.runtime.cgroup.group_limits import GroupLimits, LimitFiles
from dlsched.runtime.cgroup.read import CgroupReader
from dlsched.runtime.docker.engine import Body, Engine
from dlsched.runtime.docker.gpus.canary import Canary, GpuContainer
from dlsched.runtime.docker.gpus.injection import Injector
from dlsched.runtime.docker.identity.labels import gpu_access_in, gpus_in
from dlsched.runtime.docker.limits.dialect import (
    engine_limits,
    files_to_have,
    kernel_bytes,
    past_the_engine,
    unlike,
    wrong_at_next_start,
)
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.originals import EngineLimits, MemoryOriginal, Original, Originals


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


MARGIN_RATIO = 1.05
"""A limit is lowered to no less than this much of what a container holds: what is held grows
between reading and writing. A judgement."""
UNLIMITED_SWAP = -1
GIVEN_KEPT = 8
"""Limits asked for, and maybe not applied yet, that a record keeps: a call ends within seconds."""


def memory_files(found: ContainerLimits) -> Mapping[str, str]:
    return {name: text for name, text in found.limits.files.items() if name.startswith("memory.")}


def unchangeable(found: ContainerLimits, before: MemoryOriginal | None) -> str | None:
    """Why its memory limit cannot be changed; None: it can. `before`: the record of the original
    one, once it was changed."""
    engine, kernel_has = found.engine, found.limits.memory_bytes
    if not found.alive:
        return "the container does not run"
    if kernel_has is None:
        return "the container's control group shows no memory limit"
    if not engine.memory_bytes:
        return "the engine shows no memory limit of the container"
    if not engine.memory_swap_bytes:
        return "the engine shows a memory limit of the container without a limit of swap"
    if before is None and kernel_has != kernel_bytes(engine.memory_bytes):
        return (
            "another program changed the container's memory limit without the engine: now "
            f"{kernel_has}, the engine would give {kernel_bytes(engine.memory_bytes)}"
        )
    if found.by_file and (found.files is None or not found.files.memory_writable):
        return f"the container's control group cannot be written, and {found.barred}"
    return None


def with_original(before: MemoryOriginal | None, found: ContainerLimits) -> MemoryOriginal:
    """The record of its original limit: as it is, or the present limit, where it was not changed or
    the owner has set another one since."""
    engine = found.engine
    if before is not None and before.before(engine) == before.limits:
        return before
    return MemoryOriginal(engine.memory_bytes, engine.memory_swap_bytes, memory_files(found))


def with_given(before: MemoryOriginal, found: ContainerLimits, limit_bytes: int) -> MemoryOriginal:
    """The record before a change to that limit. The engine may go on with a call that timed out, so
    the limits asked for earlier stay in it until the kernel has the last one of them."""
    asked = before.given[-GIVEN_KEPT:]
    if asked and found.limits.memory_bytes == kernel_bytes(asked[-1]):
        asked = ()
    earlier = dict.fromkeys((*asked, found.engine.memory_bytes))
    earlier.pop(limit_bytes, None)
    return replace(before, given=(*earlier, limit_bytes))


def in_step(before: MemoryOriginal, limit_bytes: int) -> EngineLimits:
    """That limit with as much swap beyond it as the original one has."""
    swap_bytes = UNLIMITED_SWAP
    if before.swap_bytes != UNLIMITED_SWAP:
        swap_bytes = limit_bytes + before.swap_bytes - before.memory_bytes
    return EngineLimits(memory_bytes=limit_bytes, memory_swap_bytes=swap_bytes)


def memory_update(limits: EngineLimits) -> Body:
    """The body of the engine's update call. Without the limit of swap it refuses a limit of memory
    above that."""
    return {"Memory": limits.memory_bytes, "MemorySwap": limits.memory_swap_bytes}


def too_low(found: ContainerLimits, limit_bytes: int, proc: Path) -> str | None:
    """Why its limit cannot be lowered to that now; None: it can, or that would not lower it."""
    now_bytes = found.limits.memory_bytes
    if not found.alive or now_bytes is None or limit_bytes >= now_bytes:
        return None
    with closing(CgroupReader(found.pid, proc, container=found.container)) as reader:
        held_bytes = reader.read().memory.held_bytes
    if held_bytes is None:
        return f"{_stays(now_bytes)}, as what the container holds cannot be read"
    if MARGIN_RATIO * held_bytes <= limit_bytes:
        return None
    return (
        f"{_stays(now_bytes)} until the container uses less: it holds {render_bytes(held_bytes)}, "
        f"too much for a limit of {render_bytes(limit_bytes)}"
    )


def _stays(now_bytes: int) -> str:
    return f"its memory limit stays at {render_bytes(now_bytes)}"


def memory_unrestored(before: MemoryOriginal, now: ContainerLimits) -> list[str]:
    """Where engine and kernel (if it runs) differ from the original limit."""
    if before.before(now.engine) != before.limits:
        return []  # the owner has set another one since
    says = memory_update(now.engine)
    wrong = [
        f"{name} is {says[name]}, must be {value}"
        for name, value in memory_update(before.limits).items()
        if says[name] != value
    ]
    has = now.limits.files if now.alive else {}
    return wrong + [
        f"{name} is {has[name]}, must be {text}"
        for name, text in before.files.items()
        if name in has and has[name] != text
    ]
