"""The wait between two cycles, on a virtual clock."""

from __future__ import annotations

from dlsched.runtime.clock import CHANGES_S, wait
from dlsched.simulation.clock import VirtualClock


def test_a_wait_lasts_until_its_end_a_wake_or_a_change() -> None:
    clock = VirtualClock(100.0)
    asked: list[float] = []

    def changed() -> bool:
        asked.append(clock.now_s())
        return clock.now_s() >= 110.0

    assert not wait(clock, 100.0, changed)
    assert not wait(clock, 103.5, changed)
    assert asked == [101.0, 102.0, 103.0]
    assert wait(clock, 160.0, changed)
    assert 110.0 <= clock.now_s() < 110.0 + CHANGES_S
    clock.wake()
    assert wait(clock, 160.0, lambda: False)


def test_a_short_wait_asks_for_no_change() -> None:
    clock = VirtualClock(100.0)
    assert not wait(clock, 100.0 + CHANGES_S, lambda: True)
    assert clock.now_s() == 100.0 + CHANGES_S
