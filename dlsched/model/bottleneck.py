"""What a service that misses its target, or a training that hardly computes, waits for: the
kernel's counts of one sample, and the cause that they show."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class WaitFact:
    """What a container's threads wait for, in one sample. Sums count from the first sample on.
    None: it cannot be read."""

    at_s: float
    """When it was taken (monotonic)."""
    threads: float = 0.0
    in_disk: float = 0.0
    """Threads in uninterruptible sleep (state D), as for the disk or for memory."""
    at_lock: float = 0.0
    """Threads at the lock for which most of them wait, without those that never ran between two
    samples: idle workers."""
    free: float = 0.0
    """Threads that wait for a connection or for any of several sockets, or have not run for some
    samples: no request is theirs."""
    busiest: float = 0.0
    """Part of the time since the last sample in which the busiest thread ran or could have run."""
    queued_s: float = 0.0
    """Sum: time in which threads could have run, and had no CPU; throttled or behind others."""
    kernel_s: float = 0.0
    """Sum: CPU time in the kernel."""
    major_faults: int | None = None
    """Sum: page faults that had to wait for the disk."""
    refaults: int | None = None
    """Sum: pages read or swapped in again soon after memory ran short and they were dropped."""
    limit_hits: int | None = None
    """Sum: times that it was at its memory limit, so that pages had to be dropped first."""
    memory_stall_s: float | None = None
    """Sum: time in which threads waited for memory; cgroup v2 with PSI only."""
    disk_stall_s: float | None = None
    """Sum: time in which threads waited for the disk; cgroup v2 with PSI only."""


class Cause(StrEnum):
    """Why a service misses its target, or a training hardly computes."""

    CPU = "CPU"
    """Its threads wait for a CPU: at its limit, or behind others."""
    THREADS = "threads"
    """Its threads spin."""
    MEMORY = "memory"
    DISK = "disk"
    LOCK = "lock"
    CALLEE = "callee"
    """Another service, which it calls, is slow."""
    TRAFFIC = "traffic"
    """More requests come than it can answer, whatever it gets."""
    LOADER = "loader"
    """A training's threads wait, and not for a CPU, memory or the disk: for its data, mostly."""
    NOT_KNOWN = "not known"

    @property
    def is_cpu(self) -> bool:
        """Whether more CPU may help, as far as is known."""
        return self in (Cause.CPU, Cause.THREADS, Cause.NOT_KNOWN)


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The cause for which a service misses its target, or a training hardly computes."""

    cause: Cause
    evidence: str
    """What was measured, in a sentence."""
    remedy: str
    """What to do, in a sentence; it says also whether more CPU helps."""
    since_s: float
    """When this cause was first named (monotonic)."""
    lacks_cpu: bool = False
    """Whether, since then, its threads have also waited noticeably for a CPU."""

    @property
    def text(self) -> str:
        """All of it in one line."""
        return f"Bottleneck: {self.cause}. {self.evidence} {self.remedy}"
