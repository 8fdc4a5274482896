"""`latency`: what counts as a latency, as an error, as neither; and that nothing is raised."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import pytest

from dlsched.report import writer as writing
from dlsched.report.timing import LatencyMiddleware, Measurement, Message, Receive, Send, latency

pytestmark = pytest.mark.timed


Written = Callable[[], list[dict[str, Any]]]


def test_a_body_that_ends_is_measured(written: Written) -> None:
    with latency.measure():
        pass
    assert written()[0]["latency"]["count"] == 1


@pytest.mark.parametrize(
    ("raised", "errors"), [(ValueError, 1), (KeyboardInterrupt, 0), (GeneratorExit, 0)]
)
def test_a_body_that_raises_is_not_measured(
    written: Written, raised: type[BaseException], errors: int
) -> None:
    latency.observe(0.5)
    with pytest.raises(raised), latency.measure():
        raise raised
    counted = written()[0]["latency"]
    assert (counted["count"], counted.get("errors", 0)) == (1, errors)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, "slow", None, object(), 10**400])
def test_an_invalid_latency_is_dropped(written: Written, seconds: float) -> None:
    latency.observe(seconds)
    latency.error()
    counted = written()[0]["latency"]
    assert (counted["count"], counted["errors"]) == (0, 1)
    assert latency.dropped == 1


def test_a_second_end_changes_nothing(written: Written) -> None:
    measurement = Measurement()
    measurement.begin()
    measurement.end()
    measurement.end("error")
    assert "errors" not in written()[0]["latency"]


def test_without_a_metrics_file_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_current", writing._UNKNOWN)
    monkeypatch.delenv("DLSCHED_METRICS_FILE", raising=False)
    with latency.measure():
        latency.observe(1.0)
        latency.error()
    assert latency.dropped == 0
    assert writing.current() is None


OK = {"type": "http.response.start", "status": 200}
BROKEN = {"type": "http.response.start", "status": 503}
PART = {"type": "http.response.body", "body": b"x", "more_body": True}
LAST = {"type": "http.response.body", "body": b"x"}


class Job:
    """An application that sends these messages, and then may fail."""

    def __init__(self, messages: Iterable[Message], fails: bool) -> None:
        self.messages = tuple(messages)
        self.fails = fails
        self.in_flight_at_part: list[bool] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        writer = writing.current()
        for message in self.messages:
            await send(message)
            self.in_flight_at_part.append(bool(writer._in_flight))
        if self.fails:
            raise LookupError("the application's own")


def serve(job: Job, scope: Message) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    with pytest.raises(LookupError) if job.fails else nullcontext():
        asyncio.run(LatencyMiddleware(job, path_prefix="/predict")(scope, receive, send))
    return sent


REQUEST = {"type": "http", "path": "/predict"}


def test_a_request_is_in_flight_until_its_last_part_is_sent(written: Written) -> None:
    job = Job([OK, PART, LAST], fails=False)
    assert serve(job, REQUEST) == [OK, PART, LAST]
    assert job.in_flight_at_part == [True, True, False]


@pytest.mark.parametrize(
    ("messages", "fails", "count", "errors"),
    [
        pytest.param([OK, PART, LAST], False, 1, 0, id="answered"),
        pytest.param([BROKEN, LAST], False, 0, 1, id="status of 500 and above"),
        pytest.param([OK, PART], True, 0, 1, id="exception"),
        pytest.param([OK, LAST], True, 1, 0, id="exception after the answer"),
        pytest.param([OK, PART], False, 0, 1, id="answer never ends"),
    ],
)
def test_a_request_counts_as_latency_or_as_error(
    written: Written, messages: list[Message], fails: bool, count: int, errors: int
) -> None:
    serve(Job(messages, fails), REQUEST)
    (line,) = written()
    counted = line["latency"]
    assert (counted["count"], counted.get("errors", 0), counted["in_flight"]) == (count, errors, 0)


@pytest.mark.parametrize(
    "scope", [{"type": "http", "path": "/healthz"}, {"type": "websocket", "path": "/predict"}]
)
def test_other_paths_and_other_connections_do_not_count(written: Written, scope: Message) -> None:
    serve(Job([OK, LAST], fails=False), scope)
    assert written() == []
