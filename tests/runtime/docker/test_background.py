"""Background calls and the loop's patience."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker import background
from dlsched.runtime.docker.background import Patience, begin, begin_all
from dlsched.simulation.clock import VirtualClock
from tests.waiting import until


@pytest.mark.usefixtures("without_threads")
def test_a_result_and_an_error_come_back() -> None:
    def fails() -> None:
        raise ValueError("no")

    assert begin(lambda: 7, "test").result(60) == 7
    with pytest.raises(ValueError, match="no"):
        begin(fails, "test").result(60)


def test_without_a_thread_the_result_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    started = 0

    def start(thread: threading.Thread) -> None:
        nonlocal started
        started += 1
        if started > 1:
            raise RuntimeError("can't start new thread")
        thread.run()

    monkeypatch.setattr(threading.Thread, "start", start)
    assert [one.result(60) for one in begin_all([lambda: 7] * 3, "test", 2)] == [7, 7, 7]
    calls = [begin(lambda: 7, "test"), *begin_all([lambda: 7] * 3, "test", 2)]
    for call in calls:
        with pytest.raises(EngineUnavailable, match="no thread can be started"):
            call.result(0)


@pytest.mark.timed
def test_what_waits_at_the_gate_can_be_cancelled() -> None:
    gate = threading.Lock()
    ran = threading.Event()
    with gate:
        assert begin(ran.set, "test", gate).cancel()
    after = begin(lambda: None, "test", gate)
    after.result(60)
    assert not ran.is_set()


def test_one_long_wait_uses_up_the_patience_for_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, waits = VirtualClock(100.0), []

    def wait(calls: list[Future[int]], left_s: float) -> SimpleNamespace:
        waits.append(left_s)
        done = [one for one in calls if one.done()]
        clock.advance(0.0 if done else left_s)
        return SimpleNamespace(done=done)

    monkeypatch.setattr(background, "futures", SimpleNamespace(wait=wait))
    patience = Patience(wait_s=1.0, pause_s=600.0, now_s=clock.now_s)
    hangs: Future[int] = Future()
    assert not patience.lost
    assert not patience.wait(hangs)
    assert patience.lost
    assert not any(patience.wait(hangs) for _ in range(20))
    assert waits == [1.0], "and not twenty waits of a second"
    clock.advance(600.0)
    assert not patience.lost
    assert not patience.wait(hangs, since_s=clock.now_s() - 61.0), "it already took its time"
    assert waits == [1.0, 0.0]
    hangs.set_result(7)
    assert patience.wait(hangs)
    clock.advance(600.0)
    assert patience.wait(hangs) and not patience.lost


@pytest.mark.timed
def test_calls_run_in_their_order_and_only_so_many_at_once() -> None:
    begun: list[int] = []
    go_on, most, now = threading.Event(), 0, 0
    lock = threading.Lock()

    def call(number: int) -> int:
        nonlocal most, now
        with lock:
            begun.append(number)
            now += 1
            most = max(most, now)
        assert go_on.wait(60)
        with lock:
            now -= 1
        return number

    calls = begin_all([partial(call, number) for number in range(12)], "test", 3)
    until(lambda: len(begun) >= 3, "three have begun", every_s=0.001)
    assert calls[11].cancel() and not calls[0].cancel()
    go_on.set()
    assert [one.result(60) for one in calls[:11]] == list(range(11))
    assert (sorted(begun), most) == (list(range(11)), 3)


@pytest.mark.usefixtures("without_threads")
def test_one_that_fails_does_not_keep_the_others_from_being_made() -> None:
    calls = begin_all([lambda: 1, lambda: 1 // 0, lambda: 3], "test", 1)
    assert calls[0].result(60) == 1 and calls[2].result(60) == 3
    assert isinstance(calls[1].exception(60), ZeroDivisionError)
    assert begin_all([], "test", 4) == []
