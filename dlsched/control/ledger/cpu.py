"""How much of a node's CPU ceilings divide, and how much of it is kept for the host.

What is kept bounds ceilings only: a job without a ceiling may use it.
"""

from __future__ import annotations

from dataclasses import dataclass

HOST_RATIO = 0.1
"""Part of the divided cores that is kept for the host. A judgement: the work of engine, agent and
scrapes grows with the number of containers, and that with the cores."""
HOST_LEAST_CORES = 0.25
"""Cores kept on a small machine: ten updates of limits a second take the engine 0.14 cores (14 ms
each), and a shell and the agent's own loop need some beside it."""
HOST_MOST_CORES = 2.0
"""Cores kept on a large machine: the engine's updates, one after another, never use more."""
_LEAST_CORES = 0.01
"""Cores that are always divided, so that nothing divides by zero."""


@dataclass(frozen=True, slots=True)
class CpuDivision:
    """A node's cores: all, those that are divided, and those kept for the host out of these."""

    cores: float
    divided_cores: float
    host_cores: float

    @property
    def ceiling_cores(self) -> float:
        """Cores that ceilings may add up to."""
        return max(_LEAST_CORES, self.divided_cores - self.host_cores)

    def __str__(self) -> str:
        divided = ""
        if self.divided_cores < self.cores:
            divided = f", {self.divided_cores:g} of them divided (setting capacity)"
        return (
            f"{self.cores:g} cores{divided}; {self.ceiling_cores:g} for ceilings, "
            f"{self.host_cores:g} kept for the host (setting reserve)"
        )


def divide_cpu(
    cores: float, capacity_cores: float | None, reserve_cores: float | None
) -> CpuDivision:
    """`capacity_cores` None: all are divided. `reserve_cores` None: by the size of what is
    divided."""
    divided = cores if capacity_cores is None else min(capacity_cores, cores)
    kept = host_cores(divided) if reserve_cores is None else reserve_cores
    return CpuDivision(cores, divided, kept)


def host_cores(cores: float) -> float:
    """Cores to keep for the host of so many, where the operator sets nothing."""
    return min(max(HOST_RATIO * cores, HOST_LEAST_CORES), HOST_MOST_CORES)
