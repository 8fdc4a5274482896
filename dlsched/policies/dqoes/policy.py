"""The policy `dqoes`: DQoES as `published.dqoes` has it, with what freezes or winds up mended.

Owns the mended rule and its triage. It must not judge measurements: `reading` does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from dlsched.estimate.latency.law import Clients
from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.spec import LatencyTarget, Limits
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.dqoes.parameters import DqoesParameters
from dlsched.policies.dqoes.reading import Reading, clients, is_saturated, read
from dlsched.policies.fair_share import Claim, claim, fair_shares, water_fill
from dlsched.policies.published.dqoes import Standing

_LEAST_CORES = 1e-4
"""So that a want can always be multiplied."""


@dataclass(frozen=True, slots=True)
class DqoesJob:
    """What is remembered of one job."""

    name: str
    target_s: float
    wanted_cores: float
    """What would satisfy it: its limit, unless triage gave it less."""
    kept: bool = True
    """Whether the last decision gave it what it wants."""
    hopeless_until_s: float = 0.0
    """Until when more CPU is held not to help it."""
    clients: Clients | None = None
    """Who sends its requests; None: unknown yet."""
    late_cores: float = 0.0
    """The widest ceiling lately under which requests of an open loop began to queue up."""
    late_until_s: float = 0.0
    """Until when nothing is tried near it."""
    late_wait_s: float = 0.0
    """How long that was, from the beginning."""
    is_late: bool = False
    """Whether it was late when it last told enough."""

    @property
    def is_open(self) -> bool:
        """Whether requests may come whether or not it has answered, as far as is known."""
        return self.clients is not None and not self.clients.are_one


@dataclass(frozen=True, slots=True)
class DqoesMemory:
    """Every job's wants, the interval, and what the host lets us divide."""

    jobs: tuple[DqoesJob, ...]
    interval_s: float
    capacity_cores: float


