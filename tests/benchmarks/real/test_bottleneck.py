"""The bench of bottlenecks: what counts as right, and what it says of its figure."""

from __future__ import annotations

import pytest

from benchmarks.real.bottleneck import SCENES, Row, headlines
from dlsched.model.bottleneck import Cause


def row(planted: str, named: str, others: str = "", after_s: float | None = 11.0) -> Row:
    return Row(planted, "a scene", named, others, after_s, "text")


def test_seven_causes_are_planted_three_times_each() -> None:
    planted = [one.cause for one in SCENES]
    assert {cause: planted.count(cause) for cause in Cause if cause in planted} == dict.fromkeys(
        set(Cause) - {Cause.NOT_KNOWN, Cause.LOADER},
        3,  # that is a training's
    )
    assert len({(one.cause, one.words) for one in SCENES}) == 21


@pytest.mark.parametrize(
    ("one", "right"),
    [
        (row("disk", "disk"), True),
        (row("disk", "not known"), False),
        (row("disk", "none", after_s=None), False),
        (row("disk", "disk", others="CPU"), False),  # it was named meanwhile
    ],
)
def test_what_is_right(one: Row, right: bool) -> None:
    assert one.right is right


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("disk", "disk")] * 19 + [row("lock", "not known")] * 2, "19 of 21"),
        ([row("disk", "disk")] * 18 + [row("lock", "not known")] * 3, "18 of 21"),
        ([row("disk", "disk")] * 20 + [row("lock", "CPU")], "20 of 21"),
        ([row("CPU", "CPU")] * 21, "21 of 21"),
    ],
)
def test_the_figure(rows: list[Row], said: str) -> None:
    (line,) = headlines(rows)
    reached = said in ("19 of 21", "21 of 21")
    assert f"{said} named rightly" in line
    assert line.endswith("0: reached" if reached else "not reached")
