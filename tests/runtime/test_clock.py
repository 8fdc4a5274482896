"""Both clocks: a wake is never lost, a sleep without one ends when due, time never goes back."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from dlsched.control.ports import Clock
from dlsched.runtime.clock import SystemClock
from dlsched.simulation.clock import VirtualClock

pytestmark = pytest.mark.timed


@pytest.fixture(params=[SystemClock, VirtualClock])
def clock(request: pytest.FixtureRequest) -> Clock:
    made: Clock = request.param()
    return made


def test_a_wake_before_the_sleep_ends_it_at_once_and_only_once(clock: Clock) -> None:
    began_s = clock.now_s()
    clock.wake()
    clock.wake()
    assert clock.sleep_until(began_s + 60.0)
    assert clock.now_s() < began_s + 60.0
    assert not clock.sleep_until(clock.now_s())


def test_a_sleep_without_a_wake_ends_when_due(clock: Clock) -> None:
    due_s = clock.now_s() + 0.01
    assert not clock.sleep_until(due_s)
    assert clock.now_s() >= due_s


def test_a_wake_from_another_thread_ends_the_sleep() -> None:
    clock = SystemClock()
    threading.Timer(0.01, clock.wake).start()
    assert clock.sleep_until(clock.now_s() + 60.0)


@pytest.fixture
def on_usr1() -> Iterator[list[SystemClock]]:
    """The clocks in this list are woken by SIGUSR1."""
    clocks: list[SystemClock] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: [clock.wake() for clock in clocks])
    yield clocks
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.long
def test_a_signal_handler_may_wake_whatever_it_interrupts(on_usr1: list[SystemClock]) -> None:
    clock = SystemClock()
    on_usr1.append(clock)
    done = threading.Event()

    def storm() -> None:
        while not done.is_set():
            os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        assert all(clock.sleep_until(clock.now_s() + 20.0) for _ in range(500))
    finally:
        done.set()
        thread.join()


def test_time_goes_on_after_the_last_run_also_after_a_reboot() -> None:
    last_run_s = SystemClock().now_s() + 1e6
    assert SystemClock(not_before_s=last_run_s).now_s() >= last_run_s
    assert SystemClock(not_before_s=0.0).now_s() < last_run_s


def test_setting_a_virtual_clock_never_turns_it_back() -> None:
    clock = VirtualClock(10.0)
    clock.sleep_until(5.0)
    assert clock.now_s() == 10.0
    assert clock.wall_time() == "1970-01-01T00:00:10.000Z"
