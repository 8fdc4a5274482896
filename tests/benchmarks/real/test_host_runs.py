"""What engines say of trainings on several hosts: where each ran, what a move cost or lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.real.cluster_trainings import Ran, Seen, moves, ran


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


def test_a_start_on_the_same_host_is_no_move() -> None:
    assert not list(moves([of("a", 0, 0, 120), of("a", 60, 120, 300)]))


def test_a_training_that_failed_by_itself_is_an_error() -> None:
    with pytest.raises(AssertionError, match="'digits': 1"):
        Seen({"1": of("a", 0, 0, 9, exit_code=1)}).all_ended(["digits"])
