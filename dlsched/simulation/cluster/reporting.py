"""What a simulated agent reports: its files, and its node's own view of the jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dlsched.cluster.core.following import OCCUPIES, RUNNING
from dlsched.cluster.core.records import Holding, Phase
from dlsched.cluster.core.reports import JobReport, NodeReport, job_report
from dlsched.model.state import JobState
from dlsched.simulation.cluster.held import HeldJob
from dlsched.simulation.cluster.node import SimulatedNode
from dlsched.simulation.node.workloads import TrainingLoad

ACK_S = 1.0
"""From the end of the save until the agent has read its acknowledgement."""

_POLLED_S = 2.0
"""A move waits for about two rounds: for its commit, and for the order to leave."""


def report_of(
    node: SimulatedNode, held: Mapping[str, HeldJob], network_bytes_per_s: float, now_s: float
) -> NodeReport:
    last = node.last
    jobs = {
        job: report
        for job, own in sorted(held.items())
        if own.phase in RUNNING
        and (report := _job(node, job, own, network_bytes_per_s, now_s)) is not None
    }
    used_bytes = sum(
        node.jobs[job].spec.container.memory_bytes or 0
        for job, own in held.items()
        if own.phase in OCCUPIES
    )
    return NodeReport(
        node=node.name,
        capacity_cores=node.own.node.cores,
        foreign_cores=(last.snapshot.node.foreign_cores or 0.0) if last else 0.0,
        memory_free_bytes=node.own.node.memory_bytes - used_bytes,
        images=node.images,
        sharing=node.sharing,
        holdings=tuple(
            replace(
                _holding(job, own, jobs.get(job)),
                came_bytes=_came_bytes(own, network_bytes_per_s, now_s),
            )
            for job, own in sorted(held.items())
        ),
        jobs=tuple(jobs.values()),
    )


def _holding(job: str, own: HeldJob, report: JobReport | None) -> Holding:
    exit_code = (1 if own.failed else 0) if own.phase is Phase.ENDED else None
    saved = own.kept.saved if own.kept else own.saved
    step = report.step if report else None
    return Holding(job, own.epoch, own.phase, step, saved, exit_code, own.why)


def _came_bytes(own: HeldJob, network_bytes_per_s: float, now_s: float) -> int | None:
    if own.phase is not Phase.ARRIVING or own.saved is None:
        return None
    return min(int((now_s - own.since_s) * network_bytes_per_s), own.saved.size_bytes)


def _job(
    node: SimulatedNode, job: str, own: HeldJob, network_bytes_per_s: float, now_s: float
) -> JobReport | None:
    view, last = node.view(job), node.last
    if view is None or last is None or view.state is not JobState.RUNNING:
        return None
    one = node.jobs[job]
    movable = isinstance(one.load, TrainingLoad)
    # While it saves it goes on, and repeats those steps.
    carry_s = one.checkpoint.size_bytes / network_bytes_per_s
    start_s = one.start_up_s + one.start_up_work_core_s
    return replace(
        job_report(view, last.snapshot.now_s, now_s, own.began_step),
        unmovable=None if movable else "it saves no checkpoints",
        pause_s=one.checkpoint.save_s + ACK_S + carry_s + start_s + _POLLED_S,
    )
