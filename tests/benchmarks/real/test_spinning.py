"""The bench of threads that spin: its table, and what it says of its figures."""

from __future__ import annotations

import pytest

from benchmarks.real.spinning import HONEST_WORK, SPINNER, Row, headlines

FOUND = [
    Row(SPINNER, "torch", "limit 1", 15.6, "2 threads spin"),
    Row(SPINNER, "torch", "limit 1", 29.0, "2 threads spin"),
    Row(SPINNER, "libgomp", "limit 1", 30.0, "2 threads spin"),
    Row(HONEST_WORK, "gcc -j 8", "limit 1"),
]


@pytest.mark.parametrize(("more", "figures"), [
    ([], ("in 3 of 3: reached", "0 of 1 programs: reached")),
    ([Row(SPINNER, "torch", "limit 2", 31.0)], ("in 3 of 4: not reached", "0 of 1 programs: rea")),
    ([Row(SPINNER, "torch", "limit 2")], ("in 3 of 4: not reached", "0 of 1 programs: reached")),
    ([Row(HONEST_WORK, "a", "b", 90.0)], ("in 3 of 3: reached", "1 of 2 programs: not reached")),
])  # fmt: skip
def test_a_figure_is_reached_where_all_cases_are_in_time(
    more: list[Row], figures: tuple[str, str]
) -> None:
    for said, figure in zip(headlines([*FOUND, *more]), figures, strict=True):
        assert figure in said
