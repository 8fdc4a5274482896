"""One row a minute, of which `/v1/history` and `dlsched usage` are made: to decode the frames of a
day takes many seconds. Pure."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dlsched.control.cpu_account import Accountant, CpuAccount
from dlsched.estimate.measured import latency_of, metric_of
from dlsched.model.cycle import CycleReport

MINUTE_S = 60.0


_DIGITS = 6
"""Significant digits that are kept: more than a curve shows, and a sum over a year is right to a
CPU-second in a million."""


class JobMinute(NamedTuple):
    """One job in one minute. A later version may add fields at the end."""

    cycles: int
    """Cycles in which it was known."""
    owner: int | None
    """uid of the job file's owner; None: it has no file."""
    ratio: float | None
    """Mean of the measured latency over the target, in the cycles in which it was known."""
    ratio_low: float | None
    ratio_high: float | None
    measured_s: float | None
    metric: float | None
    """The last value."""
    limit_cores: float | None
    usage_cores: float | None
    asked_core_s: float
    given_core_s: float
    used_core_s: float
    lent_core_s: float
    borrowed_core_s: float

    @property
    def account(self) -> CpuAccount:
        """In CPU-seconds. A sum that was not finite is recorded as null, and counts as none."""
        return CpuAccount(*(part or 0.0 for part in self[-len(CpuAccount._fields) :]))


_JOB_FIELDS = len(JobMinute._fields)


class NodeMinute(NamedTuple):
    """Means over one minute. A later version may add fields at the end."""

    cycles: int
    capacity_cores: float | None
    given_cores: float | None
    used_cores: float | None
    foreign_cores: float | None
    memory_bytes: float | None
    seconds: float
    """Time that the CPU-seconds are of."""
    used_core_s: float
    """CPU-seconds of all jobs, summed up apart from theirs."""
    shadow_cores: float | None = None
    """Sum of the ceilings that the shadow policy would set; a job without one counts with its use.
    None: no shadow policy runs, or it fails."""


@dataclass(frozen=True, slots=True)
class Minute:
    """What is recorded of the cycles of one minute, or of a part of it."""

    first_cycle: int
    last_cycle: int
    at_s: float
    """Unix seconds of the first cycle, by the clock of the time."""
    node: NodeMinute
    jobs: dict[str, JobMinute]


def wall_s(wall_time: str) -> float | None:
    """RFC 3339 as unix seconds; None: it is not."""
    try:
        moment = datetime.fromisoformat(wall_time)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        return None


