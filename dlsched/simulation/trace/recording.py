"""Converts a recorded journal into a trace: what each job was asked, its life, its computation.

Each number that is a guess has a remark. Limits and policy of the record are left out: the trace
holds what the jobs are.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from dlsched.model.actions import Start
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import DlschedError
from dlsched.model.facts import NodeFact
from dlsched.model.spec import AccuracyTarget, ContainerSpec, JobSpec
from dlsched.model.state import JobState, Snapshot
from dlsched.model.units import CORES_MAX
from dlsched.simulation.node.learning_curves import Measured
from dlsched.simulation.node.workloads import (
    Fault,
    HostLoad,
    ServiceLoad,
    Shift,
    SimulatedJob,
    Trace,
    TrainingLoad,
)
from dlsched.simulation.trace.fits import (
    SHIFTS_MAX,
    Law,
    curve_points,
    service_law,
    step_work,
    threads,
)
from dlsched.simulation.trace.observed import SLICE_S, ObservedJob
from dlsched.simulation.trace.schema import DAY_MAX_S, EVALUATIONS_MAX, STEPS_MAX

ROOM_RATIO = 0.5
"""Extra time of the trace, relative to its record, where trainings ended in it."""

_POINTS_MAX, _POINTS_ALL_MAX = 200, 40_000
"""Points of one curve, and of all, so that a trace stays readable."""
_HOST_CORES = 0.1
"""Other work on the host gets a new entry where it differs by more."""
_HOST_SHARES = 262_144
"""The maximum, so that other work gets the recorded cores whatever its weight was."""
_FULL_RATIO = 0.93
"""On a node this busy the demand for more cores does not show."""
_FINE_S, _COARSE_SLICES = 3600.0, 6
"""Above this length, other work is recorded by the minute."""
_GAP_S = 60.0
_NAME_MAX = 63
_OVER = (JobState.FINISHED, JobState.FAILED, JobState.STOPPED)


Note = tuple[str, str]
"""The trace's job that it is about, or empty: all of it; and the text."""


def remarks_of(notes: Iterable[Note]) -> tuple[str, ...]:
    return tuple(f"{job}: {text}" if job else text for job, text in notes)


@dataclass(frozen=True, slots=True)
class Recorded:
    trace: Trace
    notes: tuple[Note, ...] = ()
    lives: Mapping[str, str] = field(default_factory=dict)
    """The recorded name of each of the trace's jobs."""

    @property
    def remarks(self) -> tuple[str, ...]:
        return remarks_of(self.notes)


class NothingRecorded(DlschedError):
    """The record has no usable job; the message says why, in one line."""

    def __init__(self, why: str, notes: tuple[Note, ...] = ()) -> None:
        super().__init__("; ".join((why, *remarks_of(notes))))
        self.why, self.notes = why, notes


def record(reports: Iterable[CycleReport], name: str = "recorded") -> Recorded:
    """The trace of these cycles, in their order. Raises NothingRecorded without a usable job."""
    record = Record()
    for report in reports:
        record.take(report)
    return trace_of(record, name)


def trace_of(record: Record, name: str = "recorded") -> Recorded:
    """The trace of what was gathered, once. Raises NothingRecorded without a usable job."""
    if record.last is None:
        raise NothingRecorded("no cycle could be read")
    notes = [("", text) for text in record.remarks()]
    frame = record.frame()
    lives: dict[str, str] = {}
    found = _jobs(record, frame, lambda job, text: notes.append((job, text)), lives)
    jobs = tuple(sorted(found, key=lambda job: job.name))
    if not jobs:
        none = f"none of the {record.cycles} recorded cycles shows how much work a job did"
        raise NothingRecorded(none, tuple(notes))
    if frame.duration_s > frame.recorded_s:
        text = (
            f"the trace has {frame.duration_s:g} s, the record {frame.recorded_s:g} s: trainings "
            "that ended get more time, as a policy may be slower; all other jobs leave when the "
            "record ends"
        )
        notes.append(("", text))
    node = record.last.node
    trace = Trace(
        node=NodeFact(frame.cores, max(1 << 20, node.memory_bytes)),
        jobs=jobs,
        duration_s=frame.duration_s,
        cycle_s=record.cycle_s,
        window_s=min(3600.0, max(1.0, round(record.last.window_s, 3))),
        host=tuple(record.host(frame.recorded_s)),
        name=name,
    )
    return Recorded(trace, tuple(notes), lives)


