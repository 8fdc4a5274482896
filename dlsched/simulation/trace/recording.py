"""Converts a recorded journal into a trace: what each job was asked, its life, its computation.
Limits and policy of the record are left out: the trace holds what the jobs are."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dlsched.model.actions import Start
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import DlschedError
from dlsched.model.facts import NodeFact
from dlsched.model.state import JobState, Snapshot
from dlsched.model.units import CORES_MAX
from dlsched.simulation.node.workloads import HostLoad, SimulatedJob, Trace
from dlsched.simulation.trace.observed import SLICE_S, ObservedJob
from dlsched.simulation.trace.recorded_job import LEFT_OUT, Frame, simulated_job
from dlsched.simulation.trace.schema import DAY_MAX_S

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


@dataclass(frozen=True, slots=True)
class Recorded:
    trace: Trace
    remarks: tuple[str, ...] = ()
    lives: Mapping[str, str] = field(default_factory=dict)
    """The recorded name of each of the trace's jobs."""


class NothingRecorded(DlschedError):
    """The record has no usable job; the message says why, in one line."""


def record(reports: Iterable[CycleReport], name: str = "recorded") -> Recorded:
    """The trace of these cycles, in their order. Raises NothingRecorded without a usable job."""
    record = Record()
    try:
        for report in reports:
            record.take(report)
    except (ArithmeticError, ValueError) as error:  # no agent writes such a record
        raise NothingRecorded(f"its numbers make no trace: {error}") from error
    return trace_of(record, name)


def trace_of(record: Record, name: str = "recorded") -> Recorded:
    """The trace of what was gathered, once. Raises NothingRecorded without a usable job."""
    try:
        return _trace_of(record, name)
    except (ArithmeticError, ValueError) as error:
        raise NothingRecorded(f"its numbers make no trace: {error}") from error


def _trace_of(record: Record, name: str) -> Recorded:
    if record.last is None:
        raise NothingRecorded("no cycle could be read")
    remarks = list(record.remarks())
    frame = record.frame()
    lives: dict[str, str] = {}
    found = _jobs(record, frame, remarks.append, lives)
    jobs = tuple(sorted(found, key=lambda job: job.name))
    if not jobs:
        raise NothingRecorded(
            "; ".join([f"{record.cycles} cycles do not show any job's work", *remarks])
        )
    if frame.duration_s > frame.recorded_s:
        remarks.append(
            f"the record has {frame.recorded_s:g} s, the trace {frame.duration_s:g} s: a policy may"
            " be slower for a training that ended; all others leave when the record ends"
        )
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
    return Recorded(trace, tuple(remarks), lives)


def _jobs(
    record: Record, frame: Frame, say: Callable[[str], None], lives_of: dict[str, str]
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
            say(f"{name}: {job.name}, which came again or was recreated")
        try:
            found = simulated_job(job, name, frame, lambda what, name=name: say(f"{name}: {what}"))  # type: ignore[misc]
        except (ArithmeticError, ValueError) as error:
            say(f"{name}: its numbers make no sense ({error}): {LEFT_OUT}")
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
        self._astray = 0
        self._capacities: dict[float, None] = {}
        self._periods_s: list[float] = []
        self._present: dict[str, ObservedJob] = {}
        self._host_core_s: dict[int, float] = {}
        """Other work's CPU time beyond its reserved cores, by slice."""

    def take(self, report: CycleReport) -> None:
        """Add a cycle, unless it is not later than the last, or too late for a trace."""
        snapshot = report.snapshot
        if self.last is None:
            self._first_s = snapshot.now_s
        elif not self.last.now_s < snapshot.now_s <= self._first_s + DAY_MAX_S:
            self._astray += 1
            return
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
            yield f"the node's capacity changed ({capacities} cores): the last one holds throughout"
        if self._astray:
            yield f"{self._astray} cycles left out: not after the one before, or a year late"
        gaps_s = [one for one in self._periods_s if one > _GAP_S]
        if gaps_s:
            yield f"{len(gaps_s)} gaps in the record, of {math.fsum(gaps_s):.0f} s in all"

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
