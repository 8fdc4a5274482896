"""Gathers from a journal, cycle by cycle, what the fits of one recorded job need. Memory grows with
what was reported, not with cycles."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlsched.estimate.sketch import moments
from dlsched.model.facts import LatencySketch, Sample
from dlsched.model.spec import AccuracyTarget, JobSpec
from dlsched.model.state import JobState, JobView
from dlsched.model.units import same_cores
from dlsched.simulation.trace.schema import STEPS_MAX

SLICE_S = 10.0
"""Length of a job's windows: long enough for requests, with limits that seldom change."""
_BINDS_RATIO = 0.9
_FREE_RATIO = 0.02
"""Part of the periods that a quota may end without having held its container back."""
_SETTLES_S = 2.0
"""After a change of limits, reports still cover requests begun before it."""
WINDOWS_MAX, _WINDOWS_LEAST = 400_000, 1000
"""Windows of all jobs, of 300 bytes each; of one job at least. A job's longer record is thinned out
by half."""
_POINTS_MAX = 50_000
"""Points of one job; a longer record is thinned out by half."""
_STEP_MAX, _METRICS_MAX = STEPS_MAX // 2, 8
"""Bounds of what a job may report."""

_METRICS = ("accuracy", "val_accuracy", "val_acc", "val_loss", "loss")
_OVER = frozenset({JobState.FINISHED, JobState.FAILED})
_GONE = frozenset({JobState.STOPPING, JobState.STOPPED})


@dataclass(slots=True)
class Window:
    """Some time under one ceiling: CPU use, requests, and their latencies."""

    at_s: float
    ceiling_cores: float | None
    length_s: float = 0.0
    used_core_s: float = 0.0
    count: int = 0
    latency_s: float = 0.0
    """Sum over the requests."""
    contended_s: float = 0.0
    counted_s: float = 0.0
    """The sum, from the buckets."""
    squares_s2: float = 0.0
    """Sum of the squares, from the buckets."""
    throttled_s: float = 0.0
    """Time in scheduling periods that hit the quota, where the kernel counts them."""

    @property
    def used_cores(self) -> float:
        return self.used_core_s / self.length_s

    @property
    def mean_s(self) -> float:
        return self.latency_s / self.count

    @property
    def variance_s2(self) -> float:
        """Variance of the latencies, from the buckets."""
        if self.count < 2:
            return 0.0
        spread = self.squares_s2 - self.counted_s**2 / self.count
        return max(0.0, spread) / (self.count - 1)

    @property
    def work_core_s(self) -> float:
        """CPU time per request."""
        return self.used_core_s / self.count

    @property
    def rate_per_s(self) -> float:
        return self.count / self.length_s

    @property
    def held_by_ceiling(self) -> bool:
        """Whether it used nearly all of its ceiling."""
        ceiling = self.ceiling_cores
        return ceiling is not None and self.used_cores >= _BINDS_RATIO * ceiling

    @property
    def contended(self) -> bool:
        """Whether the full node, not the ceiling, limited it most of the time."""
        return self.contended_s > 0.5 * self.length_s and not self.held_by_ceiling

    @property
    def free(self) -> bool:
        """Whether neither a ceiling nor a full node slowed it down."""
        if self.contended or self.held_by_ceiling:
            return False
        return self.ceiling_cores is None or self.throttled_s <= _FREE_RATIO * self.length_s


@dataclass(slots=True)
class Attempt:
    """Steps of one start of a container, each with its job's CPU time."""

    from_core_s: float | None
    """The job's CPU time before this start; None: unknown."""
    points: list[tuple[int, float]] = field(default_factory=list)


