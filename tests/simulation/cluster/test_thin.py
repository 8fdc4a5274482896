"""The thinnest path: two nodes, three jobs, placed and never moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.cluster.core.records import RecordState
from dlsched.simulation.cluster.run import ClusterOptions, SimulatedCluster, simulate_cluster
from dlsched.simulation.node.workloads import Trace
from dlsched.simulation.trace import parse_trace, render_trace

EXAMPLES = Path(__file__).parents[3] / "examples" / "traces"


def three_jobs() -> Trace:
    return parse_trace((EXAMPLES / "cluster-3-jobs.yaml").read_text(), "cluster-3-jobs")


def test_jobs_are_spread_and_share_their_node() -> None:
    run = simulate_cluster(three_jobs(), "spread")
    assert run.nodes == {"first": "left", "second": "right", "third": "left"}
    times = {job.name: job.completion_s for job in run.jobs}
    # 200 core-seconds alone on 4 cores, a second to start; 2 x 400 on the other 4.
    assert times["second"] == pytest.approx(51.0, abs=0.3)
    assert times["third"] == pytest.approx(200.0 + 1.0 - 20.0, abs=0.3)
    assert times["first"] == pytest.approx(181.0, abs=1.0)


def test_every_job_has_a_record_that_ends() -> None:
    cluster = SimulatedCluster(three_jobs(), "spread", 1, ClusterOptions())
    cluster.run()
    records = [one.record for one in cluster.store.records().values()]
    assert {(one.state, one.epoch, one.exit_code) for one in records} == {(RecordState.ENDED, 1, 0)}


@pytest.mark.long
def test_the_nodes_own_policy_divides_each_node() -> None:
    fair = simulate_cluster(three_jobs(), "spread")
    ordered = simulate_cluster(three_jobs(), "spread", 0, ClusterOptions(policy="adaptive"))
    assert sum(one.completion_s or 0.0 for one in ordered.jobs) < 0.95 * sum(
        one.completion_s or 0.0 for one in fair.jobs
    )


@pytest.mark.long
def test_the_same_seed_gives_the_same() -> None:
    options = ClusterOptions(policy="adaptive")
    one, other = (simulate_cluster(three_jobs(), "spread", 3, options) for _ in range(2))
    assert one == other


def test_a_trace_of_a_cluster_is_written_as_it_was_read() -> None:
    assert parse_trace(render_trace(three_jobs()), "again") == three_jobs()
