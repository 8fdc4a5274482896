"""CPU limits in the kernel's words: cores as quota and period, weights as shares.

Owns that arithmetic. It must not talk to an engine or read a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable

PERIOD_US = 100_000
"""Shorter periods make the tail of latencies worse, so there is only this one."""

LEAST_US = 1_000
"""Less than this the engine refuses."""

LEAST_NANO_CORES = 0.01
"""The same for containers made with `--cpus`."""

GRAIN_CORES = 0.001
"""Steps in which ceilings are told apart: finer ones are lost in any latency's noise."""

SYSTEMD_GRAIN_CORES = 0.01
"""systemd rounds a quota up to 1 % of a core: finer ones would never be read back as written."""

UNLIMITED_US = -1

DEFAULT_SHARES = 1024
"""What the engine gives a container that asks for nothing, on cgroup v1."""

DEFAULT_WEIGHT = 100
"""What the kernel gives a group that asks for nothing, on cgroup v2."""

_SHARES = (2, 262_144)
_WEIGHT = (1, 10_000)


def quota_us(cores: float | None) -> int:
    """The quota for so many cores at `PERIOD_US`; None: no limit."""
    if cores is None:
        return UNLIMITED_US
    return max(LEAST_US, round(cores * PERIOD_US))


def quota_cores(quota: int | None, period: int | None) -> float | None:
    """The cores that a quota in microseconds allows; None where there is no limit."""
    if quota is None or quota <= 0 or not period:
        return None
    return quota / period


def bounded_shares(shares: float) -> int:
    """The nearest value that cgroup v1 takes as `cpu.shares`."""
    return round(min(max(shares, _SHARES[0]), _SHARES[1]))


def bounded_weight(weight: float) -> int:
    """The nearest value that cgroup v2 takes as `cpu.weight`."""
    return round(min(max(weight, _WEIGHT[0]), _WEIGHT[1]))


def nano_cpus(cores: float | None, host_cores: int) -> int:
    """The same for a container made with `--cpus`, which can have no more than the host's cores.

    Nor can its limit be taken away: None gives all of the host.
    """
    wanted = float(host_cores) if cores is None else cores
    return round(1e9 * min(max(wanted, LEAST_NANO_CORES), host_cores))


def weights_of(shares: int) -> frozenset[int]:
    """The weights that an engine may make of these shares on cgroup v2; 0: of none given.

    Two conversions are in use: runc 1.3.2 made 1024 shares weight 100, older ones make them 39.
    """
    if shares == 0:
        return frozenset({DEFAULT_WEIGHT})
    shares = bounded_shares(shares)
    newer = _newer_weight(shares)
    # What is a whole number but for the last digit may be taken for the next.
    nearly = {math.ceil(newer - 1e-9), math.ceil(newer + 1e-9)}
    return frozenset({_older_weight(shares), *(bounded_weight(weight) for weight in nearly)})


def weight_of(shares: int, *, newer: bool) -> int:
    """The weight that an engine makes of these shares on cgroup v2; `newer`: runc 1.3.2 or later.

    What is written past the engine stands beside what it wrote, so it has to be on the same scale.
    """
    shares = bounded_shares(shares)
    return bounded_weight(math.ceil(_newer_weight(shares))) if newer else _older_weight(shares)


def _older_weight(shares: int) -> int:
    return 1 + (shares - _SHARES[0]) * (_WEIGHT[1] - 1) // (_SHARES[1] - _SHARES[0])


def _newer_weight(shares: int) -> float:
    doublings = math.log2(shares)
    return float(10 ** ((doublings**2 + 125 * doublings) / 612 - 7 / 34))


def search_shares(shares: int, weight: int, give: Callable[[int], int | None]) -> None:
    """Give shares until they yield `weight` on cgroup v2, at most some twenty times.

    `give` gives them and reads the weight back. `shares` are those that yielded it before; 0: none
    were given. Which conversion the engine uses is not known, only that more shares never yield
    less weight.
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
"""What yields `DEFAULT_WEIGHT` with the older conversion."""
