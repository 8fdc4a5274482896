"""Trainings on several hosts: what engines say of them, and what is made of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.real.cluster_demo import verdict
from benchmarks.real.cluster_real import CONTENDERS, Played, headlines, row
from benchmarks.real.cluster_trainings import (
    ARRIVE_S,
    LEAST_CORE_S,
    MOST_CORE_S,
    START_CORE_S,
    STEP_CORE_S,
    Moved,
    Ran,
    Seen,
    draw,
    moves,
    ran,
)
from dlsched.cluster.core.carried import unmovable_across
from dlsched.config.job import parse_spec
from dlsched.simulation.cluster.scoring import Timed


def inspected(exit_code: int) -> Mapping[str, Any]:
    state = {
        "StartedAt": "2026-01-01T00:00:10.123456789Z",
        "FinishedAt": "2026-01-01T00:01:00Z",
        "ExitCode": exit_code,
    }
    return {"State": state, "Config": {"Labels": {"dlsched.job": "digits"}}}


ENDED_BY_A_SIGNAL = """\
2026-01-01T00:00:20.5Z step 20 loss 2.0713 accuracy 0.4022
2026-01-01T00:00:58.25Z stopped after step 31
"""
RESUMED = """\
2026-01-01T00:01:05.75Z checkpoint /ckpt/step-31.ckpt: resuming at step 31
2026-01-01T00:01:09.5Z step 40 loss 1.2 accuracy 0.61
2026-01-01T00:01:10Z step nonsense
"""


def of(host: str, began_s: float, first: int, last: int, exit_code: int = 143) -> Ran:
    return Ran("digits", host, began_s, began_s + 50, exit_code, first, began_s + 5, last, 0.0)


def test_the_last_step_is_that_at_which_the_signal_ended_it() -> None:
    one = ran("a", inspected(143), ENDED_BY_A_SIGNAL)
    assert (one.job, one.host, one.exit_code) == ("digits", "a", 143)
    assert (one.first_step, one.last_step) == (0, 31)
    assert one.ended_s - one.last_at_s == pytest.approx(1.75)
    assert one.ended_s - one.began_s == pytest.approx(49.876544, abs=1e-5)


def test_a_start_from_a_checkpoint_is_known_with_its_time() -> None:
    one = ran("b", inspected(0), RESUMED)
    assert (one.first_step, one.last_step) == (31, 40)
    assert one.last_at_s - one.first_at_s == pytest.approx(3.75)


def test_the_pause_of_a_move_is_between_both_signs_of_life() -> None:
    source = ran("a", inspected(143), ENDED_BY_A_SIGNAL)
    (one,) = moves([source, ran("b", inspected(0), RESUMED)])
    assert (one.source, one.target, one.step, one.lost_steps) == ("a", "b", 31, 0)
    assert one.pause_s == pytest.approx(7.5)


def test_steps_below_the_last_one_are_lost() -> None:
    (one,) = moves([of("a", 0, 0, 120), of("b", 60, 100, 300)])
    assert one.lost_steps == 20


def test_a_training_that_failed_by_itself_is_an_error() -> None:
    with pytest.raises(AssertionError, match="'digits': 1"):
        Seen({"1": of("a", 0, 0, 9, exit_code=1)}).all_ended(["digits"])


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


def played(*times_s: float, pauses_s: tuple[float, ...] = (), lost: int = 0) -> Played:
    times = {f"job-{number}": time_s for number, time_s in enumerate(times_s)}
    moves = tuple(Moved("job-0", "a", "b", 9, lost, pause_s) for pause_s in pauses_s)
    return Played(Timed(times, max(times_s), len(moves), 0), moves, 0)


def rows(*ours: Played) -> list[dict[str, Any]]:
    plain = played(100.0, 200.0)
    first = row(1, CONTENDERS[0], plain, plain)
    return [first, *(row(1, CONTENDERS[-1], one, plain) for one in ours)]


def test_a_run_is_scored_beside_the_first_one() -> None:
    _, one = rows(played(120.0, 100.0, pauses_s=(4.0, 6.0, 20.0)))
    assert one["mean_ratio"] == pytest.approx(110 / 150)
    assert (one["slower"], one["worst"], one["moves"]) == (1, "job-0", 3)
    assert (one["median_pause_s"], one["longest_pause_s"]) == (6.0, 20.0)


def test_headlines_say_what_was_not_reached() -> None:
    good = headlines(rows(played(60.0, 100.0, pauses_s=(7.0,))))
    assert [one.endswith(": reached") for one in good] == [True] * 3
    bad = headlines(rows(played(100.0, 190.0, pauses_s=(9.0,), lost=3)))
    assert [one.endswith("not reached") for one in bad] == [True] * 3
    assert "steps lost by moves: 3" in bad[1]


def seen(first_step: int = 120) -> Seen:
    source = Ran("digits", "node1", 0.0, 30.0, 143, 0, 4.0, 120, 29.0)
    target = Ran("digits", "node3", 33.0, 80.0, 0, first_step, 36.5, 309, 79.0)
    return Seen({"b": target, "a": source}, listings=80)


def test_the_verdict_counts_moves_lost_steps_and_doubles() -> None:
    assert verdict(seen()).startswith("moves: 1, median pause 7.5 s; steps lost: 0;")
    assert "steps lost: 20;" in verdict(seen(first_step=100))
    assert verdict(seen(first_step=0), ["a"]).startswith("moves: 0,"), "it was killed, and begins"
    assert verdict(Seen()).startswith("moves: 0, median pause 0.0 s")
