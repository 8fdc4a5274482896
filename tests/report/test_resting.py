"""Sleep that signals end, with real signals: each sleep is long, and ends at once or fails."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.report.pacing import Rest

pytestmark = pytest.mark.timed

LONG_S = 60.0


@pytest.fixture
def came() -> Iterator[list[int]]:
    """Signals whose handlers have run."""
    numbers: list[int] = []
    caught = (signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM)

    def note(number: int, _: object) -> None:
        numbers.append(number)

    before = {each: signal.signal(each, note) for each in caught}
    yield numbers
    signal.setitimer(signal.ITIMER_REAL, 0)
    for each, handler in before.items():
        signal.signal(each, handler)


def soon(number: int) -> None:
    threading.Timer(0.02, lambda: os.kill(os.getpid(), number)).start()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_that_asks_for_something_ends_the_sleep(number: int, came: list[int]) -> None:
    began_s = time.monotonic()
    with Rest() as rest:
        soon(number)
        assert rest.sleep(LONG_S)
    assert came == [number]
    assert time.monotonic() - began_s < LONG_S / 2


def test_a_timer_does_not(came: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    began_s = time.monotonic()
    with Rest() as rest:
        assert not rest.sleep(0.1)
    assert time.monotonic() - began_s >= 0.1
    assert came


def test_a_handler_that_raises_ends_it_and_leaves_nothing_behind(came: list[int]) -> None:
    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGUSR1, leave)
    open_before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(KeyboardInterrupt), Rest() as rest:
        soon(signal.SIGUSR1)
        rest.sleep(LONG_S)
    assert signal.set_wakeup_fd(-1) == -1
    assert len([*Path("/proc/self/fd").iterdir()]) <= open_before  # others may have closed theirs


def test_an_event_loops_descriptor_stays_its_own() -> None:
    one, other = socket.socketpair()
    one.setblocking(False)
    signal.set_wakeup_fd(one.fileno())
    try:
        with Rest() as rest:
            assert not rest.sleep(0.001)
        assert signal.set_wakeup_fd(-1) == one.fileno()
    finally:
        signal.set_wakeup_fd(-1)
        one.close()
        other.close()


def test_another_thread_sleeps_as_well() -> None:
    slept: list[bool] = []

    def sleep() -> None:
        with Rest() as rest:
            slept.append(rest.sleep(0.001))

    thread = threading.Thread(target=sleep)
    thread.start()
    thread.join(LONG_S)
    assert slept == [False]
