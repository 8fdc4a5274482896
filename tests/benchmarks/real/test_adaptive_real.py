"""Real services under adaptive: what a clairvoyant can satisfy, and what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.judge import Judged
from benchmarks.real import kept
from benchmarks.real.adaptive_real import (
    POLICIES,
    Asked,
    groups,
    row_of,
    verdicts,
)
from benchmarks.real.kept import KeptServices
from dlsched.estimate.sketch import from_latencies
from dlsched.model.cycle import CycleReport
from dlsched.model.state import JobState, JobView, NodeView, Progress, Snapshot
from dlsched.policies.registry import load
from tests.doubles import job_spec


@pytest.mark.parametrize("policy", sorted({one for many in POLICIES.values() for one in many}))
def test_every_policy_of_the_comparison_can_be_loaded(policy):
    assert callable(load(policy).decide)


FOUR = {"a": 0.1, "b": 0.2, "c": 0.4, "d": 0.5}


@pytest.mark.parametrize(
    ("capacity", "floor", "best"),
    [
        (1.2, 0.0, 4),  # all of it
        (1.19, 0.0, 3),
        (0.69, 0.0, 2),
        (0.05, 0.0, 0),
        # Who is left out keeps its floor, which somebody has to leave it.
        (0.7, 0.05, 2),
        (0.75, 0.05, 3),
    ],
)
def test_a_clairvoyant_takes_the_cheapest_that_fit(capacity, floor, best):
    assert Asked(capacity, FOUR, floor).best == best


def test_targets_are_measured_in_groups_that_fit():
    found = groups(FOUR, room_cores=0.7, floor_cores=0.02)
    assert sorted(name for names in found for name in names) == sorted(FOUR)
    assert len(found) == 2
    for names in found:
        at_once = sum(cores if job in names else 0.02 for job, cores in FOUR.items())
        assert at_once <= 0.7 + 1e-9


def rows(policy: str, demand: float, counts: Sequence[int], best: int) -> list[dict[str, object]]:
    return [
        {
            "seed": seed, "demand": demand, "policy": policy, "jobs": 8, "satisfied_band": count,
            "satisfied_slo": count, "best": best, "worse_slo": 1, "updates_per_min": 1.0,
            "foreign_cores": 0.0,
        }
        for seed, count in enumerate(counts, start=1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("demand", "counts", "best", "told"),
    [
        (0.7, (8, 8, 6), 8, "median 1.00, asked for 1: reached"),
        (0.7, (8, 7, 7), 8, "median 0.88, asked for 1: not reached"),
        (1.4, (5, 6, 4), 6, "median 0.83, asked for 0.9: not reached"),
    ],
)
def test_the_median_run_is_held_to_what_a_clairvoyant_satisfies(demand, counts, best, told):
    found = rows("adaptive?mode=slo", demand, counts, best)
    (line,) = verdicts([*rows("none", demand, counts, best), *found])
    assert line.endswith(told)


def test_what_is_kept_is_found_again_whatever_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    for demand in (0.7, 1.4):
        folder = kept.folder_of(demand, 1, "adaptive?mode=slo")
        folder.mkdir(parents=True)
        KeptServices(folder, demand, 1, "adaptive?mode=slo", 1, {"a": 1.0}, 15.0).write()
    assert [one.demand for one in kept.load_services()] == [0.7, 1.4]


class Kept(KeptServices):
    """A run whose requests all took so long."""

    def reports(self, first: int | None = None) -> list[CycleReport]:
        latencies = from_latencies([self.targets["took"]] * 20)
        view = JobView(job_spec("a"), JobState.RUNNING, progress=Progress(fresh=latencies))
        return [
            CycleReport(Snapshot(1, now_s, NodeView(1.0, 1.0, 1), (view,)), "x")
            for now_s in (0.0, 60.0)
        ]


@pytest.mark.parametrize(
    ("took_s", "before", "worse"), [(1.2, 1.1, 1), (1.2, 1.3, 0), (0.9, 0.8, 0)]
)
def test_worse_is_slower_than_the_target_and_than_before(took_s, before, worse):
    one = Kept(Path(), 0.7, 1, "adaptive", 1, {"a": 1.0, "took": took_s}, 15.0)
    plain = [Judged("a", 1.0, before, 100, 11)]
    row = row_of(one, 0.7, Asked(2.0, {"a": 0.5}, 0.0), plain)
    assert (row["worse_slo"], row["satisfied_slo"]) == (worse, int(took_s <= 1.0))
