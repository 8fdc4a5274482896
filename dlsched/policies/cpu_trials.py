"""Trials that measure how much CPU a job with a GPU can use, and the ceilings that follow.

This module changes what a policy sees of such jobs, and enforces their ceilings; the measurement
itself is in `estimate.response`.
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
"""Longest time between two measurements of how the speed of GPU jobs responds to CPU."""

_SHORT_RATIO = 0.8
"""Fraction of the node given out, from which trials with fewer cores pay off."""
_FULL_RATIO, _GETS_RATIO = 0.96, 0.9
"""Utilisation of the host from which limits cannot all be used, and fraction of its limit that a
job then uses if it really has it."""


@dataclass(frozen=True, slots=True)
class CpuTrials:
    """The responses of all jobs with a GPU."""

    responses: tuple[Response, ...] = ()
    wanted: tuple[tuple[str, float | None], ...] = ()
    """Cores that the policy last wanted for jobs with a ceiling, by job."""

    @property
    def ceilings(self) -> dict[str, float]:
        return {
            one.name: one.ceiling_cores for one in self.responses if one.ceiling_cores is not None
        }

    @property
    def reasons(self) -> dict[str, str]:
        return {one.name: one.reason for one in self.responses}

    def after(self, snapshot: Snapshot) -> CpuTrials:
        """The state after one more measurement; a job that does not run keeps its response."""
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
        """The snapshot for the policy: the cores that a job can use are its ceiling, so that the
        policy gives the rest to others, and the policy's own last decision is the desired state.

        During a trial with fewer cores the job's reports are hidden: the policy would take the
        effect of the trial for one of its own limits.
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
        """The limits cut to the ceilings, and the state with what the policy wanted."""
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
    """The job with its use as its limit, if on a full host it does not get its limit."""
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
