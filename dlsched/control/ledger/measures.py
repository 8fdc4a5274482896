"""Measurements of one job: rates from counters, and sliding windows of sidecar lines. Decides what
counts as measured under the present limits. Part of the ledger's mutable state."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dlsched.control.ledger.blindness import Silence
from dlsched.estimate.gpu_use import GpuUse
from dlsched.estimate.sketch import merge
from dlsched.estimate.sliding import SlidingSketch
from dlsched.model.facts import (
    CheckpointAck,
    ContainerFact,
    ContainerState,
    LatencySketch,
    Report,
    Sample,
    Usage,
)
from dlsched.model.spec import Limits
from dlsched.model.state import (
    LACKING_REPORTS,
    MISSING_GAPS,
    NAMES_KEPT,
    OFTEN_S,
    Lacks,
    Progress,
)
from dlsched.model.units import same_cores

STALE_WRITER_S = 10.0
"""A writer that is silent for this long no longer counts with its requests in flight."""

SILENCE_S = 30.0
"""A silent job's CPU use is a mean over once to twice that: a health check is a second of it, and
what loading a model took is forgotten by the time that it might be called blind."""

RATE_S = 0.5
"""Shortest time of a rate of CPU use. Events begin cycles 20 ms apart; within a quota's period,
usually 100 ms, a container may use nothing or all of it."""

_SAMPLES = 256
_GAPS = 5
"""Number of gaps between reports of requests whose median is the typical gap. As a median it
ignores a single silence or burst."""
_LINES_APART, _BUCKETS_APART = 64, 1024
"""If a job sends more in a cycle, its lines are merged into one, so that a flood costs no more."""
_ENDED = frozenset({ContainerState.EXITED, ContainerState.DEAD})
_NONE = LatencySketch()
_WRITERS = 1024
"""Maximum number of writers of a job whose requests in flight count; later ones are ignored."""


class _Mark(NamedTuple):
    """The CPU time attained at one moment."""

    at_s: float
    core_s: float


class _Counters(NamedTuple):
    """The kernel's counters of one start, at one moment."""

    at_s: float
    core_s: float
    periods: int | None
    throttled: int | None


