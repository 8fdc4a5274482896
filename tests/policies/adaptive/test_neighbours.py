"""Worlds that strangers made up against the policy: beside plain Docker, who loses?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dlsched.control.decider import NamedPolicy
from dlsched.control.guards import GuardOptions
from dlsched.estimate.bottleneck import misses
from dlsched.model.bottleneck import Bottleneck, Cause
from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.facts import NodeFact
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.policy import AdaptivePolicy
from dlsched.policies.registry import load
from dlsched.simulation.node.learning_curves import Curve
from dlsched.simulation.node.loops import Loop
from dlsched.simulation.node.played import PlayedService
from dlsched.simulation.node.workloads import (
    Pause,
    ServiceLoad,
    Shift,
    SimulatedJob,
    Trace,
    TrainingLoad,
)
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN
from tests.worlds.harm import Run
from tests.worlds.kinds import hog
from tests.worlds.open_worlds import simulated_job


def service(
    name: str, target_s: float | None, use_cores: float, rate: float = 10.0
) -> SimulatedJob:
    """An open loop that uses so much."""
    served = ServiceLoad(use_cores / rate, noise=0.3, loop=Loop("poisson", rate), workers=8)
    target = None if target_s is None else LatencyTarget(target_s)
    return simulated_job(name, target, served)  # type: ignore[arg-type]


def closed(name: str, target_s: float | None, clients: int, **more: object) -> SimulatedJob:
    """Clients that ask again at once."""
    served = ServiceLoad(0.1, noise=0.3, loop=Loop("closed", clients=clients), workers=clients)
    target = None if target_s is None else LatencyTarget(target_s)
    return simulated_job(name, target, replace(served, **more))  # type: ignore[arg-type]


def training(name: str, *, every: int = 100, **more: object) -> SimulatedJob:
    """One that does not end."""
    load = TrainingLoad(10**7, 0.1, every, Curve(0.1, 0.97, 5000.0), threads=4.0)
    target = AccuracyTarget("accuracy", 0.8, 0.95)
    return simulated_job(name, target, replace(load, **more))  # type: ignore[arg-type]


def played(
    policy: str | Told, jobs: Sequence[SimulatedJob], duration_s: float, cores: float
) -> Run:
    run, ordered = Run(), tuple(sorted(jobs, key=lambda job: job.name))
    simulate(
        Trace(NodeFact(cores, 1 << 34), ordered, duration_s, cpu_burst=True),
        NamedPolicy(policy, load(policy))
        if isinstance(policy, str)
        else NamedPolicy("told", policy),
        1,
        guards=GuardOptions(burst_ratio=0.5),
        inspect=run.watch,
    )
    return run


def both(jobs: Sequence[SimulatedJob], duration_s: float, cores: float = 4.0) -> tuple[Run, Run]:
    """Under plain Docker, and under the policy."""
    plain, own = (played(policy, jobs, duration_s, cores) for policy in (PLAIN, "adaptive"))
    return plain, own


def cores_of(jobs: Sequence[SimulatedJob], duration_s: float) -> dict[str, float]:
    """By job, the CPU time that it used of four cores, over that under plain Docker."""
    plain, own = both(jobs, duration_s)
    return {
        name: own.loads[name].usage_core_s / plain.loads[name].usage_core_s for name in own.loads
    }


def mean_s(run: Run, name: str, from_s: float) -> float:
    """Of the requests of that service that came since then."""
    one = run.loads[name]
    assert isinstance(one, PlayedService)
    took = [took for came, took in zip(one.came_s, one.took_s, strict=True) if came >= from_s]
    return statistics.fmean(took) if took else math.inf


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(closed("a", 10.0, clients=4), id="several clients far from their target"),
        pytest.param(
            closed("a", 1.0, 4, loop=Loop("closed", clients=4, think_s=0.05)),
            id="several clients that pause",
        ),
        pytest.param(
            closed("a", 1.0, 1, work_core_s=1e9, threads=8.0, report_s=math.inf),
            id="one that reports nothing",
        ),
        pytest.param(training("a", every=10**9), id="a training that reports nothing"),
    ],
)
def test_a_training_keeps_its_share_beside(other: SimulatedJob) -> None:
    assert cores_of([other, training("t")], 300.0)["t"] > 0.85


def test_a_hog_takes_nothing_from_trainings_of_which_the_first_pauses() -> None:
    first = training("t1", pauses=(Pause(10.0, 5.0),))
    found = cores_of([first, training("t2"), hog("hog", 4.0)], 200.0)
    assert found["hog"] < 1.25


def test_a_phase_of_dear_requests_is_no_sign_of_a_lock() -> None:
    # In a trial of five seconds they become cheaper by themselves.
    shifts = [
        Shift(at_s, work=work)
        for phase in range(1, 8)
        for at_s, work in ((30.0 * phase, 3.0), (30.0 * phase + 12.0, 1.0))
    ]
    jobs = [replace(service("a", 0.3, 1.2), shifts=tuple(shifts)), hog("hog", 4.0)]
    plain, own = both(jobs, 270.0)
    assert mean_s(own, "a", 60.0) < 0.5 * mean_s(plain, "a", 60.0)


def test_one_without_a_target_beside_an_urgent_service_keeps_what_it_wants() -> None:
    jobs = [service("a", 0.15, 1.72, rate=20.0), service("b", None, 0.6)]
    plain, own = both(jobs, 160.0, cores=2.0)
    assert mean_s(own, "b", 60.0) < 1.1 * mean_s(plain, "b", 60.0)


def test_one_request_that_stays_open_makes_no_service_of_a_hog() -> None:
    stream = closed("hog", None, 1, work_core_s=1e9, threads=8.0)
    jobs = [service("a", 0.3, 1.2, rate=20.0), stream]
    plain, own = both(jobs, 120.0, cores=2.0)
    assert mean_s(own, "a", 60.0) < 0.3 < mean_s(plain, "a", 60.0)


class Told:
    """The policy, where the cause is named once a service has missed its target for 10 s."""

    def __init__(self, name: str, cause: Cause) -> None:
        self.name, self.cause = name, cause
        self.policy = AdaptivePolicy(AdaptiveParameters())
        self.traits = self.policy.traits
        self.missed_s = math.inf

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        return self.policy.decide(
            replace(snapshot, jobs=tuple(self._told(job, snapshot.now_s) for job in snapshot.jobs)),
            memory,
        )

    def _told(self, job: JobView, now_s: float) -> JobView:
        if job.name != self.name:
            return job
        self.missed_s = min(self.missed_s, now_s) if misses(job) else math.inf
        if now_s - self.missed_s < 10.0:
            return job
        return replace(job, bottleneck=Bottleneck(self.cause, "", "", self.missed_s))


def test_no_training_is_held_for_a_service_that_waits_for_another_one() -> None:
    front = ServiceLoad(0.05, noise=0.3, loop=Loop("poisson", 6.0), workers=16, calls="back")
    back = ServiceLoad(0.12, noise=0.3, loop=Loop("called"), workers=1)
    jobs = [
        simulated_job("front", LatencyTarget(0.3), front),
        simulated_job("back", None, back),
        training("t1"),
        training("t2"),
    ]
    as_if_cpu, named = (
        played(Told("front", cause), jobs, 240.0, 2.0) for cause in (Cause.CPU, Cause.CALLEE)
    )
    before, after = (
        run.loads["t1"].usage_core_s + run.loads["t2"].usage_core_s for run in (as_if_cpu, named)
    )
    assert after > 1.02 * before
    for one in ("front", "back"):
        assert mean_s(named, one, 60.0) < 1.01 * mean_s(as_if_cpu, one, 60.0)
