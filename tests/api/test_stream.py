"""`/v1/stream`: what is kept, sent again, shared and bounded, and which followers are dropped."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsched.api import stream as stream_module
from dlsched.api.client import Daemon
from dlsched.api.server import ApiServer
from dlsched.api.status import node_status
from dlsched.api.stream import Stream
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import LogFact
from tests.api.conftest import client_of, serving
from tests.status_source import FakeSource, example_report, job
from tests.waiting import until

pytestmark = [pytest.mark.timed, pytest.mark.anyio]

SLOW_S = 0.2


def report(cycle: int, now_s: float | None = None, *, arrived: bool = False) -> CycleReport:
    example = example_report()
    jobs = (*example.snapshot.jobs, *([job(f"late-{cycle}")] if arrived else []))
    at_s = 1000.0 + cycle if now_s is None else now_s
    snapshot = replace(example.snapshot, cycle=cycle, now_s=at_s, jobs=jobs)
    return replace(example, snapshot=snapshot)


def fields(message: bytes) -> list[dict[str, str]]:
    """The blocks of a chunk."""
    blocks = message.decode().strip("\n").split("\n\n")
    return [dict(line.split(": ", 1) for line in one.split("\n")) for one in blocks]


async def kept(stream: Stream, last_id: str = "", *, only_events: bool = False) -> list[str]:
    """Ids of what a new follower gets immediately."""
    found = []
    async for chunk in stream.messages(last_id, only_events=only_events, follow=False):
        found += [one["id"] for one in fields(chunk) if "id" in one]
    return found


def started(reports: list[CycleReport], **bounds: Any) -> Stream:
    """For an event loop that runs."""
    stream = Stream("run1", **bounds)
    stream.attach()
    for one in reports:
        stream.publish(one)
    stream.attach()  # takes what was handed over
    return stream


async def test_a_follower_gets_what_is_kept_and_then_each_cycle() -> None:
    stream = started([report(1), report(2)])
    messages = stream.messages("")
    assert await anext(messages) == b"retry: 1000\n\n"
    happened, first = fields(await anext(messages))
    assert happened["event"] == "events"
    assert "id" not in happened, "else a follower cut off here would miss the point"
    assert (first["event"], first["id"]) == ("point", "run1:1")
    (second,) = fields(await anext(messages))
    assert (second["id"], json.loads(second["data"])["cycle"]) == ("run1:2", 2)
    (status,) = fields(await anext(messages))
    assert (status["event"], "id" in status) == ("status", False)
    assert json.loads(status["data"])["cycle"] == 2, "of the last cycle alone"
    stream.publish(report(3))
    assert fields(await anext(messages))[-1]["id"] == "run1:3"
    assert json.loads(fields(await anext(messages))[0]["data"])["cycle"] == 3


@pytest.mark.parametrize(
    ("last_id", "ids"),
    [
        ("run1:2", ["run1:3"]),
        ("run1:3", []),
        ("run1:0", ["run1:1", "run1:2", "run1:3"]),
        ("run0:2", ["run1:1", "run1:2", "run1:3"]),  # of a run before: all that this one has
        ("run0:99", ["run1:1", "run1:2", "run1:3"]),
        ("", ["run1:1", "run1:2", "run1:3"]),
        ("run1:", ["run1:1", "run1:2", "run1:3"]),
        ("run1:-1", ["run1:1", "run1:2", "run1:3"]),
        ("run1:" + "9" * 5000, ["run1:1", "run1:2", "run1:3"]),
        ("run1:\u0663", ["run1:1", "run1:2", "run1:3"]),
    ],
)
async def test_the_last_id_says_what_is_sent_again(last_id: str, ids: list[str]) -> None:
    assert await kept(started([report(1), report(2), report(3)]), last_id) == ids


async def test_what_is_kept_is_bounded_in_age() -> None:
    stream = started([report(1, 1000.0), report(2, 1899.0), report(3, 1900.0)])
    assert await kept(stream) == ["run1:1", "run1:2", "run1:3"]
    stream.publish(report(4, 1900.5))
    stream.attach()
    assert await kept(stream) == ["run1:2", "run1:3", "run1:4"]
    stream.publish(report(5, 9999.0))
    stream.attach()
    assert await kept(stream) == ["run1:5"]


async def test_what_is_kept_is_bounded_in_bytes_but_for_the_last_cycle() -> None:
    assert await kept(started([report(1), report(2)], keep_bytes=1)) == ["run1:2"]
    stream = started([report(cycle) for cycle in range(1, 60)], keep_bytes=10_000)
    found = await kept(stream)
    assert found[-1] == "run1:59"
    assert 2 <= len(found) < 50


async def test_a_follower_of_events_is_not_woken_by_cycles_without_any() -> None:
    stream = started([report(1), report(2), report(3, arrived=True)])
    assert await kept(stream, only_events=True) == ["run1:1", "run1:3"]
    chunks = [one async for one in stream.messages("", only_events=True, follow=False)]
    kinds = {one.get("event") for chunk in chunks[1:] for one in fields(chunk)}
    assert kinds == {"events"}


async def test_a_silent_stream_shows_that_it_lives() -> None:
    messages = started([report(1)], comment_s=0.01).messages("run1:1", only_events=True)
    assert await anext(messages) == b"retry: 1000\n\n"
    assert [await anext(messages) for _ in range(2)] == [b":\n\n"] * 2


async def test_followers_share_the_bytes_and_the_status_is_rendered_for_followers_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rendered: list[int] = []

    def counted(of: CycleReport) -> object:
        rendered.append(of.snapshot.cycle)
        return node_status(of)

    monkeypatch.setattr(stream_module, "node_status", counted)

    stream = started([report(1), report(2)])
    await kept(stream)
    assert rendered == [], "there is no follower"
    followers = [stream.messages("run1:2") for _ in range(3)]
    waiting = [await_next(one) for one in followers]
    await asyncio.sleep(0)
    stream.publish(report(3))
    first, second, third = [await one for one in waiting]
    assert first is second is third
    statuses = [await anext(one) for one in followers]
    assert statuses[0].startswith(b"event: status\n")
    assert statuses[0] is statuses[1] is statuses[2]
    assert rendered == [3]


def await_next(messages: AsyncIterator[bytes]) -> asyncio.Task[bytes]:
    """The first message after the stream's beginning."""

    async def second() -> bytes:
        await anext(messages)
        return await anext(messages)

    return asyncio.get_running_loop().create_task(second())


