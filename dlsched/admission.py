"""Who may start: a queue in order of arrival, bounded by job count, memory and floors.

Owns the admission rule. It must not start anything, and must not look at latency or progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlsched.model import JobSpec, NodeView


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a job may start now; if not, why."""

    admitted: bool
    reason: str | None = None


def admit(
    queue: Sequence[JobSpec], present: Sequence[JobSpec], node: NodeView, max_jobs: int
) -> dict[str, Verdict]:
    """A verdict for each job in `queue`, which is in order of arrival.

    `present` are the jobs that hold their resources already. The first that does not fit holds back
    all behind it, so that a stream of small jobs starves no large one; a job that cannot fit even
    on an empty node is told so and holds back nobody. A job without `memory` counts as 0 bytes.
    """
    count = len(present)
    memory_bytes = sum(spec.container.memory_bytes or 0 for spec in present)
    floor_cores = sum(spec.bounds.floor_cores for spec in present)
    verdicts: dict[str, Verdict] = {}
    first: str | None = None
    for spec in queue:
        needs_bytes = spec.container.memory_bytes or 0
        never = _never(spec, node)
        if never is not None:
            verdicts[spec.name] = Verdict(False, never)
            continue
        if first is not None:
            verdicts[spec.name] = Verdict(False, f"waits behind {first}")
            continue
        reason = None
        if count >= max_jobs:
            reason = f"{count} jobs are present, max_jobs is {max_jobs}"
        elif memory_bytes + needs_bytes > node.memory_bytes:
            free = _mib(node.memory_bytes - memory_bytes)
            reason = f"needs {_mib(needs_bytes)} of memory, {free} is not promised yet"
        elif floor_cores + spec.bounds.floor_cores > node.capacity_cores:
            free_cores = node.capacity_cores - floor_cores
            reason = (
                f"its floor is {spec.bounds.floor_cores:.2f} cores, "
                f"{free_cores:.2f} are left beside the others' floors"
            )
        if reason is not None:
            verdicts[spec.name] = Verdict(False, reason)
            first = spec.name
            continue
        count += 1
        memory_bytes += needs_bytes
        floor_cores += spec.bounds.floor_cores
        verdicts[spec.name] = Verdict(True)
    return verdicts


def _never(spec: JobSpec, node: NodeView) -> str | None:
    needs_bytes = spec.container.memory_bytes or 0
    if needs_bytes > node.memory_bytes:
        return f"can never start: needs {_mib(needs_bytes)}, the node has {_mib(node.memory_bytes)}"
    if spec.bounds.floor_cores > node.capacity_cores:
        return (
            f"can never start: its floor is {spec.bounds.floor_cores:.2f} cores, "
            f"the node has {node.capacity_cores:.2f}"
        )
    return None


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"
