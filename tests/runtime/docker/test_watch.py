"""Whose process a PID is, and what becomes of a container's sources at its end."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dlsched.model import AccuracyTarget, ContainerState, JobSpec
from dlsched.runtime.cgroup import belongs
from dlsched.runtime.docker.labels import Inspected, inspected
from dlsched.runtime.docker.watch import Watch
from dlsched.runtime.log_pattern import LogStream
from dlsched.runtime.scrape import NO_ADDRESS
from dlsched.runtime.sources import LogPattern, MetricsEndpoint, MetricsFile, ProgressSource
from tests.doubles import job_spec


def test_a_process_belongs_to_the_container_whose_group_it_is_in(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"0::/system.slice/docker-{'a' * 64}.scope\n")
    assert belongs(7, "a" * 64, tmp_path)
    assert not belongs(7, "b" * 64, tmp_path)
    assert not belongs(8, "a" * 64, tmp_path)


class FakeLog:
    """A log that the test writes, and where it was opened from."""

    def __init__(self) -> None:
        self.chunks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.since_s: list[float | None] = []
        self.closed = False
        self.taken_up = threading.Event()
        """A chunk was asked for after another one."""

    def follow(self, container: str, since_s: float | None) -> LogStream:
        self.since_s.append(since_s)
        return self

    def __iter__(self) -> Iterator[bytes]:
        while (chunk := self.chunks.get()) is not None:
            yield chunk
            self.taken_up.set()

    def close(self) -> None:
        self.closed = True
        self.chunks.put(None)


def described(*sources: ProgressSource, adopted: JobSpec | None = None) -> Inspected:
    body = {
        "Id": "c" * 64,
        "Name": "/web",
        "State": {
            "Status": "running",
            # No process has this number, so there is no group to read.
            "Pid": 2**22 + 1,
            "StartedAt": "2026-11-21T17:06:06.146758777Z",
            "ExitCode": 0,
        },
        "Config": {},
        "HostConfig": {},
    }
    return replace(inspected(body), sources=sources, adopted=adopted)


def ended(one: Inspected) -> Inspected:
    return replace(one, state=ContainerState.EXITED, pid=0, exit_code=0)


LOSS = LogPattern(r"loss (?P<loss>\S+)")
DEADLINE_S = 10.0


def test_what_a_container_printed_last_is_taken_up_after_its_end() -> None:
    log, one = FakeLog(), described(LOSS)
    watch = Watch(one, 1.0, log.follow, from_end=False)
    watch.fact(1.0, None)
    watch.take(ended(one), 2.0)
    watch.fact(2.0, None)
    assert not log.closed
    log.chunks.put(b"loss 0.25\n")
    assert log.taken_up.wait(DEADLINE_S)
    (report,) = watch.fact(3.0, None)[0].reports
    assert report.sample is not None and report.sample.metrics == (("loss", 0.25),)
    assert log.closed
    assert watch.fact(4.0, None)[0].reports == ()


def test_a_log_is_opened_from_the_containers_start_where_that_was_seen() -> None:
    for from_end, since_s in ((False, 1795280766.146758), (True, None)):
        log = FakeLog()
        watch = Watch(described(LOSS), 1.0, log.follow, from_end=from_end)
        watch.fact(1.0, None)
        deadline_s = time.monotonic() + DEADLINE_S
        while not log.since_s:
            assert time.monotonic() < deadline_s
            time.sleep(0.001)
        assert log.since_s == [since_s]
        watch.close()
        assert log.closed


def test_several_sources_are_read_and_the_first_trouble_is_told() -> None:
    target = AccuracyTarget("accuracy", 0.9, 0.97)
    adopted = job_spec("web", target=target)
    log = FakeLog()
    sources = (MetricsEndpoint(8000), LOSS, MetricsFile("/m.jsonl"))
    watch = Watch(described(*sources, adopted=adopted), 1.0, log.follow, from_end=False)
    fact, _ = watch.fact(1.0, None)
    assert (fact.sidecar_trouble, fact.has_source) == (NO_ADDRESS, True)
    watch.close()


def test_without_a_source_there_is_nothing_to_read() -> None:
    watch = Watch(described(), 1.0, FakeLog().follow, from_end=False)
    fact, _ = watch.fact(1.0, None)
    assert (fact.sidecar_trouble, fact.has_source, fact.reports) == (None, False, ())
