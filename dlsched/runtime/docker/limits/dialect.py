"""CPU limits as the engine and as the kernel state them, and the conversion between them. Pure.
There are two dialects: quota with period, and NanoCpus."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dlsched.runtime.cgroup.cpu_units import (
    DEFAULT_SHARES,
    OLDER_DEFAULT_SHARES,
    PERIOD_US,
    UNLIMITED_US,
    bounded_shares,
    nano_cpus,
    quota_cores,
    quota_us,
    weights_of,
)
from dlsched.runtime.cgroup.group_limits import GroupLimits
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.originals import EngineLimits, Original

_NANO = 1_000_000_000


def engine_limits(host: Mapping[str, Any]) -> EngineLimits:
    """The limits in an inspected `HostConfig`. Raises TypeError or ValueError when malformed."""
    return EngineLimits(
        nano_cpus=int(host.get("NanoCpus") or 0),
        quota_us=int(host.get("CpuQuota") or 0),
        period_us=int(host.get("CpuPeriod") or 0),
        shares=int(host.get("CpuShares") or 0),
        memory_bytes=int(host.get("Memory") or 0),
        memory_swap_bytes=int(host.get("MemorySwap") or 0),
    )


def ceiling_update(engine: EngineLimits, cores: float | None, host_cores: int) -> Body:
    """The body of the engine's update call that sets that ceiling, in the dialect of `engine`."""
    if engine.dialect == "nano":
        return {"NanoCpus": nano_cpus(cores, host_cores)}
    return {"CpuQuota": quota_us(cores), **_period(engine, PERIOD_US)}


def original_update(engine: EngineLimits) -> Body:
    """The body that restores these limits, without the shares."""
    if engine.dialect == "nano":
        return {"NanoCpus": engine.nano_cpus}
    # Zero means "unchanged" to the engine, so no limit must be explicit.
    quota = engine.quota_us if engine.quota_us > 0 else UNLIMITED_US
    return {"CpuQuota": quota, **_period(engine, engine.period_us)}


def with_owners_limit(original: Original, engine: EngineLimits) -> Original:
    """The record of an adopted container, with the limit that its owner has set since in the other
    dialect: no update of ours changes that. One in the same dialect may be ours."""
    before = original.told
    if not original.adopted or before.dialect == engine.dialect:
        return original
    limits = replace(
        before, nano_cpus=engine.nano_cpus, quota_us=engine.quota_us, period_us=engine.period_us
    )
    texts = _ceiling_files(original_update(limits))
    files = {name: texts.get(name, text) for name, text in original.files.items()}
    return replace(original, told=limits, files=files)


def for_kernel(original: Original, now: GroupLimits) -> Original:
    """The record without files of another cgroup version, with which the host was booted before:
    then what the engine said counts."""
    if not now.files or (now.shares is None) == (original.kernel.shares is None):
        return original
    return replace(original, files={})


def kernel_bytes(limit_bytes: int) -> int:
    """The memory limit that the kernel makes of this one: whole pages."""
    return limit_bytes - limit_bytes % resource.getpagesize()


def quota_after(update: Body) -> int:
    """The kernel's quota after that update, in microseconds."""
    if "NanoCpus" in update:
        return int(update["NanoCpus"]) * PERIOD_US // _NANO
    return int(update["CpuQuota"])


def is_applied(update: Body, engine: EngineLimits, kernel: GroupLimits) -> bool:
    """Whether engine and kernel both have these limits already. `engine` may be outdated."""
    return in_kernel(update, kernel) and _weighs(update, kernel) and not unlike(update, engine)


def _weighs(update: Body, kernel: GroupLimits) -> bool:
    """Whether the kernel has those shares, as far as it shows them."""
    if (shares := update.get("CpuShares")) is None:
        return True
    if kernel.shares is not None:
        return kernel.shares == bounded_shares(shares)
    return kernel.weight is None or kernel.weight in weights_of(shares)


def in_kernel(update: Body, kernel: GroupLimits) -> bool:
    """Whether the kernel has that ceiling already."""
    period = update.get("CpuPeriod", PERIOD_US)
    return (kernel.quota_us, kernel.period_us) == (quota_after(update), period)


def unlike(update: Body, engine: EngineLimits) -> list[str]:
    """Where the engine's limits differ from that update."""
    says = {
        "NanoCpus": engine.nano_cpus,
        "CpuQuota": engine.quota_us or UNLIMITED_US,  # as `original_update`
        "CpuPeriod": engine.period_us,
        "CpuShares": engine.shares,
    }
    return [
        f"the engine has {name} {says[name]}, must be {value}"
        for name, value in update.items()
        if says[name] != value
    ]


