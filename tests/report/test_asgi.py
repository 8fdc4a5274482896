"""The middleware, driven by plain ASGI messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dlsched.report import writer as writing
from dlsched.report.asgi import LatencyMiddleware, Message, Receive, Send
from dlsched.report.writer import Writer
from tests.report.jobs import told

pytestmark = pytest.mark.timed

OK = {"type": "http.response.start", "status": 200}
BROKEN = {"type": "http.response.start", "status": 503}
PART = {"type": "http.response.body", "body": b"x", "more_body": True}
LAST = {"type": "http.response.body", "body": b"x"}


class Job:
    """An application that sends these messages, and then may fail."""

    def __init__(self, messages: Iterable[Message], fails: bool = False) -> None:
        self.messages = tuple(messages)
        self.fails = fails
        self.in_flight_at_part: list[bool] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        writer = writing.current()
        assert writer is not None
        for message in self.messages:
            await send(message)
            self.in_flight_at_part.append(bool(writer._in_flight))
        if self.fails:
            raise LookupError("the application's own")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setattr(
        writing, "_current", Writer(str(path), threaded=False, monotonic=lambda: 0.0)
    )
    return path


def counted(path: Path) -> tuple[int, int]:
    writer = writing.current()
    assert writer is not None
    writer.flush()
    if not path.exists():
        return 0, 0
    (line,) = told(path)
    assert line["latency"]["in_flight"] == 0
    return line["latency"]["count"], line["latency"].get("errors", 0)


def serve(app: LatencyMiddleware, scope: dict[str, Any]) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    asyncio.run(app(scope, receive, send))
    return sent


REQUEST = {"type": "http", "path": "/predict"}


def test_a_request_is_in_flight_until_its_last_part_is_sent(path: Path) -> None:
    job = Job([OK, PART, LAST])
    assert serve(LatencyMiddleware(job), REQUEST) == [OK, PART, LAST]
    assert job.in_flight_at_part == [True, True, False]
    assert counted(path) == (1, 0)


def test_a_status_of_500_and_above_is_an_error(path: Path) -> None:
    serve(LatencyMiddleware(Job([BROKEN, LAST])), REQUEST)
    assert counted(path) == (0, 1)


def test_an_exception_is_an_error_and_passes_through(path: Path) -> None:
    with pytest.raises(LookupError):
        serve(LatencyMiddleware(Job([OK, PART], fails=True)), REQUEST)
    assert counted(path) == (0, 1)


def test_what_fails_after_the_answer_is_no_failed_request(path: Path) -> None:
    with pytest.raises(LookupError):
        serve(LatencyMiddleware(Job([OK, LAST], fails=True)), REQUEST)
    assert counted(path) == (1, 0)


def test_an_answer_that_never_ends_is_an_error(path: Path) -> None:
    serve(LatencyMiddleware(Job([OK, PART])), REQUEST)
    assert counted(path) == (0, 1)


@pytest.mark.parametrize(
    "scope", [{"type": "http", "path": "/healthz"}, {"type": "websocket", "path": "/predict"}]
)
def test_other_paths_and_other_connections_do_not_count(path: Path, scope: Message) -> None:
    serve(LatencyMiddleware(Job([OK, LAST]), path_prefix="/predict"), scope)
    assert counted(path) == (0, 0)
