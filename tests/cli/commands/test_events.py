"""`dlsched events` against a real socket: lines, JSON, and what happens when the daemon goes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.api.client import Daemon
from dlsched.api.server import ApiServer
from dlsched.api.stream import Stream
from dlsched.cli.commands import events as events_module
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.cycle import CycleReport
from tests.cli.conftest import Program
from tests.status_source import FakeSource, example_report, job, report_of
from tests.waiting import until

pytestmark = pytest.mark.timed

DOWN = Alarm("engine", AlarmKey.ENGINE_DOWN, "engine: no answer\x1b[2J\nforged line")

CHANGED = "limit 1.100 -> 1.250 cores, CPU weight 1126 -> 1280"
WHY = (
    "slow: p95 81 ms of 50 ms; guard: 1.4 cores cut to 1.25: the node is full; "
    "outcome: engine said: busy"
)


def report(cycle: int, *ratios: float) -> CycleReport:
    """A cycle with one job for each ratio of latency to target, and nothing else."""
    jobs = (job(f"job-{n}", latency_s=ratio * 0.05) for n, ratio in enumerate(ratios))
    made = report_of(*jobs, outcomes=(), wall_time=f"12:00:{cycle:02}Z")
    return replace(made, snapshot=replace(made.snapshot, cycle=cycle, now_s=1000.0 + cycle))


def test_what_happened_is_one_line_each_oldest_first(program: Program, daemon: FakeSource) -> None:
    daemon.stream.publish(report(1, 1.0))
    alarmed = replace(example_report(), raised=(DOWN,), wall_time="12:00:02Z")
    daemon.stream.publish(
        replace(report(2, 1.63), outcomes=alarmed.outcomes, raised=(DOWN,), alarms=(DOWN.text,))
    )
    daemon.stream.publish(report(3, 0.9))
    result = program("events")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "12:00:01Z  job-0  arrived",
        "12:00:02Z  job-0  missed: 81.7 ms over 100 requests, target p95 50 ms",
        f"12:00:02Z  digits-resnet  {CHANGED}  failed: {WHY}",
        "12:00:02Z  alarm raised: engine: no answer forged line",
        "12:00:03Z  job-0  met: 44.8 ms over 100 requests, target p95 50 ms",
        "12:00:03Z  alarm cleared: engine: no answer forged line",
    ]


def test_as_json_each_line_is_one_object(program: Program, daemon: FakeSource) -> None:
    daemon.stream.publish(report(1, 1.0))
    daemon.stream.publish(
        replace(report(2, 2.0), outcomes=example_report().outcomes, raised=(DOWN,))
    )
    result = program("events", "--json")
    assert result.exit_code == 0
    assert not {"\x1b", "\u202e"} & set(result.stdout)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(one["type"], one["kind"]) for one in found] == [
        ("event", "arrived"),
        ("event", "missed"),
        ("change", "resize"),
        ("alarm", "raised"),
    ]
    assert {one["schema_version"] for one in found} == {1}
    assert (found[2]["before_cores"], found[2]["after_cores"]) == (1.1, 1.25)
    assert (found[3]["key"], found[3]["text"]) == ("engine-down", DOWN.text)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_followed_it_outlasts_a_restart_and_says_so(
    program: Program, source: FakeSource, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[ApiServer] = []

    def serve(boot: str, first: CycleReport) -> None:
        source.stream = Stream(boot)
        servers.append(ApiServer(source, folders / "run"))
        source.stream.publish(first)
        servers[-1].start()
        # It ends as soon as it is followed; what it has kept is sent before.
        threading.Thread(target=stopped_once_followed, args=(source.stream, servers[-1])).start()

    # In place of waiting: the daemon has gone, then the next run begins, then Ctrl-C.
    steps: list[Callable[[], object]] = [
        lambda: until(lambda: not servers[0].control_path.exists(), "the end of the first server"),
        lambda: serve("run2", report(1, 1.0, 1.0)),
        interrupt,
    ]
    monkeypatch.setattr(events_module, "sleep", lambda _s: steps.pop(0)())
    serve("run1", report(40, 1.0))
    result = program("events", "-f")
    for one in servers:
        one.stop()
    assert (result.exit_code, steps) == (0, []), result.output
    assert result.stdout.splitlines() == [
        "12:00:40Z  job-0  arrived",
        "12:00:01Z  job-0  arrived",
        "12:00:01Z  job-1  arrived",
    ]
    ended = "the daemon has ended the stream; tried again every 1 s"
    assert result.stderr.splitlines() == [ended, "the daemon answers again", ended]


def stopped_once_followed(stream: Stream, server: ApiServer) -> None:
    until(lambda: sum(stream.followers.values()) > 0, "a follower")
    server.stop()


def test_where_the_daemon_only_ends_the_stream_nothing_is_printed_twice(
    program: Program, daemon: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.stream.publish(report(1, 1.0))
    asked: list[str] = []
    cycle_events = Daemon.cycle_events

    def once_more(self: Daemon, last_id: str, follow: bool) -> object:
        asked.append(last_id)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return cycle_events(self, last_id, False)  # a stream that the daemon ends

    monkeypatch.setattr(Daemon, "cycle_events", once_more)
    monkeypatch.setattr(events_module, "sleep", lambda _s: None)
    result = program("events", "--follow")
    assert result.stdout == "12:00:01Z  job-0  arrived\n"
    assert asked == ["", "run1:1", "run1:1"]
