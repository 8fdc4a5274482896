"""Converts one recorded job into a job of a trace, with a remark on each number that is a guess."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from dlsched.model.spec import AccuracyTarget, ContainerSpec, JobSpec
from dlsched.simulation.node.curves import Measured
from dlsched.simulation.node.workloads import Fault, ServiceLoad, Shift, SimulatedJob, TrainingLoad
from dlsched.simulation.trace.fitting import (
    SHIFTS_MAX,
    Law,
    curve_points,
    service_law,
    step_work,
    threads,
)
from dlsched.simulation.trace.observed import ObservedJob
from dlsched.simulation.trace.schema import EVALUATIONS_MAX, STEPS_MAX

_START_UP_S, _START_UP_MOST_S = 1.0, 60.0
"""Default and maximum of a start's time, without its own computation."""
_LEAST_WORK_CORE_S = 1e-6
_FAULTS_MAX = 200
"""Faults of one job at most: a container may crash all day."""
LEFT_OUT = "left out; its CPU time stands as work of others on the host"


@dataclass(frozen=True, slots=True)
class Frame:
    """The record's time and node."""

    origin_s: float
    """The time of its first cycle."""
    recorded_s: float
    duration_s: float
    """The trace's duration: the record's, and possibly extra time."""
    cores: float
    points_max: int

    def at_s(self, time_s: float) -> float:
        return round(max(0.0, time_s - self.origin_s), 3)


def simulated_job(
    job: ObservedJob, name: str, frame: Frame, say: Callable[[str], None]
) -> SimulatedJob | None:
    """The job under that name; None, with a remark, when its work is unknown."""
    if job.started_s is None or job.last is None:
        say("never ran: left out")
        return None
    target = job.spec.target
    load: TrainingLoad | ServiceLoad | None
    shifts: tuple[Shift, ...] = ()
    if isinstance(target, AccuracyTarget) or (target is None and job.attempts):
        load, start_up_core_s = _training(job, frame, say)
    else:
        load, shifts, start_up_core_s = _service(job, frame, say)
    if load is None:
        return None
    if job.ran_before:
        say("ran already when the record begins: it starts again with it")
    if job.retargeted:
        say("its target changed on the way: the last one holds throughout")
    arrives_s = frame.at_s(job.first_s)
    start_up_s = _START_UP_S
    if job.asked_s is not None:
        start_up_s = min(_START_UP_MOST_S, max(0.0, round(job.started_s - job.asked_s, 3)))
    return SimulatedJob(
        spec=_spec(job.spec, name),
        load=load,
        arrives_s=arrives_s,
        leaves_s=_leaves_s(job, load, frame),
        start_up_s=start_up_s,
        start_up_work_core_s=round(start_up_core_s, 3),
        faults=_faults(job, frame, say),
        shifts=shifts,
    )


def _spec(spec: JobSpec, name: str) -> JobSpec:
    """The part of the spec that a trace can hold."""
    container = ContainerSpec(
        image="simulated",
        restart=spec.container.restart,
        memory_bytes=spec.container.memory_bytes,
    )
    return JobSpec(
        name=name,
        container=container,
        bounds=spec.bounds,
        weight=spec.weight,
        target=spec.target,
        background=spec.background,
        container_digest=name,
        digest=name,
    )


def _leaves_s(job: ObservedJob, load: TrainingLoad | ServiceLoad, frame: Frame) -> float | None:
    """When its file goes; at the record's end, if the trace lasts longer."""
    if isinstance(load, TrainingLoad) and job.finished:
        return None
    gone_s = job.left_s
    if gone_s is None and isinstance(load, ServiceLoad):
        gone_s = job.ended_s
    leaves_s = frame.recorded_s if gone_s is None else frame.at_s(gone_s)
    if leaves_s >= frame.duration_s:
        return None
    return max(leaves_s, round(frame.at_s(job.first_s) + 0.001, 3))


def _faults(job: ObservedJob, frame: Frame, say: Callable[[str], None]) -> tuple[Fault, ...]:
    times_s = [frame.at_s(time_s) for time_s in job.crashes_s]
    if job.ended_s is not None and not job.finished:
        times_s.append(frame.at_s(job.ended_s))
    if len(times_s) > _FAULTS_MAX:
        say(f"crashed {len(times_s)} times: the first {_FAULTS_MAX} are kept")
        del times_s[_FAULTS_MAX:]
    return tuple(Fault("crash", time_s) for time_s in times_s if time_s < frame.duration_s)


# ---------------------------------------------------------------------- trainings


