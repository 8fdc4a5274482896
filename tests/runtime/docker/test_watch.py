"""Whose process a PID is, and what becomes of a container's sources at its end."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.model.facts import ContainerState, LogFact
from dlsched.model.sources import (
    LogPattern,
    MetricsEndpoint,
    MetricsFile,
    ProgressSource,
)
from dlsched.model.spec import AccuracyTarget, JobSpec, LatencyTarget, Limits, Target
from dlsched.runtime.cgroup.limits import older_shares
from dlsched.runtime.cgroup.read import belongs
from dlsched.runtime.docker.identity.labels import Inspected, inspected
from dlsched.runtime.docker.listing import Listing
from dlsched.runtime.docker.reading import LOGGED_WITHIN_S, Outside, printed_from_s, wall_s
from dlsched.runtime.docker.watch import READ_ALL_S, Watch
from dlsched.runtime.docker.watches import Watches
from dlsched.runtime.progress import log_pattern
from dlsched.runtime.progress.listening import NO_ADDRESS
from dlsched.runtime.progress.log_pattern import HISTORY_LINES, LogStream
from tests.doubles import doing, job_spec
from tests.runtime.cgroup.test_read import tree
from tests.waiting import until


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


NO_PROCESS = 2**22 + 1
"""No process has this number, so there is no group to read."""


def described(*sources: ProgressSource, adopted: JobSpec | None = None) -> Inspected:
    return replace(inspected(running()), sources=sources, adopted=adopted)


def running(pid: int = NO_PROCESS) -> dict[str, object]:
    """The container, as the engine describes it."""
    return {
        "Id": "c" * 64,
        "Name": "/web",
        "State": {
            "Status": "running",
            "Pid": pid,
            "StartedAt": "2026-11-21T17:06:06.146758777Z",
            "ExitCode": 0,
        },
        "Config": {},
        "HostConfig": {},
    }


def running_still(_container: str) -> dict[str, object]:
    return running()


def ended(one: Inspected) -> Inspected:
    return replace(one, state=ContainerState.EXITED, pid=0, exit_code=0)


LOSS = LogPattern(r"loss (?P<loss>\S+)")
DEADLINE_S = 30.0


@pytest.mark.timed
def test_what_a_container_printed_last_is_taken_up_after_its_end() -> None:
    log, one = FakeLog(), described(LOSS)
    watch = Watch(one, 1.0, Outside(log.follow, running_still), from_end=False)
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


@pytest.mark.timed
def test_a_lost_log_is_followed_again_for_as_long_as_this_start_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_pattern, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(log_pattern, "LAST_RETRY_S", 0.001)
    log, one = FakeLog(), described(LOSS)
    asked = threading.Semaphore(0)
    pid = [one.pid + 1]  # it has been started again already

    def inspect(_container: str) -> dict[str, object]:
        asked.release()
        return running(pid[0])

    watch = Watch(one, 1.0, Outside(log.follow, inspect), from_end=False)
    watch.fact(1.0, None)
    log.close()
    for _ in range(3):
        assert asked.acquire(timeout=DEADLINE_S)
    assert len(log.since_s) == 1
    pid[0] = one.pid
    log.chunks.put(b"loss 0.25\n")
    assert log.taken_up.wait(DEADLINE_S)
    assert set(log.since_s[1:]) == {None}
    watch.close()


@pytest.mark.parametrize(
    ("ended_at", "before_s"),
    [
        ("0001-01-01T00:00:00Z", LOGGED_WITHIN_S),
        ("2026-11-21T17:06:00Z", LOGGED_WITHIN_S),
        ("2026-11-21T17:06:05.946758777Z", 0.1),
        ("2026-11-21T17:06:07Z", LOGGED_WITHIN_S),  # of this start, which has ended
        ("", LOGGED_WITHIN_S),
    ],
)
def test_output_is_of_this_start_not_of_the_one_before(ended_at: str, before_s: float) -> None:
    one = replace(described(), ended_at=ended_at)
    started_at_s = wall_s(one.started_at)
    assert started_at_s is not None
    assert printed_from_s(one) == pytest.approx(started_at_s - before_s, abs=1e-5)
    assert printed_from_s(replace(one, started_at="")) is None


@pytest.mark.timed
def test_a_log_is_opened_from_the_containers_start_where_that_was_seen() -> None:
    for from_end, since_s in ((False, 1795280766.146758 - LOGGED_WITHIN_S), (True, None)):
        log = FakeLog()
        watch = Watch(described(LOSS), 1.0, Outside(log.follow, running_still), from_end=from_end)
        watch.fact(1.0, None)
        until(lambda since_s=log.since_s: since_s, "the log is followed", every_s=0.001)
        assert log.since_s == [pytest.approx(since_s, abs=1e-5)]
        watch.close()
        assert log.closed


@pytest.mark.timed
def test_several_sources_are_read_and_the_first_trouble_is_told() -> None:
    target = AccuracyTarget("accuracy", 0.9, 0.97)
    adopted = job_spec("web", target=target)
    log = FakeLog()
    sources = (MetricsEndpoint((8000,)), LOSS, MetricsFile("/m.jsonl"))
    watch = Watch(
        described(*sources, adopted=adopted),
        1.0,
        Outside(log.follow, running_still),
        from_end=False,
    )
    cycles = itertools.count(1)
    fact = until(
        lambda: watch.fact(float(next(cycles)), None)[0],
        NO_ADDRESS,
        every_s=0.001,
        so=lambda fact: NO_ADDRESS in str(fact.sidecar_problem),
    )
    assert fact.has_source
    watch.close()


@pytest.mark.timed
def test_what_its_log_says_is_in_the_fact_until_a_new_start() -> None:
    log = FakeLog()
    watch = Watch(described(LOSS), 1.0, Outside(log.follow, running_still), from_end=False)
    log.chunks.put(b"hello\n")
    log.chunks.put(b"x" * 5000 + b"\n")
    fact = until(
        lambda: watch.fact(1.0, None)[0],
        "a bad line",
        every_s=0.001,
        so=lambda fact: fact.bad_lines,
    )
    assert fact.log == LogFact(lines=2, example="'hello'")
    assert fact.refused == "a line of more than 4096 bytes"
    assert watch.fact(2.0, None)[0] is watch.fact(3.0, None)[0], "nothing new"
    again = replace(described(LOSS), started_at="2026-01-01T00:00:00Z")
    watch.take(again, 4.0)
    fact, _ = watch.fact(4.0, None)
    assert (fact.log, fact.refused) == (LogFact(), None)
    watch.close()


def test_without_a_source_there_is_nothing_to_read() -> None:
    watch = Watch(described(), 1.0, Outside(FakeLog().follow), from_end=False)
    fact, _ = watch.fact(1.0, None)
    assert (fact.sidecar_problem, fact.has_source, fact.reports) == (None, False, ())


FIXTURE_PID = 4242
WHOLE = "64bd9f9a085b98cf075f8c3f0e06e683f54872ca781678ae691d2bc59d3116ea"


def watched(into: Path, *sources: ProgressSource) -> tuple[Watch, Path]:
    """A container of the fixture tree, and the folder of its group."""
    proc = tree("v1", into)
    one = replace(described(*sources), pid=FIXTURE_PID, container_id=WHOLE)
    watch = Watch(one, 0.0, Outside(FakeLog().follow, proc=proc), from_end=False)
    assert watch.reader is not None and watch.reader.cpu_folder is not None
    return watch, watch.reader.cpu_folder


def test_where_nothing_changed_the_fact_is_the_same_object(tmp_path: Path) -> None:
    watch, folder = watched(tmp_path)
    first, _ = watch.fact(1.0, None)
    assert watch.fact(2.0, None)[0] is first
    assert watch.fact(3.0, doing("stopping"))[0].operation == doing("stopping")
    assert watch.fact(4.0, None)[0] == first
    (folder / "cpuacct.usage").write_text("9000000000\n")
    assert watch.fact(5.0, None)[0].usage_core_s == 9.0
    watch.close()


def test_on_version_1_a_service_that_reports_tells_how_long_it_waits(tmp_path: Path) -> None:
    watch, folder = watched(tmp_path, MetricsFile("/m.jsonl"))
    proc = tmp_path / "v1" / "proc"
    (folder / "tasks").write_text("7\n")
    (proc / "7").mkdir()
    (proc / str(FIXTURE_PID) / "root").mkdir()
    metrics = proc / str(FIXTURE_PID) / "root" / "m.jsonl"
    metrics.touch()
    watch.fact(0.0, None)
    for at_s, waited_ns in ((1.0, 0), (2.0, 300_000_000), (3.0, 900_000_000)):
        (proc / "7" / "schedstat").write_text(f"1 {waited_ns} 1\n")
        if at_s < 3.0:  # who reports nothing is not looked at
            with metrics.open("a") as file:
                file.write('{"v":1,"t":1,"latency_s":[0.2]}\n')
        told = watch.fact(at_s, None)[0]
        assert bool(told.reports) is (at_s < 3.0)
    assert told.cpu_wait_ratio == pytest.approx(0.3)
    watch.close()


def test_limits_are_read_again_at_once_after_a_change_of_ours_alone(tmp_path: Path) -> None:
    watch, folder = watched(tmp_path)
    watch.fact(1.0, None)
    (folder / "cpu.cfs_quota_us").write_text("50000\n")
    (folder / "cpuacct.usage").write_text("9000000000\n")
    told = watch.fact(2.0, None)[0]
    assert (told.usage_core_s, told.actual) == (9.0, Limits(0.37))
    watch.doubt()
    assert watch.fact(3.0, None)[0].actual == Limits(0.5)
    watch.close()


def test_the_idle_class_is_told_of_own_containers_where_there_is_one(tmp_path: Path) -> None:
    watch, folder = watched(tmp_path)
    assert watch.fact(1.0, None)[0].cpu_idle is None
    watch.close()
    for adopted, idles, kernel, told in (
        (None, True, 1, True),
        (None, True, 0, False),
        (None, False, 1, True),  # it has to come back
        (None, False, 0, None),
        (job_spec("theirs"), True, 0, None),
    ):
        (folder / "cpu.idle").write_text(f"{kernel}\n")
        one = replace(described(adopted=adopted), pid=FIXTURE_PID, container_id=WHOLE)
        again = Watch(
            one, 0.0, Outside(FakeLog().follow, proc=tmp_path / "v1" / "proc"), from_end=False
        )
        fact = again.fact(1.0, None, idles=idles)[0]
        assert (fact.cpu_idle, fact.cpu_shares) == (told, None if kernel else 512)
        again.close()


def test_a_weight_is_told_as_the_shares_that_it_was_given_for(tmp_path: Path) -> None:
    proc = tree("v2", tmp_path)
    one = replace(described(), pid=FIXTURE_PID, container_id=WHOLE, shares=512)
    watch = Watch(one, 0.0, Outside(FakeLog().follow, proc=proc), from_end=False)
    assert watch.reader is not None and watch.reader.cpu_folder is not None
    weight = watch.reader.cpu_folder / "cpu.weight"
    assert watch.fact(1.0, None)[0].cpu_shares == 512  # weight 20, as the engine said
    for given, of_kernel in ((2000, 77), (3000, 3)):  # however a runtime makes weights of shares
        watch.doubt()
        watch.gave(given)
        weight.write_text(f"{of_kernel}\n")
        assert watch.fact(2.0, None)[0].cpu_shares == given
    watch.doubt()
    weight.write_text("5\n")  # somebody else's
    assert watch.fact(3.0, None)[0].cpu_shares == 107
    watch.close()


def test_shares_given_before_the_idle_class_say_nothing_of_the_weight_after_it(
    tmp_path: Path,
) -> None:
    proc = tree("v2", tmp_path)
    one = replace(described(), pid=FIXTURE_PID, container_id=WHOLE, shares=512)
    first = Watch(one, 0.0, Outside(FakeLog().follow, proc=proc), from_end=False)
    assert first.reader is not None and first.reader.cpu_folder is not None
    folder = first.reader.cpu_folder
    first.close()
    (folder / "cpu.idle").write_text("0\n")
    watch = Watch(one, 0.0, Outside(FakeLog().follow, proc=proc), from_end=False)
    for idle, weight, shares in ((1, 0, None), (0, 100, older_shares(100))):
        watch.doubt()
        if idle:
            watch.gave(6)
        (folder / "cpu.idle").write_text(f"{idle}\n")
        (folder / "cpu.weight").write_text(f"{weight}\n")
        assert watch.fact(2.0, None)[0].cpu_shares == shares
    watch.close()


def test_limits_that_somebody_else_changed_are_seen_though_it_used_no_cpu(tmp_path: Path) -> None:
    watch, folder = watched(tmp_path)
    assert watch.fact(1.0, None)[0].actual == Limits(0.37)
    (folder / "cpu.cfs_quota_us").write_text("50000\n")
    assert watch.fact(2.0, None)[0].actual == Limits(0.37)
    assert watch.fact(1.0 + READ_ALL_S, None)[0].actual == Limits(0.5)
    watch.close()


def test_limits_that_we_change_are_seen_at_once(tmp_path: Path) -> None:
    watch, folder = watched(tmp_path)
    watch.fact(1.0, None)
    (folder / "cpu.cfs_quota_us").write_text("50000\n")
    watch.doubt()
    assert watch.fact(2.0, None)[0].actual == Limits(0.5)
    (folder / "cpu.cfs_quota_us").write_text("60000\n")
    assert watch.fact(3.0, doing("updating"))[0].actual == Limits(0.6)
    (folder / "cpu.cfs_quota_us").write_text("70000\n")
    assert watch.fact(4.0, None)[0].actual == Limits(0.7), "the operation is over: look once more"
    watch.close()


def test_a_burst_that_cannot_be_set_is_not_told(tmp_path: Path) -> None:
    watch, _ = watched(tmp_path)
    assert watch.fact(1.0, None)[0].burst_cores == 0.111
    assert watch.fact(2.0, None, bursts=False)[0].burst_cores is None
    watch.close()


def test_limits_that_somebody_else_changed_are_seen_once_the_engine_tells(tmp_path: Path) -> None:
    watch, folder = watched(tmp_path)
    watch.fact(1.0, None)
    (folder / "cpu.cfs_quota_us").write_text("50000\n")
    watch.take(replace(watch.described, quota_us=50_000), 2.0)
    assert watch.fact(2.0, None)[0].actual == Limits(0.5)
    watch.close()


def reports_of(watch: Watch, steps: int) -> list[int | None]:
    found: list[int | None] = []

    def read() -> bool:
        fact, _ = watch.fact(1.0, None)
        found.extend(one.sample.step for one in fact.reports if one.sample)
        return len(found) >= steps

    until(read, f"{steps} steps", every_s=0.001, shown=lambda: found)
    return found


@pytest.mark.timed
def test_a_job_file_says_where_its_progress_is_read() -> None:
    log = FakeLog()
    watch = Watch(described(), 1.0, Outside(log.follow, running_still), from_end=False)
    assert not watch.fact(1.0, None)[0].has_source
    pattern = LogPattern(r"epoch (?P<step>\d+) acc (?P<acc>\S+)", metric="acc")
    spec = job_spec("web", target=AccuracyTarget("accuracy", 0.9, 0.97), sources=(pattern,))
    watch.read_from(spec)
    log.chunks.put(b"epoch 1 acc 0.5\n")
    assert reports_of(watch, 1) == [1]
    assert watch.fact(2.0, None)[0].has_source
    watch.read_from(spec)
    assert len(log.since_s) == 1, "the same sources go on"
    watch.read_from(replace(spec, sources=()))
    assert log.closed and not watch.fact(3.0, None)[0].has_source
    watch.close()


def test_an_adopted_containers_own_sources_stay() -> None:
    adopted = job_spec("web")
    watch = Watch(described(LOSS, adopted=adopted), 1.0, Outside(FakeLog().follow), from_end=False)
    watch.read_from(replace(adopted, sources=(MetricsFile("/m.jsonl"),)))
    assert watch._asked == ((), None)
    watch.close()


@pytest.mark.parametrize(
    ("target", "opened"),
    [
        (AccuracyTarget("loss", 0.5, 0.2), ["history", "from there"]),
        (LatencyTarget(0.1), ["from now"]),
    ],
)
@pytest.mark.timed
def test_the_history_of_an_adopted_training_is_read_apart_and_a_services_not_at_all(
    target: Target, opened: list[str]
) -> None:
    log, found = FakeLog(), []
    began_s = time.time()

    def logs(container: str, tail: int, follow: bool, until_s: float | None) -> list[bytes]:
        assert (container, tail, follow) == ("c" * 64, HISTORY_LINES, False)
        assert until_s is not None
        assert began_s <= until_s + LOGGED_WITHIN_S <= time.time(), "what is stamped is there"
        found.append(("history", until_s))
        return [b"loss 0.5\n"] * 600

    def follow(container: str, since_s: float | None) -> LogStream:
        found.append(("from now" if since_s is None else "from there", since_s))
        return log.follow(container, since_s)

    adopted = described(LOSS, adopted=job_spec("web", target=target))
    listing = Listing(1.0, {adopted.container_id: adopted})
    watches = Watches(Outside(follow, running_still, logs=logs))
    watches.show(replace(listing, containers={}), 0.0)
    watches.show(listing, 1.0)
    (watch,) = watches.all()

    def is_open() -> bool:
        assert watch.fact(1.0, None)[0].bad_lines == 0
        return len(found) >= len(opened)

    until(is_open, "all are opened", every_s=0.001)
    assert [how for how, _ in found] == opened
    if len(found) > 1:
        assert found[0][1] == found[1][1], "not a line is lost or read twice"
    watches.close()
