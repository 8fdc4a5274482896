"""The gains over plain Docker, of the policy and of who knows all work."""

from __future__ import annotations

from benchmarks.judge.trainings import Measured
from benchmarks.real.training import ADAPTIVE, ORACLE, gain_headlines
from dlsched.simulation.scoring import PLAIN, JobResult, RunResult


def run(policy: str, seed: int, **tier1_s: float) -> Measured:
    jobs = tuple(
        JobResult(name, "training", 0.0, 900.0, tier1_s=at_s, goals=("tier1",))
        for name, at_s in tier1_s.items()
    )
    return Measured(RunResult(policy, seed, 100.0, 100, 0, jobs), {})


def test_the_median_seed_counts_and_none_without_plain_docker() -> None:
    runs = [
        *(run(PLAIN, seed, a=10.0, b=30.0) for seed in (1, 2, 3)),
        run(ADAPTIVE, 1, a=13.0, b=10.0),
        run(ADAPTIVE, 2, a=13.0, b=20.0),
        run(ADAPTIVE, 3, a=99.0, b=90.0),
        run(ADAPTIVE, 4, a=1.0, b=1.0),
        run(ORACLE, 1, a=12.0, b=20.0),
    ]
    ours, oracle = gain_headlines("s", runs)
    assert "17.5% less than under plain Docker (by seed: 42.5%, 17.5%, -372.5%)" in ours
    assert ours.endswith("worst job a at 1.30 of plain Docker's time, 1 of 2 jobs worse")
    assert oracle.startswith("s: under oracle the mean time to tier 1 is 20.0% less")
