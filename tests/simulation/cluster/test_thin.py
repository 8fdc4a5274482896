"""The thinnest path: two nodes, three jobs, placed and never moved; nodes that join, that are
drained, that are slower, and what others take of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.cluster.core.snapshot import ClusterSnapshot
from dlsched.cluster.round_report import RoundReport
from dlsched.simulation.cluster.run import (
    ClusterOptions,
    ClusterRun,
    simulate_cluster,
)
from dlsched.simulation.node.workloads import HostLoad, Trace
from dlsched.simulation.trace import parse_trace

EXAMPLES = Path(__file__).parents[3] / "examples" / "traces"


def three_jobs() -> Trace:
    return parse_trace((EXAMPLES / "cluster-3-jobs.yaml").read_text(), "cluster-3-jobs")


def completion_s(run: ClusterRun, job: str) -> float:
    (found,) = [one.completion_s for one in run.jobs if one.name == job]
    assert found is not None
    return found


def tier2_s(run: ClusterRun, job: str) -> float:
    (found,) = [one.tier2_s for one in run.jobs if one.name == job]
    assert found is not None
    return found


def went_well(run: ClusterRun) -> bool:
    return all(one.completion_s is not None for one in run.jobs)


def test_jobs_are_spread_and_share_their_node() -> None:
    run = simulate_cluster(three_jobs(), "spread")
    assert run.nodes == {"first": "left", "second": "right", "third": "left"}
    # 200 core-seconds alone on 4 cores, a second to start; 2 x 400 on the other 4.
    assert completion_s(run, "second") == pytest.approx(51.0, abs=0.3)
    assert completion_s(run, "third") == pytest.approx(200.0 + 1.0 - 20.0, abs=0.3)
    assert completion_s(run, "first") == pytest.approx(181.0, abs=1.0)


@pytest.mark.long
def test_the_nodes_own_policy_divides_each_node() -> None:
    """The third needs less to its tier than the first to its end, and goes ahead for that long."""
    fair = simulate_cluster(three_jobs(), "spread")
    ordered = simulate_cluster(three_jobs(), "spread", 0, ClusterOptions(policy="adaptive"))
    for job in fair.nodes:
        assert completion_s(ordered, job) <= completion_s(fair, job) + 1.0
    assert tier2_s(ordered, "third") < 0.9 * tier2_s(fair, "third")


@pytest.mark.long
def test_the_same_seed_gives_the_same() -> None:
    options = ClusterOptions(policy="adaptive")
    one, other = (simulate_cluster(three_jobs(), "spread", 3, options) for _ in range(2))
    assert one == other


def with_right(**changes: object) -> Trace:
    """Three jobs on two nodes of four cores, of which the second is changed."""
    left, right = three_jobs().nodes
    return replace(three_jobs(), nodes=(left, replace(right, **changes)))  # type: ignore[arg-type]


def snapshots(trace: Trace) -> list[ClusterSnapshot]:
    """Of each round."""
    reports: list[RoundReport] = []
    simulate_cluster(trace, "spread", 1, ClusterOptions(publish=reports.append))
    return [one.snapshot for one in reports if one.snapshot]


def test_a_node_that_joins_later_gets_nothing_before() -> None:
    assert simulate_cluster(with_right(joins_s=15.0), "spread").nodes == {
        "first": "left",
        "second": "left",
        "third": "right",
    }


def test_a_node_that_is_drained_is_emptied() -> None:
    found = simulate_cluster(with_right(leaves_s=30.0), "spread")
    assert (found.nodes["second"], found.moves) == ("left", 1)
    assert completion_s(found, "second") > 0.0


def test_a_slower_node_does_less_in_a_core_second() -> None:
    alone_s = 500 / 10.0
    run = simulate_cluster(with_right(speed=0.5), "spread")
    assert completion_s(run, "second") == pytest.approx(2 * alone_s + 1.0, abs=0.5)


def test_a_slower_node_is_found_by_its_jobs() -> None:
    """By two images on both nodes; as there are only two, the typical speed is between them."""
    trace = with_right(speed=0.5)
    jobs = []
    for index, image in enumerate(["one", "one", "two", "two"]):
        like = trace.jobs[0]
        container = replace(like.spec.container, image=image)
        spec = replace(like.spec, name=f"job-{index}", container=container)
        jobs.append(replace(like, spec=spec))
    seen = snapshots(replace(trace, jobs=tuple(jobs)))
    left, right = next([one.speed for one in now.nodes] for now in seen if now.now_s > 60.0)
    assert right / left == pytest.approx(0.5, abs=0.05)


def test_what_others_take_of_a_node_is_in_the_snapshot() -> None:
    host = (HostLoad(30.0, 1000.0, 3.0, 262_144),)
    seen = [one for one in snapshots(with_right(host=host)) if 50 < one.now_s < 100]
    assert seen
    for one in seen:
        assert one.nodes[1].foreign_cores == pytest.approx(3.0, abs=0.3)
        assert one.nodes[0].foreign_cores == pytest.approx(0.0, abs=0.3)