class DqoesPolicy:
    """Jobs faster than their target give CPU, jobs slower take it, until all are in the band.

    The classes G, S, B and their meaning are DQoES's (arXiv 2010.12728, reconstructed in
    `dqoes-published`). What differs, and why:

    - q is relative to the target, and each job moves by its own error, `(p/o)^gain`, at most
      `step_ratio`: in seconds, slow services take the whole step, and steps shrink as jobs join.
    - B takes what is idle and does not wait for a G to give: published, an empty G freezes all.
      What a job wants is remembered, and moves by its own error alone (`gain`).
    - A step needs requests made wholly under the present limit, and moves by what noise does not
      explain (`min_requests`, `min_window_s`, `noise_sigmas`): published, it winds up.
    - The aim is the middle of the band, not its border (`aim_ratio`, `inner_ratio`).
    - A quota that does not bind says nothing: the base is then what the job uses, as published
      for G alone; a slow job that leaves its quota unused is not short of CPU (`retry_s`).
    - When not all fit, the cheapest per weight are satisfied, the others share the rest, and the
      hopeless get their floor (`squeeze_ratio`, `keep_ratio`, `starved_gain`): published, one
      impossible target drains everybody.
    - While the host is saturated by others, no more is divided than can be had
      (`saturated_ratio`): published, the largest limit becomes a promise that nobody keeps.
    - A ceiling under which requests of an open loop began to queue up is not come near again for
      `retry_s`, and each time for twice as long: otherwise it would go to and fro for ever.
    - The interval backs off only while all are satisfied (`interval_s`, `backoff`).

    Jobs without a latency target get their fair share, and what the others leave.

    Open loops, whose requests do not wait for answers, are seldom within the band under any
    ceiling: `adaptive` in its mode `slo` suits them better.
    """

    Parameters: ClassVar[type[DqoesParameters]] = DqoesParameters
    Memory: ClassVar[type[DqoesMemory]] = DqoesMemory
    reserves: ClassVar[bool] = True
    holds_at_target: ClassVar[bool] = True

    def __init__(self, parameters: DqoesParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """Every job's want from its own error, then triage, then what is left."""
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
                why[job.name] += "; more does not help it"
            elif not kept:
                short = f"too dear while {snapshot.resource.name} is short"
                why[job.name] += f"; it needs {want.wanted_cores:.3f}, {short}"
            why[job.name] += _of_open_loop(want, snapshot.now_s)

        limits |= fair_shares(others, capacity - math.fsum(limits.values()))
        for job in others:
            why[job.name] = (
                f"no latency target: {snapshot.resource.amount(limits[job.name])}, "
                f"its fair share of {shares[job.name]:.3f} and what is idle"
            )
        # A job that restarts or is paused comes back to what it was known to need.
        names = sorted(job.name for job in snapshot.jobs if not job.runs)
        resting = [known[name] for name in names if name in known]
        interval_s = rule.interval_s
        calm = all(reading.standing is Standing.SATISFIED for reading in readings.values())
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
        """What can really be had: less while others saturate the host, given back by and by."""
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
        """A share like everybody's, or at once what was seen before the first decision."""
        if reading.base_cores <= 0:
            return share_cores
        seen = reading.base_cores * math.exp(reading.deviation)
        return min(seen, self.parameters.step_ratio * share_cores)

    def _want(
        self,
        job: JobView,
        reading: Reading,
        known: DqoesJob,
        target_s: float,
        snapshot: Snapshot,
        full: bool,
    ) -> DqoesJob:
        """The limit that would satisfy the job, one step nearer: G gives, B takes, S stays."""
        rule = self.parameters
        bounds = claim(job, snapshot.node.capacity_cores)
        if known.target_s != target_s:
            wanted = known.wanted_cores * known.target_s / target_s
            known = DqoesJob(job.name, target_s, wanted, clients=known.clients)
        if reading.base_cores <= 0:
            return known
        known = self._queued(job, reading, known, snapshot.now_s, full)
        if reading.standing is not Standing.WORSE:
            known = replace(known, hopeless_until_s=0.0)
        elif known.hopeless_until_s > snapshot.now_s:
            return known
        wanted, until_s = max(known.wanted_cores, _LEAST_CORES), known.hopeless_until_s
        spare = reading.is_denied and not full
        widest = reading.base_cores >= 0.99 * bounds.ceiling_cores
        if spare or (widest and reading.standing is Standing.WORSE):
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
                    # No lower than a step above what it was late with, where it is there.
                    least = min(rule.step_ratio * known.late_cores, known.wanted_cores)
                    wanted = max(wanted, least)
        wanted = min(max(wanted, bounds.floor_cores), bounds.ceiling_cores)
        return replace(known, wanted_cores=wanted, hopeless_until_s=until_s)

    def _queued(
        self, job: JobView, reading: Reading, known: DqoesJob, now_s: float, full: bool
    ) -> DqoesJob:
        """What is known of its clients, and of the ceiling that made an open loop queue up.

        While a queue drains, it is late under wider ceilings too: the first one counts. On a full
        host it may be late for what others take.
        """
        is_late = reading.standing is Standing.WORSE
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
        """Limits within capacity: what they want, or the cheapest first when that is too much."""
        rule = self.parameters
        least = rule.floor_ratio * capacity / max(len(jobs), 1)
        claims = {job.name: claim(job, capacity) for job in jobs}
        limits = {
            name: min(max(one.floor_cores, least), one.ceiling_cores)
            for name, one in claims.items()
        }
        # What was wanted before a spec changed may be beyond its new ceiling.
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


def _of_open_loop(want: DqoesJob, now_s: float) -> str:
    """What to expect of a job whose requests may come by themselves."""
    if not want.is_open:
        return ""
    queued = f", as they did under {want.late_cores:.3f}" if now_s < want.late_until_s else ""
    return (
        "; it may be an open loop, whose requests do not wait for answers: under a ceiling near "
        f"what it needs they queue up without bound{queued}; policy adaptive in mode slo sets "
        "none while there is room"
    )


def _cores(job: JobView) -> str:
    """The limit in force, for a sentence."""
    limit = job.actual.cpu_cores
    return "no ceiling" if limit is None else f"{limit:.3f}"
