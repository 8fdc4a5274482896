"""Policies on a simulated node whose GPU jobs share, through the daemon's own controller."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest

from dlsched.control.decider import NamedPolicy, ShadowDecider
from dlsched.control.guards import GuardOptions
from dlsched.control.ledger.state import State
from dlsched.estimate.response import STEP_DOWN
from dlsched.model.actions import Resize
from dlsched.model.decision import Decision
from dlsched.model.spec import Limits
from dlsched.model.state import Snapshot
from dlsched.policies.gpu_node import PerDeviceMemory, per_device
from dlsched.policies.registry import load
from dlsched.simulation.replay import Replay
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.writer import Journal
from dlsched.store.memory import memory_text, recalled
from tests.policies.gpu_world import GpuWorld, Work, service, training

BAND = 0.1
TWO = {
    "quick": (service("quick", 0.05), Work(0.005, 0.03)),
    "slow": (service("slow", 0.2), Work(0.005, 0.05)),
}
NEIGHBOURS = {
    "cpu": (service("cpu", 0.05, gpus=0), Work(0.16)),
    "gpu": (service("gpu", 0.08, share=1.0), Work(0.01, 0.1)),
}
"""One whose GPU is too slow for its target whatever its CPU, and one that CPU makes faster."""
LESSONS = {
    "new": (training("new"), Work(0.005, 0.05, scale_steps=2000)),
    "old": (training("old"), Work(0.005, 0.05, scale_steps=200)),
}


def missed(world: GpuWorld, name: str) -> float:
    """How far its true latency is from its target, as a ratio."""
    target = world.boxes[name].spec.target
    return abs(world.latency_s(name) / target.seconds - 1)  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(4))
def test_dqoes_brings_two_services_on_one_gpu_into_their_bands(seed: int) -> None:
    world = GpuWorld("dqoes", TWO, seed=seed)
    world.run(30)
    for _ in range(18):
        world.run(5)
        assert missed(world, "quick") <= BAND
        assert missed(world, "slow") <= BAND
    assert world.most_given <= 1.0 + 1e-9
    assert world.boxes["quick"].limits.gpu_share == pytest.approx(0.6, abs=0.04)
    assert world.boxes["slow"].limits.gpu_share == pytest.approx(0.25, abs=0.04)


@pytest.mark.parametrize("seed", range(4))
def test_dqoes_satisfies_those_it_can_when_not_all_fit_on_the_gpu(seed: int) -> None:
    jobs = {
        "a": (service("a", 0.05), Work(0.005, 0.03)),
        "b": (service("b", 0.1), Work(0.005, 0.03)),
        "dear": (service("dear", 0.04), Work(0.005, 0.03)),
    }
    world = GpuWorld("dqoes", jobs, seed=seed)
    world.run(60)
    for _ in range(6):
        world.run(10)
        assert missed(world, "a") <= BAND
        assert missed(world, "b") <= BAND
    assert world.boxes["dear"].limits.gpu_share == pytest.approx(0.1, abs=0.05)
    assert "too dear while time on GPU 0 is short" in world.why("dear")
    assert world.most_given <= 1.0 + 1e-9


def test_tradl_gives_the_job_below_its_first_tier_most_of_the_gpu() -> None:
    world = GpuWorld("tradl", LESSONS)
    world.run(100)
    assert world.boxes["new"].limits.gpu_share == pytest.approx(2 / 3, abs=0.02)
    assert world.boxes["old"].limits.gpu_share == pytest.approx(1 / 3, abs=0.02)
    assert "U, " in world.why("new")
    assert world.why("new").endswith("0.667 of GPU 0's time")
    world.run(200)
    assert world.boxes["new"].limits.gpu_share == 0.5  # both are there: nobody is held back
    assert world.most_given <= 1.0 + 1e-9


def test_flowcon_gives_the_growing_job_most_of_the_gpu() -> None:
    world = GpuWorld("flowcon?alpha=0.001", LESSONS)
    world.run(160)
    shares = {name: box.limits.gpu_share or 0.0 for name, box in world.boxes.items()}
    assert shares["new"] > 0.6
    assert shares["old"] < 0.4
    assert world.most_given <= 1.0 + 1e-9


@pytest.mark.parametrize("name", ["dqoes", "dqoes-published", "fair", "tradl"])
def test_cores_that_spin_for_the_gpu_go_to_a_neighbour_that_needs_them(name: str) -> None:
    world = GpuWorld(name, NEIGHBOURS)
    world.run(120)
    cores = world.boxes["gpu"].limits.cpu_cores
    assert cores is not None
    assert cores < 0.2
    assert world.latency_s("gpu") <= 0.1 * 1.06
    assert world.boxes["cpu"].limits.cpu_cores > 3.0  # type: ignore[operator]
    assert world.latency_s("cpu") <= 0.05 * 1.1
    assert "cores did not speed it up (" in world.why("gpu")


@pytest.mark.parametrize("spins", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_with_cpu_and_gpu_both_short_nobody_starves(spins: bool, seed: int) -> None:
    """All fit if each has just the CPU that it needs: 0.4, 0.2 and 3.4 of 4 cores."""
    jobs = {
        "cpu": (service("cpu", 0.05, gpus=0), Work(0.17)),
        "one": (service("one", 0.05), Work(0.02, 0.02, spins=spins)),
        "two": (service("two", 0.1, share=0.3), Work(0.02, 0.03, spins=spins)),
    }
    world = GpuWorld("dqoes", jobs, seed=seed)
    world.run(150)
    at_target = dict.fromkeys(jobs, 0)
    for _ in range(50):
        world.run(3)
        for name in jobs:
            at_target[name] += missed(world, name) <= BAND
    assert min(at_target.values()) >= 45, at_target


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
        shares = [box.limits.gpu_share for box in world.boxes.values()]
        assert None not in shares
        world.controller = world.agent()
        world.run(3)
    assert world.most_given <= 1.0 + 1e-9


def test_plain_docker_is_left_plain_and_the_gpu_is_still_given_out_once() -> None:
    world = GpuWorld("none", TWO)
    world.run(60)
    assert {box.limits.cpu_cores for box in world.boxes.values()} == {None}
    assert {box.limits.gpu_share for box in world.boxes.values()} == {0.5}


@pytest.mark.parametrize("name", ["dqoes", "fair"])
def test_a_job_that_cpu_does_speed_up_keeps_it_though_it_has_a_gpu(name: str) -> None:
    jobs = {
        "cpu": (service("cpu", 0.05, gpus=0), Work(0.1)),
        "feeds": (service("feeds", 0.05, share=1.0), Work(0.1, 0.01, threads=8.0)),
    }
    world = GpuWorld(name, jobs)
    world.run(60)
    held = []
    for _ in range(100):
        world.run(5)
        held.append(world.boxes["feeds"].limits.cpu_cores or 0.0)
    assert min(held) > 2.0 / 1.35  # a trial, and no more
    assert sum(cores > 1.9 for cores in held) > 0.9 * len(held)
    assert "did not speed it up" not in world.why("feeds")


class KeepsWhatItWanted:
    """Decides once, and stays with what it finds desired; or leaves all out from then on."""

    Parameters: ClassVar[None] = None
    Memory: ClassVar[None] = None
    reserves: ClassVar[bool] = False

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


def test_a_restarted_agent_still_knows_what_cpu_is_of_no_use() -> None:
    world = GpuWorld("fair", NEIGHBOURS)
    world.run(120)
    decision = next(one.decision for one in reversed(world.reports) if one.decision is not None)
    assert isinstance(decision.memory, PerDeviceMemory)
    plain = json.loads(memory_text(decision.memory))
    memory, trouble = recalled(load("fair"), plain)
    assert trouble is None
    world.reports.clear()
    world.controller = world.agent(memory)
    for _ in range(60):
        world.run(1)
        assert (world.boxes["gpu"].limits.cpu_cores or 4.0) < 0.2
    assert "did not speed it up" in world.why("gpu")


@pytest.mark.parametrize("name", ["dqoes", "tradl", "flowcon", "fair", "dqoes-published"])
@pytest.mark.timed
def test_a_replay_decides_exactly_what_was_decided(name: str, tmp_path: Path) -> None:
    jobs = LESSONS if name in ("tradl", "flowcon") else TWO
    path = tmp_path / "journal.db"
    journal = Journal(path, frame_s=30.0, queue_reports=100_000)
    world = GpuWorld(name, jobs)
    world.run(90)
    for report in world.reports:
        journal.write(report)
    journal.close()
    assert journal.lost_cycles == 0
    replay = Replay(NamedPolicy(name, load(name)), GuardOptions())
    with JournalReader(path) as reader:
        told = list(reader.reports())
        assert len(told) == 90
        for report in told:
            would, _ = replay.take(report)
            assert would.limits == report.limits
            assert (would.decision is None) == (report.decision is None)
            if would.decision is not None and report.decision is not None:
                assert would.decision.why == report.decision.why
                assert memory_text(would.decision.memory) == memory_text(report.decision.memory)
        named = NamedPolicy(name, load(name))
        last = next(one.decision for one in reversed(told) if one.decision is not None)
        assert recalled(named.policy, reader.last()[1][name]) == recalled(named.policy, last.memory)
        assert recalled(named.policy, last.memory)[1] is None


def test_a_shadow_decides_shares_beside_the_policy_that_acts() -> None:
    world = GpuWorld("fair", TWO)
    shadow = ShadowDecider(NamedPolicy("dqoes", load("dqoes")))
    world.run(30)
    for _ in range(30):
        world.run(1)
        seen, _ = shadow.ask(State(world.reports[-1].snapshot), GuardOptions())
    assert seen.trouble is None
    assert seen.limits["quick"].gpu_share > 0.55  # type: ignore[operator]
    assert world.boxes["quick"].limits.gpu_share == 0.5


def test_the_cool_down_holds_for_shares_as_for_cores() -> None:
    world = GpuWorld("dqoes", TWO, guards=GuardOptions(cooldown_s=20.0))
    world.run(60)
    changes: dict[str, list[float]] = {"quick": [], "slow": []}
    for report in world.reports:
        for outcome in report.outcomes:
            if isinstance(outcome.action, Resize):
                changes[outcome.action.job].append(report.snapshot.now_s)
    for at_s in changes.values():
        assert all(later - earlier >= 20.0 for earlier, later in pairwise(at_s))
