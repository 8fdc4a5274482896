"""How many services of a simulated run are at their target, from so many control steps on.

Owns the judgement by the simulator's own latencies: neither the noise of a window nor a liar's
words count. It must not run anything, nor know policies.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from dlsched.model.spec import BAND_RATIO
from dlsched.simulation import bounds
from dlsched.simulation.node.service import Service
from dlsched.simulation.node.training import Training
from dlsched.simulation.node.workloads import SimulatedJob, Trace
from dlsched.simulation.scoring import demands

STEPS = 8
"""Control steps before anything is judged, also of a service that comes late."""
START_S = 1.0
"""From a service's arrival to the first thing that is known of it."""
WORSE_RATIO = 0.05
"""A job got worse when it is at its target for so much less of the judged time."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One of the two ways to count."""

    name: str
    words: str
    band_ratio: float
    """How much slower than the target still counts."""

    def at_target_s(self, service: Service) -> float:
        """How long the service has been at its target so far."""
        return service.met_s if self is MET else service.within_s


SATISFIED = Reading("satisfied", "within 10 %", BAND_RATIO)
MET = Reading("met", "not slower", 0.0)
READINGS = (SATISFIED, MET)


@dataclass(slots=True)
class Watch:
    """What a run was truly like; hand `look` to `simulate`."""

    looks: list[tuple[float, Mapping[tuple[str, str], float]]] = field(default_factory=list)
    """(time, seconds at its target so far by reading and service), a look a cycle."""

    def look(self, now_s: float, loads: Mapping[str, Service | Training]) -> None:
        at_target = {
            (reading.name, name): reading.at_target_s(load)
            for name, load in loads.items()
            if isinstance(load, Service)
            for reading in READINGS
        }
        self.looks.append((now_s, at_target))


@dataclass(frozen=True, slots=True)
class Judged:
    """One run by one reading."""

    jobs: float
    """How many services are at their target, mean over the judged time."""
    best_jobs: float
    """The clairvoyant's."""
    by_job: Mapping[str, float]
    """Part of its judged time for which each service is at its target."""

    def worse_than(self, other: Judged) -> int:
        """How many services got worse than in that other run."""
        return sum(ratio < other.by_job[name] - WORSE_RATIO for name, ratio in self.by_job.items())


def judge(trace: Trace, watch: Watch, reading: Reading, among: Collection[str]) -> Judged:
    """The services `among` the trace's jobs, from the eighth control step of each on."""
    jobs = [job for job in trace.jobs if job.name in among]
    judged = {job.name: _judged_s(trace, job) for job in jobs}
    kept_s = dict.fromkeys(judged, 0.0)
    for (from_s, before), (_, after) in pairwise(watch.looks):
        gained_s = {name: after[reading.name, name] - before[reading.name, name] for name in judged}
        for name, (begin_s, _) in judged.items():
            if from_s >= begin_s:
                kept_s[name] += gained_s[name]
    length_s = {name: end_s - begin_s for name, (begin_s, end_s) in judged.items()}
    of_judged = [
        replace(one, from_s=max(one.from_s, judged[job.name][0]))
        for job in jobs
        for one in demands(job, trace.duration_s, reading.band_ratio)
    ]
    best_s = bounds.satisfied_job_s(of_judged, trace.node.cores)
    whole_s = math.fsum(length_s.values())
    return Judged(
        jobs=len(jobs) * math.fsum(kept_s.values()) / whole_s,
        best_jobs=len(jobs) * best_s / whole_s,
        by_job={name: kept_s[name] / one for name, one in length_s.items() if one > 0},
    )


def _judged_s(trace: Trace, job: SimulatedJob) -> tuple[float, float]:
    """From when to when that service is judged; nothing where it leaves before."""
    from_s = job.arrives_s + START_S + STEPS * trace.cycle_s
    to_s = trace.duration_s if job.leaves_s is None else min(job.leaves_s, trace.duration_s)
    return from_s, max(from_s, to_s)
