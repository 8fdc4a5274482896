"""`adaptive` in `slo`, where the services fit the node: none of them has a ceiling.

Not because another one is hopeless, silent or new, and not because trainings want the CPU.
"""

from __future__ import annotations

import pytest

from dlsched.control.decider import NamedPolicy
from dlsched.model.cycle import CycleReport
from dlsched.model.decision import Decision
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
from tests.worlds.harm_worlds import training
from tests.worlds.open_worlds import simulated_job

CORES = 2.0
OFTEN = 8.0
"""Requests a second: enough to be known within seconds."""


def service(name: str, use_cores: float, target_s: float = 10.0, **more: object) -> SimulatedJob:
    """An open loop that uses so much in the mean."""
    load = ServiceLoad(use_cores / OFTEN, arrivals_per_s=OFTEN, noise=0.3)
    return simulated_job(name, LatencyTarget(target_s), load, **more)


NEIGHBOURS = {
    "hopeless": (service("hopeless", 0.1, 0.001),),
    "hopeless loop": (simulated_job("hopeless", LatencyTarget(0.001), ServiceLoad(0.02)),),
    "silent": (service("silent", 0.1, faults=(Fault("silent", 5.0),)),),
    "never reported": (service("loading", 0.1, start_up_s=40.0, start_up_work_core_s=20.0),),
    "two trainings": (training(1), training(2)),
}


def decisions(jobs: list[SimulatedJob]) -> list[Decision]:
    """What `adaptive` decides of these jobs in a minute."""
    found: list[CycleReport] = []
    ordered = tuple(sorted(jobs, key=lambda job: job.name))
    trace = Trace(NodeFact(CORES, 1 << 34), ordered, 60.0)
    simulate(trace, NamedPolicy("adaptive", load("adaptive")), 1, publish=found.append)
    return [one.decision for one in found if one.decision is not None]


def services(use_cores: float) -> list[SimulatedJob]:
    """Four, which use so much together; each would answer in .05 to .3 s alone."""
    parts = (0.1, 0.2, 0.3, 0.4)
    return [service(f"s{part}", part * use_cores, target_s=1.0) for part in parts]


@pytest.mark.parametrize("kind", NEIGHBOURS)
def test_no_neighbour_brings_a_ceiling_upon_services_that_fit(kind: str) -> None:
    for decision in decisions([*services(0.8), *NEIGHBOURS[kind]]):
        for name, limits in decision.limits.items():
            assert limits.cpu_cores is None or name.startswith("training"), name


def test_a_false_verdict_takes_no_weight_away() -> None:
    # While two trainings compete, a service can seem slower than it is: the verdict comes once
    # they are held back.
    last = decisions([*services(0.8), *NEIGHBOURS["hopeless"], *NEIGHBOURS["two trainings"]])[-1]
    assert "cannot be met" in last.why["hopeless"]
    others = [last.weights[job.name] for job in services(0.8)]
    assert last.weights["hopeless"] >= 0.99 * min(others)
