"""A container's CPU limits in the engine's words and in the kernel's: what one makes of the other.

Owns the two dialects (quota with period, or NanoCpus), what the engine would write to the kernel's
files, and where either has something else than it should. It must not call or write anything.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any

from dlsched.runtime.cgroup.group_limits import GroupLimits
from dlsched.runtime.cgroup.limits import (
    DEFAULT_SHARES,
    DEFAULT_WEIGHT,
    OLDER_DEFAULT_SHARES,
    PERIOD_US,
    UNLIMITED_US,
    bounded_shares,
    nano_cpus,
    quota_cores,
    quota_us,
    weights_of,
)
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.originals import EngineWords, Original

_NANO = 1_000_000_000


def words_in(host: Mapping[str, Any]) -> EngineWords:
    """What an inspected `HostConfig` says. Raises TypeError or ValueError where it is none."""
    return EngineWords(
        nano_cpus=int(host.get("NanoCpus") or 0),
        quota_us=int(host.get("CpuQuota") or 0),
        period_us=int(host.get("CpuPeriod") or 0),
        shares=int(host.get("CpuShares") or 0),
        memory_bytes=int(host.get("Memory") or 0),
        memory_swap_bytes=int(host.get("MemorySwap") or 0),
    )


def ceiling_update(told: EngineWords, cores: float | None, host_cores: int) -> Body:
    """The body of the engine's update call for that ceiling of a container that says `told`."""
    if told.dialect == "nano":
        return {"NanoCpus": nano_cpus(cores, host_cores)}
    return {"CpuQuota": quota_us(cores), **_period(told, PERIOD_US)}


def original_update(told: EngineWords) -> Body:
    """The same for what the engine said once, but for the shares."""
    if told.dialect == "nano":
        return {"NanoCpus": told.nano_cpus}
    # Zero means "as it is" to the engine: these are the words for what it was.
    quota = told.quota_us if told.quota_us > 0 else UNLIMITED_US
    return {"CpuQuota": quota, **_period(told, told.period_us)}


def quota_after(update: Body) -> int:
    """The quota that the kernel has after that update, in microseconds."""
    if "NanoCpus" in update:
        return int(update["NanoCpus"]) * PERIOD_US // _NANO
    return int(update["CpuQuota"])


def in_force(update: Body, told: EngineWords, seen: GroupLimits) -> bool:
    """Whether engine and kernel both have that already. What the engine told may be old."""
    return in_kernel(update, seen) and _weighs(update, seen) and not unlike(update, told)


def _weighs(update: Body, seen: GroupLimits) -> bool:
    """Whether the kernel has those shares, where it tells."""
    if (shares := update.get("CpuShares")) is None:
        return True
    if seen.shares is not None:
        return seen.shares == bounded_shares(shares)
    return seen.weight is None or seen.weight in weights_of(shares)


def in_kernel(update: Body, seen: GroupLimits) -> bool:
    """Whether the kernel has that ceiling already."""
    period = update.get("CpuPeriod", PERIOD_US)
    return (seen.quota_us, seen.period_us) == (quota_after(update), period)


def unlike(update: Body, told: EngineWords) -> list[str]:
    """What the engine says otherwise than it was told."""
    says = {
        "NanoCpus": told.nano_cpus,
        "CpuQuota": told.quota_us,
        "CpuPeriod": told.period_us,
        "CpuShares": told.shares,
    }
    return [
        f"{name} is {says[name]}, must be {value}"
        for name, value in update.items()
        if says[name] != value
    ]


def past_the_engine(told: EngineWords, seen: GroupLimits) -> str | None:
    """What the kernel has that the engine's words would not give, so that they never give it back.

    None: nothing.
    """
    update = original_update(told)
    quota, period = quota_after(update), update.get("CpuPeriod", PERIOD_US)
    if (seen.quota_us, seen.period_us) != (quota, period):
        return _past("quota", f"{seen.quota_us} of {seen.period_us} us", f"{quota} of {period} us")
    if seen.idle:
        return _past("cpu.idle", 1, 0)
    shares = bounded_shares(told.shares or DEFAULT_SHARES)
    if seen.shares not in (None, shares):
        return _past("shares", seen.shares, shares)
    weights = weights_of(told.shares)
    if seen.weight is not None and seen.weight not in weights:
        return _past("weight", seen.weight, " or ".join(map(str, sorted(weights))))
    memory = told.memory_bytes - told.memory_bytes % resource.getpagesize()
    if seen.memory_bytes != (memory or None):
        return _past("memory limit", seen.memory_bytes or "none", memory or "none")
    return None


def files_to_have(
    original: Original, update: Body, told: EngineWords, now: GroupLimits
) -> Mapping[str, str]:
    """The kernel's files as they have to be when `original` was given back by `update`."""
    if original.adopted:
        before = original.told
        # A memory limit that somebody else changed through the engine meanwhile is theirs.
        theirs = (before.memory_bytes, before.memory_swap_bytes) != (
            told.memory_bytes,
            told.memory_swap_bytes,
        )
        return {
            name: text
            for name, text in original.files.items()
            if not (theirs and name.startswith("memory."))
        }
    quota = quota_after(update)
    if now.weight is not None:
        ceiling = "max" if quota == UNLIMITED_US else str(quota)
        files = {"cpu.max": f"{ceiling} {PERIOD_US}", "cpu.weight": str(DEFAULT_WEIGHT)}
    else:
        files = {
            "cpu.cfs_quota_us": str(quota),
            "cpu.cfs_period_us": str(PERIOD_US),
            "cpu.shares": str(DEFAULT_SHARES),
        }
    return {**files, **{name: "0" for name in now.files if "burst" in name or "idle" in name}}


def in_words(told: EngineWords, seen: GroupLimits) -> str:
    """What a container has, in a few words."""
    if not seen.files:
        return _cores(told.cpu_cores)
    weight = f"weight {seen.weight}" if seen.shares is None else f"shares {seen.shares}"
    weight = "idle class" if seen.idle else weight
    burst = f", burst {seen.burst_us} us" if seen.burst_us else ""
    limit = _cores(quota_cores(seen.quota_us, seen.period_us))
    return f"{limit} (period {seen.period_us} us), {weight}{burst}"


def _period(told: EngineWords, period_us: int) -> Body:
    """A period that was never given is the kernel's own, and stays so.

    Once the engine has one, it refuses its owner's `docker update --cpus` for good.
    """
    return {"CpuPeriod": period_us} if told.period_us else {}


def _cores(cores: float | None) -> str:
    return "no CPU limit" if cores is None else f"{cores:g} cores"


def _past(what: str, has: object, gives: object) -> str:
    return f"its {what} was written past the engine: it is {has}, the engine would give {gives}"


def wrong_at_next_start(original: Original, told: EngineWords) -> list[str]:
    """What the engine, which was told nothing for the GPUs' sake, will then give otherwise."""
    shares = {0, DEFAULT_SHARES, OLDER_DEFAULT_SHARES}
    if original.adopted:
        shares = {original.told.shares}
    same = quota_us(told.cpu_cores) == quota_us(original.cpu_cores)
    if same and told.shares in shares:
        return []
    there = f"{in_words(told, GroupLimits({}))}, shares {told.shares}"
    return [
        f"for its next start the engine has {there}, and an update now could take its GPUs away"
    ]
