"""The judgement of simulated services, and the inference comparison: whose time counts from when on
and against what; rows, and what its tables make of them; processes outside that come and go.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from benchmarks.publish import results
from benchmarks.simulated import adaptive_inference
from benchmarks.simulated.adaptive_inference import (
    HONEST,
    MET,
    SATISFIED,
    SCENARIOS,
    Measured,
    Scenario,
    Watch,
    compare,
    judge,
    trace_of,
)
from dlsched.model.actions import Resize
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import NodeFact
from dlsched.model.spec import Bounds, ContainerSpec, JobSpec, LatencyTarget
from dlsched.simulation.node.workloads import HostLoad, ServiceLoad, SimulatedJob, Trace
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN
from dlsched.simulation.trace import Recipe
from tests.worlds.harm_worlds import training

ROW = Measured("demand 0.7", 10, PLAIN, 1, 2.0, 10.0, 0, 8.0, 10.0, 0, 0.0)


def test_every_policy_is_measured_beside_plain_docker_and_the_clairvoyant() -> None:
    recipe = Recipe(kind="inference", schedule="burst", duration_s=30.0, cores=4.0)
    scenario = Scenario("small", "small", replace(recipe, lying_ratio=0.4))
    found = compare(scenario, 5, 1, (PLAIN, "fair", "dqoes"))
    assert [(row.scenario, row.policy) for row in found] == [
        (words, policy)
        for policy in (PLAIN, "fair", "dqoes")
        for words in ("small", f"small{HONEST}")
    ]
    for row in found:
        assert 0.0 <= row.satisfied_jobs <= row.satisfied_best_jobs + 1e-9 <= 5.0 + 1e-9
        assert 0.0 <= row.met_jobs <= row.met_best_jobs + 1e-9
    plain, honest = found[:2]
    assert (plain.satisfied_worse_jobs, plain.updates_per_min) == (0, 0.0)
    assert honest.satisfied_best_jobs <= 3.0 < plain.satisfied_best_jobs
    assert found == compare(scenario, 5, 1, (PLAIN, "fair", "dqoes"))


def test_a_part_is_printed_and_not_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(adaptive_inference, "compare_all", lambda *_: [ROW])
    monkeypatch.setattr(results, "save", lambda *_, **__: pytest.fail("it was saved"))
    assert adaptive_inference.main(["--seeds", "1"]) == 0
    assert "| demand 0.7 | 0.20 |" in capsys.readouterr().out


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


FEASIBLE = next(one for one in SCENARIOS if one.name == "feasible")
JOBS, SEED, BEGINS_S, JUDGED_FROM_S = 8, 49, 20, 60.0
PROMISED_SEED, PROMISED_CORES = 2, 1.6
SHARES = 1024 * JOBS


@pytest.mark.parametrize(
    ("lasts_s", "every_s", "part"), [(4.0, 12, 0.5), (7.0, 20, 0.375), (20.0, 60, 0.5)]
)
def test_services_meet_more_than_under_plain_docker(
    lasts_s: float, every_s: int, part: float
) -> None:
    trace = trace_of(FEASIBLE, JOBS, SEED)
    cores = part * trace.node.cores
    begins = range(BEGINS_S, int(trace.duration_s), every_s)
    trace = replace(trace, host=tuple(HostLoad(at, lasts_s, cores, SHARES) for at in begins))
    plain_jobs, _ = _settled(trace, PLAIN)
    met_jobs, updates_per_min = _settled(trace, "adaptive")
    assert met_jobs > plain_jobs
    # Every 12 s, changes of all eight when the load comes and when it goes would be 80 a minute.
    assert updates_per_min < 40.0


def test_a_job_beside_them_gets_the_cores_that_it_was_promised() -> None:
    trace = trace_of(
        replace(FEASIBLE, recipe=replace(FEASIBLE.recipe, demand=0.95)), JOBS, PROMISED_SEED
    )
    batch = training(1)
    batch = replace(batch, spec=replace(batch.spec, bounds=Bounds(PROMISED_CORES)))
    trace = replace(trace, jobs=(*trace.jobs, batch))
    used_cores = []

    def publish(report: CycleReport) -> None:
        if report.snapshot.now_s >= JUDGED_FROM_S:
            job = next(one for one in report.snapshot.jobs if one.name == batch.name)
            used_cores.append(job.usage.cpu_cores or 0.0)

    simulate(trace, "adaptive", PROMISED_SEED, publish=publish)
    assert fmean(used_cores) > 0.98 * PROMISED_CORES


def _settled(trace: Trace, policy: str) -> tuple[float, float]:
    """How many services are not slower than their targets, and updates a minute once settled."""
    watch, updated_s = Watch(), list[float]()

    def publish(report: CycleReport) -> None:
        updated_s.extend(
            report.snapshot.now_s
            for outcome in report.outcomes
            if isinstance(outcome.action, Resize)
        )

    simulate(trace, policy, SEED, publish=publish, inspect=watch.look)
    met = judge(trace, watch, MET, [job.name for job in trace.jobs]).jobs
    late = sum(at_s >= JUDGED_FROM_S for at_s in updated_s)
    return met, 60.0 * late / (trace.duration_s - JUDGED_FROM_S)
