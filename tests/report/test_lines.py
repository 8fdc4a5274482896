"""Lines as a job writes them, read by the agent's own parser."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.estimate.sketch import from_latencies, merge
from dlsched.report.buckets import LAST_BUCKET, bucket_value_s
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
