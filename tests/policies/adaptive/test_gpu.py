"""The policy `adaptive` where jobs share a GPU: its time is divided by ceilings alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.control.decider import NamedPolicy
from dlsched.control.guards import GuardOptions
from dlsched.model.forecast import ForecastKind
from dlsched.policies.registry import load
from dlsched.simulation.replay import Replay
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.writer import Journal
from dlsched.store.memory import memory_text
from tests.policies.gpu_world import GpuWorld, Work, service, training

TWO = {
    "quick": (service("quick", 0.05), Work(0.005, 0.03)),
    "slow": (service("slow", 0.2), Work(0.005, 0.05)),
}
"""They need 0.6 and 0.25 of the GPU's time."""
CROWD = {
    "a": (service("a", 0.05), Work(0.005, 0.03)),
    "b": (service("b", 0.1), Work(0.005, 0.03)),
    "dear": (service("dear", 0.04), Work(0.005, 0.03)),
}
MIXED = {
    "serves": (service("serves", 0.05), Work(0.005, 0.02)),
    "learns": (training("learns"), Work(0.005, 0.05, scale_steps=2000)),
}


def ratio(world: GpuWorld, name: str) -> float:
    """Its true latency as a ratio of its target."""
    return world.latency_s(name) / world.boxes[name].spec.target.seconds  # type: ignore[union-attr]


def shares(world: GpuWorld) -> dict[str, float]:
    return {name: box.limits.gpu_share or 0.0 for name, box in world.boxes.items()}


@pytest.mark.parametrize("seed", range(3))
def test_in_band_mode_two_services_on_one_gpu_come_into_their_bands(seed: int) -> None:
    world = GpuWorld("adaptive?mode=band", TWO, seed=seed)
    world.run(20)
    for _ in range(12):
        world.run(5)
        assert ratio(world, "quick") == pytest.approx(1.0, abs=0.1)
        assert ratio(world, "slow") == pytest.approx(1.0, abs=0.1)
    assert world.most_given <= 1.0 + 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_in_slo_mode_nobody_is_late_and_nothing_of_the_gpu_is_kept_from_them(seed: int) -> None:
    world = GpuWorld("adaptive", TWO, seed=seed)
    world.run(20)
    for _ in range(12):
        world.run(5)
        assert ratio(world, "quick") <= 1.0
        assert ratio(world, "slow") <= 1.0
    assert sum(shares(world).values()) > 0.97
    assert world.most_given <= 1.0 + 1e-9


def test_those_that_fit_are_satisfied_when_not_all_do() -> None:
    world = GpuWorld("adaptive", CROWD)
    world.run(60)
    for _ in range(6):
        world.run(10)
        # With what the third is promised they need the GPU to its last step, so they have no slack.
        assert ratio(world, "a") <= 1.03
        assert ratio(world, "b") <= 1.03
    outlook = world.outlook("dear")
    assert outlook.kind is ForecastKind.CROWDED
    assert "GPU 0" in outlook.why
    assert world.most_given <= 1.0 + 1e-9


def test_a_training_gets_what_a_service_leaves_of_their_gpu() -> None:
    world = GpuWorld("adaptive", MIXED)
    world.run(20)
    for _ in range(6):
        world.run(5)
        assert ratio(world, "serves") <= 1.0
        assert shares(world)["learns"] > 0.4
    assert sum(shares(world).values()) > 0.97
    assert world.most_given <= 1.0 + 1e-9


@pytest.mark.parametrize("jobs", [CROWD, MIXED], ids=["services", "mixed"])
@pytest.mark.timed
def test_a_replay_decides_exactly_what_was_decided(
    jobs: dict[str, tuple[object, Work]], tmp_path: Path
) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path, frame_s=30.0, queue_reports=100_000)
    world = GpuWorld("adaptive", jobs)  # type: ignore[arg-type]
    world.run(60)
    for report in world.reports:
        journal.write(report)
    journal.close()
    replay = Replay(NamedPolicy("adaptive", load("adaptive")), GuardOptions())
    with JournalReader(path) as reader:
        told = list(reader.reports())
    assert len(told) == 60
    for report in told:
        would, _ = replay.take(report)
        assert would.limits == report.limits
        assert would.decision is not None
        assert report.decision is not None
        assert would.decision.why == report.decision.why
        assert would.decision.outlooks == report.decision.outlooks
        assert memory_text(would.decision.memory) == memory_text(report.decision.memory)
