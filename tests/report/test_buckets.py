"""The buckets' promise: 1 % of the value, and the definition that DESIGN gives."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.report.buckets import GROWTH, LAST_BUCKET, LONGEST_S, bucket_index, bucket_value_s


@given(st.floats(1e-6, LONGEST_S))
def test_a_bucket_stands_for_its_latencies_within_one_percent(seconds: float) -> None:
    assert bucket_value_s(bucket_index(seconds)) == pytest.approx(seconds, rel=0.01 + 1e-9)


@given(st.integers(1, LAST_BUCKET))
def test_bucket_i_holds_what_lies_above_g_to_the_i_less_one_up_to_g_to_the_i(index: int) -> None:
    low, high = 1e-6 * GROWTH ** (index - 1), 1e-6 * GROWTH**index
    assert bucket_index(low * (1 + 1e-9)) == index
    assert bucket_index(high * (1 - 1e-9)) == index


@pytest.mark.parametrize(("seconds", "index"), [(0.0, 0), (1e-9, 0), (1e-6, 0), (1.0201e-6, 1)])
def test_short_latencies_share_the_first_bucket(seconds: float, index: int) -> None:
    assert bucket_index(seconds) == index


@pytest.mark.parametrize("seconds", [-1e-9, math.nan, math.inf, LONGEST_S * 1.1])
def test_what_is_no_latency_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="not a latency"):
        bucket_index(seconds)
