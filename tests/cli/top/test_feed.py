"""The feed on a real socket: what it hands over, and that it outlasts the daemon."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.api.client import Daemon
from dlsched.api.server import ApiServer
from dlsched.api.stream import Stream
from dlsched.cli.top import feed as feed_module
from dlsched.cli.top.feed import Feed, View
from dlsched.model.cycle import CycleReport
from tests.status_source import FakeSource, example_report, job
from tests.waiting import until

pytestmark = pytest.mark.timed


def report(cycle: int, ratio: float) -> CycleReport:
    example = example_report()
    snapshot = replace(
        example.snapshot,
        cycle=cycle,
        now_s=1000.0 + cycle,
        jobs=(job("a", latency_s=ratio * 0.05),),
    )
    return replace(example, snapshot=snapshot)


@pytest.fixture
def views() -> queue.Queue[View]:
    return queue.Queue()


@pytest.fixture
def feed(
    folders: Path, views: queue.Queue[View], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Feed]:
    monkeypatch.setattr(feed_module, "AGAIN_S", 0.05)
    feed = Feed(Daemon(folders / "run"))
    yield feed
    feed.stop()


def test_it_hands_over_each_cycle_with_what_was_before(
    feed: Feed, views: queue.Queue[View], daemon: FakeSource
) -> None:
    daemon.stream.publish(report(1, 1.0))
    daemon.stream.publish(report(2, 2.0))
    feed.start(views.put)
    view = views.get(timeout=30)
    assert (view.status.cycle, view.period_s) == (2, 1.0)
    assert view.means["a"] == pytest.approx(1.5, rel=0.05)
    assert view.trends["a"][-1] == pytest.approx(1.5, rel=0.05)
    daemon.stream.publish(report(5, 0.5))
    view = views.get(timeout=30)
    assert (view.status.cycle, view.period_s, feed.problem) == (5, 3.0, None)


def test_it_says_why_it_has_nothing_and_goes_on_after_a_restart_with_what_it_knew(
    feed: Feed, views: queue.Queue[View], source: FakeSource, folders: Path
) -> None:
    first = ApiServer(source, folders / "run")
    source.stream.publish(report(1, 3.0))
    first.start()
    feed.start(views.put)
    assert views.get(timeout=30).status.cycle == 1
    first.stop()
    until(
        lambda: feed.problem is not None and "no daemon answers" in feed.problem,
        "the problem to be shown",
    )
    source.stream = Stream("run2")
    second = ApiServer(source, folders / "run")
    source.stream.publish(report(2, 1.0))
    second.start()
    try:
        view = views.get(timeout=30)
    finally:
        second.stop()
    assert view.status.cycle == 2
    assert view.means["a"] == pytest.approx(2.0, rel=0.05), "the curve goes on"


@pytest.mark.parametrize("data", ["{", '{"schema_version": 99}', '{"schema_version": 1}'])
def test_what_is_no_status_is_said_and_tried_again(
    feed: Feed, views: queue.Queue[View], monkeypatch: pytest.MonkeyPatch, data: str
) -> None:
    from dlsched.api.client import StreamMessage

    asked: list[str] = []

    def cycles(self: Daemon, last_id: str) -> Iterator[StreamMessage]:
        asked.append(last_id)
        yield StreamMessage("", "", "")
        yield StreamMessage("", "status", data)

    monkeypatch.setattr(Daemon, "cycles", cycles)
    feed.start(views.put)
    until(lambda: len(asked) > 2 and feed.problem is not None, "a third question")
    assert views.empty()
