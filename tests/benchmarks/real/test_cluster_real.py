"""Trainings drawn for three real hosts, and how a run of them is printed."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.real.cluster_real import CONTENDERS, Played, headlines, row, said
from benchmarks.real.cluster_trainings import (
    ARRIVE_S,
    LEAST_CORE_S,
    MOST_CORE_S,
    START_CORE_S,
    STEP_CORE_S,
    Moved,
    arrive,
    draw,
)
from dlsched.cluster.core.carried import unmovable_across
from dlsched.config.job import parse_spec
from dlsched.simulation.cluster.scoring import Timed


def test_lengths_and_arrivals_are_within_their_bounds() -> None:
    drawn = draw(3, 20)
    assert len({one.name for one in drawn}) == 20
    assert drawn[0].arrives_s == 0.0
    assert [one.arrives_s for one in drawn] == sorted(one.arrives_s for one in drawn)
    assert drawn[-1].arrives_s <= ARRIVE_S
    for one in drawn:
        assert LEAST_CORE_S <= one.work_core_s <= MOST_CORE_S
        steps_core_s = one.model.steps * STEP_CORE_S[one.name.split("-")[0]]
        assert START_CORE_S + steps_core_s == pytest.approx(one.work_core_s, rel=0.05)


def test_each_has_a_job_file_that_can_move() -> None:
    for one in draw(1, 6):
        spec = parse_spec(one.file(), "a.yaml")
        assert spec.name == one.name
        assert unmovable_across(spec) is None


class Folder:
    def __init__(self) -> None:
        self.dropped: list[str] = []

    def drop(self, job: str, text: str) -> None:
        assert job in text
        self.dropped.append(job)


@pytest.mark.timed
def test_files_are_dropped_in_the_order_of_their_arrivals() -> None:
    folder, waited = Folder(), []
    drawn = draw(1, 6)
    found = arrive(folder, drawn[::-1], waited.append)  # type: ignore[arg-type]
    assert folder.dropped == list(found) == [one.name for one in drawn]
    assert waited == pytest.approx([one.arrives_s for one in drawn], abs=1.0)


def played(*times_s: float, pauses_s: tuple[float, ...] = (), lost: int = 0) -> Played:
    times = {f"job-{number}": time_s for number, time_s in enumerate(times_s)}
    moves = tuple(Moved("job-0", "a", "b", 9, lost, pause_s) for pause_s in pauses_s)
    return Played(Timed(times, max(times_s), len(moves), 0), moves, 0, 0.4, 2.5)


def rows(*ours: Played) -> list[dict[str, Any]]:
    plain = played(100.0, 200.0)
    first = row(1, CONTENDERS[0], plain, plain)
    return [first, *(row(1, CONTENDERS[-1], one, plain) for one in ours)]


def test_a_run_is_scored_beside_the_first_one() -> None:
    _, one = rows(played(120.0, 100.0, pauses_s=(4.0, 6.0, 20.0)))
    assert one["mean_ratio"] == pytest.approx(110 / 150)
    assert (one["slower"], one["worst"], one["moves"]) == (1, "job-0", 3)
    assert (one["median_pause_s"], one["longest_pause_s"]) == (6.0, 20.0)
    told = said(one)
    assert "pauses of moves, median 6.0 s, longest 20.0 s" in told
    assert "0.40 cores busy, load 2.5" in told


def test_headlines_say_what_was_not_reached() -> None:
    good = headlines(rows(played(60.0, 100.0, pauses_s=(7.0,))))
    assert [one.endswith(": reached") for one in good] == [True] * 3
    bad = headlines(rows(played(100.0, 190.0, pauses_s=(9.0,), lost=3)))
    assert [one.endswith("not reached") for one in bad] == [True] * 3
    assert "steps lost by moves: 3" in bad[1]
