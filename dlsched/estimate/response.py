"""Measures whether a job gets faster with more CPU, and so how many cores it can use.

The CPU use of a GPU job does not show that, since a thread that waits for a GPU spins and uses all
of its quota. So there are trials: fewer cores for a moment, and more again now and then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from dlsched.estimate.sketch import cv
from dlsched.estimate.tuning import CLEARLY, LITTLE, MARGIN
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import JobView, Snapshot
from dlsched.model.units import render_seconds

FLAT = 0.2
"""Elasticity of speed, d ln speed / d ln cores, up to which more cores are useless: twice the cores
make the job at most 15 % faster."""
TWICE = 2
"""Flat comparisons in a row that count as evidence (debounce)."""
STEP_DOWN, STEP_UP = 1.3, 1.5
"""A trial divides or multiplies the cores by this: enough to show above the noise."""
FIRST_S, AGAIN_S, TRIAL_S = 30.0, 600.0, 30.0
"""Time until the first trial, between trials, and until a trial without result ends."""
_MIN_WINDOW_S, _MIN_REQUESTS, _MIN_STEPS = 2.0, 8, 4


class Phase(StrEnum):
    """The state of one job: no limit, limited to the cores that it can use (HELD), or in a trial of
    fewer or more cores than that."""

    WATCHED = "watched"
    FEWER = "fewer"
    HELD = "held"
    MORE = "more"


@dataclass(frozen=True, slots=True)
class Level:
    """The speed of a job, measured entirely under one limit."""

    cores: float
    speed_per_s: float
    """Steps a second, or 1 / latency."""
    noise: float
    """Relative standard error."""
    requests: int = 0
    """Number of requests answered; 0: the speed is in steps."""
    load_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Response:
    """The response of one container's speed to CPU, as far as it is measured."""

    name: str
    container_id: str | None
    least: Level
    """The fewest cores at which it kept its speed."""
    most: Level | None = None
    """The most cores at which it was no faster."""
    share: float | None = None
    """Its share of GPU time during the measurement."""
    flat: int = 0
    """Comparisons in a row in which more cores were useless."""
    phase: Phase = Phase.WATCHED
    until_s: float = 0.0
    """When the next trial begins, or the present one ends."""
    tried: Phase | None = None
    """The last trial; in phase HELD, trials of fewer and more cores alternate."""
    judged_s: float | None = None
    """Time of the change of limits that the last comparison was made after."""

    @property
    def ceiling_cores(self) -> float | None:
        """The most cores that it should get; None: no limit."""
        if self.phase is Phase.WATCHED:
            return None
        step = {Phase.FEWER: 1 / STEP_DOWN, Phase.HELD: (1.0 + LITTLE), Phase.MORE: STEP_UP}
        return self.least.cores * step[self.phase]

    @property
    def useful_cores(self) -> float | None:
        """The usable cores reported to a policy; None: no limit. They are a little above the
        ceiling, since a policy that finds a late job at its ceiling may give it up for good and let
        it starve. A trial of fewer cores does not lower them: it is no basis for a division."""
        if self.flat < TWICE or self.ceiling_cores is None:
            return None
        return MARGIN * max(self.ceiling_cores, (1.0 + LITTLE) * self.least.cores)

    @property
    def reason(self) -> str:
        """The reason for the ceiling, as text; empty without one."""
        ceiling = self.ceiling_cores
        if ceiling is None:
            return ""
        if self.phase is Phase.FEWER:
            return (
                f"a trial: the job gets at most {ceiling:.3f} cores for a moment, to measure "
                "whether it becomes slower"
            )
        text = (
            f"at most {ceiling:.3f} cores: with more than {self.least.cores:.2f} cores the job was "
            "not faster"
        )
        if self.most is not None:
            text += (
                f" ({self.least.cores:.2f} -> {self.most.cores:.2f} cores: "
                f"{_pace(self.least)} -> {_pace(self.most)})"
            )
        more = "; a trial with more cores is running, to measure this again"
        return f"{text}{more}" if self.phase is Phase.MORE else text


