"""CPU limits in the kernel's units: cores as quota and period, weights as shares. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable

PERIOD_US = 100_000
"""The only period, since shorter ones make tail latencies worse."""

LEAST_US = 1_000
"""The engine refuses smaller quotas."""

LEAST_NANO_CORES = 0.01
"""The same for containers created with `--cpus`."""

GRAIN_CORES = 0.001
"""Resolution of ceilings: finer steps are lost in the noise of any latency."""

SYSTEMD_GRAIN_CORES = 0.01
"""systemd rounds a quota up to 1 % of a core: finer steps would not be read back as written."""

UNLIMITED_US = -1

DEFAULT_SHARES = 1024
"""The engine's default on cgroup v1."""

DEFAULT_WEIGHT = 100
"""The kernel's default on cgroup v2."""

_SHARES = (2, 262_144)
_WEIGHT = (1, 10_000)


def quota_us(cores: float | None) -> int:
    """The quota of that many cores at `PERIOD_US`; None: no limit."""
    if cores is None:
        return UNLIMITED_US
    return max(LEAST_US, round(cores * PERIOD_US))


def quota_cores(quota: int | None, period: int | None) -> float | None:
    """The cores that a quota in microseconds allows; None: no limit."""
    if quota is None or quota <= 0 or not period:
        return None
    return quota / period


def engine_cores(nano_cpus: int, quota_us: int, period_us: int) -> float | None:
    """The ceiling that an engine's configuration gives; None: none."""
    return nano_cpus / 1e9 if nano_cpus > 0 else quota_cores(quota_us, period_us or PERIOD_US)


def bounded_shares(shares: float) -> int:
    """The nearest valid value of `cpu.shares`, on cgroup v1."""
    return round(min(max(shares, _SHARES[0]), _SHARES[1]))


def bounded_weight(weight: float) -> int:
    """The nearest valid value of `cpu.weight`, on cgroup v2."""
    return round(min(max(weight, _WEIGHT[0]), _WEIGHT[1]))


def nano_cpus(cores: float | None, host_cores: int) -> int:
    """The same for a container created with `--cpus`: at most the host's cores. Its limit cannot be
    removed: None gives all of the host."""
    wanted = float(host_cores) if cores is None else cores
    return round(1e9 * min(max(wanted, LEAST_NANO_CORES), host_cores))


def weights_of(shares: int) -> frozenset[int]:
    """The weights to which an engine may convert these shares on cgroup v2; 0: none given. runc
    1.3.2 and later convert 1024 shares to weight 100, older ones to 39."""
    if shares == 0:
        return frozenset({DEFAULT_WEIGHT})
    shares = bounded_shares(shares)
    newer = _newer_weight(shares)
    # Near a whole number, rounding errors may lead to the next.
    nearly = {math.ceil(newer - 1e-9), math.ceil(newer + 1e-9)}
    return frozenset({_older_weight(shares), *(bounded_weight(weight) for weight in nearly)})


def weight_of(shares: int, *, newer: bool) -> int:
    """The weight to which an engine converts these shares on cgroup v2; `newer`: runc 1.3.2.
    Weights written past the engine compete with those it wrote, so the scale must be the same."""
    shares = bounded_shares(shares)
    return bounded_weight(math.ceil(_newer_weight(shares))) if newer else _older_weight(shares)


def _older_weight(shares: int) -> int:
    return 1 + (shares - _SHARES[0]) * (_WEIGHT[1] - 1) // (_SHARES[1] - _SHARES[0])


def _newer_weight(shares: int) -> float:
    doublings = math.log2(shares)
    return float(10 ** ((doublings**2 + 125 * doublings) / 612 - 7 / 34))


def search_shares(shares: int, weight: int, give: Callable[[int], int | None]) -> None:
    """Try shares, at most some twenty times, until they yield `weight` on cgroup v2.

    `give` sets them and returns the resulting weight. `shares` yielded it before; 0: none were
    given. The engine's conversion is unknown, but monotonic.
    """
    for likely in (shares or DEFAULT_SHARES, older_shares(weight)):
        if give(likely) == weight:
            return
    low, high = _SHARES
    while low <= high:
        middle = (low + high) // 2
        given = give(middle)
        if given is None or given == weight:
            return
        low, high = (middle + 1, high) if given < weight else (low, middle - 1)


def older_shares(weight: int) -> int:
    """The least shares that the older conversion turns into this weight."""
    return _SHARES[0] - (1 - weight) * (_SHARES[1] - _SHARES[0]) // (_WEIGHT[1] - 1)


OLDER_DEFAULT_SHARES = older_shares(DEFAULT_WEIGHT)
"""Shares that yield `DEFAULT_WEIGHT` with the older conversion."""
