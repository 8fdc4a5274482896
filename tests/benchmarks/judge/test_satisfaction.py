"""The judgement of simulated services: whose time counts from when on, and against what."""

from __future__ import annotations

import pytest

from benchmarks.judge.satisfaction import MET, SATISFIED, Watch, judge
from dlsched.model.facts import NodeFact
from dlsched.model.spec import ContainerSpec, JobSpec, LatencyTarget
from dlsched.simulation.node.workloads import ServiceLoad, SimulatedJob, Trace
from dlsched.simulation.run import simulate


def service(name: str, cores: float, arrives_s: float = 0.0, **more: object) -> SimulatedJob:
    """Needs so many cores for its target of 0.1 s, without waiting."""
    spec = JobSpec(name, ContainerSpec("model"), target=LatencyTarget(0.1))
    return SimulatedJob(spec, ServiceLoad(0.1 * cores, threads=4.0), arrives_s, **more)  # type: ignore[arg-type]


def trace(*jobs: SimulatedJob, cores: float = 4.0, duration_s: float = 30.0) -> Trace:
    return Trace(NodeFact(cores, 1 << 30), jobs, duration_s)


def watched(course: dict[str, list[float]]) -> Watch:
    """A run in which each service is at its target for these parts of each second."""
    sums = dict.fromkeys(course, 0.0)
    looks = [(0.0, {(one.name, name): 0.0 for name in course for one in (SATISFIED, MET)})]
    for second in range(len(next(iter(course.values())))):
        for name, parts in course.items():
            sums[name] += parts[second]
        looks.append(
            (
                second + 1.0,
                {(r.name, name): s for name, s in sums.items() for r in (SATISFIED, MET)},
            )
        )
    return Watch(looks)  # type: ignore[arg-type]


def test_only_what_comes_after_the_eighth_step_counts() -> None:
    one = trace(service("a", 1.0), service("b", 1.0))
    late = {"a": [1.0] * 9 + [0.0] * 21, "b": [0.0] * 9 + [1.0] * 21}
    judged = judge(one, watched(late), SATISFIED, ["a", "b"])
    assert judged.by_job == {"a": 0.0, "b": 1.0}
    assert (judged.jobs, judged.best_jobs) == (1.0, 2.0)


def test_a_service_that_comes_late_has_eight_steps_of_its_own() -> None:
    one = trace(service("a", 1.0), service("b", 1.0, arrives_s=10.0))
    judged = judge(
        one, watched({"a": [1.0] * 30, "b": [0.0] * 19 + [1.0] * 11}), SATISFIED, ["a", "b"]
    )
    assert judged.by_job == {"a": 1.0, "b": 1.0}
    assert judged.jobs == judged.best_jobs == 2.0


def test_the_clairvoyant_takes_the_cheapest_that_fit_by_either_reading() -> None:
    # At 1.1 times the target 2.1 cores become 1.91: both fit only within the band.
    one = trace(service("a", 2.1), service("b", 2.1))
    nobody = watched({"a": [0.0] * 30, "b": [0.0] * 30})
    assert judge(one, nobody, SATISFIED, ["a", "b"]).best_jobs == pytest.approx(2.0)
    assert judge(one, nobody, MET, ["a", "b"]).best_jobs == pytest.approx(1.0)


def test_a_job_got_worse_when_it_is_at_its_target_for_clearly_less_of_the_time() -> None:
    one = trace(service("a", 1.0), service("b", 1.0))
    most = judge(one, watched({"a": [1.0] * 30, "b": [1.0] * 30}), MET, ["a", "b"])
    less = judge(one, watched({"a": [1.0] * 29 + [0.0], "b": [0.0] * 30}), MET, ["a", "b"])
    assert (less.worse_than(most), most.worse_than(less)) == (1, 0)


def test_a_run_is_watched_by_what_its_services_truly_do() -> None:
    # Plain Docker gives each of them all of its threads: faster than asked, so met, not satisfied.
    one, watch = trace(service("a", 1.0), service("b", 0.5), cores=16.0), Watch()
    run = simulate(one, "none", 1, inspect=watch.look)
    assert [at_s for at_s, _ in watch.looks][-1] == one.duration_s
    assert judge(one, watch, MET, ["a", "b"]).jobs == pytest.approx(2.0)
    assert judge(one, watch, SATISFIED, ["a", "b"]).jobs == 0.0
    kept_s = watch.looks[-1][1]["met", "a"]
    result = next(job for job in run.jobs if job.name == "a")
    assert result.met_ratio == pytest.approx(kept_s / one.duration_s)
