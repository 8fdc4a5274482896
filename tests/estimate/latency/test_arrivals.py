"""Whether requests come by themselves, and how many a second."""

from __future__ import annotations

import random

import pytest

from dlsched.estimate.latency.arrivals import NONE_SEEN, Arrivals

LOOKS = 90


def open_loop(rate_per_s: float, seed: int, answered_ratio: float = 1.0) -> Arrivals:
    """A look a second; latency comes and goes with others on the node."""
    chance, found, waiting = random.Random(seed), NONE_SEEN, 0.0
    for _ in range(LOOKS):
        came = sum(chance.random() < rate_per_s / 1000.0 for _ in range(1000))
        answered = int((came + waiting) * answered_ratio)
        waiting += came - answered
        found = found.after(answered, chance.uniform(0.02, 0.5), 1.0, int(waiting))
    return found


def closed_loop(clients: int, think_s: float, seed: int) -> Arrivals:
    chance, found, carried = random.Random(seed), NONE_SEEN, 0.0
    for _ in range(LOOKS):
        latency_s = chance.choice((0.05, 0.2, 0.8))
        rate_per_s = clients / (think_s + latency_s)
        carried += chance.gauss(rate_per_s, 0.1 * rate_per_s)
        answered = max(int(carried), 0)
        carried -= answered
        found = found.after(answered, latency_s, 1.0, 1)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_an_open_loop_is_asked_as_often_whatever_its_latency(seed: int) -> None:
    found = open_loop(10.0, seed)
    for latency_s in (0.001, 0.1, 5.0):
        assert found.rate_per_s(latency_s) == pytest.approx(10.0, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_requests_by_which_a_queue_grows_have_come(seed: int) -> None:
    assert open_loop(10.0, seed, 0.1).rate_per_s(0.1) == pytest.approx(10.0, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_a_closed_loop_is_asked_more_often_the_sooner_it_answers(seed: int) -> None:
    found = closed_loop(4, 0.2, seed)
    for latency_s in (0.05, 0.2, 0.8):
        assert found.rate_per_s(latency_s) == pytest.approx(4 / (0.2 + latency_s), rel=0.1)


def test_clients_that_do_not_think_ask_no_more_often_than_they_are_answered() -> None:
    found = closed_loop(1, 0.0, 1)
    assert found.rate_per_s(0.001) <= 1.0 / 0.001 * 1.01


def test_nothing_seen_is_no_rate() -> None:
    assert NONE_SEEN.rate_per_s(0.1) == 0.0
    assert NONE_SEEN.after(0, 0.0, 0.0, 0) == NONE_SEEN
    # A queue that is given up (a restart) is no request less.
    assert NONE_SEEN.after(0, 0.1, 1.0, 50).after(1, 0.1, 1.0, 0).requests >= 0.0
