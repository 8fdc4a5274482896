"""Trials that show how much CPU a job with a GPU can use, and the ceilings that come of them.

Owns what a policy is shown of such jobs, and that they are held to their ceilings. What one
measurement tells is `estimate.response`'s. It must not divide what is left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dlsched.estimate.response import Phase, Response, followed
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import Limits
from dlsched.model.state import JobView, Snapshot

MEASURED_EVERY_S = 5.0
"""Longest time between two measurements of how the speed of jobs with GPUs answers to CPU."""

_SHORT_RATIO = 0.8
"""Part of the node that is given out, from which on trials with fewer cores are worth it."""
_FULL_RATIO, _GETS_RATIO = 0.96, 0.9
"""Part of the host's cores in use from which limits cannot all be had, and part of its limit that
a job then uses if it has it."""


@dataclass(frozen=True, slots=True)
class CpuTrials:
    """What is known of every job with a GPU."""

    responses: tuple[Response, ...] = ()
    wanted: tuple[tuple[str, float | None], ...] = ()
    """Cores that the policy last wanted for jobs that are held to less, by job."""

    @property
    def ceilings(self) -> dict[str, float]:
        """By job, the most cores that it may have."""
        return {
            one.name: one.ceiling_cores for one in self.responses if one.ceiling_cores is not None
        }

    @property
    def reasons(self) -> dict[str, str]:
        """By job, why it is held, or is tried with fewer cores."""
        return {one.name: one.told for one in self.responses}

    def after(self, snapshot: Snapshot) -> CpuTrials:
        """After one more measurement; a job that does not run keeps what is known of it."""
        known = {one.name: one for one in self.responses}
        node, running = snapshot.node, snapshot.running
        limits = (job.actual.cpu_cores for job in running)
        given = math.fsum(node.capacity_cores if cores is None else cores for cores in limits)
        contended = len(running) > 1 and given > _SHORT_RATIO * node.capacity_cores
        used = math.fsum(job.usage.cpu_cores or 0.0 for job in running)
        full = used + (node.foreign_cores or 0.0) > _FULL_RATIO * node.cores
        found = (
            followed(
                known.get(job.name), _as_had(job) if full else job, snapshot, contended=contended
            )
            if job.runs and job.blind is None
            else known.get(job.name)
            for job in snapshot.jobs
            if job.gpus
        )
        return replace(self, responses=tuple(one for one in found if one is not None))

    def shown(self, snapshot: Snapshot) -> Snapshot:
        """What the policy sees: the cores that each job can use as its ceiling, so that the policy
        gives the rest to others, and the policy's own last answer as desired.

        While a job is tried with fewer cores, nothing is shown of what it reports: the policy would
        take the trial for an effect of its limits.
        """
        known = {
            one.name: one
            for one in self.responses
            if one.useful_cores is not None or one.phase is Phase.FEWER
        }
        wanted = dict(self.wanted)
        if not known and not wanted:
            return snapshot
        jobs = [
            replace(job, desired=replace(job.desired, cpu_cores=wanted[job.name]))
            if job.name in wanted
            else job
            for job in snapshot.jobs
        ]
        jobs = [_shown(job, known[job.name]) if job.name in known else job for job in jobs]
        return replace(snapshot, jobs=tuple(jobs))

    def held(
        self, limits: Mapping[str, Limits], shown: Snapshot
    ) -> tuple[dict[str, Limits], CpuTrials]:
        """The limits within the ceilings, whether the policy heeds them or not; and what it wanted
        is remembered."""
        ceilings, held = self.ceilings, dict(limits)
        for job in shown.running:
            if job.name in ceilings:
                own, most = limits.get(job.name, job.desired), ceilings[job.name]
                cores = most if own.cpu_cores is None else min(own.cpu_cores, most)
                held[job.name] = replace(own, cpu_cores=cores)
        wanted = tuple(
            (job.name, limits.get(job.name, job.desired).cpu_cores)
            for job in shown.jobs
            if job.name in ceilings
        )
        return held, replace(self, wanted=wanted)


NO_TRIALS = CpuTrials()


def _as_had(job: JobView) -> JobView:
    """On a full host a job that does not get its limit has what it uses: its speed is of that."""
    limit, used = job.actual.cpu_cores, job.usage.window_cores
    if limit is None or used is None or used >= _GETS_RATIO * limit:
        return job
    return replace(job, actual=replace(job.actual, cpu_cores=used))


def _shown(job: JobView, response: Response) -> JobView:
    bounds, useful, progress = job.spec.bounds, response.useful_cores, job.progress
    if useful is not None:
        known = math.inf if bounds.ceiling_cores is None else bounds.ceiling_cores
        bounds = replace(bounds, ceiling_cores=max(bounds.floor_cores, min(known, useful)))
    if response.phase is Phase.FEWER:
        nothing = LatencySketch()
        progress = replace(progress, fresh=nothing, window=nothing, recent=nothing)
    return replace(job, spec=replace(job.spec, bounds=bounds), progress=progress)
