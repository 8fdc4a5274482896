"""Quantities: read, bounded, rendered, and read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.model.units import (
    BYTES_MAX,
    parse_bytes,
    parse_seconds,
    render_bytes,
    render_cores,
    render_seconds,
    shown,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1GiB", 1 << 30), ("1g", 1 << 30), ("64M", 64 << 20), ("1.5 GiB", 3 << 29),
        ("4096", 4096), ("12b", 12), ("1kb", 1024), ("0", 0), (" 2 TiB ", 2 << 40),
    ],
)  # fmt: skip
def test_bytes_are_read_as_docker_reads_them(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GiB", "1 X", "-1", "1e3", "1GiBB", "nan", "٣", "1 000"])
def test_what_is_no_size_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size") as caught:
        parse_bytes(text)
    assert shown(text) in str(caught.value)


def test_a_size_out_of_bounds_names_both_bounds() -> None:
    with pytest.raises(ValueError, match="'1MiB' is out of bounds: 6 MiB to 1024 TiB"):
        parse_bytes("1MiB", low=6 << 20)
    with pytest.raises(ValueError, match="out of bounds"):
        parse_bytes("999999999999999TiB")


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("50ms", 0.05), ("2h", 7200), ("1m30s", 90), ("1 min 30 s", 90), ("100us", 1e-4),
        ("7d", 604_800), ("0", 0), ("0s", 0), ("1.5s", 1.5), (".5s", 0.5), ("1h 1m 1s", 3661),
    ],
)  # fmt: skip
def test_durations_are_read(text: str, duration_s: float) -> None:
    assert parse_seconds(text) == duration_s


@pytest.mark.parametrize("text", ["", "s", "1x", "-1s", "1e3s", "1h-1m", "inf", "1:30", "1s!"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_seconds(text)


def test_a_duration_needs_its_unit_and_its_bounds() -> None:
    with pytest.raises(ValueError, match="'50' has no unit: write 50s or 50ms"):
        parse_seconds("50")
    with pytest.raises(ValueError, match="'2h' is out of bounds: 0 s to 1 h"):
        parse_seconds("2h", high=3600)


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0, "0 s"), (0.05, "50 ms"), (0.0001234, "123 us"), (0.9999, "1 s"), (1.5, "1.5 s"),
        (59.96, "1 min"), (90, "1 min 30 s"), (7500, "2 h 5 min"), (604_800, "7 d"), (-2, "-2 s"),
    ],
)  # fmt: skip
def test_durations_are_rendered_in_the_unit_that_fits(duration_s: float, text: str) -> None:
    assert render_seconds(duration_s) == text


def test_sizes_and_cores_are_rendered_short() -> None:
    assert render_bytes(1 << 30) == "1 GiB"
    assert render_bytes(1536) == "1.5 KiB"
    assert render_bytes(1023) == "1023 B"
    assert render_bytes(1 << 50) == "1024 TiB"
    assert render_cores(1) == "1 core"
    assert render_cores(0.25) == "0.25 cores"
    assert render_cores(0.00001) == "0.00001 cores"


@given(st.floats(1e-6, 3e8))
def test_a_rendered_duration_reads_back_within_its_digits(duration_s: float) -> None:
    again_s = parse_seconds(render_seconds(duration_s), high=4e8)
    assert again_s == pytest.approx(duration_s, rel=0.022)


@given(st.integers(0, BYTES_MAX))
def test_a_rendered_size_reads_back_within_its_digits(size_bytes: int) -> None:
    assert parse_bytes(render_bytes(size_bytes)) == pytest.approx(size_bytes, rel=0.006)


@given(st.text())
def test_no_text_is_more_than_refused(text: str) -> None:
    for parse in (parse_bytes, parse_seconds):
        try:
            assert parse(text) >= 0
        except ValueError as error:
            assert "\n" not in str(error)


@given(st.text(min_size=1))
def test_shown_is_one_short_line(text: str) -> None:
    assert len(shown(text)) <= 60
    assert shown(text).isprintable()
