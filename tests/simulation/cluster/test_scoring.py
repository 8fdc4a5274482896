"""Runs of a cluster in numbers, beside the first run."""

from __future__ import annotations

import pytest

from dlsched.simulation.cluster.run import ClusterRun
from dlsched.simulation.cluster.scoring import Contender, compare_clusters, score
from dlsched.simulation.scoring import JobResult
from tests.simulation.cluster.test_thin import three_jobs


def run(*times_s: float | None, arrived_s: float = 10.0) -> ClusterRun:
    jobs = tuple(
        JobResult(f"job-{index}", "training", arrived_s, 1000.0, completion_s=time_s)
        for index, time_s in enumerate(times_s)
    )
    service = JobResult("service", "service", 0.0, 1000.0)
    return ClusterRun("spread", "none", 1, 900.0, 9, 2, 1, 7, (*jobs, service), {})


def test_jobs_are_compared_with_the_first_run() -> None:
    first, other = run(100.0, 200.0, 300.0, 400.0), run(50.0, 221.0, 329.0, 200.0)
    found = score("world", "other", other, first)
    assert (found.mean_s, found.median_s, found.p95_s, found.makespan_s) == (
        200.0,
        210.5,
        329.0,
        329.0,
    )
    assert (found.mean_ratio, found.makespan_ratio) == (0.8, pytest.approx(329 / 400))
    # More than a tenth later is one; a bit less is not.
    assert (found.slower, found.worst, found.worst_ratio) == (1, "job-1", pytest.approx(1.105))
    assert (found.moves, found.failed_moves) == (2, 1)


def test_a_training_that_did_not_end_counts_with_all_its_time_and_has_no_makespan() -> None:
    found = score("world", "other", run(100.0, None), run(100.0, 500.0))
    assert (found.mean_s, found.makespan_s, found.makespan_ratio) == (550.0, None, None)
    assert (found.slower, found.worst) == (1, "job-1")


@pytest.mark.long
def test_every_contender_runs_under_every_seed_beside_the_first() -> None:
    both = [Contender("spread", "none"), Contender("spread", "adaptive")]
    scores, runs = compare_clusters(three_jobs(), both, (1, 2))
    assert [(one.contender, one.seed) for one in scores] == [
        ("spread+none", 1), ("spread+adaptive", 1), ("spread+none", 2), ("spread+adaptive", 2),
    ]  # fmt: skip
    assert [one.mean_ratio for one in scores[::2]] == [1.0, 1.0]
    assert scores[1].mean_ratio < 1.0
    assert [one.policy for one in runs] == ["none", "adaptive", "none", "adaptive"]