def _jobs(
    record: Record, frame: Frame, say: Callable[[str, str], None], lives_of: dict[str, str]
) -> Iterator[SimulatedJob]:
    taken = {job.name for job in record.jobs}
    lives: Counter[str] = Counter()
    for job in record.jobs:
        name = job.name
        lives[name] += 1
        if lives[name] > 1:
            others = (f"{job.name[: _NAME_MAX - 7]}-{n}" for n in itertools.count(lives[name]))
            name = next(other for other in others if other not in taken)
            taken.add(name)
            say(name, f"this is job {job.name}, after it came again or was recreated")
        try:
            found = simulated_job(job, name, frame, partial(say, name))
        except (ArithmeticError, ValueError) as error:
            say(name, f"the recorded numbers make no sense ({error}): {LEFT_OUT}")
            found = None
        if found is not None:
            lives_of[name] = job.name
            yield found
        else:
            record.give_to_host(job)


class Record:
    """The cycles, gathered: what the fits of each job need, and other work on the host."""

    def __init__(self) -> None:
        self.cycles = 0
        self.last: Snapshot | None = None
        self.jobs: list[ObservedJob] = []
        self._first_s = 0.0
        self._capacities: dict[float, None] = {}
        self._periods_s: list[float] = []
        self._present: dict[str, ObservedJob] = {}
        self._host_core_s: dict[int, float] = {}
        """Other work's CPU time beyond its reserved cores, by slice."""

    def take(self, report: CycleReport) -> None:
        """Add a cycle, which is later than the last."""
        snapshot = report.snapshot
        if self.last is None:
            self._first_s = snapshot.now_s
        else:
            self._periods_s.append(snapshot.now_s - self.last.now_s)
            self._take_host(snapshot, self._periods_s[-1])
        self.cycles += 1
        self.last = snapshot
        self._capacities[snapshot.node.capacity_cores] = None
        full = node_is_full(snapshot)
        for view in snapshot.jobs:
            job = self._present.get(view.name)
            if job is None or job.returns_as_new(view):
                if view.state in _OVER:
                    continue
                ran_before = view.attained_core_s > 0 and self.cycles == 1
                job = ObservedJob(view.name, view.spec, snapshot.now_s, ran_before)
                self._present[view.name] = job
                self.jobs.append(job)
                for one in self.jobs:
                    one.share_windows(len(self.jobs))
            job.see(view, snapshot.now_s, self._first_s, contended=full)
        for name in self._present.keys() - {view.name for view in snapshot.jobs}:
            self._present[name].absent(snapshot.now_s)
        for outcome in report.outcomes:
            asked = self._present.get(outcome.action.job)
            if isinstance(outcome.action, Start) and asked is not None and asked.started_s is None:
                asked.asked_s = snapshot.now_s

    def present(self, name: str) -> ObservedJob | None:
        """The present life of that name."""
        return self._present.get(name)

    def _take_host(self, snapshot: Snapshot, length_s: float) -> None:
        node = snapshot.node
        if node.foreign_cores is not None:
            beyond = max(0.0, node.foreign_cores - (node.cores - node.capacity_cores))
            self._put_on_host(int((snapshot.now_s - self._first_s) // SLICE_S), beyond * length_s)

    def _put_on_host(self, piece: int, core_s: float) -> None:
        self._host_core_s[piece] = self._host_core_s.get(piece, 0.0) + core_s

    def give_to_host(self, job: ObservedJob) -> None:
        """Count its use as other work on the host."""
        for piece, core_s in job.by_slice.items():
            self._put_on_host(piece, core_s)

    def remarks(self) -> Iterator[str]:
        if len(self._capacities) > 1:
            capacities = ", ".join(f"{cores:g}" for cores in self._capacities)
            yield (
                f"the node's capacity changed ({capacities} cores): the last one is used for the "
                "whole trace"
            )
        gaps_s = [one for one in self._periods_s if one > _GAP_S]
        if gaps_s:
            yield f"gaps in the record: {len(gaps_s)}, together {math.fsum(gaps_s):.0f} s"

    def frame(self) -> Frame:
        """The record's time and node."""
        assert self.last is not None
        recorded_s = max(1.0, float(math.ceil(self.last.now_s - self._first_s)))
        room = any(job.finished and job.attempts for job in self.jobs)
        return Frame(
            origin_s=self._first_s,
            recorded_s=recorded_s,
            duration_s=min(DAY_MAX_S, float(math.ceil(recorded_s * (1.0 + ROOM_RATIO * room)))),
            cores=min(CORES_MAX, max(0.01, round(self.last.node.capacity_cores, 6))),
            points_max=max(10, min(_POINTS_MAX, _POINTS_ALL_MAX // max(1, len(self.jobs)))),
        )

    @property
    def cycle_s(self) -> float:
        """The agent's period: an upper quantile, since events wake it early."""
        periods = sorted(self._periods_s)
        period_s = periods[len(periods) * 3 // 4] if periods else 1.0
        return min(3600.0, max(0.1, round(period_s, 1)))

    @property
    def begun_s(self) -> float:
        return self._first_s

    def other_cores(self) -> list[float]:
        """Cores that other work on the host used beyond the reserve, by slice, ascending."""
        return sorted(core_s / SLICE_S for core_s in self._host_core_s.values())

    def host(self, recorded_s: float) -> Iterator[HostLoad]:
        """Other work on the host by slice, similar ones merged."""
        slices = 1 if recorded_s <= _FINE_S else _COARSE_SLICES
        spells: list[tuple[float, float, float]] = []  # from, to, cores
        for first in range(0, math.ceil(recorded_s / SLICE_S), slices):
            from_s, to_s = first * SLICE_S, min(recorded_s, (first + slices) * SLICE_S)
            pieces = range(first, first + slices)
            cores = math.fsum(self._host_core_s.get(one, 0.0) for one in pieces) / (to_s - from_s)
            if spells and abs(cores - spells[-1][2]) <= _HOST_CORES:
                begun_s, _, before = spells[-1]
                part = (to_s - from_s) / (to_s - begun_s)
                spells[-1] = (begun_s, to_s, before + (cores - before) * part)
            else:
                spells.append((from_s, to_s, cores))
        for from_s, to_s, cores in spells:
            if cores > _HOST_CORES and to_s - from_s >= 0.001:
                yield HostLoad(from_s, round(to_s - from_s, 3), round(cores, 2), _HOST_SHARES)


def node_is_full(snapshot: Snapshot) -> bool:
    """Whether some job may have wanted more cores than there were."""
    node = snapshot.node
    ours = math.fsum(job.usage.cpu_cores or 0.0 for job in snapshot.jobs)
    return (
        ours >= _FULL_RATIO * node.capacity_cores
        or ours + (node.foreign_cores or 0.0) >= _FULL_RATIO * node.cores
    )


# ------------------------------------------------------------------ one job

_START_UP_S, _START_UP_MOST_S = 1.0, 60.0
"""Default and maximum of a start's time, without its own computation."""
_LEAST_WORK_CORE_S = 1e-6
_FAULTS_MAX = 200
"""Faults of one job at most: a container may crash all day."""
LEFT_OUT = "the job is left out; its CPU time counts as work of other programs on the host"


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
        say("the job never ran, so it is left out")
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
        say("the job ran already when the record begins; in the trace it starts then")
    if job.retargeted:
        say("the target changed during the record: the last one is used for the whole trace")
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
        say(f"the job crashed {len(times_s)} times; the trace has the first {_FAULTS_MAX} crashes")
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
        say(f"the job reported no steps with {metric or 'a metric'}: {LEFT_OUT}")
        return None, 0.0
    work_core_s, start_up_core_s = fitted
    work_core_s = max(_LEAST_WORK_CORE_S, round(work_core_s, 9))
    points = curve_points(values, frame.points_max)
    every = _evaluate_every(values)
    if len(points) < 2:
        points = (points[0], (points[0][0] + every, points[0][1]))
        say(f"the job reported {metric} once; in the trace it stays at that value")
    most = threads(job.windows)
    if most is None:
        say("the record is too short to see how many cores the job can use: one is assumed")
    elif not most[1]:
        say(f"a limit always held the job back: the job can use {most[0]:g} cores, or more")
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
            f"the job did not end by itself; in the trace its curve is flat after step {last}, and "
            f"it has {steps} steps, more than it can do in the trace's time"
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
        say(f"no request was answered: {LEFT_OUT}")
        return None, (), 0.0
    if not law.known:
        say(
            f"{law.overhead_s * 1000:.1f} ms of overhead and {law.threads:g} threads are a guess: "
            "the job's CPU limits changed too little, or the host was too full, to measure the two "
            "apart"
        )
    if law.clients is not None and law.clients != 1.0:
        say(
            f"{law.clients:.1f} requests were under way concurrently; in the trace, one client "
            "sends single requests with the work of all of them"
        )
    if len(law.phases) > SHIFTS_MAX:
        say(f"the load kept changing: the trace has {len(law.phases)} levels of it")
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
