"""Drawn clusters, in which everything fails and jobs are withdrawn at any point of their moves: no
invariant is violated in any cycle, and what is not withdrawn ends."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.cluster.controller import ClusterController
from dlsched.cluster.core.records import Record, RecordState
from dlsched.cluster.store import MemoryStore
from dlsched.simulation.cluster.network import NetworkOptions, NodeFault
from dlsched.simulation.cluster.run import ClusterOptions, SimulatedCluster, with_nodes
from dlsched.simulation.node.workloads import SimulatedJob, TrainingLoad
from tests.properties import examples
from tests.simulation.cluster.test_controllers import ControllerDied, survive
from tests.simulation.cluster.test_moves import failing_over
from tests.simulation.cluster.test_thin import three_jobs

RESTLESS = "tests.simulation.cluster.scripted:Restless"
NODES = ("node-01", "node-02", "node-03")


@st.composite
def jobs(draw: st.DrawFn) -> Sequence[SimulatedJob]:
    (like, *_) = three_jobs().jobs
    assert isinstance(like.load, TrainingLoad)
    found = []
    for index in range(draw(st.integers(2, 6))):
        name = f"job-{index}"
        spec = replace(like.spec, name=name, digest=name, container_digest=name)
        if draw(st.booleans()):
            spec = failing_over(spec)
        arrives_s = draw(st.floats(0, 200))
        stays_s = draw(st.none() | st.floats(1, 400))
        load = replace(like.load, steps=draw(st.integers(100, 1000)))
        leaves_s = None if stays_s is None else arrives_s + stays_s
        found.append(replace(like, spec=spec, load=load, arrives_s=arrives_s, leaves_s=leaves_s))
    return found


@st.composite
def faults(draw: st.DrawFn) -> list[NodeFault]:
    """One after the other: two at a time may be what nothing can be done about."""
    found, at_s = [], 20.0
    for _ in range(draw(st.integers(0, 5))):
        at_s += draw(st.floats(5, 120))
        for_s = draw(st.sampled_from([3.0, 20.0, 100.0, 400.0]))
        kind = draw(st.sampled_from(["dead", "agent", "cut"]))
        found.append(NodeFault(kind, draw(st.sampled_from(NODES)), at_s, for_s))  # type: ignore[arg-type]
        at_s += for_s
    return found


class Deadly(MemoryStore):
    """A store whose writer may die at a write, and another one has a round before others."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__((), leader="manager")
        self._chance = chance
        self._races = False
        self.other: ClusterController | None = None

    def put(self, record: Record, version: int | None) -> int:
        if self.other is not None and not self._races and self._chance.random() < 0.1:
            self._races = True
            with suppress(ControllerDied):
                self.other.round()
            self._races = False
        drawn = self._chance.random()
        if drawn < 0.1:
            raise ControllerDied
        found = super().put(record, version)
        if drawn < 0.2:
            raise ControllerDied
        return found


@settings(max_examples=examples(25))
@given(
    jobs(),
    faults(),
    st.integers(0, 99),
    st.sampled_from([0.05, 0.5, 5.0]),
    st.sampled_from([0.0, 0.1]),
    st.booleans(),
)
def test_no_invariant_is_violated(
    jobs: Sequence[SimulatedJob],
    faults: list[NodeFault],
    seed: int,
    latency_s: float,
    loss: float,
    doubled: bool,
) -> None:
    trace = replace(three_jobs(), jobs=tuple(jobs), duration_s=20_000.0, nodes=())
    store = Deadly(random.Random(seed))
    options = ClusterOptions(network=NetworkOptions(latency_s, loss, faults))
    there = SimulatedCluster(with_nodes(trace, 3), f"{RESTLESS}?seed={seed}", seed, options, store)
    if doubled:
        store.other = there.controller
        there.start_controller()
    survive(there)
    records = {job: one.record for job, one in store.records().items()}
    for job in jobs:
        if job.leaves_s is None:
            assert (records[job.name].state, records[job.name].exit_code) == (RecordState.ENDED, 0)
        elif job.name in records:
            assert records[job.name].state is RecordState.ENDED
