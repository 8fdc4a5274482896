"""What one who knows all work in advance reaches on several nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.simulation.bounds import Period
from dlsched.simulation.cluster.clairvoyant import clairvoyant, clairvoyant_scores, supply_of
from dlsched.simulation.cluster.run import ClusterRun
from dlsched.simulation.cluster.scoring import Contender, compare_clusters, score
from dlsched.simulation.node.workloads import HostLoad
from dlsched.simulation.scoring import JobResult
from tests.lanes import but_the_first_long
from tests.properties import examples
from tests.simulation.cluster.test_thin import three_jobs, with_right
from tests.simulation.cluster.worlds import WORLDS, world


def test_nodes_come_and_are_slower_and_are_used_by_others() -> None:
    assert supply_of(with_right()) == (Period(0.0, ((1.0, 4.0), (1.0, 4.0))),)
    assert supply_of(with_right(joins_s=9.0, leaves_s=20.0)) == (
        Period(0.0, ((1.0, 4.0),)),
        Period(9.0, ((1.0, 4.0), (1.0, 4.0))),
    )
    assert supply_of(with_right(speed=0.5))[0].nodes == ((1.0, 4.0), (0.5, 4.0))
    heavy = HostLoad(10.0, 5.0, 3.0, 262_144)
    assert [one.nodes[-1] for one in supply_of(with_right(host=(heavy,)))] == [
        (1.0, 4.0), (1.0, 1.0), (1.0, 4.0),
    ]  # fmt: skip
    # Of the default weight it has no more beside three jobs than one of four.
    light = HostLoad(0.0, 5.0, 3.0)
    assert supply_of(with_right(host=(light,)))[0].nodes[-1] == (1.0, 3.0)


@pytest.mark.parametrize("name", but_the_first_long(WORLDS[1:]))
def test_no_run_ends_before_its_bound_and_no_mean_of_these_is_better(name: str) -> None:
    contenders = [Contender("spread", "none"), Contender("adaptive", "none")]
    trace = world(name, 7)
    scores, _ = compare_clusters(trace, contenders, (7,))
    (best,) = clairvoyant_scores(trace, scores[:1])
    assert (best.scenario, best.contender, best.seed) == (trace.name, "clairvoyant", 7)
    for one in scores:
        assert one.makespan_s is not None
        assert best.makespan_s <= one.makespan_s
        assert best.mean_s <= one.mean_s
    assert best.mean_ratio == best.mean_s / scores[0].mean_s
    assert best.makespan_ratio == best.makespan_s / (scores[0].makespan_s or 0.0)


def test_a_first_contender_that_did_not_end_has_no_ratio() -> None:
    trace = three_jobs()
    (score,), _ = compare_clusters(trace, [Contender("spread", "none")], (1,))
    (best,) = clairvoyant_scores(trace, [replace(score, makespan_s=None)])
    assert best.makespan_ratio is None


@settings(max_examples=examples(20))
@given(
    st.lists(st.floats(0, 300), min_size=3, max_size=3),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.floats(0, 200),
    st.lists(st.builds(HostLoad, st.floats(0, 100), st.floats(1, 300), st.floats(0.5, 4))),
)
def test_no_schedule_ends_before_the_bound(
    arrivals_s: list[float], speed: float, joins_s: float, host: list[HostLoad]
) -> None:
    trace = with_right(speed=speed, joins_s=joins_s, host=tuple(host))
    jobs = [replace(job, arrives_s=at_s) for job, at_s in zip(trace.jobs, arrivals_s, strict=True)]
    trace = replace(trace, jobs=tuple(jobs))
    scores, _ = compare_clusters(trace, [Contender("random", "none")], (1,))
    assert scores[0].makespan_s is not None
    assert clairvoyant(trace).makespan_s <= scores[0].makespan_s * (1 + 1e-9)


def run(*times_s: float | None, arrived_s: float = 10.0) -> ClusterRun:
    jobs = tuple(
        JobResult(f"job-{index}", "training", arrived_s, 1000.0, completion_s=time_s)
        for index, time_s in enumerate(times_s)
    )
    service = JobResult("service", "service", 0.0, 1000.0)
    return ClusterRun("spread", "none", 1, 2, 1, 7, (*jobs, service), {})


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
    assert runs[0].jobs != runs[1].jobs
    assert [one.policy for one in runs] == ["none", "adaptive", "none", "adaptive"]