def followed(
    known: Response | None, job: JobView, snapshot: Snapshot, *, contended: bool
) -> Response | None:
    """The response after this cycle; None: nothing measured yet. `contended`: other jobs could use
    the cores that it does not need, so a trial may pay off."""
    if known is not None and known.container_id != job.container_id:
        known = None
    level, now_s = measured(job, snapshot), snapshot.now_s
    if level is None:
        tried = known is not None and known.phase in (Phase.FEWER, Phase.MORE)
        return _ended(known, now_s) if known and tried and now_s >= known.until_s else known
    if known is None or _is_other_work(known, job, level):
        return _fresh(job, level, now_s + FIRST_S)
    if not _same_share(known.share, job.actual.gpu_share):
        # A smaller share of the GPU needs no more CPU than a larger one.
        least = replace(level, cores=known.least.cores)
        known = replace(known, least=least, most=None, share=job.actual.gpu_share)
    known = _compared(known, job, level, now_s)
    return _in_time(known, job, now_s, contended=contended)


def measured(job: JobView, snapshot: Snapshot) -> Level | None:
    """Its speed under the applied limits; None: too inexact, or it has no limit."""
    cores, window = job.actual.cpu_cores, job.progress.window
    since_s = max(job.started_at_s or 0.0, job.changed_at_s or 0.0)
    passed_s = min(snapshot.now_s - since_s, snapshot.window_s)
    if cores is None or passed_s < _MIN_WINDOW_S:
        return None
    if isinstance(job.spec.target, LatencyTarget) or window.count:
        if window.count < _MIN_REQUESTS or not window.sum_s > 0:
            return None
        noise = (cv(window) or 0.0) / math.sqrt(window.count)
        level = Level(
            cores, window.count / window.sum_s, noise, window.count, window.count / passed_s
        )
    elif (found := _steps_per_s(job, since_s)) is not None:
        level = Level(cores, *found)
    else:
        return None
    return level if level.noise <= LITTLE else None


def _steps_per_s(job: JobView, since_s: float) -> tuple[float, float] | None:
    """Steps a second and their relative standard error, in this attempt, under this limit."""
    marks = [
        (one.received_s, one.step)
        for one in job.progress.samples
        if one.step is not None and one.received_s >= since_s
    ]
    back = [index for index, (old, new) in enumerate(pairwise(marks), 1) if new[1] < old[1]]
    marks = marks[back[-1] :] if back else marks
    paces = [(n[1] - o[1]) / (n[0] - o[0]) for o, n in pairwise(marks) if n[0] > o[0]]
    if len(paces) < _MIN_STEPS:
        return None
    mean = (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])
    if not mean > 0:
        return None
    spread = math.sqrt(math.fsum((pace - mean) ** 2 for pace in paces) / (len(paces) - 1))
    return mean, spread / mean / math.sqrt(len(paces))


def _fresh(job: JobView, level: Level, until_s: float) -> Response:
    share, judged_s = job.actual.gpu_share, job.changed_at_s
    return Response(
        job.name, job.container_id, level, share=share, until_s=until_s, judged_s=judged_s
    )


def _near(a: Level, b: Level) -> bool:
    """Whether their cores are too similar for a comparison."""
    return max(a.cores, b.cores) < MARGIN * min(a.cores, b.cores)


def _same_share(a: float | None, b: float | None) -> bool:
    return a is b if a is None or b is None else abs(a - b) <= 0.005 + 0.02 * b