async def test_a_follower_whom_the_ring_has_overtaken_is_let_go() -> None:
    stream = started([report(1), report(2), report(3)], keep_bytes=1 << 20)
    messages = stream.messages("")
    await anext(messages)
    await anext(messages)
    stream.publish(report(4, 9999.0))
    stream.attach()
    assert [one async for one in messages] == []


async def test_what_a_job_printed_is_not_in_the_stream() -> None:
    one = report(1)
    view = one.snapshot.jobs[0]
    log = LogFact(lines=9, matched=0, example="'password hunter3'")
    quoted = replace(view, progress=replace(view.progress, log=log, refused="hunter3"))
    stream = started([replace(one, snapshot=replace(one.snapshot, jobs=(quoted,)))])
    messages = stream.messages("")
    sent = b"".join([await anext(messages) for _ in range(3)])
    assert b"event: status" in sent
    assert b"hunter3" not in sent


async def test_no_text_can_end_a_message_or_begin_another_one() -> None:
    hostile = job("a", reason="x\n\nevent: status\ndata: {}\n\n\u2028\ud800\x1b[2J")
    one = report(1)
    stream = started([replace(one, snapshot=replace(one.snapshot, jobs=(hostile,)))])
    messages = stream.messages("")
    await anext(messages)
    happened, first = fields(await anext(messages))
    (event,) = [one for one in json.loads(happened["data"])["events"] if one["job"] == "a"]
    assert event["reason"] == hostile.reason
    assert first["event"] == "point"


async def test_without_an_event_loop_the_last_reports_wait_for_one() -> None:
    stream = Stream("run1")
    for cycle in range(1, 500):
        stream.publish(report(cycle))

    stream.attach()
    assert await kept(stream) == [f"run1:{cycle}" for cycle in range(440, 500)]


# ---------------------------------------------------------------------- over real sockets


def test_the_server_ends_its_streams_when_it_stops(
    server: ApiServer, daemon: Daemon, source: FakeSource
) -> None:
    messages = daemon.cycle_events("", follow=True)
    next(messages)
    server.stop()
    assert list(messages) == [], "ended as HTTP ends, not broken off"


def test_too_many_followers_are_refused_and_freed_again(
    server: ApiServer, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlsched.api.routes.STREAM_FOLLOWERS_MAX", 1)
    with client_of(server.status_path) as client:
        with client.stream("GET", "/v1/stream") as followed:
            assert followed.status_code == 200
            refused = client.get("/v1/stream")
            assert refused.status_code == 503
            assert refused.json() == {
                "error": "1 streams are being followed already, the most at a time: try again later"
            }
            assert client.head("/v1/stream").status_code == 503
        assert until(lambda: source.stream.followers[str(server.status_path)] == 0, "no follower")
        answer = client.head("/v1/stream")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")


def test_a_reader_who_takes_nothing_is_dropped_and_the_others_are_not(
    tmp_path: Path, source: FakeSource
) -> None:
    source.stream = Stream("run1", slow_s=SLOW_S)
    with serving(tmp_path, source) as server, socket.socket(socket.AF_UNIX) as stuck:
        address = str(server.status_path)
        stuck.settimeout(30.0)
        stuck.connect(address)
        stuck.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: dlsched\r\n\r\n")
        assert until(lambda: source.stream.followers[address] == 1, "one follower")
        other = Daemon(tmp_path).cycle_events("", follow=True)
        next(other)
        assert source.stream.followers[address] == 2
        for cycle in range(1, 400):  # more than the buffers of the sockets hold
            source.stream.publish(report(cycle, arrived=cycle == 1))
            if source.stream.followers[address] < 2:
                break
            until(lambda: not source.stream._pending, "all reports taken")
        assert until(lambda: source.stream.followers[address] == 1, "one follower")
        source.stream.publish(report(400, arrived=True))
        assert any(message.id == "run1:400" for message in other)
        while stuck.recv(1 << 16):
            pass  # what was underway, and then the end


def test_what_is_asked_wrongly_is_refused(server: ApiServer) -> None:
    with client_of(server.control_path) as client:
        answer = client.get("/v1/stream?only=%1b[2J")
        assert answer.status_code == 400
        assert answer.json()["error"] == "`only` is '\\x1b[2J', must be `events`, or left out"
        assert client.get("/v1/stream?follow=2").status_code == 400
        assert client.post("/v1/stream").status_code == 405
