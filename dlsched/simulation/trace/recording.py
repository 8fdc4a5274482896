"""A recorded day as a trace: what each job was asked, when it came and went, and what it computes.

Owns the crossing from cycle reports to a trace, and the remarks on what they do not show. It must
not read journals nor files. How jobs were limited, and by which policy, is left behind: the trace
holds what they are.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dlsched.model.actions import Start
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import DlschedError
from dlsched.model.facts import NodeFact
from dlsched.model.state import JobState, Snapshot
from dlsched.model.units import CORES_MAX
from dlsched.simulation.node.workloads import HostLoad, SimulatedJob, Trace
from dlsched.simulation.trace.observed import SLICE_S, JobSeen
from dlsched.simulation.trace.recorded_job import LEFT_OUT, Frame, simulated_job
from dlsched.simulation.trace.schema import DAY_MAX_S

ROOM_RATIO = 0.5
"""A trace lasts longer than its record by this part, where trainings ended in it."""

_POINTS_MAX, _POINTS_ALL_MAX = 200, 40_000
"""Of one curve, and of all: a trace must stay readable."""
_HOST_CORES = 0.1
"""Others' work is told anew where it differs by more."""
_HOST_SHARES = 262_144
"""The most there is: others get again what they got, whatever weight gave it to them."""
_FULL_RATIO = 0.93
"""On a node so busy, who wants more cannot show it."""
_FINE_S, _COARSE_SLICES = 3600.0, 6
"""A record longer than that tells others' work by minutes only."""
_GAP_S = 60.0
_NAME_MAX = 63
_OVER = (JobState.FINISHED, JobState.FAILED, JobState.STOPPED)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The trace of a record, and what must be known of it."""

    trace: Trace
    remarks: tuple[str, ...] = ()


class NothingRecorded(DlschedError):
    """The record holds no job whose work can be told; the message says why, in one line."""


def record(reports: Iterable[CycleReport], name: str = "recorded") -> Recorded:
    """The trace of these cycles, in their order. Raises NothingRecorded without a usable job."""
    try:
        return _recorded(reports, name)
    except (ArithmeticError, ValueError) as error:  # no agent writes such a record
        raise NothingRecorded(f"its numbers make no trace: {error}") from error


def _recorded(reports: Iterable[CycleReport], name: str) -> Recorded:
    seen = _Record()
    for report in reports:
        seen.take(report)
    if seen.last is None:
        raise NothingRecorded("no cycle could be read")
    remarks = list(seen.remarks())
    frame = seen.frame()
    jobs = tuple(sorted(_jobs(seen, frame, remarks.append), key=lambda job: job.name))
    if not jobs:
        raise NothingRecorded("; ".join([f"{seen.cycles} cycles tell no job's work", *remarks]))
    if frame.duration_s > frame.recorded_s:
        remarks.append(
            f"the record has {frame.recorded_s:g} s, the trace {frame.duration_s:g} s: a policy may"
            " be slower for a training that ended; all others leave when the record ends"
        )
    node = seen.last.node
    trace = Trace(
        node=NodeFact(frame.cores, max(1 << 20, node.memory_bytes)),
        jobs=jobs,
        duration_s=frame.duration_s,
        cycle_s=seen.cycle_s,
        window_s=min(3600.0, max(1.0, round(seen.last.window_s, 3))),
        host=tuple(seen.host(frame.recorded_s)),
        name=name,
    )
    return Recorded(trace, tuple(remarks))


def _jobs(seen: _Record, frame: Frame, say: Callable[[str], None]) -> Iterator[SimulatedJob]:
    taken = {job.name for job in seen.jobs}
    lives: Counter[str] = Counter()
    for job in seen.jobs:
        name = job.name
        lives[name] += 1
        if lives[name] > 1:
            others = (f"{job.name[: _NAME_MAX - 7]}-{n}" for n in itertools.count(lives[name]))
            name = next(other for other in others if other not in taken)
            taken.add(name)
            say(f"{name}: {job.name}, which came again or was made anew")
        try:
            found = simulated_job(job, name, frame, lambda what, name=name: say(f"{name}: {what}"))  # type: ignore[misc]
        except (ArithmeticError, ValueError) as error:
            say(f"{name}: its numbers make no sense ({error}): {LEFT_OUT}")
            found = None
        if found is not None:
            yield found
        else:
            seen.give_to_host(job)


class _Record:
    """The cycles, gathered."""

    def __init__(self) -> None:
        self.cycles = 0
        self.last: Snapshot | None = None
        self.jobs: list[JobSeen] = []
        self._first_s = 0.0
        self._astray = 0
        self._capacities: dict[float, None] = {}
        self._periods_s: list[float] = []
        self._present: dict[str, JobSeen] = {}
        self._host_core_s: dict[int, float] = {}
        """Others' CPU time beyond the cores that are kept for them, by slice."""

    def take(self, report: CycleReport) -> None:
        """One more cycle; one not later than the last, or too late for a trace, is left out."""
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
        full = _full(snapshot)
        for view in snapshot.jobs:
            job = self._present.get(view.name)
            if job is None or job.returns_as_new(view):
                if view.state in _OVER:
                    continue
                ran_before = view.attained_core_s > 0 and self.cycles == 1
                job = JobSeen(view.name, view.spec, snapshot.now_s, ran_before)
                self._present[view.name] = job
                self.jobs.append(job)
            job.see(view, snapshot.now_s, self._first_s, contended=full)
        for name in self._present.keys() - {view.name for view in snapshot.jobs}:
            self._present[name].absent(snapshot.now_s)
        for outcome in report.outcomes:
            asked = self._present.get(outcome.action.job)
            if isinstance(outcome.action, Start) and asked is not None and asked.started_s is None:
                asked.asked_s = snapshot.now_s

    def _take_host(self, snapshot: Snapshot, length_s: float) -> None:
        node = snapshot.node
        if node.foreign_cores is not None:
            beyond = max(0.0, node.foreign_cores - (node.cores - node.capacity_cores))
            self._put_on_host(int((snapshot.now_s - self._first_s) // SLICE_S), beyond * length_s)

    def _put_on_host(self, piece: int, core_s: float) -> None:
        self._host_core_s[piece] = self._host_core_s.get(piece, 0.0) + core_s

    def give_to_host(self, job: JobSeen) -> None:
        """Its use counts as work of others."""
        for piece, core_s in job.by_slice.items():
            self._put_on_host(piece, core_s)

    def remarks(self) -> Iterator[str]:
        """What must be known of the record as a whole."""
        if len(self._capacities) > 1:
            told = ", ".join(f"{cores:g}" for cores in self._capacities)
            yield f"the node's capacity changed ({told} cores): the last one holds throughout"
        if self._astray:
            yield f"{self._astray} cycles left out: not after the one before, or a year late"
        gaps_s = [one for one in self._periods_s if one > _GAP_S]
        if gaps_s:
            yield f"{len(gaps_s)} gaps in the record, of {math.fsum(gaps_s):.0f} s in all"

    def frame(self) -> Frame:
        """The time and the node that jobs are seen in."""
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
        """The agent's period. Events wake it early, so the longer of the periods are the rule."""
        periods = sorted(self._periods_s)
        period_s = periods[len(periods) * 3 // 4] if periods else 1.0
        return min(3600.0, max(0.1, round(period_s, 1)))

    def host(self, recorded_s: float) -> Iterator[HostLoad]:
        """Others' work, slice by slice; those that hardly differ are told as one."""
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


def _full(snapshot: Snapshot) -> bool:
    """Whether somebody may have wanted more cores than there were."""
    node = snapshot.node
    ours = math.fsum(job.usage.cpu_cores or 0.0 for job in snapshot.jobs)
    return (
        ours >= _FULL_RATIO * node.capacity_cores
        or ours + (node.foreign_cores or 0.0) >= _FULL_RATIO * node.cores
    )