def wall_text(at_s: float) -> str:
    """Unix seconds as the journal's rows have them: RFC 3339 with milliseconds."""
    moment = datetime.fromtimestamp(at_s, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Mean:
    """A mean over the values that are known, and their bounds."""

    __slots__ = ("count", "high", "low", "total")

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self.low, self.high = math.inf, -math.inf

    def add(self, value: float | None) -> None:
        """One more value; one that is not finite is not known."""
        if value is not None and math.isfinite(value):
            self.count += 1
            self.total += value
            self.low = min(self.low, value)
            self.high = max(self.high, value)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        return (self.low, self.high) if self.count else (None, None)


@dataclass(slots=True)
class _JobSums:
    owner: int | None
    cycles: int = 0
    ratio: Mean = field(default_factory=Mean)
    measured_s: Mean = field(default_factory=Mean)
    metric: float | None = None
    limit_cores: Mean = field(default_factory=Mean)
    usage_cores: Mean = field(default_factory=Mean)
    account: CpuAccount = field(default_factory=CpuAccount)


class Minutes:
    """Adds cycles up to minutes, by the clock on the wall, as that is what history is asked by."""

    def __init__(self) -> None:
        self._accountant = Accountant()
        self._before_s: float | None = None
        self._minute: float | None = None
        self._begin(0, 0.0)

    def _begin(self, cycle: int, at_s: float) -> None:
        self._first_cycle, self._last_cycle, self._at_s = cycle, cycle, at_s
        self._cycles = 0
        self._node = [Mean() for _ in range(5)]
        self._shadow_cores = Mean()
        self._seconds = self._used_core_s = 0.0
        self._jobs: dict[str, _JobSums] = {}

    def take(self, report: CycleReport) -> Minute | None:
        """Add a cycle; returns the minute before if this one begins another."""
        at_s = wall_s(report.wall_time)
        if at_s is None:
            return None
        minute, done = at_s // MINUTE_S, None
        if minute != self._minute:
            done = self.current()
            self._minute = minute
            self._begin(report.snapshot.cycle, at_s)
        self._add(report)
        return done

    def current(self) -> Minute | None:
        """The minute up to the last cycle; None: it has none."""
        if not self._cycles:
            return None
        capacity, given, used, foreign, memory = (each.mean for each in self._node)
        node = NodeMinute(
            self._cycles,
            capacity,
            given,
            used,
            foreign,
            memory,
            self._seconds,
            self._used_core_s,
            self._shadow_cores.mean,
        )
        jobs = {name: _job_minute(sums) for name, sums in self._jobs.items()}
        return Minute(self._first_cycle, self._last_cycle, self._at_s, node, jobs)

    def _add(self, report: CycleReport) -> None:
        snapshot = report.snapshot
        # The time before the first cycle of a run is unknown: the daemon may have been away.
        before_s = snapshot.now_s if self._before_s is None else self._before_s
        seconds = max(snapshot.now_s - before_s, 0.0)
        self._before_s = snapshot.now_s
        self._last_cycle = snapshot.cycle
        self._cycles += 1
        self._seconds += seconds
        accounts = self._accountant.accounts(snapshot, report.outlooks)
        given, used, memory = 0.0, 0.0, 0
        for job in snapshot.jobs:
            sums = self._jobs.get(job.name)
            if sums is None:
                sums = self._jobs[job.name] = _JobSums(job.spec.owner)
            sums.cycles += 1
            latency_s, ratio = latency_of(job)
            sums.measured_s.add(latency_s)
            sums.ratio.add(ratio)
            metric = metric_of(job)
            sums.metric = sums.metric if metric is None else metric
            usage_cores = job.usage.cpu_cores
            memory += job.usage.memory_bytes or 0
            self._used_core_s += max(usage_cores or 0.0, 0.0) * seconds
            if job.runs:
                sums.limit_cores.add(job.actual.cpu_cores)
                sums.usage_cores.add(usage_cores)
                given += job.actual.cpu_cores or 0.0
                used += usage_cores or 0.0
            if (account := accounts.get(job.name)) is not None:
                sums.account = sums.account.plus(account, seconds)
        node = snapshot.node
        values = (node.capacity_cores, given, used, node.foreign_cores, float(memory))
        for sum_, value in zip(self._node, values, strict=True):
            sum_.add(value)
        self._shadow_cores.add(_shadow_cores(report))


def _shadow_cores(report: CycleReport) -> float | None:
    shadow = report.shadow
    if shadow is None or shadow.trouble is not None:
        return None
    limits = {name: one.cpu_cores for name, one in shadow.limits.items()}
    uses = {job.name: job.usage.cpu_cores or 0.0 for job in report.snapshot.running}
    return math.fsum(uses.get(name, 0.0) if one is None else one for name, one in limits.items())


def _job_minute(sums: _JobSums) -> JobMinute:
    return JobMinute(
        sums.cycles,
        sums.owner,
        sums.ratio.mean,
        *sums.ratio.bounds,
        sums.measured_s.mean,
        sums.metric,
        sums.limit_cores.mean,
        sums.usage_cores.mean,
        *sums.account,
    )


def packed(minute: Minute) -> bytes:
    """Node and jobs as compressed JSON."""
    rows = {name: _rounded(job) for name, job in minute.jobs.items()}
    text = json.dumps([_rounded(minute.node), rows], separators=(",", ":"))
    return zlib.compress(text.encode(), 1)


def unpacked(first_cycle: int, last_cycle: int, at_s: float, body: bytes) -> Minute:
    """The minute back. Raises ValueError when it cannot be read."""
    try:
        node, jobs = json.loads(zlib.decompress(body))
        return Minute(
            first_cycle,
            last_cycle,
            at_s,
            NodeMinute(*node[: len(NodeMinute._fields)]),
            {name: JobMinute(*row[:_JOB_FIELDS]) for name, row in jobs.items()},
        )
    except (zlib.error, TypeError, AttributeError) as error:
        raise ValueError(f"not a minute: {error!r}") from error


def _rounded(row: Iterable[Any]) -> list[Any]:
    return [short(value) if isinstance(value, float) else value for value in row]


def short(value: float) -> float | int | None:
    """With fewer digits, so that its JSON is short; None: it is not finite."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{_DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
