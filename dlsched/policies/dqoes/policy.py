"""The policy `dqoes`: DQoES (`published.dqoes`) corrected where it freezes or winds up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from dlsched.estimate.latency.law import Clients
from dlsched.estimate.sketch import against_target_s, cv
from dlsched.estimate.tuning import MOSTLY
from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.resource import Resource
from dlsched.model.spec import BAND_RATIO, LatencyTarget, Limits
from dlsched.model.state import OFTEN_S, JobView, Snapshot
from dlsched.model.units import counted, render_quantile, render_seconds
from dlsched.policies.fair_share import Claim, claim, fair_shares, water_fill
from dlsched.policies.published.dqoes import QoeClass, qoe_class
from dlsched.policies.ranges import (
    above_zero,
    at_least,
    between_zero_and_one,
    not_negative,
    ratios_above_zero,
)


@dataclass(frozen=True, slots=True)
class DqoesParameters:
    """The published band, and a parameter for each correction of the published rule."""

    alpha: float = BAND_RATIO
    """Half width of the satisfied band, as a ratio of the target: the paper's 10 %."""
    aim_ratio: float = 1.0
    """Latency that the policy aims at, as a ratio of the target: 1 is the middle of the band. Use
    about 0.9 where a job must not be slower than its target, but may be faster."""
    inner_ratio: float = 0.05
    """Deviation from the aim, as a ratio, up to which a job's limit is kept. Smaller than `alpha`,
    so that a job is corrected before noise carries it out of its band."""
    gain: float = 0.7
    """Exponent of (measured / aim) by which one step changes a limit. 1 is exact where latency is
    work / limit (a closed loop); below 1 allows for queues, whose latency responds more steeply."""
    starved_gain: float = 0.05
    """The same exponent where the assumed need of a job falls that was left out, as not all fit.
    Such a job seems to need little; to believe that would let the job in and out for ever."""
    step_ratio: float = 2.0
    """Largest factor by which one step changes a limit, so that one bad window does not change it
    too far."""
    noise_sigmas: float = 2.0
    """Deviation that counts as noise, in standard errors of the measured mean."""
    min_requests: int = 3
    """Fewest requests under the present limit by which speed is judged."""
    min_window_s: float = 1.0
    """Fewest seconds under the present limit after which speed is judged: ten periods of a quota,
    100 ms each."""
    throttled_ratio: float = 0.1
    """Fraction of scheduling periods in which the quota throttled a job, above which the quota
    counts as what slows the job."""
    binding_ratio: float = 0.6
    """Fraction of its quota that a job uses while it serves, above which the quota counts as what
    slows the job; a queue of requests alone makes the fraction look like 0.6."""
    squeeze_ratio: float = 0.05
    """How much slower than its aim a job may be while not all fit, as a ratio: its need is divided
    by 1 + this. With a value below `alpha` the job stays in its band."""
    keep_ratio: float = 0.8
    """Where not all fit, the jobs that need most are left out. The need of a job that was satisfied
    last time counts times this factor, below 1, so that two similar jobs do not alternate."""
    floor_ratio: float = 0.05
    """Lowest limit as a ratio of an equal share: enough to keep measuring."""
    retry_s: float = 120.0
    """Seconds until more CPU is tried again for a job that more CPU did not help."""
    interval_s: float = 2.0
    """Seconds between decisions while any job is outside the band."""
    backoff: int = 4
    """Largest factor on `interval_s` while all jobs are satisfied, so that decisions are rarer."""
    saturated_ratio: float = 0.96
    """Part of the host's CPU in use, by jobs and other processes, above which the host counts as
    full: then only the CPU that jobs really get is divided, not the whole capacity."""

    def __post_init__(self) -> None:
        between_zero_and_one(self, "alpha", "inner_ratio", "squeeze_ratio")
        ratios_above_zero(
            self,
            "aim_ratio",
            "gain",
            "starved_gain",
            "throttled_ratio",
            "binding_ratio",
            "keep_ratio",
            "floor_ratio",
            "saturated_ratio",
        )
        not_negative(self, "noise_sigmas", "min_window_s", "retry_s")
        above_zero(self, "interval_s")
        if not 1 < self.step_ratio < math.inf:
            raise ValueError(f"step_ratio is {self.step_ratio}, must be above 1 and finite")
        at_least(1, self, "min_requests", "backoff")


