"""What a node can never give a job, and what its forecasts say against the job's target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.api.schema import JobStatus
from dlsched.api.status import job_status, node_status
from dlsched.api.suitability import doubts, lacks
from dlsched.config.job import parse_spec
from dlsched.model.errors import SpecError
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import AccuracyTarget, Target
from tests.status_source import NOW_S, P95_50MS, example_report, gpu_report, job

HOST = node_status(example_report()).node
(_GPU, *_) = node_status(gpu_report()).node.gpus
A100 = replace(_GPU, model="NVIDIA A100-SXM4-80GB", memory_bytes=80 << 30)
T4 = replace(_GPU, model="Tesla T4", memory_bytes=15 << 30)
THERE = "1 NVIDIA A100-SXM4-80GB 80 GiB, 2 Tesla T4 15 GiB"


@pytest.mark.parametrize(
    ("gpus", "problem"),
    [
        ("4", f"3:7: gpus.count: 4, the node has 3: {THERE}"),
        ("{count: 5}", f"3:15: gpus.count: 5, the node has 3: {THERE}"),
        ("{count: 1, model: H100}", f"3:25: gpus.model: 'H100', the node has none: {THERE}"),
        (
            "{count: 1, memory: 96GiB}",
            f"3:26: gpus.memory: 96 GiB, the node's largest has 80 GiB: {THERE}",
        ),
        (
            "{count: 1, model: t4, memory: 16GiB}",
            f"3:37: gpus.memory: 16 GiB, the node's largest such has 15 GiB: {THERE}",
        ),
        ("{count: 2, memory: 16GiB}", f"3:15: gpus.count: 2 such, the node has 1: {THERE}"),
        ("{count: 3, model: T4}", f"3:15: gpus.count: 3 such, the node has 2: {THERE}"),
    ],
)
def test_more_gpus_than_there_are_are_refused_with_what_there_is(gpus: str, problem: str) -> None:
    node = replace(HOST, gpus=(A100, T4, T4, replace(A100, reserved=True)))
    text = f"name: job-a\nimage: a\ngpus: {gpus}\n"
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "a.yaml", None, lambda spec: lacks(spec, node))
    assert str(caught.value) == f"a.yaml:{problem}"


@pytest.mark.parametrize("gpus", ["1", "3", "{count: 2, model: T4, memory: 15GiB}"])
def test_what_the_node_has_is_not_refused(gpus: str) -> None:
    node = replace(HOST, gpus=(A100, T4, T4))
    assert not [*lacks(parse_spec(f"name: job-a\nimage: a\ngpus: {gpus}\n", "a.yaml"), node)]


def test_a_node_without_gpus_refuses_and_one_that_cannot_see_them_does_not() -> None:
    text = "name: job-a\nimage: a\ngpus: 1\n"
    spec = parse_spec(text, "a.yaml")
    (said,) = lacks(spec, HOST)
    assert said == (("gpus", "count"), "1, the node has none")
    assert not [*lacks(spec, replace(HOST, gpu_trouble="the driver does not answer"))]
    assert not [*lacks(parse_spec("name: job-a\nimage: a\n", "a.yaml"), HOST)]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("cpus: {min: 4.5}", "3:13: cpus.min: 4.5 cores, the node has only 4 cores for jobs"),
        ("memory: 9GiB", "3:9: memory: 9 GiB, the node has only 8 GiB for jobs"),
        ("cpus: {min: 4, max: 64}\nmemory: 8GiB", None),
    ],
)
def test_a_floor_above_what_the_node_has_is_refused(keys: str, problem: str | None) -> None:
    text = f"name: job-a\nimage: a\n{keys}\n"
    if problem is None:
        assert parse_spec(text, "a.yaml", None, lambda spec: lacks(spec, HOST)).bounds
        return
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "a.yaml", None, lambda spec: lacks(spec, HOST))
    assert str(caught.value) == f"a.yaml:{problem}"


UNTIL_97 = AccuracyTarget("accuracy", 0.9, 0.97)


def row(target: Target, forecast: Forecast) -> JobStatus:
    return job_status(job("job-a", target=target), NOW_S, (forecast,))


SLOW = row(P95_50MS, Forecast(ForecastKind.IMPOSSIBLE, "latency", best=0.064))
GREEDY = row(P95_50MS, Forecast(ForecastKind.CROWDED, "latency", needs_cores=1.4))
FLAT = row(UNTIL_97, Forecast(ForecastKind.IMPOSSIBLE, "finish", best=0.952))
ASKS = "target: {latency: 50ms, quantile: p95}"
LEARNS = "target: {metric: accuracy, deliver: 0.9, finish: %s}"


@pytest.mark.parametrize(
    ("keys", "there", "doubted"),
    [
        (ASKS, SLOW, ["target.latency: 50 ms; the job reaches 64 ms at best as it runs now"]),
        ("target: {latency: 65ms, quantile: p95}", SLOW, []),
        ("target: {latency: 50ms}", SLOW, []),
        (
            f"{ASKS}\ncpus: {{max: 1}}",
            GREEDY,
            ["cpus.max: 1 core, the job's target needs 1.4 cores as it runs now"],
        ),
        (f"{ASKS}\ncpus: {{max: 1.5}}", GREEDY, []),
        (ASKS, GREEDY, []),
        ("target: {latency: 80ms, quantile: p95}\ncpus: {max: 1}", GREEDY, []),
        (
            LEARNS % 0.97,
            FLAT,
            ["target.finish: 0.97; 0.952 at best is expected as the job runs now"],
        ),
        (
            LEARNS % 0.97,
            row(UNTIL_97, Forecast(ForecastKind.UNLIKELY, "finish", best=0.952)),
            ["target.finish: 0.97; 0.952 at best is expected as the job runs now"],
        ),
        (LEARNS % 0.95, FLAT, []),
        (LEARNS % 0.97, replace(FLAT, name="job-b"), []),
        (LEARNS % 0.97, replace(FLAT, target=None), []),
        (LEARNS % 0.97, SLOW, []),
        (ASKS, FLAT, []),
        ("weight: 2", SLOW, []),
    ],
)
def test_what_is_expected_of_the_running_job_speaks_against_its_target(
    keys: str, there: JobStatus, doubted: list[str]
) -> None:
    spec = parse_spec(f"name: job-a\nimage: a\n{keys}\n", "a.yaml")
    assert list(doubts(spec, [replace(SLOW, name="job-z"), there])) == doubted
