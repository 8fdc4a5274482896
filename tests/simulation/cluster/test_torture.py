"""Everything goes wrong together: hosts, agents and links fail, orders are lost and late, and the
controller dies at its writes, while all that can move moves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dlsched.cluster.core.records import Record, RecordState
from dlsched.cluster.store import MemoryStore
from dlsched.simulation.cluster.network import NetworkOptions, NodeFault
from dlsched.simulation.cluster.run import ClusterOptions, SimulatedCluster, with_nodes
from dlsched.simulation.node.workloads import Trace, TrainingLoad
from tests.lanes import but_the_first_long
from tests.simulation.cluster.test_controllers import ControllerDied, survive
from tests.simulation.cluster.test_failover import failing_over
from tests.simulation.cluster.test_moves import went_well
from tests.simulation.cluster.test_thin import three_jobs

RESTLESS = "tests.simulation.cluster.scripted:Restless"


def jobs(count: int, chance: random.Random) -> Trace:
    """So many trainings on three nodes, in the first five minutes."""
    (like, *_) = three_jobs().jobs
    found = []
    for index in range(count):
        name = f"job-{index:02}"
        spec = replace(like.spec, name=name, digest=name, container_digest=name)
        assert isinstance(like.load, TrainingLoad)
        load = replace(like.load, steps=chance.randrange(200, 1500))
        found.append(replace(like, spec=spec, load=load, arrives_s=chance.uniform(0.0, 300.0)))
    return with_nodes(replace(three_jobs(), jobs=tuple(found), duration_s=20_000.0, nodes=()), 3)


LASTING = (3.0, 20.0, 100.0, 250.0)
LONG = (20.0, 100.0, 250.0, 400.0, 400.0)
"""Such that jobs start elsewhere."""


def faults(
    chance: random.Random, nodes: list[str], lasting: Sequence[float] = LASTING
) -> list[NodeFault]:
    """One after the other: two at a time may be what nothing can be done about."""
    found, at_s = [], 30.0
    for _ in range(12):
        at_s += chance.uniform(10.0, 120.0)
        for_s = chance.choice(lasting)
        kind = chance.choice(["dead", "agent", "cut"])
        found.append(NodeFault(kind, chance.choice(nodes), at_s, for_s))  # type: ignore[arg-type]
        at_s += for_s
    return found


class Deadly(MemoryStore):
    """A store whose writer may die, before or after it has written."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__((), leader="manager")
        self._chance = chance
        self.deaths = 0

    def put(self, record: Record, version: int | None) -> int:
        drawn = self._chance.random()
        self.deaths += drawn < 0.2
        if drawn < 0.1:
            raise ControllerDied
        found = super().put(record, version)
        if drawn < 0.2:
            raise ControllerDied
        return found


@pytest.mark.parametrize("failover", [False, True], ids=["wait", "restart"])
@pytest.mark.parametrize("seed", but_the_first_long(range(8)))
def test_every_job_ends_once_whatever_fails(seed: int, failover: bool) -> None:
    chance = random.Random(seed)
    trace = jobs(12, chance)
    if failover:
        moving = tuple(replace(job, spec=failing_over(job.spec)) for job in trace.jobs)
        trace = replace(trace, jobs=moving)
    nodes = [one.name for one in trace.nodes]
    broken = faults(chance, nodes, LONG if failover else LASTING)
    network = NetworkOptions(latency_s=0.5, loss=0.1, faults=broken)
    store = Deadly(chance)
    options = ClusterOptions(network=network)
    run = survive(SimulatedCluster(trace, f"{RESTLESS}?seed={seed}", seed, options, store))
    assert went_well(run)
    assert store.deaths > 0 and run.moves > 0
    for one in store.records().values():
        assert (one.record.state, one.record.exit_code) == (RecordState.ENDED, 0)
