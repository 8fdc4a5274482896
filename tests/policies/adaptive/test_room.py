"""`adaptive` in `slo`, where the services fit the node: none of them has a ceiling.

Not because another one is hopeless, silent or new, and not because trainings want the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dlsched.control.decider import NamedPolicy
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import NodeFact
from dlsched.model.spec import LatencyTarget
from dlsched.policies.registry import load
from dlsched.simulation.node.workloads import (
    Fault,
    ServiceLoad,
    SimulatedJob,
    Trace,
)
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import RunResult
from tests.worlds.harm_worlds import training
from tests.worlds.open_worlds import simulated_job

CORES = 2.0
DURATION_S = 60.0
OFTEN = 8.0
"""Requests a second: enough to be known within seconds."""


def service(name: str, use_cores: float, target_s: float = 10.0, **more: object) -> SimulatedJob:
    """An open loop that uses so much in the mean."""
    load = ServiceLoad(use_cores / OFTEN, arrivals_per_s=OFTEN, noise=0.3)
    return simulated_job(name, LatencyTarget(target_s), load, **more)


NEIGHBOURS = {
    "hopeless": service("hopeless", 0.1, 0.001),
    "hopeless loop": simulated_job("hopeless", LatencyTarget(0.001), ServiceLoad(0.02)),
    "silent": service("silent", 0.1, faults=(Fault("silent", 5.0),)),
    "never reported": service("loading", 0.1, start_up_s=40.0, start_up_work_core_s=20.0),
    "two trainings": (training(1), training(2)),
}


@dataclass
class Played:
    """One run: its result, and every ceiling that was wanted for a job, by job."""

    result: RunResult
    ceilings: dict[str, set[float | None]]

    def met(self, name: str) -> float:
        """Part of the time in which that service was not slower than its target."""
        return next(job.met_ratio or 0.0 for job in self.result.jobs if job.name == name)


def play(jobs: list[SimulatedJob], policy: str, seed: int = 1, window_s: float = 30.0) -> Played:
    node = NodeFact(CORES, 1 << 34)
    ordered = tuple(sorted(jobs, key=lambda job: job.name))
    ceilings: dict[str, set[float | None]] = {job.name: set() for job in jobs}

    def publish(report: CycleReport) -> None:
        for name, limits in (report.decision.limits if report.decision else {}).items():
            ceilings[name].add(limits.cpu_cores)

    trace = Trace(node, ordered, DURATION_S, window_s=window_s)
    return Played(
        simulate(trace, NamedPolicy(policy, load(policy)), seed, publish=publish), ceilings
    )


def services(use_cores: float) -> list[SimulatedJob]:
    """Four, which use so much together; each would answer in .05 to .3 s alone."""
    parts = (0.1, 0.2, 0.3, 0.4)
    return [service(f"s{part}", part * use_cores, target_s=1.0) for part in parts]


def neighbours(kind: str) -> list[SimulatedJob]:
    found = NEIGHBOURS[kind]
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("kind", NEIGHBOURS)
def test_no_neighbour_brings_a_ceiling_upon_services_that_fit(kind: str) -> None:
    found = play([*services(0.8), *neighbours(kind)], "adaptive")
    for name in found.ceilings:
        if not name.startswith("training"):
            assert found.ceilings[name] == {None}, name


def test_services_that_do_not_fit_have_ceilings() -> None:
    loops = [
        simulated_job(f"loop-{index}", LatencyTarget(0.05), ServiceLoad(0.02)) for index in range(6)
    ]
    found = play(loops, "adaptive")
    assert any(one is not None for ceilings in found.ceilings.values() for one in ceilings)


def test_a_closed_loop_leaves_to_a_training_what_it_does_not_need() -> None:
    # It needs .4 of the cores for its target, and would take a whole one.
    loops = [
        simulated_job(f"loop-{index}", LatencyTarget(0.1), ServiceLoad(0.02)) for index in "ab"
    ]
    trainings = neighbours("two trainings")
    found = play([*loops, *trainings], "adaptive")
    assert all(any(found.ceilings[loop.name] - {None}) for loop in loops)
    assert min(found.met(loop.name) for loop in loops) > 0.9


def test_a_false_verdict_takes_no_weight_away() -> None:
    # While two trainings compete, a service can seem slower than it is: the verdict comes once
    # they are held back.
    found: list[CycleReport] = []
    jobs = [*services(0.8), *neighbours("hopeless"), *neighbours("two trainings")]
    trace = Trace(NodeFact(CORES, 1 << 34), tuple(sorted(jobs, key=lambda job: job.name)), 60.0)
    simulate(trace, NamedPolicy("adaptive", load("adaptive")), 1, publish=found.append)
    last = found[-1].decision
    assert "cannot be met" in last.why["hopeless"]
    others = [last.weights[job.name] for job in services(0.8)]
    assert last.weights["hopeless"] >= 0.99 * min(others)
