"""Replays a journal under another policy: its decisions beside the recorded ones. Every decision
starts from the recorded measurements; containers' reactions are not simulated."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from dlsched.control.decider import NamedPolicy, ShadowDecider
from dlsched.control.guards import GuardOptions
from dlsched.control.ledger.updated import State
from dlsched.model.actions import Start
from dlsched.model.cycle import CycleReport, Shadow
from dlsched.model.errors import DlschedError
from dlsched.model.spec import Limits
from dlsched.store.journal.reader import JournalReader
from dlsched.store.policy_memory import memory_size_check

AGREE_RATIO = 0.02
"""Relative difference up to which limits agree."""

_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """One job in one cycle. Cores are ceilings after the guards; None: none."""

    cycle: int
    now_s: float
    wall_time: str
    job: str
    acting: str
    """The policy that decided."""
    asked: bool
    """Whether the replayed policy was asked in this cycle."""
    done_cores: float | None
    done_why: str
    would_cores: float | None
    would_why: str
    guard: str
    """How a guard altered its decision; empty: it did not."""
    difference_cores: float
    """Its ceiling less the recorded one; no ceiling counts as the node's capacity."""
    agrees: bool


@dataclass(frozen=True, slots=True)
class Agreement:
    """How near two policies came, over some cycles of a job or of all."""

    cycles: int = 0
    agreed: int = 0
    apart_cores: float = 0.0
    """Sum of the absolute differences."""

    def plus(self, apart_cores: float, agrees: bool) -> Agreement:
        return Agreement(self.cycles + 1, self.agreed + agrees, self.apart_cores + apart_cores)

    @property
    def mean_apart_cores(self) -> float:
        return self.apart_cores / max(1, self.cycles)

    @property
    def agreed_ratio(self) -> float:
        return self.agreed / max(1, self.cycles)


class Replay:
    """One pass of a policy over recorded cycles, in order, beginning without memory.

    The recorded policy, with its parameters and guards and from the journal's beginning, reproduces
    the recorded decisions exactly.
    """

    def __init__(self, named: NamedPolicy, guards: GuardOptions) -> None:
        self._shadow = ShadowDecider(named, check_memory=memory_size_check)
        self._guards = guards
        self._done_why: Mapping[str, str] = {}
        self.jobs: dict[str, Agreement] = {}
        self.all = Agreement()
        self.recorded: dict[str, int] = {}
        """Number of recorded decisions by policy."""
        self.cycles = 0

    @property
    def asks(self) -> int:
        return self._shadow.decider.asks

    @property
    def failures(self) -> int:
        return self._shadow.decider.failures

    def take(self, report: CycleReport) -> tuple[Shadow, tuple[ReplayRow, ...]]:
        """Its decision in that cycle, with a row for every running job."""
        self.cycles += 1
        self.recorded.setdefault(report.policy, 0)
        if report.decision is not None:
            self._done_why = report.decision.why
            self.recorded[report.policy] += 1
        begun = [one.action for one in report.outcomes if isinstance(one.action, Start)]
        state = State(
            report.snapshot,
            starts=tuple(start.spec for start in begun),
            placements={start.job: start.gpus for start in begun},
        )
        would, _ = self._shadow.ask(state, self._guards)
        rows = tuple(
            self._row(report, would, job.name)
            for job in report.snapshot.running
            if job.name in report.limits
        )
        for row in rows:
            apart_cores = abs(row.difference_cores)
            self.jobs[row.job] = self.jobs.get(row.job, Agreement()).plus(apart_cores, row.agrees)
            self.all = self.all.plus(apart_cores, row.agrees)
        return would, rows

    def _row(self, report: CycleReport, would: Shadow, job: str) -> ReplayRow:
        capacity = report.snapshot.node.capacity_cores
        done = _cores(report.limits[job], capacity)
        difference_cores = _cores(would.limits[job], capacity) - done
        return ReplayRow(
            cycle=report.snapshot.cycle,
            now_s=report.snapshot.now_s,
            wall_time=report.wall_time,
            job=job,
            acting=report.policy,
            asked=would.decision is not None,
            done_cores=report.limits[job].cpu_cores,
            done_why=self._done_why.get(job, ""),
            would_cores=would.limits[job].cpu_cores,
            would_why=would.why.get(job, ""),
            guard=would.guarded.get(job, ""),
            difference_cores=difference_cores,
            agrees=abs(difference_cores) <= AGREE_RATIO * done + 1e-9,
        )


class News:
    """Selects the first row of a job, and each in which a limit has changed."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[float | None, float | None]] = {}

    def differs(self, row: ReplayRow) -> bool:
        """Whether this row differs from its job's last one."""
        now = (row.done_cores, row.would_cores)
        before = self._shown.get(row.job)
        self._shown[row.job] = now
        return now != before


def first_cycle_from(reader: JournalReader, moment: datetime) -> int:
    cycles = reader.cycles()
    return cycles.start + bisect_left(cycles, moment, key=lambda n: _wall_time(reader, n))


def last_cycle_until(reader: JournalReader, moment: datetime) -> int:
    cycles = reader.cycles()
    return cycles.start + bisect_right(cycles, moment, key=lambda n: _wall_time(reader, n)) - 1


def _wall_time(reader: JournalReader, number: int) -> datetime:
    """The wall time of that cycle, or of the next one kept. It may jump."""
    report = next(reader.reports(number), None)
    if report is None:
        return _LAST
    try:
        moment = datetime.fromisoformat(report.wall_time)
    except ValueError:
        cycle = report.snapshot.cycle
        raise DlschedError(
            f"cycle {cycle} has no valid time: name cycles by their numbers"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _cores(limits: Limits, capacity_cores: float) -> float:
    return capacity_cores if limits.cpu_cores is None else limits.cpu_cores
