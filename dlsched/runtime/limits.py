"""CPU limits in the kernel's words: cores as quota and period, weights as shares.

Owns that arithmetic. It must not talk to an engine or read a file.
"""

from __future__ import annotations

PERIOD_US = 100_000
"""Shorter periods make the tail of latencies worse, so there is only this one."""

LEAST_US = 1_000
"""Less than this the engine refuses."""

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


def shares_for_default_weight() -> tuple[int, ...]:
    """Shares of which one gives `DEFAULT_WEIGHT` on cgroup v2: to be tried and read back.

    Two conversions are in use: runc 1.3.2 made 1024 shares weight 100, older ones make them 39.
    """
    return DEFAULT_SHARES, 2598