@dataclass(slots=True)
class ObservedJob:
    """One job, from its first to its last observation."""

    name: str
    spec: JobSpec
    first_s: float
    ran_before: bool
    """Whether it had used CPU time before its first observation."""
    asked_s: float | None = None
    """When its container was requested."""
    started_s: float | None = None
    away: bool = False
    """Whether it is gone or stopping: its name's next use is another life."""
    left_s: float | None = None
    """When it was removed unfinished."""
    ended_s: float | None = None
    finished: bool = False
    """Whether it ended by itself, with exit code 0."""
    retargeted: bool = False
    crashes_s: list[float] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    values: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """By metric: (step, value), in order of arrival."""
    windows_max: int = 20_000
    windows: list[Window] = field(default_factory=list)
    """Windows from its first step or request on."""
    idle_core_s: float | None = None
    """CPU time before the cycle of its first step or request."""
    by_slice: dict[int, float] = field(default_factory=dict)
    """CPU time by slice of the record, for a job whose work is unknown."""
    last: JobView | None = None
    last_s: float = 0.0
    fresh: LatencySketch = LatencySketch()
    """Requests that came in the last cycle."""
    _sampled_s: float = -1.0
    _begun_core_s: float | None = None
    """CPU time before its present start, until that start's first step."""
    _kept: int = 0
    """Number of points of all attempts."""
    _stride: int = 1
    _skipped: int = 0

    def share_windows(self, jobs: int) -> None:
        """It is one of so many jobs, which share the bound on all windows."""
        self.windows_max = min(self.windows_max, max(_WINDOWS_LEAST, WINDOWS_MAX // jobs))

    def likely_metric(self) -> str | None:
        """The likely main metric of a training without a target; None: it reported no metric."""
        known = [name for name in _METRICS if name in self.values]
        return next(iter(known), None) or max(
            self.values, key=lambda name: len(self.values[name]), default=None
        )

    def returns_as_new(self, view: JobView) -> bool:
        """Whether this is another life under the same name."""
        over = self.ended_s is not None and view.spec.digest != self.spec.digest
        return (self.away or over) and view.state not in _OVER | _GONE

    def absent(self, now_s: float) -> None:
        """It is missing from the snapshot, or stopping."""
        self.away = True
        if self.left_s is None and self.ended_s is None:
            self.left_s = now_s

    def see(self, view: JobView, now_s: float, origin_s: float, *, contended: bool) -> None:
        before = self.last
        if view.spec.target != self.spec.target and before is not None:
            self.retargeted = True
        self.spec = view.spec
        if before is None and view.starts <= 1:
            self._begun_core_s = 0.0
        self._follow(view, before, now_s)
        self.fresh = view.progress.fresh
        if before is not None and self.ended_s is None and self.left_s is None:
            self._measure(view, before, now_s, origin_s, contended)
        self._take_samples(view, before, now_s)
        self.last, self.last_s = view, now_s

    # ------------------------------------------------------------------ its life

    def _follow(self, view: JobView, before: JobView | None, now_s: float) -> None:
        if view.state in _GONE:
            self.absent(now_s)
        if view.state in _OVER and self.ended_s is None and self.left_s is None:
            self.ended_s, self.finished = now_s, view.state is JobState.FINISHED
        elif view.state is JobState.RUNNING:
            self.ended_s = None
        if view.runs and self.started_s is None:
            self.started_s = now_s if view.started_at_s is None else view.started_at_s
        if before is None:
            return
        same = view.container_id == before.container_id
        again = same and view.starts > before.starts
        if before.runs and (again or view.state is JobState.RESTARTING):
            self.crashes_s.append(now_s)
        if again or not same:
            self._begun_core_s = before.attained_core_s

    # ------------------------------------------------------------------ use and requests

    def _measure(
        self, view: JobView, before: JobView, now_s: float, origin_s: float, contended: bool
    ) -> None:
        length_s = now_s - self.last_s
        used = view.attained_core_s - before.attained_core_s
        if length_s <= 0 or used < 0 or not (view.runs and before.runs):
            return
        piece = int((now_s - origin_s) // SLICE_S)
        self.by_slice[piece] = self.by_slice.get(piece, 0.0) + used
        fresh = self.fresh
        if self.idle_core_s is None:
            if not fresh.count and not view.progress.samples:
                return
            self.idle_core_s = before.attained_core_s
        settled_s = max(view.changed_at_s or 0.0, view.started_at_s or 0.0) + _SETTLES_S
        if now_s - length_s < settled_s:
            return
        window = self._window(now_s - length_s, view.actual.cpu_cores)
        window.length_s += length_s
        window.used_core_s += used
        window.contended_s += length_s * contended
        window.throttled_s += length_s * (view.usage.throttled_ratio or 0.0)
        window.count += fresh.count
        window.latency_s += fresh.sum_s
        _, counted_s, squares_s2 = moments(fresh)
        window.counted_s += counted_s
        window.squares_s2 += squares_s2

    def _window(self, begin_s: float, ceiling: float | None) -> Window:
        last = self.windows[-1] if self.windows else None
        joins = (
            last is not None
            and last.length_s < SLICE_S
            and abs(last.at_s + last.length_s - begin_s) < 1e-6
            and same_cores(last.ceiling_cores, ceiling)
        )
        if last is not None and joins:
            return last
        if len(self.windows) >= self.windows_max:
            self.windows = self.windows[::2]
        self.windows.append(Window(begin_s, ceiling))
        return self.windows[-1]

    # ------------------------------------------------------------------ steps

    def _take_samples(self, view: JobView, before: JobView | None, now_s: float) -> None:
        for sample in view.progress.samples:
            if sample.received_s > self._sampled_s:
                self._take(sample, view, before, now_s)
        if view.progress.samples:
            self._sampled_s = max(self._sampled_s, view.progress.samples[-1].received_s)

    def _take(self, sample: Sample, view: JobView, before: JobView | None, now_s: float) -> None:
        if sample.step is None or not 0 <= sample.step <= _STEP_MAX:
            return
        self._skipped += 1
        # The CPU time of earlier reports is unknown.
        if self._skipped % self._stride == 0 and before is not None:
            self._point(sample.step, self._core_s_at(sample, view, before, now_s))
        target = self.spec.target
        for metric, value in sample.metrics:
            if isinstance(target, AccuracyTarget):
                wanted = metric == target.metric
            else:
                wanted = metric in self.values or len(self.values) < _METRICS_MAX
            if wanted:
                values = self.values.setdefault(metric, [])
                values.append((sample.step, value))
                if len(values) > _POINTS_MAX:
                    del values[::2]

    def _point(self, step: int, core_s: float) -> None:
        attempts = self.attempts
        last = attempts[-1].points[-1] if attempts else (step, core_s)
        # No start was observed: the agent was away, and its counter restarted.
        if not attempts or self._begun_core_s is not None or step < last[0] or core_s < last[1]:
            attempts.append(Attempt(self._begun_core_s))
            self._begun_core_s = None
        attempts[-1].points.append((step, core_s))
        self._kept += 1
        if self._kept > _POINTS_MAX:
            self._stride *= 2
            for one in attempts:
                one.points = one.points[::2]
            self._kept = sum(len(one.points) for one in attempts)

    def _core_s_at(self, sample: Sample, view: JobView, before: JobView, now_s: float) -> float:
        """The job's CPU time when the line arrived. A real sidecar is read once a cycle, so its
        lines arrived, on average, in the middle of it."""
        part = (sample.received_s - self.last_s) / (now_s - self.last_s)
        part = 0.5 if part > 1.0 - 1e-6 else max(0.0, part)
        used = view.attained_core_s - before.attained_core_s
        return view.attained_core_s - (1.0 - part) * used if used >= 0 else view.attained_core_s
