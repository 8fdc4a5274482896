"""What the mean of a look varies by."""

from __future__ import annotations

import math
import random

import pytest

from dlsched.estimate.latency.law import MeanNoise


def after(offs: list[float], count: int = 10, variation: float = 0.3) -> MeanNoise:
    noise = MeanNoise()
    for off in offs:
        noise = noise.after(off, count, noise.believed(variation))
    return noise


def test_what_requests_vary_by_stands_in_for_it_at_first() -> None:
    assert MeanNoise().believed(0.3) == pytest.approx(0.3)
    # One difference of .1 between two looks at four: .01 / (1 / 4 + 1 / 4), a fifth of the belief.
    assert after([0.0, 0.1], count=4).believed(0.3) == pytest.approx(
        math.sqrt(0.02 / 5 + 0.09 * 4 / 5)
    )


@pytest.mark.parametrize("count", [3, 50])
def test_it_is_the_deviation_of_a_request_if_they_are_independent(count: int) -> None:
    chance = random.Random(1)
    offs = [chance.gauss(0.0, 0.3 / math.sqrt(count)) for _ in range(200)]
    assert after(offs, count, variation=1.0).believed(1.0) == pytest.approx(0.3, rel=0.25)


def test_a_slow_change_is_no_noise() -> None:
    assert after([0.01 * look for look in range(50)]).believed(0.3) < 0.03


def test_a_pause_counts_little() -> None:
    chance = random.Random(2)
    offs = [chance.gauss(0.0, 0.1 / math.sqrt(10)) for _ in range(60)]
    assert after([*offs, 3.0]).believed(0.3) < 0.16


def test_looks_that_do_not_follow_each_other_are_not_held_against_each_other() -> None:
    noise = after([0.0, 0.0]).interrupted().after(1.0, 10, 0.3)
    assert (noise.square, noise.looks, noise.last_off) == (0.0, 1.0, 1.0)
    assert noise.interrupted().interrupted() == noise.interrupted()
