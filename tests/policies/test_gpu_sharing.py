"""Policies on a simulated node whose GPU jobs share, through the daemon's own controller."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from dlsched.control.decider import NamedPolicy
from dlsched.control.guards import GuardOptions
from dlsched.estimate.response import STEP_DOWN
from dlsched.model.decision import Decision, PolicyTraits
from dlsched.model.spec import Limits
from dlsched.model.state import Snapshot
from dlsched.policies.gpu_node import per_device
from tests.policies.gpu_world import GpuWorld, Work, service

TWO = {
    "quick": (service("quick", 0.05), Work(0.005, 0.03)),
    "slow": (service("slow", 0.2), Work(0.005, 0.05)),
}
"""They need 0.6 and 0.25 of the GPU's time."""
NEIGHBOURS = {
    "cpu": (service("cpu", 0.05, gpus=0), Work(0.16)),
    "gpu": (service("gpu", 0.08, share=1.0), Work(0.01, 0.1)),
}
"""One whose GPU is too slow for its target whatever its CPU, and one that CPU makes faster."""


def ratio(world: GpuWorld, name: str) -> float:
    """Its true latency as a ratio of its target."""
    return world.latency_s(name) / world.inbox.specs[name].target.seconds  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("policy", "least"), [("dqoes", 0.9), ("adaptive?mode=band", 0.9), ("adaptive", 0.0)]
)
def test_two_services_on_one_gpu_meet_their_targets(policy: str, least: float, seed: int) -> None:
    world = GpuWorld(policy, TWO, seed=seed)
    world.run(30)
    for _ in range(12):
        world.run(5)
        for name in TWO:
            assert least <= ratio(world, name) <= (1.1 if least else 1.0)
    assert world.most_given <= 1.0 + 1e-9


@pytest.mark.parametrize("name", ["dqoes", "dqoes-published", "fair", "tradl"])
def test_cores_that_spin_for_the_gpu_go_to_a_neighbour_that_needs_them(name: str) -> None:
    world = GpuWorld(name, NEIGHBOURS)
    world.run(120)
    cores = world.containers["gpu"].actual.cpu_cores
    assert cores < 0.2
    assert world.latency_s("gpu") <= 0.1 * 1.06
    assert world.containers["cpu"].actual.cpu_cores > 3.0  # type: ignore[operator]
    assert world.latency_s("cpu") <= 0.05 * 1.1
    assert "cores the job was not faster (" in world.why("gpu")


@pytest.mark.parametrize("name", ["dqoes", "tradl", "fair", "none"])
def test_files_that_change_never_promise_a_gpu_twice(name: str) -> None:
    """Not even between two actions, nor under an agent that has just started."""
    world = GpuWorld(name, TWO)
    for floors in ((0.5, 0.5), (0.9, 0.5), (1.0, 0.5), (0.05, 0.3), (1.0, 1.0), (0.2, 0.9)):
        for job, floor in zip(TWO, floors, strict=True):
            spec = world.inbox.specs[job]
            world.inbox.specs[job] = replace(
                spec, bounds=replace(spec.bounds, floor_share=floor), digest=f"d:{job} {floor}"
            )
        world.run(12)
        shares = [fact.actual.gpu_share for fact in world.containers.values()]
        assert None not in shares
        world.controller = world.agent()
        world.run(3)
    assert world.most_given <= 1.0 + 1e-9


class KeepsWhatItWanted:
    """Decides once, and stays with what it finds desired; or leaves all out from then on."""

    Parameters: ClassVar[None] = None
    Memory: ClassVar[None] = None
    traits: ClassVar[PolicyTraits] = PolicyTraits()

    def __init__(self, silent: bool) -> None:
        self.silent = silent
        self.asked = 0

    def decide(self, snapshot: Snapshot, memory: object) -> Decision:
        self.asked += 1
        if self.asked <= 2:
            return Decision({job.name: Limits(2.0) for job in snapshot.running}, next_s=2.0)
        if self.silent:
            return Decision(next_s=2.0)
        return Decision({job.name: job.desired for job in snapshot.running}, next_s=2.0)


@pytest.mark.parametrize("silent", [False, True])
def test_trials_leave_nothing_behind_with_a_policy_that_changes_nothing(silent: bool) -> None:
    jobs = {
        "cpu": (service("cpu", 0.05, gpus=0), Work(0.1)),
        "feeds": (service("feeds", 0.05, share=1.0), Work(0.1, 0.01, threads=8.0)),
    }
    world = GpuWorld("fair", jobs)
    keeps = per_device(KeepsWhatItWanted(silent))
    world.controller.use(NamedPolicy("keeps", keeps), GuardOptions())
    world.run(120)
    cores = [one.limits["feeds"].cpu_cores for one in world.reports if "feeds" in one.limits]
    assert min(cores) == pytest.approx(2.0 / STEP_DOWN, abs=0.001)  # type: ignore[type-var]
    assert cores[-30:] == [2.0] * 30
