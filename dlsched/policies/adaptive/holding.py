"""Holds trainings back while a service misses its target although its weight is higher.

Weights only compare containers under one parent control group, and do not divide caches, memory
bandwidth or shared cores. So a service can miss its target because of trainings. This module
decides when trainings are held back, by how much, and when that ends.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlsched.estimate.sketch import against_target_s
from dlsched.estimate.tuning import AGAIN_S, FEW_REQUESTS, LITTLE, MARGIN, MOSTLY, ROOM_RATIO
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import JobView
from dlsched.model.units import render_seconds
from dlsched.policies.adaptive.services.model import ServiceMemory

_STEP_RATIO = 0.5
"""Each further step leaves trainings this fraction of their cores."""
_QUEUE = 2.0
"""Requests in flight, from which each waits for those before it, too."""
_LONGER = 2.0
"""A hold that is needed again soon lasts so many times longer than the last one."""


@dataclass(frozen=True, slots=True)
class Lack:
    """A service that misses a target for which it has room."""

    name: str
    adopted: bool
    latency_s: float
    target_s: float
    waits: bool = True
    """Whether waiting for CPU contributes to that latency; also true where that is unknown."""

    @property
    def ratio(self) -> float:
        return self.latency_s / self.target_s


@dataclass(frozen=True, slots=True)
class Hold:
    """How far trainings are held back, and whether that has helped."""

    steps: int = 0
    since_s: float = 0.0
    """Time of the last step."""
    ratio: float = 0.0
    """Latency over target of the worst service then; 0: none missed its target."""
    lacks: tuple[Lack, ...] = ()
    """The services it helps: the worst of our own and the worst of the adopted ones."""
    left_cores: float = 0.0
    """Cores that services left to all trainings together when the hold began."""
    again_s: float = 0.0
    """No new hold before this time, since the last one did not help."""
    lasts_s: float = 0.0
    """How long after its last step a step is taken back."""
    ended_s: float | None = None
    """When the last hold ended; None: there was none."""
    unexplained_s: float | None = None
    """Since when services miss targets without waiting for CPU."""
    busiest_cores: float = 0.0
    """The most that services used together in one sample of the last window, at `busiest_s`."""
    busiest_s: float = 0.0

    def after(self, services_cores: float, now_s: float, window_s: float) -> Hold:
        """The hold with the peak use of the window updated by the services' present use."""
        if services_cores < self.busiest_cores and now_s - self.busiest_s < window_s:
            return self
        return replace(self, busiest_cores=services_cores, busiest_s=now_s)

    def explains(self, cores: float) -> bool:
        """Whether services were so busy on these cores that they slowed each other down."""
        return self.busiest_cores > ROOM_RATIO * cores


NOT_HELD = Hold()


@dataclass(frozen=True, slots=True)
class Held:
    """How each training is held back; mappings are by job, ceilings in cores."""

    ceilings: Mapping[str, float] = field(default_factory=dict)
    behind: Collection[str] = ()
    """Trainings that go to the kernel's idle class."""
    why: Mapping[str, str] = field(default_factory=dict)


def lacking(serving: Sequence[JobView], known: Sequence[ServiceMemory]) -> list[Lack]:
    """Services without a ceiling that miss a target for which there is room, the worst first."""
    memory = {one.name: one for one in known}
    found = []
    for job in serving:
        one = memory.get(job.name)
        if one is None or not one.can_be_placed(free=True) or not one.kept or one.hopeless:
            continue
        if one.ease.steps or not job.cpu_helps:
            continue  # more CPU makes it slower, or changes nothing
        latency_s, target_s = _latency(job)
        if one.doubt is not None or latency_s is None or job.actual.cpu_cores is not None:
            continue
        if latency_s / target_s > MARGIN:
            in_flight = one.arrivals.rate_per_s(latency_s) * latency_s
            waits = _waits(job.usage.cpu_wait_ratio, in_flight, 1.0 - target_s / latency_s)
            found.append(Lack(job.name, job.adopted, latency_s, target_s, waits))
    return sorted(found, key=lambda one: (-one.ratio, one.name))


def _latency(job: JobView) -> tuple[float | None, float]:
    """A service's measured latency (None: too few requests) and its target, in seconds."""
    target, window = job.spec.target, job.progress.window
    assert isinstance(target, LatencyTarget)
    few = window.count < FEW_REQUESTS
    return None if few else against_target_s(window, target), target.seconds


def _waits(wait_ratio: float | None, in_flight: float, excess_ratio: float) -> bool:
    """Whether waiting for CPU is a noticeable part of latency with so many requests in flight, and
    most of what is above the target, `excess_ratio` of that latency, unless they are a queue. Else
    it is late for something else, or says so falsely."""
    if wait_ratio is None:
        return True
    excess = 0.0 if in_flight > _QUEUE else MOSTLY * excess_ratio * in_flight
    return wait_ratio > max(LITTLE * min(in_flight, 1.0), excess)


