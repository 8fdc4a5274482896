from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.estimate.sketch import from_latencies
from dlsched.model.errors import PolicyError
from dlsched.model.spec import Bounds, ContainerSpec, JobSpec, LatencyTarget, Limits
from dlsched.model.state import GpuView, JobState, JobView, NodeView, Progress, Snapshot
from dlsched.policies.registry import load
from tests.doubles import gpu_fact

EXAMPLES = Path(__file__).parents[2] / "examples"
NAME = "my_policy:SlowestFirst"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "my_policy", raising=False)


def seen(**latencies_s: float | None) -> Snapshot:
    """Jobs with a target of 50 ms and these latencies; None: not measured."""
    jobs = tuple(
        JobView(
            spec=JobSpec(name, ContainerSpec("model"), target=LatencyTarget(0.05)),
            state=JobState.RUNNING,
            progress=Progress(window=from_latencies([] if one is None else [one] * 5)),
        )
        for name, one in sorted(latencies_s.items())
    )
    return Snapshot(0, 10.0, NodeView(2.0, 2.0, 1 << 30), jobs)


def test_it_is_found_by_module_and_class() -> None:
    assert load(NAME, {"step_ratio": 0.1}).policy.parameters.step_ratio == 0.1  # type: ignore[attr-defined]
    with pytest.raises(PolicyError, match="step_ratio is 2"):
        load(NAME, {"step_ratio": 2.0})


def test_the_slowest_takes_from_the_fastest_step_by_step() -> None:
    policy = load(NAME)
    node = seen(ahead=0.02, behind=0.09, near=0.05, silent=None)
    first = policy.decide(node, None)
    assert {name: one.cpu_cores for name, one in first.limits.items()} == pytest.approx(
        {"ahead": 0.4, "behind": 0.6, "near": 0.5, "silent": 0.5}
    )
    assert first.why["behind"] == "at 1.80 of its target: takes 0.100 cores"
    second = policy.decide(node, first.memory)
    assert second.limits["ahead"].cpu_cores == pytest.approx(0.32)


def test_it_starts_over_when_a_job_comes() -> None:
    policy = load(NAME)
    memory = policy.decide(seen(a=0.02, b=0.09), None).memory
    later = policy.decide(seen(a=0.05, b=0.05, c=0.05), memory)
    assert [one.cpu_cores for one in later.limits.values()] == pytest.approx([2 / 3] * 3)


def test_of_a_gpu_its_reasons_say_what_its_cores_stand_for() -> None:
    gpu = gpu_fact(0)
    jobs = tuple(
        replace(
            job,
            spec=replace(job.spec, bounds=Bounds(floor_share=0.1)),
            gpus=(gpu.uuid,),
            desired=Limits(1.0, 0.5),
            actual=Limits(1.0, 0.5),
        )
        for job in seen(ahead=0.02, behind=0.09).jobs
    )
    node = NodeView(2.0, 2.0, 1 << 30, gpus=(GpuView(gpu),))
    decision = load(NAME).decide(Snapshot(0, 10.0, node, jobs), None)
    assert decision.limits["behind"] == Limits(1.2, pytest.approx(0.6))
    assert decision.why["behind"] == (
        "at 1.80 of its target: takes 0.200 cores; "
        "GPU 0 (1 core is all of its time): at 1.80 of its target: takes 0.100 cores"
    )


def test_nobody_gives_when_all_are_late() -> None:
    decision = load(NAME).decide(seen(a=0.06, b=0.09), None)
    assert [one.cpu_cores for one in decision.limits.values()] == [1.0, 1.0]