_LEAST_CORES = 1e-4
"""A need above 0 can always be multiplied."""


@dataclass(frozen=True, slots=True)
class DqoesJob:
    """What the policy remembers of one job."""

    name: str
    target_s: float
    wanted_cores: float
    """Cores that would satisfy it: its limit, unless triage gave it less."""
    kept: bool = True
    """Whether the last decision gave it `wanted_cores`."""
    hopeless_until_s: float = 0.0
    """Until when more CPU is assumed not to help it."""
    clients: Clients | None = None
    late_cores: float = 0.0
    """The largest recent ceiling under which an open loop began to queue."""
    late_until_s: float = 0.0
    """Until when no ceiling near `late_cores` is tried, a time of `late_wait_s` in all."""
    late_wait_s: float = 0.0
    is_late: bool = False
    """Whether it was slower than its band at the last reading."""

    @property
    def is_open(self) -> bool:
        """Whether it is known not to be a closed loop of one client."""
        return self.clients is not None and not self.clients.are_one


@dataclass(frozen=True, slots=True)
class DqoesMemory:
    jobs: tuple[DqoesJob, ...]
    interval_s: float
    capacity_cores: float


class DqoesPolicy:
    """Jobs faster than their target give CPU, slower jobs take it, until all are in the band.

    The classes G, S, B are those of DQoES (arXiv 2010.12728, reconstructed in `dqoes-published`).
    The differences, and the defects of the published rule that they correct:

    - Each job moves by its own relative error, `(p/o)^gain`, by at most `step_ratio`. In seconds,
      slow services take the whole step, and steps shrink as jobs are added.
    - B takes idle CPU and does not wait for a G to give: as published, an empty G freezes all. The
      need of a job is remembered, and moves by its own error only (`gain`).
    - A step needs requests made entirely under the present limit, and noise causes none
      (`min_requests`, `min_window_s`, `noise_sigmas`): as published, it winds up.
    - The aim is the middle of the band, not its border (`aim_ratio`, `inner_ratio`).
    - Where the quota does not bind, the base is the job's use, as published for G only; a slow job
      that leaves quota unused is not short of CPU (`retry_s`).
    - When not all fit, the cheapest per weight are satisfied, the others share the rest, and
      hopeless jobs get their floor (`squeeze_ratio`, `keep_ratio`, `starved_gain`): as published,
      one impossible target drains all jobs.
    - While other processes saturate the host, only the CPU that can be had is divided
      (`saturated_ratio`): as published, the largest limit is not kept.
    - A ceiling under which an open loop began to queue is avoided for `retry_s`, twice as long each
      time: otherwise its limit would flap for ever.
    - The interval backs off only while all are satisfied (`interval_s`, `backoff`).

    Jobs without a latency target get their fair share, and what the others leave.

    Open loops, whose requests do not wait for answers, are seldom within the band under any
    ceiling: `adaptive` in its mode `slo` suits them better.
    """

    Parameters: ClassVar[type[DqoesParameters]] = DqoesParameters
    Memory: ClassVar[type[DqoesMemory]] = DqoesMemory
    traits: ClassVar[PolicyTraits] = PolicyTraits(reserves=True, holds_at_target=True)

    def __init__(self, parameters: DqoesParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """Updates the need of each job from its own error, packs them, and divides the rest."""
        rule = self.parameters
        before = memory if isinstance(memory, DqoesMemory) else None
        known = {job.name: job for job in before.jobs} if before else {}
        jobs = sorted(snapshot.running, key=lambda job: job.name)
        targets = {
            job.name: job.spec.target for job in jobs if isinstance(job.spec.target, LatencyTarget)
        }
        aimed = [job for job in jobs if job.name in targets]
        others = [job for job in jobs if job.name not in targets]

        full = is_saturated(snapshot, rule)
        readings = {
            job.name: read(job, targets[job.name], snapshot, rule, full=full) for job in aimed
        }
        capacity = self._capacity(snapshot, readings, before, full)
        shares = fair_shares(jobs, capacity)
        wants = {
            job.name: self._want(
                job,
                readings[job.name],
                known.get(job.name)
                or DqoesJob(
                    job.name,
                    targets[job.name].seconds,
                    self._first_want(readings[job.name], shares[job.name]),
                ),
                targets[job.name].seconds,
                snapshot,
                full,
            )
            for job in aimed
        }
        for_aimed = capacity - math.fsum(shares[job.name] for job in others)
        limits = self._pack(aimed, wants, for_aimed, snapshot.now_s)
        why = {}
        for job in aimed:
            want, cores = wants[job.name], limits[job.name]
            kept = cores >= want.wanted_cores / (1 + rule.squeeze_ratio) - 1e-9
            wants[job.name] = replace(want, kept=kept)
            change = f"{_cores(job)} -> {snapshot.resource.amount(cores)}"
            why[job.name] = f"{readings[job.name].text}: {change}"
            if want.hopeless_until_s > snapshot.now_s:
                why[job.name] += f"; more {snapshot.resource.name} does not help the job"
            elif not kept:
                needs = snapshot.resource.amount(want.wanted_cores)
                short = f"too much while {snapshot.resource.name} is short"
                why[job.name] += f"; the job needs {needs}, {short}"
            why[job.name] += _of_open_loop(want, snapshot.now_s, snapshot.resource)

        limits |= fair_shares(others, capacity - math.fsum(limits.values()))
        for job in others:
            why[job.name] = (
                f"no latency target: the job gets {snapshot.resource.amount(limits[job.name])}, "
                f"its fair share of {shares[job.name]:.3f} and idle {snapshot.resource.name}"
            )
        # A job that restarts or was paused continues with its last need.
        names = sorted(job.name for job in snapshot.jobs if not job.runs)
        resting = [known[name] for name in names if name in known]
        interval_s = rule.interval_s
        calm = all(reading.qoe_class is QoeClass.SATISFIED for reading in readings.values())
        if before is not None and calm and not snapshot.wakes:
            interval_s = min(2 * before.interval_s, rule.backoff * rule.interval_s)
        return Decision(
            limits={name: Limits(cpu_cores=cores) for name, cores in limits.items()},
            why=why,
            memory=DqoesMemory((*wants.values(), *resting), interval_s, capacity),
            next_s=interval_s,
        )

    def _capacity(
        self,
        snapshot: Snapshot,
        readings: Mapping[str, Reading],
        before: DqoesMemory | None,
        full: bool,
    ) -> float:
        """The real capacity: reduced while others saturate the host, then regained in steps."""
        capacity = snapshot.node.capacity_cores
        if before is not None:
            capacity = min(capacity, (1.02 if full else 1.1) * before.capacity_cores)
        limits = {job.name: job.actual.cpu_cores or 0.0 for job in snapshot.running}
        denied = [name for name, reading in readings.items() if reading.is_denied]
        if full and denied:
            missing = math.fsum(limits[name] - readings[name].base_cores for name in denied)
            capacity = min(capacity, max(math.fsum(limits.values()) - missing, 0.0))
        return capacity

    def _first_want(self, reading: Reading, share_cores: float) -> float:
        """The fair share, or immediately the need measured before the first decision."""
        if reading.base_cores <= 0:
            return share_cores
        needed = reading.base_cores * math.exp(reading.deviation)
        return min(needed, self.parameters.step_ratio * share_cores)

    def _want(
        self,
        job: JobView,
        reading: Reading,
        known: DqoesJob,
        target_s: float,
        snapshot: Snapshot,
        full: bool,
    ) -> DqoesJob:
        """The job with its need one step nearer to its target: G gives, B takes, S stays."""
        rule = self.parameters
        bounds = claim(job, snapshot.node.capacity_cores)
        if known.target_s != target_s:
            wanted = known.wanted_cores * known.target_s / target_s
            known = DqoesJob(job.name, target_s, wanted, clients=known.clients)
        if reading.base_cores <= 0:
            return known
        known = self._queued(job, reading, known, snapshot.now_s, full)
        if reading.qoe_class is not QoeClass.WORSE:
            known = replace(known, hopeless_until_s=0.0)
        elif known.hopeless_until_s > snapshot.now_s:
            return known
        wanted, until_s = max(known.wanted_cores, _LEAST_CORES), known.hopeless_until_s
        spare = reading.is_denied and not full
        widest = reading.base_cores >= 0.99 * bounds.ceiling_cores
        if spare or (widest and reading.qoe_class is QoeClass.WORSE):
            wanted = min(wanted, 1.1 * reading.base_cores)
            if reading.requests >= rule.min_requests:
                until_s = snapshot.now_s + rule.retry_s
        else:
            pull = reading.deviation + math.log(reading.base_cores / wanted)
            gain = rule.gain if known.kept or pull > 0 else rule.starved_gain
            step = math.log(rule.step_ratio)
            if abs(pull) > reading.slack:
                wanted *= math.exp(min(max(gain * pull, -step), step))
                if pull < 0.0 and known.is_open and snapshot.now_s < known.late_until_s:
                    # Not below a step above the ceiling under which it was late.
                    least = min(rule.step_ratio * known.late_cores, known.wanted_cores)
                    wanted = max(wanted, least)
        wanted = min(max(wanted, bounds.floor_cores), bounds.ceiling_cores)
        return replace(known, wanted_cores=wanted, hopeless_until_s=until_s)

    def _queued(
        self, job: JobView, reading: Reading, known: DqoesJob, now_s: float, full: bool
    ) -> DqoesJob:
        """The job with its clients, and the ceiling under which an open loop began to queue.

        Only the first ceiling counts, since the job is late under larger ones too while its queue
        drains. A full host does not count: there, other jobs may have made it late.
        """
        is_late = reading.qoe_class is QoeClass.WORSE
        known = replace(known, clients=clients(job, reading, known.clients))
        queues = is_late and not known.is_late and reading.binds and not full
        if known.is_open and queues:
            late_cores, wait_s = reading.base_cores, known.late_wait_s
            if now_s < known.late_until_s:
                late_cores = max(late_cores, known.late_cores)
            elif now_s < known.late_until_s + wait_s:
                wait_s *= 2.0
            else:
                wait_s = self.parameters.retry_s
            known = replace(
                known, late_cores=late_cores, late_until_s=now_s + wait_s, late_wait_s=wait_s
            )
        return replace(known, is_late=is_late)

    def _pack(
        self,
        jobs: Sequence[JobView],
        wants: Mapping[str, DqoesJob],
        capacity: float,
        now_s: float,
    ) -> dict[str, float]:
        """Limits that fit the capacity: the needs, or the cheapest needs first if not all fit."""
        rule = self.parameters
        claims = {job.name: claim(job, capacity) for job in jobs}
        room = max(capacity - math.fsum(one.floor_cores for one in claims.values()), 0.0)
        least = min(rule.floor_ratio * capacity, room) / max(len(jobs), 1)
        limits = {
            name: min(max(one.floor_cores, least), one.ceiling_cores)
            for name, one in claims.items()
        }
        # A need from before a change of the spec may exceed its new ceiling.
        wanted = {
            name: min(max(want.wanted_cores, limits[name]), claims[name].ceiling_cores)
            for name, want in wants.items()
        }
        hopeless = [name for name, want in wants.items() if want.hopeless_until_s > now_s]
        left = capacity - math.fsum(limits.values())

        def price(name: str) -> float:
            kept = rule.keep_ratio if wants[name].kept else 1.0
            return kept * wanted[name] / claims[name].weight

        satisfied: list[str] = []
        short: list[str] = []
        for name in sorted(wants.keys() - set(hopeless), key=lambda name: (price(name), name)):
            extra = max(wanted[name] / (1 + rule.squeeze_ratio) - limits[name], 0.0)
            (satisfied if extra <= left else short).append(name)
            if extra <= left:
                limits[name] += extra
                left -= extra
        for group in (satisfied, short, hopeless):
            had = math.fsum(limits[name] for name in group)
            limits |= water_fill(
                left + had,
                {
                    name: Claim(claims[name].weight, limits[name], wanted[name])
                    for name in sorted(group)
                },
            )
            left -= math.fsum(limits[name] for name in group) - had
        return limits


def _of_open_loop(want: DqoesJob, now_s: float, resource: Resource) -> str:
    """A warning for a job that may be an open loop; else empty."""
    if not want.is_open:
        return ""
    late = resource.amount(want.late_cores)
    queued = f", as under {late}" if now_s < want.late_until_s else ""
    return (
        "; requests may arrive without waiting for answers (an open loop) and queue up "
        f"without bound under a limit near the job's need{queued}; policy adaptive in mode slo "
        "sets no limit while there is room"
    )


def _cores(job: JobView) -> str:
    limit = job.actual.cpu_cores
    return "no limit" if limit is None else f"{limit:.3f}"


_QUANTILE_NOISE = 3.0
"""Standard error of a quantile over that of the mean: 2.1 for p95 of a log-normal, more for ten
requests. With 1.5 there were three times the updates, and one service in ten fewer in its band."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One job's measurements relative to its target; by default there are none."""

    text: str
    qoe_class: QoeClass | None = None
    base_cores: float = 0.0
    """Cores behind the measured latency: the limit, or the usage where that is less."""
    deviation: float = 0.0
    """Logarithm of measured over aim: above 0 is slow."""
    slack: float = 0.0
    """Dead band of the deviation."""
    binds: bool = False
    requests: int = 0
    in_service: float = 0.0

    @property
    def is_denied(self) -> bool:
        """Whether the job is slower than its band, but not because of its limit."""
        return self.qoe_class is QoeClass.WORSE and not self.binds


def read(
    job: JobView, target: LatencyTarget, snapshot: Snapshot, rule: DqoesParameters, *, full: bool
) -> Reading:
    """The reading from requests made entirely under the present limit, empty if they are too few.
    `full`: the host has no idle CPU left."""
    window = job.progress.window
    aim_s = rule.aim_ratio * target.seconds
    since = [at for at in (job.started_at_s, job.changed_at_s) if at is not None]
    elapsed_s = snapshot.window_s
    if since:
        elapsed_s = min(max(snapshot.now_s - max(since), 0.0), snapshot.window_s)
    p = against_target_s(window, target) or 0.0
    # The oldest unanswered request counts as if it were answered now: a hung service is slow.
    hung_s = min(job.progress.oldest_s, elapsed_s)
    p = max(p, (window.sum_s + hung_s) / (window.count + 1), 1e-6)
    needed = rule.min_requests
    if target.quantile is not None:
        needed = max(needed, math.ceil(0.5 / max(1 - target.quantile, 0.01)))
    late = p > 2 * aim_s  # so far off that one request is enough
    if elapsed_s < rule.min_window_s or (window.count < needed and not late):
        return Reading(
            f"{counted(window.count, 'request')} in {elapsed_s:.0f} s, too few to judge its speed"
        )

    limit, used = job.actual.cpu_cores, job.usage.window_cores
    throttled = (job.usage.throttled_ratio or 0.0) > rule.throttled_ratio
    # Cores while it serves, by Little's law: mean use over the fraction of time with a request.
    in_service = (window.sum_s + p) / max(elapsed_s, 1e-9)
    serving = None if used is None else used / min(max(in_service, 0.01), 1.0)
    if serving is None:
        serving = limit  # unread: assumed to use its whole limit
    if serving is None:
        return Reading("neither the job's CPU limit nor its CPU use is known")
    # On a full host a job that gets less than its limit has lost it to others.
    bound = 0.9 if full else rule.binding_ratio
    binds = limit is not None and (throttled or serving > bound * limit)
    base = serving if limit is None else limit if binds else min(serving, limit)
    noise = _QUANTILE_NOISE if target.quantile is not None else 1.0
    noise *= rule.noise_sigmas * (cv(window) or 0.0) / math.sqrt(max(window.count, 1))
    status = qoe_class(aim_s, aim_s - p, rule.alpha)
    side = {"G": "under", "S": "near", "B": "over"}[status]
    return Reading(
        text=f"{render_quantile(target.quantile)} is about {render_seconds(p)}, {side} the target, "
        f"{render_seconds(target.seconds)} (class {status}, {window.count} requests)",
        qoe_class=status,
        base_cores=base,
        deviation=math.log(p / aim_s),
        slack=max(rule.inner_ratio, noise),
        binds=binds,
        requests=window.count,
        in_service=in_service,
    )


def clients(job: JobView, reading: Reading, before: Clients | None) -> Clients | None:
    """The evidence on the job's clients after this reading; None: no reading yet."""
    if reading.qoe_class is None:
        return before
    # Many reporters never report requests in flight: Little's law gives their number then.
    in_flight = job.progress.in_flight or round(reading.in_service)
    periods = job.usage.throttled_ratio
    held = reading.binds if periods is None else periods > MOSTLY
    known = before or Clients(float(in_flight == 1), float(held))
    return known.after(in_flight, OFTEN_S, throttled=held, in_service=reading.in_service)


def is_saturated(snapshot: Snapshot, rule: DqoesParameters) -> bool:
    """Whether the host has no idle CPU left."""
    used = math.fsum(job.usage.cpu_cores or 0.0 for job in snapshot.running)
    return used + (snapshot.node.foreign_cores or 0.0) > rule.saturated_ratio * snapshot.node.cores