def helps(hold: Hold, serving: Sequence[JobView]) -> bool:
    """Whether a service that trainings are held for is on target, or cannot be judged now."""
    names = {one.name for one in hold.lacks}
    held_for = [_latency(job) for job in serving if job.name in names]
    return any(
        latency_s is None or latency_s <= MARGIN * target_s for latency_s, target_s in held_for
    )


def stepped(
    hold: Hold,
    lacks: Sequence[Lack],
    training: Sequence[JobView],
    left_cores: float,
    now_s: float,
    window_s: float,
    *,
    helped: bool,
) -> Hold:
    """The hold after this cycle: one step more, one step less, unchanged or released.

    `left_cores`: the node's cores less the mean use of its services, with headroom. `window_s`: the
    window over which latencies are measured; no step is judged before it has passed. `helped`: not
    so where the services that it is for have gone, or miss targets that nothing here can meet.
    """
    ratio = max((one.ratio for one in lacks), default=0.0)
    worst = {one.adopted: one for one in (*hold.lacks, *reversed(lacks))}
    further = replace(
        hold, steps=hold.steps + 1, since_s=now_s, ratio=ratio, lacks=tuple(worst.values())
    )
    if not hold.steps:
        if not lacks or not training:
            return replace(hold, unexplained_s=None)
        # A service that does not wait for CPU is slowed by caches and shared cores, or by pauses of
        # its own: those pass, so the hold begins only if it lasts.
        if not any(one.waits for one in lacks):
            since_s = hold.unexplained_s
            if since_s is None or now_s - since_s < AGAIN_S:
                return replace(hold, unexplained_s=now_s if since_s is None else since_s)
        if now_s < hold.again_s:
            return hold
        # Most misses pass. One that comes back shows that trainings are their cause.
        back = hold.ended_s is not None and now_s - hold.ended_s < AGAIN_S
        lasts_s = min(_LONGER * hold.lasts_s, AGAIN_S) if back else window_s
        return replace(further, left_cores=left_cores, unexplained_s=None, lasts_s=lasts_s)
    held_s = now_s - hold.since_s
    if not training:
        return let_go(hold, now_s)
    if held_s < window_s:
        return hold
    if not lacks:
        if not helped:
            return let_go(hold, now_s, in_vain=True)
        if held_s < hold.lasts_s:
            return hold
        if hold.steps == 1:
            return let_go(hold, now_s)
        return replace(hold, steps=hold.steps - 1, since_s=now_s, ratio=0.0)
    if hold.ratio and MARGIN * ratio > hold.ratio:
        return let_go(hold, now_s, in_vain=True)
    # Below the idle class there is no further step.
    return hold if all(_goes_behind(hold, job) for job in training) else further


def _goes_behind(hold: Hold, job: JobView) -> bool:
    """Whether the idle class is enough: it may go there, under the parent of all these services."""
    return job.may_idle and all(one.adopted is job.adopted for one in hold.lacks)


def let_go(hold: Hold, now_s: float, *, in_vain: bool = False) -> Hold:
    """No hold. One that was `in_vain` does not begin again for `AGAIN_S`."""
    return Hold(
        again_s=now_s + AGAIN_S if in_vain else 0.0,
        lasts_s=hold.lasts_s,
        ended_s=now_s,
        busiest_cores=hold.busiest_cores,
        busiest_s=hold.busiest_s,
    )


def held(hold: Hold, training: Sequence[JobView], least_cores: Mapping[str, float]) -> Held:
    """What that hold means for each training.

    A training goes to the idle class if it may and all services that miss targets are under its
    parent control group. Otherwise it gets a ceiling: its share by weight of what the services
    leave, never less than `least_cores`.
    """
    if not hold.steps:
        return Held()
    left = hold.left_cores * _STEP_RATIO ** (hold.steps - 1)
    weight = math.fsum(job.spec.weight for job in training)
    ceilings, behind, why = {}, [], {}
    for job in training:
        apart = [one for one in hold.lacks if one.adopted is not job.adopted]
        if _goes_behind(hold, job):
            behind.append(job.name)
            text = "the training runs on idle CPU alone"
        else:
            ceilings[job.name] = max(left * job.spec.weight / weight, least_cores[job.name])
            text = f"the training is limited to {ceilings[job.name]:.2f} cores"
        first = (*apart, *hold.lacks)[0]
        text += (
            f", because {first.name} missed its target: its latency was "
            f"{render_seconds(first.latency_s)}, target {render_seconds(first.target_s)}"
        )
        if apart:
            text += f"; {first.name} is in another control group, so weights do not help"
        why[job.name] = text
    return Held(ceilings, behind, why)


def left_cores(free_cores: float, services_cores: float) -> float:
    """Cores for all trainings together when services keep their mean use with headroom."""
    return max(free_cores - services_cores / ROOM_RATIO, 0.0)
