"""Whether requests come by themselves, and how many a second."""

from __future__ import annotations

import random

import pytest

from dlsched.estimate.latency.arrivals import NO_ARRIVALS, Arrivals

LOOKS = 90


def open_loop(rate_per_s: float, seed: int, answered_ratio: float = 1.0) -> Arrivals:
    """A look a second; latency comes and goes with others on the node."""
    chance, found, waiting = random.Random(seed), NO_ARRIVALS, 0.0
    for _ in range(LOOKS):
        came = sum(chance.random() < rate_per_s / 1000.0 for _ in range(1000))
        answered = int((came + waiting) * answered_ratio)
        waiting += came - answered
        found = found.after(answered, chance.uniform(0.02, 0.5), 1.0, int(waiting))
    return found


def closed_loop(clients: int, think_s: float, seed: int) -> Arrivals:
    chance, found, carried = random.Random(seed), NO_ARRIVALS, 0.0
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
    assert not found.are_of_one
    for latency_s in (0.001, 0.1, 5.0):
        assert found.rate_per_s(latency_s) == pytest.approx(10.0, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_requests_by_which_a_queue_grows_have_come(seed: int) -> None:
    assert open_loop(10.0, seed, 0.1).rate_per_s(0.1) == pytest.approx(10.0, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_a_closed_loop_is_asked_more_often_the_sooner_it_answers(seed: int) -> None:
    found = closed_loop(4, 0.2, seed)
    assert not found.are_of_one
    assert closed_loop(1, 0.2, seed).are_of_one
    for latency_s in (0.05, 0.2, 0.8):
        assert found.rate_per_s(latency_s) == pytest.approx(4 / (0.2 + latency_s), rel=0.1)


def test_clients_that_do_not_think_ask_no_more_often_than_they_are_answered() -> None:
    found = closed_loop(1, 0.0, 1)
    assert found.rate_per_s(0.001) <= 1.0 / 0.001 * 1.01


def test_nothing_seen_is_no_rate() -> None:
    assert NO_ARRIVALS.rate_per_s(0.1) == 0.0
    assert NO_ARRIVALS.after(0, 0.0, 0.0, 0) == NO_ARRIVALS
    # A queue that is given up (a restart) is no request less.
    assert NO_ARRIVALS.after(0, 0.1, 1.0, 50).after(1, 0.1, 1.0, 0).requests >= 0.0


def looks(found: Arrivals, answered: int, latency_s: float, seconds: int) -> Arrivals:
    """So many answers in each of so many looks of a second."""
    for _ in range(seconds):
        found = found.after(answered, latency_s, 1.0, 0)
    return found


@pytest.mark.parametrize("before_s", range(60, 64))
def test_a_load_that_stays_doubled_is_known_within_sixteen_seconds(before_s: int) -> None:
    found = looks(looks(NO_ARRIVALS, 20, 0.1, before_s), 40, 0.3, 16)
    assert found.rate_per_s(0.3) == pytest.approx(40.0, rel=0.05)


def test_a_burst_of_five_seconds_changes_little() -> None:
    found = looks(NO_ARRIVALS, 20, 0.1, LOOKS)
    for _ in range(4):
        found = looks(looks(found, 60, 0.3, 5), 20, 0.1, 25)
    assert found.rate_per_s(0.1) == pytest.approx(20.0 * (5 * 3 + 25) / 30, rel=0.15)


def test_a_closed_loop_that_is_sped_up_is_no_change_of_load() -> None:
    fast = looks(looks(NO_ARRIVALS, 5, 0.8, LOOKS), 20, 0.1, 16)
    assert fast.rate_per_s(0.8) == pytest.approx(5.0, rel=0.05)
