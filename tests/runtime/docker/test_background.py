"""Background calls and the loop's patience."""

from __future__ import annotations

import threading
import time

import pytest

from dlsched.runtime.docker.background import Patience, begin


def test_a_result_and_an_error_come_back() -> None:
    def fails() -> None:
        raise ValueError("no")

    assert begin(lambda: 7, "test").result(10) == 7
    with pytest.raises(ValueError, match="no"):
        begin(fails, "test").result(10)


def test_what_waits_at_the_gate_can_be_cancelled() -> None:
    gate = threading.Lock()
    ran = threading.Event()
    with gate:
        call = begin(ran.set, "test", gate)
        assert call.cancel()
    after = begin(lambda: None, "test", gate)
    after.result(10)
    assert not ran.is_set()


def test_one_long_wait_uses_up_the_patience_for_all_others() -> None:
    hangs = threading.Event()
    patience = Patience(wait_s=1.0, pause_s=60)
    call = begin(hangs.wait, "test")
    assert not patience.lost
    assert not patience.wait(call)
    assert patience.lost
    began_s = time.monotonic()
    assert not any(patience.wait(begin(hangs.wait, "test")) for _ in range(20))
    assert time.monotonic() - began_s < 10  # and not twenty waits of a second
    hangs.set()
    assert call.result(10)
    assert patience.wait(call)


def test_patience_returns() -> None:
    hangs = threading.Event()
    patience = Patience(wait_s=0.01, pause_s=0.01)
    assert not patience.wait(begin(hangs.wait, "test"))
    deadline_s = time.monotonic() + 10
    while patience.lost:
        assert time.monotonic() < deadline_s
    assert patience.wait(begin(lambda: None, "test")) or patience.lost
    hangs.set()


def test_a_call_that_already_took_its_time_is_not_waited_for() -> None:
    hangs = threading.Event()
    patience = Patience(wait_s=30)
    began_s = time.monotonic()
    assert not patience.wait(begin(hangs.wait, "test"), since_s=began_s - 31)
    assert time.monotonic() - began_s < 5
    hangs.set()