def past_the_engine(engine: EngineLimits, kernel: GroupLimits) -> str | None:
    """What the kernel has that the engine's limits would not restore; None: nothing."""
    update = original_update(engine)
    quota, period = quota_after(update), update.get("CpuPeriod", PERIOD_US)
    if (kernel.quota_us, kernel.period_us) != (quota, period):
        return _past(
            "quota", f"{kernel.quota_us} of {kernel.period_us} us", f"{quota} of {period} us"
        )
    if kernel.idle:
        return _past("cpu.idle", 1, 0)
    shares = bounded_shares(engine.shares or DEFAULT_SHARES)
    if kernel.shares not in (None, shares):
        return _past("shares", kernel.shares, shares)
    weights = weights_of(engine.shares)
    if kernel.weight is not None and kernel.weight not in weights:
        return _past("weight", kernel.weight, " or ".join(map(str, sorted(weights))))
    memory = kernel_bytes(engine.memory_bytes)
    if kernel.memory_bytes != (memory or None):
        return _past("memory limit", kernel.memory_bytes or "none", memory or "none")
    return None


def files_to_have(
    original: Original, update: Body, engine: EngineLimits, now: GroupLimits
) -> Mapping[str, str]:
    """The kernel's files as they must be after `update` gave `original` back."""
    before = original.told
    if original.adopted and original.files:
        # A memory limit that changed through the engine meanwhile is not ours.
        theirs = (before.memory_bytes, before.memory_swap_bytes) != (
            engine.memory_bytes,
            engine.memory_swap_bytes,
        )
        return {
            name: text
            for name, text in original.files.items()
            if not (theirs and name.startswith("memory.")) and not _is_lost(name, now)
        }
    shares = before.shares if original.adopted else 0
    ceiling = _ceiling_files(update)
    if now.weight is not None:
        weights = weights_of(shares)
        weight = now.weight if now.weight in weights else max(weights)
        files = {"cpu.max": ceiling["cpu.max"], "cpu.weight": str(weight)}
    else:
        del ceiling["cpu.max"]
        files = {**ceiling, "cpu.shares": str(bounded_shares(shares or DEFAULT_SHARES))}
    return {**files, **{name: "0" for name in now.files if "burst" in name or "idle" in name}}


def describe(engine: EngineLimits, kernel: GroupLimits) -> str:
    """A short text on a container's limits."""
    if not kernel.files:
        return _cores(engine.cpu_cores)
    weight = f"weight {kernel.weight}" if kernel.shares is None else f"shares {kernel.shares}"
    weight = "idle class" if kernel.idle else weight
    burst = f", burst {kernel.burst_us} us" if kernel.burst_us else ""
    limit = _cores(quota_cores(kernel.quota_us, kernel.period_us))
    return f"{limit} (period {kernel.period_us} us), {weight}{burst}"


def _period(engine: EngineLimits, period_us: int) -> Body:
    """A period only where the container has one of its own. Once the engine has one, it refuses the
    owner's `docker update --cpus` for good."""
    return {"CpuPeriod": period_us} if engine.period_us else {}


def _is_lost(name: str, now: GroupLimits) -> bool:
    """Whether the kernel does not support that limit any more, after it was booted in another
    way. All support quota and weight."""
    optional = name.startswith("memory.") or "burst" in name or "idle" in name
    return optional and name not in now.files


def _ceiling_files(update: Body) -> dict[str, str]:
    """The kernel's files of the ceiling after that update, of both cgroup versions."""
    quota, period = quota_after(update), update.get("CpuPeriod", PERIOD_US)
    return {
        "cpu.cfs_quota_us": str(quota),
        "cpu.cfs_period_us": str(period),
        "cpu.max": f"{'max' if quota == UNLIMITED_US else quota} {period}",
    }


def _cores(cores: float | None) -> str:
    return "no CPU limit" if cores is None else f"{cores:g} cores"


def _past(what: str, has: object, gives: object) -> str:
    return (
        f"another program changed the container's {what} without the engine: now {has}, the engine "
        f"would give {gives}"
    )


def wrong_at_next_start(original: Original, engine: EngineLimits) -> list[str]:
    """What the engine, which was not updated because of the GPUs, will apply at the next start."""
    shares = {0, DEFAULT_SHARES, OLDER_DEFAULT_SHARES}
    if original.adopted:
        shares = {original.told.shares}
    same = quota_us(engine.cpu_cores) == quota_us(original.cpu_cores)
    if same and engine.shares in shares:
        return []
    there = f"{describe(engine, GroupLimits({}))}, shares {engine.shares}"
    return [
        (
            f"the engine will give the container {there} at its next start: correct that with "
            "`docker update` while the container is stopped, as an update now could take its GPUs "
            "away"
        )
    ]
