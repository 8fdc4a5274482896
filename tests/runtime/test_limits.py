"""Cores as quota and back, at the kernel's and the engine's edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.runtime.limits import bounded_shares, bounded_weight, quota_cores, quota_us


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
    assert back is not None
    assert abs(back - cores) <= 0.5e-5 + 1e-9
    assert quota_us(back) == quota_us(cores)


def test_weights_stay_within_what_the_kernel_takes() -> None:
    assert [bounded_shares(value) for value in (0, 1024.4, 1e9)] == [2, 1024, 262_144]
    assert [bounded_weight(value) for value in (0, 99.6, 1e9)] == [1, 100, 10_000]
