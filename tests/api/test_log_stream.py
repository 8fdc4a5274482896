"""Logs that never end, break off, or outrun whoever reads them."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dlsched.api.client import Daemon
from dlsched.api.log_stream import LogReading
from dlsched.api.server import ApiServer
from dlsched.model.errors import EngineUnavailable, Refused
from tests.api.conftest import client_of
from tests.status_source import FakeSource
from tests.waiting import until

pytestmark = pytest.mark.timed


class Tap:
    """A log that is fed by hand, and can be closed from any thread."""

    def __init__(self) -> None:
        self.lines: queue.Queue[bytes | None] = queue.Queue()
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        line = self.lines.get()
        if line is None:
            raise StopIteration
        return line

    def close(self) -> None:
        self.closed.set()
        self.lines.put(None)


def test_a_follower_sees_each_line_as_it_comes(daemon: Daemon, source: FakeSource) -> None:
    tap = Tap()
    source.log = tap
    tap.lines.put(b"first\n")
    lines = daemon.logs("queued", 10, True)
    assert next(lines) == b"first\n"
    tap.lines.put(b"second\n")
    assert next(lines) == b"second\n"
    tap.close()
    assert list(lines) == []


def test_a_silent_log_answers_all_the_same_and_ends_with_its_follower(
    server: ApiServer, source: FakeSource
) -> None:
    tap = Tap()
    source.log = tap
    until(lambda: not _log_threads(), "threads of other cases have ended")
    with (
        client_of(server.control_path) as client,
        client.stream("GET", "/v1/jobs/queued/logs?follow=1") as answer,
    ):
        assert answer.status_code == 200
        until(lambda: _log_threads() == 1, "one thread follows")
    assert tap.closed.wait(30.0)
    until(lambda: not _log_threads(), "the thread has ended")


def test_a_log_that_opens_after_its_follower_has_left_is_closed() -> None:
    tap, left = Tap(), threading.Event()

    def opened() -> Tap:
        left.wait(30.0)
        return tap

    async def leave() -> None:
        slots = threading.BoundedSemaphore()
        slots.acquire()
        reading = LogReading(slots)
        reading.start(opened)
        reading.close()

    asyncio.run(leave())
    left.set()
    assert tap.closed.wait(30.0)


def test_a_log_that_breaks_off_says_why(daemon: Daemon, source: FakeSource) -> None:
    def broken() -> Any:
        yield b"begun\n"
        raise EngineUnavailable("the engine has gone")

    source.log = broken()
    text = b"".join(daemon.logs("queued", 10, False))
    assert text == b"begun\n\ndlsched: the engine has gone\n"


def test_a_job_without_container_says_so_also_once_the_answer_has_begun(
    daemon: Daemon, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlsched.api.routes.FIRST_CHUNK_S", 0.0)
    late = threading.Event()

    def nothing() -> Any:
        late.wait(0.2)
        raise KeyError("queued")
        yield b""

    source.log = nothing()
    text = b"".join(daemon.logs("queued", 10, False))
    assert text == b"\ndlsched: the job has no container\n"


def test_a_log_is_read_no_faster_than_it_is_taken(daemon: Daemon, source: FakeSource) -> None:
    produced = 0

    def endless() -> Iterator[bytes]:
        nonlocal produced
        while True:
            produced += 1
            yield b"x" * 65536

    source.log = endless()
    lines = daemon.logs("queued", 10, True)
    next(lines)
    # Buffers of sockets and queue hold some megabytes; then the reader waits.
    until(lambda: _stands_still(lambda: produced), "nothing more is produced")
    assert produced < 1000
    lines.close()  # type: ignore[attr-defined]


def test_too_many_followers_are_refused_and_freed_again(
    daemon: Daemon, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlsched.api.routes.FOLLOWERS_MAX", 1)
    source.log = tap = Tap()
    tap.lines.put(b"x")
    stream = daemon.logs("queued", 1, True)
    assert next(stream) == b"x"
    with pytest.raises(
        Refused, match="1 logs are being read already, the most at a time: try again later"
    ) as no:
        next(daemon.logs("queued", 1, True))
    assert no.value.status == 503
    tap.close()
    assert list(stream) == []
    source.log = iter((b"again",))
    until(lambda: not _log_threads(), "all threads have ended")
    assert list(daemon.logs("queued", 1, False)) == [b"again"]


def test_stopping_the_server_does_not_wait_for_a_silent_log(
    server: ApiServer, daemon: Daemon, source: FakeSource
) -> None:
    stuck = threading.Event()

    def silent() -> Iterator[bytes]:
        yield b"begun"
        stuck.wait()

    source.log = silent()
    lines = daemon.logs("queued", 1, True)
    assert next(lines) == b"begun"
    server.stop()
    until(lambda: not server._thread.is_alive(), "it ends, although the log is silent")
    assert not server.control_path.exists()
    stuck.set()


def _log_threads() -> int:
    return sum(thread.name == "api-log" for thread in threading.enumerate())


def _stands_still(value: Callable[[], int]) -> bool:
    before = value()
    time.sleep(0.3)
    return value() == before
