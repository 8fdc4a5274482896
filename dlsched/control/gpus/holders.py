"""Who holds memory of each GPU, and for how long without using it. A cache in the ledger: idle time
counts from the first reading of this agent's run in which a holder did not use the GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from dlsched.estimate.gpu_use import total
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact, GpuFact, GpuProcess, Observation
from dlsched.model.spec import JobSpec
from dlsched.model.state import GpuHolder, GpuView, HolderKind
from dlsched.model.units import render_bytes, render_seconds

IDLE_AFTER_S = 1800.0
"""The default of `gpus.idle_after`. A training's evaluation on CPUs, a checkpoint or the download
of a model is over by then, and who forgot a notebook is found on the same day."""

READINGS_APART_S = 10.0
"""After a longer time between two readings of the driver nothing counts as idle before: it keeps
samples of processes for seconds only. NVIDIA states no length; as `STALE_S` of the inventory."""

HOLDERS_MAX = 32
"""Holders of one GPU that are listed. A CUDA context alone takes about 0.5 GiB (measured on an
H200), so more than that do little beside each other."""

_ORDER = (HolderKind.OWN, HolderKind.ADOPTED, HolderKind.FOREIGN, HolderKind.UNSEEN)


@dataclass(frozen=True, slots=True)
class Held:
    """The holders of one GPU."""

    listed: tuple[GpuHolder, ...] = ()
    left_out: int = 0


@dataclass(slots=True)
class HolderTracker:
    """The idle time of everything that holds a GPU."""

    _idle_since_s: dict[tuple[str, str | int], float] = field(default_factory=dict)
    """By GPU, and container or process."""
    _read_at_s: float | None = None

    def update(
        self,
        observed: Observation,
        facts: Mapping[str, ContainerFact],
        specs: Mapping[str, JobSpec],
        idle_after_s: float | None,
    ) -> dict[str, Held]:
        """The holders by the GPU's UUID. `facts`: each job's container; `specs`: of the jobs;
        `idle_after_s`: see `GpuHolder.idle_over_s`."""
        node = observed.node
        if node is None:
            self._idle_since_s.clear()
            return {}
        now_s = observed.now_s if node.gpus_read_at_s is None else node.gpus_read_at_s
        if self._read_at_s is not None and now_s - self._read_at_s > READINGS_APART_S:
            self._idle_since_s.clear()
        self._read_at_s = now_s
        before, self._idle_since_s = self._idle_since_s, {}
        jobs = {fact.container_id: fact for fact in facts.values()}
        held: dict[str, Held] = {}
        for gpu in node.gpus:
            found = []
            for key, processes in _by_holder(gpu).items():
                computes = _computes(processes)
                since_s = over_s = None
                if computes is False:
                    since_s = before.get((gpu.uuid, key), now_s)
                    self._idle_since_s[gpu.uuid, key] = since_s
                    over_s = _step_s(now_s - since_s, idle_after_s)
                found.append(
                    replace(
                        _whose(processes[0], jobs, specs, observed.container_names),
                        memory_bytes=total(one.memory_bytes for one in processes),
                        computes=computes,
                        idle_since_s=since_s,
                        idle_over_s=over_s,
                    )
                )
            held[gpu.uuid] = _bounded(found)
        return held


def idle_alarms(gpus: Iterable[GpuView]) -> list[Alarm]:
    """An alarm for each holder that has been idle for too long. GPUs that the operator reserves
    are left out: what is held there takes nothing from a job."""
    alarms = []
    for gpu in gpus:
        for one in gpu.holders:
            if one.idle_over_s is None or gpu.reserved:
                continue
            holder = f"{one}{', not a job,' if one.kind is HolderKind.FOREIGN else ''}"
            idle = f"has not used the GPU for over {render_seconds(one.idle_over_s)}"
            size_bytes = one.memory_bytes
            held = (
                "memory of unknown size"
                if size_bytes is None
                else f"{render_bytes(size_bytes)} of memory"
            )
            text = f"GPU {gpu.fact.index}: {holder} holds {held} and {idle}"
            alarms.append(Alarm(f"{gpu.uuid} {one}", AlarmKey.GPU_IDLE, text))
    return alarms


def in_a_reason(holder: GpuHolder) -> str:
    """The holder in a text on why a job waits: `container notebook (20 GiB, has held the GPU unused
    for over 1 h)`."""
    size_bytes = holder.memory_bytes
    parts = ["memory unknown" if size_bytes is None else render_bytes(size_bytes)]
    if holder.idle_over_s is not None:
        parts.append(f"has held the GPU unused for over {render_seconds(holder.idle_over_s)}")
    return f"{holder} ({', '.join(parts)})"


def _by_holder(gpu: GpuFact) -> dict[str | int, list[GpuProcess]]:
    """The processes on a GPU by container, or alone."""
    found: dict[str | int, list[GpuProcess]] = {}
    for process in gpu.processes:
        found.setdefault(process.container_id or process.pid, []).append(process)
    return found


def _computes(processes: Iterable[GpuProcess]) -> bool | None:
    """Whether one of them used the GPU; None: that is unknown of one, and no other did."""
    states = {process.computed for process in processes}
    return True if True in states else None if None in states else False


def _whose(
    process: GpuProcess,
    jobs: Mapping[str, ContainerFact],
    specs: Mapping[str, JobSpec],
    names: Mapping[str, str],
) -> GpuHolder:
    container = process.container_id
    if container is None:
        kind = HolderKind.FOREIGN if process.visible else HolderKind.UNSEEN
        return GpuHolder(kind, pid=process.pid, uid=process.uid, user=process.user)
    if (fact := jobs.get(container)) is None:
        return GpuHolder(HolderKind.FOREIGN, container, names.get(container))
    kind = HolderKind.OWN if fact.adopted is None else HolderKind.ADOPTED
    owner = specs[fact.job].owner if fact.job in specs else None
    return GpuHolder(kind, container, names.get(container), job=fact.job, uid=owner)


def _step_s(idle_s: float, idle_after_s: float | None) -> float | None:
    """The largest doubling of `idle_after_s` that has passed; None: not even that has."""
    if idle_after_s is None or idle_s <= idle_after_s:
        return None
    return idle_after_s * float(2 ** math.floor(math.log2(idle_s / idle_after_s)))


def _bounded(found: list[GpuHolder]) -> Held:
    """In the order of kinds, then of names; those with the most memory, where there are many."""
    most = sorted(found, key=lambda one: -(one.memory_bytes or 0))[:HOLDERS_MAX]
    listed = sorted(most, key=lambda one: (_ORDER.index(one.kind), str(one)))
    return Held(tuple(listed), len(found) - len(listed))
