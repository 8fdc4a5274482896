"""Real services under adaptive: what a clairvoyant can satisfy, and what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.judge.services import Judged
from benchmarks.real.adaptive_real import (
    POLICIES,
    Asked,
    groups,
    of_best,
    outcome,
    table,
    verdicts,
    worse,
)
from benchmarks.real.kept import keep_services, load_services
from dlsched.estimate.sketch import from_latencies
from dlsched.policies.registry import load


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


def job(name: str, ratio: float) -> Judged:
    return Judged(name, 1.0, ratio, 100, 11)


@pytest.mark.parametrize(
    ("ratio", "before", "expected"),
    [
        (1.2, 1.1, (1, 1)),  # too slow, and more than before
        (1.2, 1.3, (0, 0)),
        (1.05, 0.98, (0, 1)),  # within 10 %, yet not slower before
        (0.5, 0.95, (1, 0)),  # faster than asked for, and more than before
        (0.95, 0.99, (0, 0)),
    ],
)
def test_worse_is_not_satisfied_and_further_off_than_before(ratio, before, expected):
    assert worse([job("a", ratio)], [job("a", before)]) == expected


def settling(first_s: float, then_s: float) -> list:
    """A request a tenth of a second; slow for ten seconds."""
    return [
        (float(at_s), from_latencies([first_s if at_s < 10 else then_s] * 10)) for at_s in range(60)
    ]


def test_judged_from_its_second_on_and_settled_when_every_window_is_satisfied():
    series = {"a": settling(2.0, 0.95), "b": settling(2.0, 1.05)}
    one = outcome(
        1, 0.7, "adaptive", Asked(2.0, {"a": 0.5, "b": 0.5}, 0.0), {"a": 1.0, "b": 1.0},
        series, 15.0, updates=59, foreign_cores=0.1, alarms=["policy failed"],
    )  # fmt: skip
    row = one.row(())
    assert (row["satisfied_band"], row["satisfied_slo"]) == (2, 1)
    # The first window without a second at 2.0 that matters: at most one of 15 (1.05 + .95 / 15).
    assert one.settled_band_s == pytest.approx(10.0)
    assert one.settled_slo_s is None
    assert (row["updates_per_min"], row["alarms"]) == (60.0, ["policy failed"])


def rows(policy: str, demand: float, counts, best: int) -> list[dict[str, object]]:
    return [
        {
            "seed": seed, "demand": demand, "policy": policy, "jobs": 8,
            "satisfied_band": count, "satisfied_slo": count, "best": best,
            "settled_band_s": settled, "settled_slo_s": settled, "worse_band": 0, "worse_slo": 1,
            "updates_per_min": 1.0, "foreign_cores": 0.0,
        }
        for seed, (count, settled) in enumerate(counts, start=1)
    ]  # fmt: skip


def test_where_all_fit_the_median_run_must_satisfy_all():
    found = rows("adaptive?mode=band", 0.7, [(8, 3.0), (8, 9.0), (6, None)], 8)
    assert [line.endswith(": reached") for line in verdicts(found)] == [True, True]
    found = rows("adaptive?mode=slo", 0.7, [(8, 3.0), (7, 9.0), (7, None)], 8)
    (line,) = verdicts(found)
    assert line.endswith("asked for 1: not reached")


def test_above_capacity_each_mode_is_held_by_its_own_reading_to_nine_tenths():
    found = rows("adaptive?mode=band", 1.4, [(5, 3.0), (6, 9.0), (4, None)], 6)
    (line,) = verdicts(found)
    assert "within 10 %" in line and line.endswith("median 0.83, asked for 0.9: not reached")
    assert verdicts(rows("none", 1.4, [(5, 3.0)], 6)) == []


def test_the_table_has_the_median_the_worst_seed_and_all_that_got_worse():
    found = rows("adaptive?mode=slo", 0.7, [(8, 3.0), (7, 9.0), (6, None)], 8)
    (line,) = table(found)
    assert line["satisfied (worst set)"] == "7 (6) / 7 (6)"
    assert line["settled after s"] == "9 / 9"
    assert line["worse than plain Docker"] == "0 / 3"
    assert line["of the clairvoyant's"] == "0.88 / 0.88"
    assert of_best(found[2], "slo") == 0.75


class Stopped:
    """A session whose daemon has stopped."""

    def __init__(self, text: str) -> None:
        self.text = text

    def keep(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "journal.db").write_text(self.text)


def test_what_is_kept_is_found_again_and_a_later_run_takes_its_place(tmp_path: Path):
    targets = {"a": 0.04}
    spelled = "benchmarks.peers.proportional:ProportionalPolicy"
    for text in ("first", "second"):
        keep_services(Stopped(text), 2, "adaptive?mode=slo", 3, targets, 15.0, tmp_path)
    other = keep_services(Stopped("other"), 2, spelled, 4, targets, 20.0, tmp_path)
    found = {one.policy: one for one in load_services(tmp_path)}
    assert found == {"adaptive?mode=slo": found["adaptive?mode=slo"], spelled: other}
    ours = found["adaptive?mode=slo"]
    assert (ours.seed, ours.first_cycle, ours.targets, ours.judged_from_s) == (2, 3, targets, 15.0)
    assert (ours.folder / "journal.db").read_text() == "second"
    assert ours.folder.parent == tmp_path / "2"
