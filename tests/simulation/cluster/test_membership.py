"""Nodes that join, that are drained, that are slower, and what others take of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.simulation.cluster.run import ClusterOptions, RoundReport, SimulatedCluster
from dlsched.simulation.node.workloads import HostLoad, Trace
from tests.simulation.cluster.test_moves import completion_s
from tests.simulation.cluster.test_thin import three_jobs


def with_right(**changes: object) -> Trace:
    trace = three_jobs()
    left, right = trace.nodes
    return replace(trace, nodes=(left, replace(right, **changes)))  # type: ignore[arg-type]


def run(trace: Trace, policy: str = "spread") -> tuple[SimulatedCluster, list[RoundReport]]:
    reports: list[RoundReport] = []
    there = SimulatedCluster(trace, policy, 1, ClusterOptions(publish=reports.append))
    return there, reports


def test_a_node_that_joins_later_gets_nothing_before() -> None:
    there, _ = run(with_right(joins_s=15.0))
    assert there.run().nodes == {"first": "left", "second": "left", "third": "right"}


def test_a_node_that_is_drained_is_emptied() -> None:
    there, _ = run(with_right(leaves_s=30.0))
    found = there.run()
    assert (found.nodes["second"], found.moves) == ("left", 1)
    assert completion_s(found, "second") > 0.0


def test_a_slower_node_does_less_in_a_core_second() -> None:
    there, _ = run(with_right(speed=0.5))
    alone_s = 500 / 10.0
    assert completion_s(there.run(), "second") == pytest.approx(2 * alone_s + 1.0, abs=0.5)


def test_a_slower_node_is_found_by_its_jobs() -> None:
    """By two images on both nodes; as there are only two, the typical speed is between them."""
    trace = with_right(speed=0.5)
    jobs = []
    for index, image in enumerate(["one", "one", "two", "two"]):
        like = trace.jobs[0]
        container = replace(like.spec.container, image=image)
        spec = replace(like.spec, name=f"job-{index}", container=container)
        jobs.append(replace(like, spec=spec))
    there, reports = run(replace(trace, jobs=tuple(jobs)))
    there.run()
    found = [one.snapshot.nodes for one in reports if one.snapshot and one.snapshot.now_s > 60.0]
    left, right = (node.speed for node in found[0])
    assert right / left == pytest.approx(0.5, abs=0.05)


def test_what_others_take_of_a_node_is_in_the_snapshot() -> None:
    host = (HostLoad(30.0, 1000.0, 3.0, 262_144),)
    there, reports = run(with_right(host=host))
    there.run()
    snapshots = [one.snapshot for one in reports if one.snapshot and 50 < one.snapshot.now_s < 100]
    assert snapshots
    for one in snapshots:
        assert one.nodes[1].foreign_cores == pytest.approx(3.0, abs=0.3)
        assert one.nodes[0].foreign_cores == pytest.approx(0.0, abs=0.3)
