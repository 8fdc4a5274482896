"""How much of a node ceilings may take, and what is kept for the host."""

from __future__ import annotations

import pytest

from dlsched.control.ledger.cpu import (
    capacity_alarms,
    divide_cpu,
    host_cores,
)
from dlsched.model.facts import NodeFact
from tests.doubles import texts


@pytest.mark.parametrize(
    ("cores", "kept"),
    [(1, 0.25), (2, 0.25), (2.5, 0.25), (4, 0.4), (16, 1.6), (20, 2.0), (256, 2.0)],
)
def test_what_is_kept_goes_by_the_size_of_the_machine(cores: float, kept: float) -> None:
    assert host_cores(cores) == pytest.approx(kept)
    assert divide_cpu(cores, None, None).ceiling_cores == pytest.approx(cores - kept)


def test_a_reserve_that_is_set_wins() -> None:
    assert divide_cpu(16.0, None, 0.0).ceiling_cores == 16.0
    assert divide_cpu(16.0, None, 5.0).ceiling_cores == 11.0
    assert divide_cpu(16.0, 8.0, 0.0).ceiling_cores == 8.0
    assert divide_cpu(16.0, 8.0, None).host_cores == pytest.approx(0.8)
    assert divide_cpu(16.0, 32.0, 0.0).ceiling_cores == 16.0


def test_a_reserve_above_the_capacity_leaves_something_to_divide() -> None:
    assert divide_cpu(2.0, 1.0, 3.0).ceiling_cores == 0.01


def test_it_is_told_in_one_line() -> None:
    whole, part = divide_cpu(16.0, None, None), divide_cpu(16.0, 8.0, 0.0)
    assert str(whole) == "16 cores; 14.4 for ceilings, 1.6 kept for the host (setting reserve)"
    assert str(part) == (
        "16 cores, 8 of them divided (setting capacity); "
        "8 for ceilings, 0 kept for the host (setting reserve)"
    )


def test_a_quota_around_containers_alone_leaves_the_host_its_part() -> None:
    assert divide_cpu(8.0, None, None, 4.0).ceiling_cores == 4.0
    assert divide_cpu(8.0, None, None, 7.5).ceiling_cores == pytest.approx(7.2)
    assert "4 for ceilings, 0.8 kept for the host" in str(divide_cpu(8.0, None, None, 4.0))


def test_what_a_capacity_hides_is_an_alarm() -> None:
    names = tuple(f"job{number}" for number in range(5))
    node = NodeFact(2.0, 1, throttled_ratio=0.2, parts=((names, "quota of 1 core of /slice"),))
    unknown, uneven = texts(capacity_alarms(node))
    assert unknown == (
        "capacity unknown: throttled from outside, by a CPU quota that is not visible here"
    )
    assert uneven == (
        "capacity is not the same for all jobs: quota of 1 core of /slice bounds the jobs job0, "
        "job1, job2 and 2 more alone"
    )
