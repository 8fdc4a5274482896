"""What a node reports to the cluster: the files of its jobs, and its own view of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from dlsched.cluster.agent.assignments import Assignment
from dlsched.cluster.core.carried import unmovable_across
from dlsched.cluster.core.following import OCCUPIES, RUNNING
from dlsched.cluster.core.records import Holding, Phase, file_version
from dlsched.cluster.core.reports import JobReport, NodeReport, job_report
from dlsched.cluster.core.snapshot import Sharing
from dlsched.control.ledger.memory import promised_bytes
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import JobSpec
from dlsched.model.state import JobState, JobView, MemoryUse

PAUSE_S = 15.0
"""How long a move stops a job whose checkpoint is small: two rounds of the controller, the end of a
container, the start of the next and the import of a framework there."""
CARRIED_BYTES_PER_S = 50e6
"""Half of what a network of 1 Gbit/s carries: packed, fetched and unpacked one after another."""

SpecOf = Callable[[Assignment], JobSpec | None]
CameBytes = Callable[[str, int], int | None]
"""Of a job's checkpoint, by its epoch."""


def node_report(
    cycle: CycleReport,
    held: Mapping[str, Assignment],
    own_jobs: Collection[str],
    policy: str,
    images: frozenset[str],
    spec_of: SpecOf,
    came_bytes: CameBytes,
    now_s: float,
) -> NodeReport:
    """The report after that cycle, but for the node's name. `own_jobs`: names in the node's own
    folder; `policy`: the name of the node's present one, maybe with parameters."""
    snapshot = cycle.snapshot
    views = {one.name: one for one in snapshot.jobs}
    jobs = {
        job: report
        for job, own in sorted(held.items())
        if own.phase in RUNNING
        and (view := views.get(job)) is not None
        and (report := _job(view, own, snapshot.now_s, now_s)) is not None
    }
    kept = [spec_of(own) for own in held.values() if own.phase in OCCUPIES]
    local_bytes = math.fsum(
        promised_bytes(one.spec, one.memory)
        for one in snapshot.jobs
        if one.name not in held and one.state.holds
    )
    kept_bytes = math.fsum(
        promised_bytes(spec, views[spec.name].memory if spec.name in views else MemoryUse())
        for spec in kept
        if spec is not None
    )
    taken_gpus = {gpu for one in snapshot.jobs for gpu in one.gpus}
    return NodeReport(
        name="",
        capacity_cores=snapshot.node.capacity_cores,
        foreign_cores=_foreign_cores(cycle, held),
        memory_free_bytes=max(int(snapshot.node.memory_bytes - local_bytes - kept_bytes), 0),
        gpus_free=sum(
            not (gpu.reserved or gpu.foreign_processes or gpu.kept_for or gpu.uuid in taken_gpus)
            for gpu in snapshot.node.gpus
        ),
        images=images,
        sharing=Sharing.of(policy),
        holdings=tuple(
            _holding(own, jobs.get(job), None if job in own_jobs else views.get(job), came_bytes)
            for job, own in sorted(held.items(), key=_first)
        ),
        jobs=tuple(jobs.values()),
    )


def _first(one: tuple[str, Assignment]) -> tuple[bool, bool, str]:
    """What matters most comes first: a report has a bound."""
    job, own = one
    return own.phase is Phase.FENCED, own.phase is Phase.ENDED, job


def _foreign_cores(cycle: CycleReport, held: Mapping[str, Assignment]) -> float:
    """How much of the capacity goes to what the cluster has not placed: to the node's own jobs, and
    to other processes where the host's cores beyond the capacity are too few for them."""
    node = cycle.snapshot.node
    own = math.fsum(
        one.usage.window_cores or one.usage.cpu_cores or 0.0
        for one in cycle.snapshot.jobs
        if one.name not in held
    )
    beyond_cores = max(node.cores - node.capacity_cores, 0.0)
    return max((node.foreign_cores or 0.0) - beyond_cores, 0.0) + own


def _holding(
    own: Assignment, report: JobReport | None, view: JobView | None, came_bytes: CameBytes
) -> Holding:
    if own.phase is Phase.FENCED and view is not None and _may_run(view):
        # Another node may start it only once this container has ended.
        return Holding(own.job, own.epoch, Phase.FAILED, why="the job's container is being removed")
    step = report.step if report is not None and _has_reported(view) else None
    shown = own.saved if own.phase is Phase.AWAY else None
    came = came_bytes(own.job, own.epoch) if own.phase is Phase.ARRIVING else None
    file = file_version(own.text)
    return Holding(own.job, own.epoch, own.phase, step, shown, own.exit_code, own.why, came, file)


def _may_run(view: JobView) -> bool:
    """Whether it has a container that may run; one that is set aside has ended."""
    return view.state.holds and view.state is not JobState.MOVING


def _has_reported(view: JobView | None) -> bool:
    """Whether its last sample is from its present container."""
    if view is None or view.started_at_s is None or not view.progress.samples:
        return False
    return view.progress.samples[-1].received_s >= view.started_at_s


def _job(view: JobView, own: Assignment, as_of_s: float, now_s: float) -> JobReport | None:
    if view.state is not JobState.RUNNING:
        return None
    came = own.saved if own.source is not None else None
    size_bytes = 0 if own.saved is None or own.saved.file else own.saved.size_bytes
    return replace(
        job_report(view, as_of_s, now_s, 0 if came is None else came.step),
        unmovable=unmovable_across(view.spec),
        pause_s=PAUSE_S + size_bytes / CARRIED_BYTES_PER_S,
    )