@dataclass(slots=True)
class Measures:
    """All measurements of one job, over all its starts."""

    container_id: str | None = None
    starts: int = 0
    started_at_s: float | None = None
    resume_s: float | None = None
    """Time from its last observed start to its first report; None: no start was observed."""
    changed_at_s: float | None = None
    """When its limits last changed. Only requests that began later count as measured under them."""
    actual: Limits = field(default_factory=Limits)
    attained_core_s: float = 0.0
    usage: Usage = field(default_factory=Usage)
    rests: bool = False
    """Whether the last update changed nothing. Equal facts will change nothing again."""
    _life: str | None = None
    """`ContainerFact.life`, so that samples stay in one series when the job moves."""
    _counters: _Counters | None = None
    _rated: _Counters | None = None
    """The counters from which the next rate of CPU use is measured."""
    _cpu: deque[tuple[float, float]] = field(default_factory=deque)
    _gpu: deque[tuple[float, float]] = field(default_factory=deque)
    """(time, cumulated busy seconds), as a mean over its GPUs."""
    _recent: SlidingSketch = field(default_factory=SlidingSketch)
    _window: SlidingSketch | None = None
    """The part of `_recent` that began after the last change of limits; None: all of it."""
    _window_since_s: float = 0.0
    """The change of limits at which `_window` begins."""
    _fresh: LatencySketch = _NONE
    _writers: dict[str, tuple[float, int, float]] = field(default_factory=dict)
    """By writer: time of its last line, requests in flight, age of the oldest."""
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    _checkpoint: CheckpointAck | None = None
    _gpu_ratio: float | None = None
    _as_of_s: float | None = None
    _gaps_s: deque[float] = field(default_factory=lambda: deque(maxlen=_GAPS))
    """Gaps between its reports of requests."""
    _every_s: float = OFTEN_S
    _silence: Silence = field(default_factory=Silence)
    """All but the CPU use, which follows from `_marks`."""
    _marks: tuple[_Mark, ...] = ()
    """The CPU time attained at the last report of latencies, then at one or two moments of the
    silence since."""
    _metric: str | None = None
    """The metric of its target."""
    _lacks: Lacks | None = None
    _came: bool = False
    """Whether that metric ever came."""
    _last_progress: Progress | None = None
    """The last value of `progress`, which stays the same object while nothing of it changes."""
    _silent_since_s: float | None = None
    """Time of an observed start, until the first report."""
    _watched: bool = False
    """Whether the job was known before, so its next start is observed from its beginning."""
    _resting: ContainerFact | None = None
    """The last fact, if it changes nothing when taken in again."""
    _rests_at_s: float = 0.0
    """When it was last observed at rest."""

    def is_new(self, fact: ContainerFact) -> bool:
        """Whether the fact is of another start than the one measured so far."""
        return fact.container_id != self.container_id or fact.starts != self.starts

    def absent(self) -> None:
        self._fresh = _NONE
        self._watched = True
        self.usage = Usage()
        self._counters = self._rated = self._resting = None
        self.rests = False
        self.container_id = self._life = None

    def limited(self, limits: Limits, now_s: float) -> bool:
        """Set the limits that apply from now on; returns False if they applied already."""
        same = same_cores(self.actual.cpu_cores, limits.cpu_cores)
        if same and self.actual.gpu_share == limits.gpu_share:
            return False
        self.actual, self.changed_at_s = limits, now_s
        self._wake_up(self._rests_at_s)
        self._resting, self.rests = None, False
        return True

    def update(
        self, fact: ContainerFact, now_s: float, window_s: float, gpu: GpuUse | None = None
    ) -> float:
        """Take in one observation; returns the core-seconds used since the previous one. `gpu` is
        its GPU use from the driver. Where a value is None, the job's own report counts."""
        self.rests = self._resting is not None and (fact is self._resting or fact == self._resting)
        if self.rests:
            self._rests_at_s = now_s
            return 0.0
        self._wake_up(now_s - window_s)
        if self.is_new(fact):
            self._begin(fact, now_s)
        self.limited(fact.actual, now_s)
        used_core_s = self._take_usage(fact, now_s, window_s)
        self._take_reports(fact, now_s, window_s)
        self._note_silence(fact, now_s)
        if fact.gpus:
            self._take_gpu(gpu or GpuUse(), now_s, window_s)
        if self._is_still(fact):
            self._resting, self._rests_at_s = fact, now_s
        else:
            self._resting = None
        return used_core_s

    def progress(self, fact: ContainerFact | None, now_s: float) -> Progress:
        recent = self._recent.total()
        in_flight, oldest_s = 0, 0.0
        for at_s, count, age_s in self._writers.values():
            if count:
                in_flight += count
                oldest_s = max(oldest_s, age_s + now_s - at_s)
        progress = Progress(
            fresh=self._fresh,
            window=recent if self._window is None else self._window.total(),
            recent=recent,
            in_flight=in_flight,
            oldest_s=oldest_s,
            samples=tuple(self._samples),
            as_of_s=self._as_of_s,
            every_s=self._every_s,
            bad_lines=fact.bad_lines if fact else 0,
            refused=fact.refused if fact else None,
            log=fact.log if fact else None,
            checkpoint=self._checkpoint,
            gpu_ratio=self._gpu_ratio,
            trouble=fact.sidecar_problem if fact else None,
            hides_failures=fact.hides_failures if fact else False,
            wire=fact.wire if fact else None,
            lacks=self._lacks,
        )
        if progress != self._last_progress:
            self._last_progress = progress
        return self._last_progress

    def silence(self, now_s: float) -> Silence:
        """What is measured of the job beside its reports."""
        cores = None
        if self._marks and now_s > (then := self._marks[0]).at_s:
            cores = max(0.0, self.attained_core_s - then.core_s) / (now_s - then.at_s)
        return self._silence._replace(cores=cores)

    def set_metric(self, metric: str | None) -> None:
        """Set the metric of its target; None: it has no such target."""
        if metric == self._metric:
            return
        self._metric, self._lacks, self._came = metric, None, False
        for sample in self._samples:
            self._note_metric(sample)

    def _begin(self, fact: ContainerFact, now_s: float) -> None:
        if fact.life != self._life:
            self._life = fact.life
            self._samples.clear()
            self._lacks, self._came = None, False
            self._checkpoint = None
        self._gpu_ratio = None
        self.container_id = fact.container_id
        self.starts = fact.starts
        self.started_at_s = fact.started_at_s if fact.started_at_s is not None else now_s
        self.changed_at_s = self.started_at_s
        self._silent_since_s = self.started_at_s if self._watched else None
        self._silence = self._silence._replace(start_observed=self._watched, in_flight=None)
        self._watched, self._marks = True, ()
        self.actual = fact.actual
        self._counters = self._rated = None
        self.usage = Usage()
        self._cpu.clear()
        self._gpu.clear()
        self._recent, self._window = SlidingSketch(), None
        self._writers.clear()

    def _take_usage(self, fact: ContainerFact, now_s: float, window_s: float) -> float:
        used_core_s = 0.0
        cpu_cores = throttled = window_cores = None
        if fact.usage_core_s is not None:
            now = _Counters(now_s, fact.usage_core_s, fact.periods, fact.throttled_periods)
            then, self._counters = self._counters, now
            if then is not None and now.core_s < then.core_s:
                # Someone else restarted it, and the engine did not count that.
                then = self._rated = None
                self._cpu.clear()
            used_core_s = now.core_s - (0.0 if then is None else then.core_s)
            if (since := self._rated) is None:
                self._rated = now
            elif now_s < since.at_s + RATE_S and fact.state not in _ENDED:
                cpu_cores, throttled = self.usage.cpu_cores, self.usage.throttled_ratio
            elif now_s > since.at_s:
                cpu_cores = (now.core_s - since.core_s) / (now_s - since.at_s)
                throttled = _throttled_ratio(since, now)
                self._rated = now
            self.attained_core_s += used_core_s
            self._cpu.append((now.at_s, now.core_s))
            window_cores = self._mean_rate(self._cpu, window_s)
        self.usage = replace(
            fact.usage,
            cpu_cores=cpu_cores,
            window_cores=window_cores,
            throttled_ratio=throttled,
        )
        return used_core_s

    def _wake_up(self, since_s: float) -> None:
        """End the rest: its counters were constant all that time."""
        then = self._counters
        if self._resting is None or then is None or self._rests_at_s <= then.at_s:
            return
        self._counters = self._rated = then._replace(at_s=self._rests_at_s)
        for at_s in (max(then.at_s, min(since_s, self._rests_at_s)), self._rests_at_s):
            self._cpu.append((at_s, then.core_s))

    def _mean_rate(self, counts: deque[tuple[float, float]], window_s: float) -> float | None:
        """Mean rate per second since the last change of limits, at most `window_s` back."""
        last_s, last = counts[-1]
        since_s = max(self.changed_at_s or 0.0, last_s - window_s)
        while len(counts) > 1 and counts[0][0] < since_s:
            counts.popleft()
        first_s, first = counts[0]
        return max(0.0, (last - first) / (last_s - first_s)) if last_s > first_s else None

    def _take_gpu(self, use: GpuUse, now_s: float, window_s: float) -> None:
        ratio = self._gpu_ratio if use.busy_ratio is None else use.busy_ratio
        window_ratio = None
        if ratio is None:
            self._gpu.clear()
        else:
            at_s, busy_s = self._gpu[-1] if self._gpu else (now_s, 0.0)
            self._gpu.append((now_s, busy_s + ratio * (now_s - at_s)))
            window_ratio = self._mean_rate(self._gpu, window_s)
        self.usage = replace(
            self.usage,
            gpu_ratio=ratio,
            gpu_window_ratio=window_ratio,
            gpu_memory_bytes=use.memory_bytes,
        )

    def _is_still(self, fact: ContainerFact) -> bool:
        """Whether it does nothing or has ended, and all windows reflect that."""
        return (
            (fact.state in _ENDED or not fact.gpus)
            and not (fact.reports or self._writers or self._recent)
            and not self.usage.window_cores
            and (fact.usage_core_s is None or self.usage.cpu_cores == 0.0)
            and self._fresh is _NONE
        )

    def _take_reports(self, fact: ContainerFact, now_s: float, window_s: float) -> None:
        for report in fact.reports:
            self._take_report(report)
        if fact.reports and self._silent_since_s is not None:
            self.resume_s = max(0.0, fact.reports[0].received_s - self._silent_since_s)
            self._silent_since_s = None
        fresh = [report.latency for report in fact.reports if report.latency is not None]
        self._fresh = merge(*fresh) if len(fresh) > 1 else fresh[0] if fresh else _NONE
        if self._fresh.count or self._fresh.errors:
            self._note_requests(fact.reports[-1].received_s)
        buckets = sum(len(one.buckets) + len(one.spans) for one in fresh)
        if len(fresh) > _LINES_APART or buckets > _BUCKETS_APART:
            span_s = max(one.span_s for one in fact.reports)
            self._slide([Report(now_s, latency=self._fresh, span_s=span_s)], now_s, window_s)
        elif fresh or self._recent:
            self._slide(fact.reports, now_s, window_s)
        stale_s = now_s - max(STALE_WRITER_S, MISSING_GAPS * self._every_s)
        for writer in [key for key, (at_s, _, _) in self._writers.items() if at_s < stale_s]:
            del self._writers[writer]
        if fresh:
            counts = [count for _, count, _ in self._writers.values()]
            self._silence = self._silence._replace(in_flight=any(counts) if counts else None)

    def _take_report(self, report: Report) -> None:
        self._as_of_s = report.received_s
        if report.latency is not None:
            self._silence = self._silence._replace(latency_s=report.received_s)
        known = report.writer in self._writers or len(self._writers) < _WRITERS
        if report.in_flight is not None and known:
            oldest_s = report.oldest_s or 0.0
            self._writers[report.writer] = (report.received_s, report.in_flight, oldest_s)
        if report.sample is not None:
            self._samples.append(report.sample)
            self._note_metric(report.sample)
        if report.checkpoint is not None:
            self._checkpoint = report.checkpoint
        if report.gpu_ratio is not None:
            self._gpu_ratio = report.gpu_ratio

    def _note_metric(self, sample: Sample) -> None:
        """Record whether its target's metric came, or what came in its place."""
        names = [name for name, _ in (*sample.metrics, *sample.diverged)]
        if self._came or self._metric is None:
            return
        if self._metric in names:
            self._came, self._lacks = True, None
            return
        known = self._lacks or Lacks(sample.received_s, 0)
        kept = tuple(dict.fromkeys((*known.names, *names)))[:NAMES_KEPT]
        reports = min(known.reports + 1, LACKING_REPORTS)
        self._lacks = Lacks(known.since_s, reports, kept)

    def _note_silence(self, fact: ContainerFact, now_s: float) -> None:
        """Mark the CPU time at the last report of latencies, and again after each `SILENCE_S`
        without one."""
        mark = _Mark(now_s, self.attained_core_s)
        if fact.usage_core_s is None:
            self._marks = ()
        elif not self._marks or any(one.latency is not None for one in fact.reports):
            self._marks = (mark,)
        elif now_s - self._marks[-1].at_s >= SILENCE_S:
            self._marks = (self._marks[-1], mark)

    def _note_requests(self, at_s: float) -> None:
        """Record a report of requests: the gap before it, and whether each of them failed."""
        before_s, failing_s = self._silence.request_s, self._silence.failing_s
        if before_s is not None and at_s > before_s:
            self._gaps_s.append(at_s - before_s)
            self._every_s = max(statistics.median_low(self._gaps_s), OFTEN_S)
        failing_s = None if self._fresh.count else at_s if failing_s is None else failing_s
        self._silence = self._silence._replace(request_s=at_s, failing_s=failing_s)

    def _slide(self, reports: Sequence[Report], now_s: float, window_s: float) -> None:
        """Add reports to the windows, and drop what is too old or from before the last change."""
        since_s = self.changed_at_s or 0.0
        if since_s != self._window_since_s:
            self._window_since_s, self._window = since_s, SlidingSketch()
        for report in reports:
            latency = report.latency
            if latency is None:
                continue
            counts = _began_s(report, latency, self._every_s) >= since_s
            if self._window is None and not counts:
                self._window = self._recent.copy()
            self._recent.add(latency, report.received_s)
            if self._window is not None and counts:
                self._window.add(latency, report.received_s)
        self._recent.drop_before(now_s - window_s)
        if self._window is not None:
            self._window.drop_before(now_s - window_s)
            if len(self._window) == len(self._recent):  # then both have the same members
                self._window = None


def _throttled_ratio(then: _Counters, now: _Counters) -> float | None:
    """Fraction of the scheduling periods in between that hit the quota; None: not counted."""
    if then.periods is None or now.periods is None:
        return None
    if then.throttled is None or now.throttled is None:
        return None
    periods, hit = now.periods - then.periods, now.throttled - then.throttled
    return min(1.0, max(0.0, hit / periods)) if periods > 0 else 0.0


def _began_s(report: Report, latency: LatencySketch, every_s: float) -> float:
    """Earliest start of the average request in a report."""
    return report.received_s - max(report.span_s, every_s) - (latency.mean_s or 0.0)
