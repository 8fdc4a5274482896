"""What a node can never give a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.api.status import node_status
from dlsched.api.suitability import lacks
from dlsched.config.job import parse_spec
from dlsched.model.errors import SpecError
from tests.status_source import example_report, gpu_report

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
