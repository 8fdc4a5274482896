"""Cores as quota and back, at the kernel's and the engine's edges."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.runtime.cgroup.limits import (
    OLDER_DEFAULT_SHARES,
    bounded_shares,
    bounded_weight,
    nano_cpus,
    quota_cores,
    quota_us,
    search_shares,
    weight_of,
    weights_of,
)
from tests.runtime.docker.fake_host import newer_weight, older_weight


@pytest.mark.parametrize(
    ("cores", "quota"),
    [
        (1.0, 100_000),
        (0.37777, 37_777),
        (0.374, 37_400),
        (0.01, 1_000),
        (0.001, 1_000),
        (0.0, 1_000),
        (64.0, 6_400_000),
        (None, -1),
    ],
)
def test_a_quota_is_at_least_what_the_engine_takes(cores: float | None, quota: int) -> None:
    assert quota_us(cores) == quota


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [
        (37_000, 100_000, 0.37),
        (5_000, 10_000, 0.5),
        (-1, 100_000, None),
        (0, 0, None),
        (None, 100_000, None),
        (1_000, None, None),
    ],
)
def test_no_quota_means_no_limit(
    quota: int | None, period: int | None, cores: float | None
) -> None:
    assert quota_cores(quota, period) == cores


@given(st.floats(0.01, 512))
def test_what_is_read_back_is_what_was_written(cores: float) -> None:
    back = quota_cores(quota_us(cores), 100_000)
    assert abs(back - cores) <= 0.5e-5 + 1e-9
    assert quota_us(back) == quota_us(cores)


def test_weights_stay_within_what_the_kernel_takes() -> None:
    assert [bounded_shares(value) for value in (0, 1024.4, 1e9)] == [2, 1024, 262_144]
    assert [bounded_weight(value) for value in (0, 99.6, 1e9)] == [1, 100, 10_000]


@pytest.mark.parametrize(
    ("cores", "nano"),
    [
        (0.37, 370_000_000),
        (0.001, 10_000_000),
        (2.0, 2 * 10**9),
        (64.0, 2 * 10**9),
        (None, 2 * 10**9),
    ],
)
def test_nano_cpus_stay_within_what_the_engine_takes(cores: float | None, nano: int) -> None:
    assert nano_cpus(cores, host_cores=2) == nano


@given(st.integers(2, 262_144))
def test_the_weight_of_shares_is_that_of_one_of_the_two_conversions(shares: int) -> None:
    assert {older_weight(shares), newer_weight(shares)} <= weights_of(shares)
    assert len(weights_of(shares)) <= 3


@given(st.integers(2, 262_144))
def test_a_weight_past_the_engine_is_the_one_that_it_would_make(shares: int) -> None:
    assert weight_of(shares, newer=False) == older_weight(shares)
    assert weight_of(shares, newer=True) == newer_weight(shares)
    assert weight_of(1, newer=True) == 1


def test_the_default_weight_is_known_in_both_conversions() -> None:
    assert weights_of(0) == {100}
    assert older_weight(1024) == 39 and newer_weight(1024) == 100
    assert older_weight(OLDER_DEFAULT_SHARES) == 100


@pytest.mark.parametrize("weigh", [older_weight, newer_weight])
@given(weight=st.integers(1, 10_000))
def test_any_weight_is_found_by_trying(weigh: Callable[[int], int], weight: int) -> None:
    tried: list[int] = []

    def give(shares: int) -> int:
        tried.append(shares)
        return weigh(shares)

    search_shares(0, weight, give)
    assert weigh(tried[-1]) == weight
    assert len(tried) <= 21


def test_the_shares_that_it_had_are_tried_first_and_an_unreadable_weight_ends_the_search() -> None:
    tried: list[int] = []
    search_shares(512, 20, lambda shares: tried.append(shares) or older_weight(shares))
    assert tried == [512]
    tried.clear()
    search_shares(0, 100, tried.append)
    assert len(tried) == 3
