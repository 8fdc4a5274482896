"""Lines as a job writes them, read by the agent's own parser."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.estimate.sketch import from_latencies, merge
from dlsched.report.buckets import GROWTH, LAST_BUCKET, LONGEST_S, bucket_index, bucket_value_s
from dlsched.report.lines import LINE_BYTES, Tally, latency_lines, line
from dlsched.runtime.progress.sidecar_line import parse_line

LATENCIES = st.lists(st.floats(0.0, 1000.0), max_size=40)


def counted(latencies: list[float]) -> Tally:
    tally = Tally()
    for each in latencies:
        tally.add(each)
    return tally


@given(LATENCIES, st.integers(0, 5))
def test_what_is_written_is_what_is_read(latencies: list[float], errors: int) -> None:
    tally = counted(latencies)
    tally.errors = errors
    (written,) = latency_lines({"t": 1.0, "w": "a"}, tally, 2, 0.5)
    report = parse_line(written, 7.0)
    expected = from_latencies(latencies, errors)
    assert (report.latency.buckets, report.latency.errors) == (expected.buckets, errors)
    assert report.latency.sum_s == pytest.approx(expected.sum_s, abs=1e-8)
    assert (report.writer, report.in_flight, report.oldest_s) == ("a", 2, 0.5)


def test_many_buckets_are_split_over_lines_that_add_up() -> None:
    latencies = [bucket_value_s(index) for index in range(0, LAST_BUCKET, 2)] * 3
    tally = counted(latencies)
    tally.errors = 4
    lines = latency_lines({"t": 1760000000.123, "w": "4194304-abcdef"}, tally, 9, 1.0)
    assert len(lines) > 1
    assert max(map(len, lines)) <= LINE_BYTES
    sketches = [report for each in lines if (report := parse_line(each, 0.0).latency)]
    whole = merge(*sketches)
    assert (whole.count, whole.errors) == (len(latencies), 4)
    assert whole.sum_s == pytest.approx(math.fsum(latencies))


@pytest.mark.parametrize("fields", [{"loss": math.nan}, {"name": "x" * LINE_BYTES}])
def test_what_cannot_be_a_line_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        line(fields)


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
