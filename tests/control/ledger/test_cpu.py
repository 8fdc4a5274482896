"""How much of a node ceilings may take, and what is kept for the host."""

from __future__ import annotations

import pytest

from dlsched.control.ledger.cpu import divide_cpu, host_cores


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