def _training(
    job: ObservedJob, frame: Frame, say: Callable[[str], None]
) -> tuple[TrainingLoad | None, float]:
    target = job.spec.target
    metric = target.metric if isinstance(target, AccuracyTarget) else job.likely_metric()
    values = job.values.get(metric or "", [])
    fitted = step_work(job.attempts)
    if fitted is None or not values:
        say(f"reported no steps with {metric or 'a metric'}: {LEFT_OUT}")
        return None, 0.0
    work_core_s, start_up_core_s = fitted
    work_core_s = max(_LEAST_WORK_CORE_S, round(work_core_s, 9))
    points = curve_points(values, frame.points_max)
    every = _evaluate_every(values)
    if len(points) < 2:
        points = (points[0], (points[0][0] + every, points[0][1]))
        say(f"reported {metric} once: its curve stays at that value")
    most = threads(job.windows)
    if most is None:
        say("too short to see how many cores it can use: taken for one")
    elif not most[1]:
        say(f"always held back: it can use {most[0]:g} cores, or more")
    cores = 1.0 if most is None else min(4096.0, max(0.01, round(most[0], 3)))
    last = max([points[-1][0], *(step for one in job.attempts for step, _ in one.points)])
    there_s = frame.recorded_s - frame.at_s(job.first_s)
    if job.finished:
        # Computation after its last report, as for a checkpoint, counts as steps.
        whole = (job.last.attained_core_s - start_up_core_s) / work_core_s if job.last else 0.0
        steps = max(last, round(whole)) if len(job.attempts) == 1 else last
    else:
        steps = max(last + 1, math.ceil(cores * there_s / work_core_s))
        say(
            f"did not end by itself: after step {last} its curve stays, and its {steps} steps"
            " are more than its time has room for"
        )
    rises = target.finish > target.deliver if isinstance(target, AccuracyTarget) else None
    steps = min(STEPS_MAX, max(1, steps))
    every = max(every, math.ceil(steps / EVALUATIONS_MAX))
    load = TrainingLoad(
        steps=steps,
        work_core_s=work_core_s,
        evaluate_every=every,
        curve=Measured(
            tuple((step, _bounded(value)) for step, value in points),
            points[-1][1] >= points[0][1] if rises is None else rises,
        ),
        threads=cores,
        checkpoint_every=every if _resumed(job) else None,
    )
    return load, start_up_core_s


def _evaluate_every(values: list[tuple[int, float]]) -> int:
    """Steps between two evaluations, in the median."""
    steps = sorted({step for step, _ in values})
    if len(steps) < 2:
        return max(1, steps[0])
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    return max(1, round(statistics.median(gaps)))


def _resumed(job: ObservedJob) -> bool:
    """Whether a start after a crash resumed from a checkpoint."""
    firsts = [one.points[0][0] for one in job.attempts]
    return bool(job.crashes_s) and any(step > 2 * firsts[0] for step in firsts[1:])


def _bounded(value: float) -> float:
    return min(1e15, max(-1e15, round(value, 9)))


# ---------------------------------------------------------------------- services


def _service(
    job: ObservedJob, frame: Frame, say: Callable[[str], None]
) -> tuple[ServiceLoad | None, tuple[Shift, ...], float]:
    law = service_law(job.windows, frame.cores)
    if law is None:
        say(f"no request of it was answered: {LEFT_OUT}")
        return None, (), 0.0
    if not law.known:
        say(
            f"taken for {law.overhead_s * 1000:.1f} ms of overhead and {law.threads:g} threads: its"
            " ceilings differed too little to tell these apart"
        )
    if law.clients is not None and law.clients != 1.0:
        say(
            f"{law.clients:.1f} requests were under way at once: they stand as one client, whose"
            " requests carry the work of all of them"
        )
    if len(law.phases) > SHIFTS_MAX:
        say(f"its load kept changing: it is reduced to {len(law.phases)} levels")
    first = law.phases[0]
    load = ServiceLoad(
        work_core_s=max(_LEAST_WORK_CORE_S, round(first.work_core_s, 9)),
        overhead_s=min(3600.0, round(law.overhead_s, 6)),
        threads=min(4096.0, round(law.threads, 3)),
        noise=round(law.noise, 3),
        arrivals_per_s=_arrivals(law),
    )
    shifts = tuple(
        Shift(
            frame.at_s(phase.at_s),
            _factor(phase.work_core_s / first.work_core_s),
            1.0 if law.clients is not None else _factor(phase.rate_per_s / first.rate_per_s),
        )
        for phase in law.phases[1:]
    )
    before = 0.0 if job.ran_before else job.idle_core_s or 0.0
    return load, shifts, before


def _arrivals(law: Law) -> float | None:
    if law.clients is not None:
        return None
    return min(1e6, max(0.0001, round(law.phases[0].rate_per_s, 4)))


def _factor(value: float) -> float:
    return min(1000.0, max(0.001, round(value, 3)))
