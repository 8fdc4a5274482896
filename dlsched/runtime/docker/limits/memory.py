"""Memory limits of containers: what an update of one is, and what must be true of it before and
after. The kernel takes page cache back when a limit is lowered; below what else is held cgroup v1
refuses, and v2 kills. So no limit is lowered to less than that, with a margin."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from dlsched.model.units import render_bytes
from dlsched.runtime.cgroup.read import CgroupReader
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.limits.actual import ContainerLimits
from dlsched.runtime.originals import EngineLimits, MemoryOriginal

MARGIN_RATIO = 1.05
"""A limit is lowered to no less than this much of what a container holds: what is held grows
between reading and writing. A judgement."""
UNLIMITED_SWAP = -1
GIVEN_KEPT = 8
"""Limits asked for, and maybe not applied yet, that a record keeps: a call ends within seconds."""


def kernel_bytes(limit_bytes: int) -> int:
    """The limit that the kernel makes of this one: whole pages."""
    return limit_bytes - limit_bytes % resource.getpagesize()


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