def _is_other_work(known: Response, job: JobView, level: Level) -> bool:
    """Whether the measurements are void, since the GPU share, the load or the speed changed."""
    least, share = known.least, job.actual.gpu_share
    if bool(least.requests) != bool(level.requests):
        return True
    held = known.phase is Phase.HELD and _near(least, level)
    if not _same_share(known.share, share):
        shrunk = share is not None and known.share is not None and share < known.share
        return not (held and shrunk)
    noise = math.hypot(least.noise, level.noise)
    faster = math.log(level.speed_per_s / least.speed_per_s)
    if held and -faster > LITTLE + 2 * noise:
        return True
    if not least.requests:
        return False
    # A closed loop sends requests as fast as they are answered: that is speed, not load.
    busier = math.log(level.load_per_s / least.load_per_s) - max(faster, 0.0)
    by_chance = math.sqrt(1 / least.requests + 1 / level.requests)
    return busier > math.log(CLEARLY) + 2 * by_chance


def _compared(known: Response, job: JobView, level: Level, now_s: float) -> Response:
    """Compares the level with the one of the fewest cores so far."""
    least = known.least
    if _near(least, level):
        refreshed = replace(known, least=replace(level, cores=least.cores))
        return refreshed if known.phase is Phase.WATCHED else known
    down = level.cores < least.cores
    fewer, more = (level, known.most or least) if down else (least, level)
    log_ratio = math.log(more.cores / fewer.cores)
    gain = math.log(more.speed_per_s / fewer.speed_per_s)
    noise = math.hypot(fewer.noise, more.noise)
    bound = min(FLAT * log_ratio, LITTLE)
    if gain + noise <= bound:
        return _found_flat(known, job, fewer, more, now_s)
    if gain - 2 * noise <= bound:
        return known  # not yet significant
    if not down or known.phase is Phase.WATCHED:
        return _fresh(job, level, now_s + AGAIN_S)  # it responds to cores
    return _ended(known, now_s) if known.phase is Phase.FEWER else known


def _found_flat(known: Response, job: JobView, fewer: Level, more: Level, now_s: float) -> Response:
    new = job.changed_at_s != known.judged_s
    known = replace(
        known,
        least=fewer,
        most=max((more, known.most or more), key=lambda one: one.cores),
        flat=known.flat + new,
        judged_s=job.changed_at_s,
    )
    if known.phase is Phase.FEWER:
        if not _has_room(known, job):
            return _ended(known, now_s)
        return replace(known, until_s=now_s + TRIAL_S) if new else known
    if known.phase is Phase.MORE:
        return _ended(known, now_s)
    if known.phase is Phase.WATCHED and known.flat >= TWICE:
        return replace(known, phase=Phase.HELD, until_s=now_s)
    return known


def _in_time(known: Response, job: JobView, now_s: float, *, contended: bool) -> Response:
    """Begins or ends trials that are due."""
    if now_s < known.until_s:
        return known
    if known.phase in (Phase.FEWER, Phase.MORE):
        return _ended(known, now_s)
    fewer = contended and _has_room(known, job)
    held = known.phase is Phase.HELD
    if fewer and not (held and known.tried is Phase.FEWER):
        return replace(known, phase=Phase.FEWER, until_s=now_s + TRIAL_S)
    if held and known.tried is None:
        return _ended(known, now_s)  # it was measured under fewer cores before more
    if held:
        return replace(known, phase=Phase.MORE, until_s=now_s + TRIAL_S)
    return replace(known, until_s=now_s + FIRST_S)


def _has_room(known: Response, job: JobView) -> bool:
    """Whether its floor allows a trial of fewer cores."""
    return known.least.cores / STEP_DOWN >= job.spec.bounds.floor_cores


def _ended(known: Response, now_s: float) -> Response:
    """Ends the trial; the job is limited if the evidence suffices (`TWICE`)."""
    phase = Phase.HELD if known.flat >= TWICE else Phase.WATCHED
    return replace(known, phase=phase, until_s=now_s + AGAIN_S, tried=known.phase)


def _pace(level: Level) -> str:
    if not level.requests:
        return f"{level.speed_per_s:.3g} steps/s"
    return render_seconds(1 / level.speed_per_s)
