"""Whose process a PID is, and what becomes of a container's sources at its end."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.estimate.sketch import from_latencies
from dlsched.model.bottleneck import WaitFact
from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import ContainerState, LogFact, Report, ThreadsFact, WireFact
from dlsched.model.sources import (
    LabelFilter,
    LogPattern,
    Metric,
    MetricsEndpoint,
    MetricsFile,
    ProgressSource,
)
from dlsched.model.spec import AccuracyTarget, JobSpec, LatencyTarget, Limits, Target
from dlsched.runtime.cgroup.cpu_units import older_shares
from dlsched.runtime.cgroup.read import belongs
from dlsched.runtime.docker import progress_readers as reading
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.identity.labels import inspected
from dlsched.runtime.docker.progress_readers import (
    LOGGED_WITHIN_S,
    Outside,
    _names,
    _Other,
    named_in,
    printed_from_s,
    wall_s,
)
from dlsched.runtime.docker.watch import LATE_S, READ_ALL_S, UNTARGETED, Watch, Watches
from dlsched.runtime.machine.inspected import Inspected, Listing
from dlsched.runtime.originals import EngineLimits
from dlsched.runtime.progress import log_pattern
from dlsched.runtime.progress.http_page import Unanswered
from dlsched.runtime.progress.listening import NO_ADDRESS
from dlsched.runtime.progress.log_pattern import HISTORY_LINES, LogStream
from dlsched.runtime.progress.sources import SourceReading
from dlsched.runtime.wire.reader import OWN_SILENT_S
from dlsched.runtime.wire.tap import Tap
from dlsched.runtime.wire.traffic import Watched
from dlsched.simulation.clock import VirtualClock
from tests.doubles import doing, job_spec
from tests.runtime.cgroup.test_read import tree
from tests.runtime.progress.fake_log import FakeLog
from tests.waiting import until


def test_a_process_belongs_to_the_container_whose_group_it_is_in(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"0::/system.slice/docker-{'a' * 64}.scope\n")
    assert belongs(7, "a" * 64, tmp_path)
    assert not belongs(7, "b" * 64, tmp_path)
    assert not belongs(8, "a" * 64, tmp_path)


NO_PROCESS = 2**22 + 1
"""No process has this number, so there is no group to read."""


CLOCK = VirtualClock()


def immediately(call: Callable[[], WaitFact | None], _name: str) -> Future[WaitFact | None]:
    done = Future[WaitFact | None]()
    done.set_result(call())
    return done


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
FIXTURE_PID = 4242
WHOLE = "64bd9f9a085b98cf075f8c3f0e06e683f54872ca781678ae691d2bc59d3116ea"
Begin = Callable[..., Watch]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begins to watch a container; all watches are closed at the end of the case."""
    with ExitStack() as open_ones:

        def begin(one: Inspected, outside: Outside, *, from_end: bool = False) -> Watch:
            return open_ones.enter_context(closing(Watch(one, 1.0, outside, from_end=from_end)))

        yield begin


@pytest.fixture(params=["v1"])
def group(
    begin: Begin, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., tuple[Watch, Path]]:
    """Watches a container of the fixture tree; returns the folder of its group, too."""
    proc = tree(request.param, tmp_path)

    def watched(*sources: ProgressSource, **changes: Any) -> tuple[Watch, Path]:
        one = replace(described(*sources), pid=FIXTURE_PID, container_id=WHOLE, **changes)
        watch = begin(
            one, Outside(FakeLog().follow, proc=proc, begin=immediately, now_s=CLOCK.now_s)
        )
        assert watch.reader is not None and watch.reader.cpu_folder is not None
        return watch, watch.reader.cpu_folder

    return watched


Group = Callable[..., tuple[Watch, Path]]
ON_V2 = pytest.mark.parametrize("group", ["v2"], indirect=True)


@pytest.mark.timed
def test_what_a_container_printed_last_is_read_after_its_end(begin: Begin) -> None:
    log, one = FakeLog(), described(LOSS)
    watch = begin(one, Outside(log.follow, running_still))
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
def test_a_lost_log_is_followed_again_while_this_start_runs(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pattern, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(log_pattern, "LAST_RETRY_S", 0.001)
    log, one = FakeLog(), described(LOSS)
    asked = threading.Semaphore(0)
    pid = [one.pid + 1]  # it has been started again already

    def inspect(_container: str) -> dict[str, object]:
        asked.release()
        return running(pid[0])

    watch = begin(one, Outside(log.follow, inspect))
    watch.fact(1.0, None)
    log.close()
    for _ in range(3):
        assert asked.acquire(timeout=DEADLINE_S)
    assert len(log.opened) == 1
    pid[0] = one.pid
    log.chunks.put(b"loss 0.25\n")
    assert log.taken_up.wait(DEADLINE_S)
    assert set(log.opened[1:]) == {None}


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
    assert printed_from_s(one) == pytest.approx(started_at_s - before_s, abs=1e-5)
    assert printed_from_s(replace(one, started_at="")) is None


@pytest.mark.timed
@pytest.mark.parametrize(
    ("from_end", "since_s"), [(False, 1795280766.146758 - LOGGED_WITHIN_S), (True, None)]
)
def test_a_log_is_opened_from_the_start_where_that_was_seen(
    begin: Begin, from_end: bool, since_s: float | None
) -> None:
    log = FakeLog()
    watch = begin(described(LOSS), Outside(log.follow, running_still), from_end=from_end)
    watch.fact(1.0, None)
    until(lambda: log.opened, "the log is followed", every_s=0.001)
    assert log.opened == [pytest.approx(since_s, abs=1e-5)]
    watch.close()
    assert log.closed


@pytest.mark.timed
def test_the_first_problem_of_several_sources_is_reported(begin: Begin) -> None:
    adopted = job_spec("web", target=AccuracyTarget("accuracy", 0.9, 0.97))
    one = described(MetricsEndpoint((8000,)), LOSS, MetricsFile("/m.jsonl"), adopted=adopted)
    watch = begin(one, Outside(FakeLog().follow, running_still))
    cycles = itertools.count(1)
    fact = until(
        lambda: watch.fact(float(next(cycles)), None)[0],
        NO_ADDRESS,
        every_s=0.001,
        so=lambda fact: NO_ADDRESS in str(fact.sidecar_problem),
    )
    assert fact.has_source


@pytest.mark.timed
def test_what_its_log_says_is_in_the_fact_until_a_new_start(begin: Begin) -> None:
    log = FakeLog()
    watch = begin(described(LOSS), Outside(log.follow, running_still))
    log.chunks.put(b"hello\n")
    log.chunks.put(b"x" * 5000 + b"\n")
    fact = until(
        lambda: watch.fact(1.0, None)[0],
        "a bad line",
        every_s=0.001,
        so=lambda fact: fact.bad_lines,
    )
    assert fact.log == LogFact(lines=2, example="'hello'")
    assert fact.refused == "a line of the log has more than 4096 bytes, so it is not read"
    assert watch.fact(2.0, None)[0] is watch.fact(3.0, None)[0], "nothing new"
    again = replace(described(LOSS), started_at="2026-01-01T00:00:00Z")
    watch.take(again, 4.0)
    fact, _ = watch.fact(4.0, None)
    assert (fact.log, fact.refused) == (LogFact(), None)


def test_requests_for_the_page_that_its_file_names_do_not_count(begin: Begin) -> None:
    tap = Tap()
    asked: list[set[str]] = []

    def watch_port(pid: int, container: str, ports: object, paths: set[str]) -> Watched:
        asked.append(paths)
        return Watched(tap.forget, pid, container, (), "")

    tap.watch = watch_port  # type: ignore[method-assign,assignment]
    watch = begin(described(), Outside(FakeLog().follow, tap=tap))
    spec = job_spec("web", target=LatencyTarget(0.05))
    watch.read_from(spec)
    page = MetricsEndpoint((8000,), http_path="/stats/prometheus")
    for _ in range(2):
        watch.read_from(replace(spec, sources=(page,)))
    assert asked == [set(), {"/stats/prometheus"}]
    tap.close()


@pytest.mark.parametrize(
    ("changes", "measured"),
    [
        ({}, True),
        ({"background": True}, False),
        ({"wire": None}, False),
        ({"target": LatencyTarget(0.05)}, True),
        ({"target": AccuracyTarget("accuracy", 0.8, 0.95)}, False),
    ],
    ids=["no target", "comes last", "forbidden", "latency", "accuracy"],
)
def test_one_without_a_target_is_measured(
    begin: Begin, changes: dict[str, Any], measured: bool
) -> None:
    found: list[Watched] = []

    def watch_port(pid: int, container: str, *_: object) -> Watched:
        found.append(Watched(lambda _: None, pid, container, (), ""))
        return found[-1]

    tap = SimpleNamespace(watch=watch_port, problem=None)
    watch = begin(described(), Outside(FakeLog().follow, tap=tap))  # type: ignore[arg-type]
    watch.read_from(job_spec("web", **{"target": None, **changes}))
    assert bool(found) is measured
    for one in found:
        one.problem = "the container listens on no port"
    fact, _ = watch.fact(2.0, None)
    shown = fact.sidecar_problem, fact.wire and fact.wire.problem
    asked_for = isinstance(changes.get("target"), LatencyTarget)
    assert shown == (("the container listens on no port",) * 2 if asked_for else (None, None))


@pytest.mark.parametrize(
    ("before", "after", "opened"),
    [
        ({"background": True}, {}, ["()"]),
        ({}, {"background": True}, ["()", "closed"]),
        ({}, {"wire": None}, ["()", "closed"]),
        ({"wire": (80,)}, {"wire": (81,)}, ["(80,)", "closed", "(81,)"]),
        ({}, {}, ["()"]),
    ],
    ids=["from background", "to background", "forbidden", "another port", "the same"],
)
def test_another_adoption_of_one_that_runs_changes_what_is_measured(
    begin: Begin, before: dict[str, Any], after: dict[str, Any], opened: list[str]
) -> None:
    found: list[str] = []

    def watch_port(pid: int, name: str, ports: tuple[int, ...], _: object, **more: Any) -> Watched:
        found.append(str(ports))
        return Watched(lambda _: found.append("closed"), pid, name, ports, "", **more)

    tap = SimpleNamespace(watch=watch_port, problem=None)
    first, second = (
        described(adopted=job_spec("web", **{"target": None, **each})) for each in (before, after)
    )
    watch = begin(first, Outside(FakeLog().follow, tap=tap))  # type: ignore[arg-type]
    watch.take(second, 2.0)
    assert found == opened


def test_of_one_without_a_target_no_failure_is_hidden(begin: Begin) -> None:
    watch, wire = begin(described(), Outside(FakeLog().follow)), Played()
    watch._wire, wire.next, wire.hides = wire, [5, 5], True  # type: ignore[assignment]
    hidden = []
    for measured in ((), (UNTARGETED,)):
        watch._measured = measured
        hidden.append(watch.fact(1.0 + len(measured), None)[0].hides_failures)
    assert hidden == [True, False]


class Played:
    """A source of latencies, or what is measured at sockets, whose next counts are given."""

    alone = False

    def __init__(self) -> None:
        self.next: list[int] = []
        self.decides = False
        self.decisions: list[bool] = []
        self.hides = False

    def read(self, now_s: float) -> SourceReading:
        count = self.next.pop(0) if self.next else 0
        sketch = from_latencies([0.01] * count)
        reports = (Report(now_s, latency=sketch),) if count else ()
        return SourceReading(reports, hides_failures=self.hides)

    def beside(self, _reports: object, _now_s: float) -> None:
        pass

    def fact(self, _now_s: float, *, judges: bool) -> WireFact:
        self.decides = bool(self.decisions) and self.decisions.pop(0)
        return WireFact(judges=judges)

    def in_flight(self) -> int:
        return 4

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("own", "sockets", "decides", "counted"),
    [
        ([5, 5, 5], [7, 7, 7], [], [5, 5, 5]),
        ([0, 5, 5], [7, 7, 7], [], [7, 7, 5]),
        ([5, 0, 0, 99, 5], [7, 7, 7, 7, 7], [], [5, 7, 7, 7, 5]),
        ([5, 0, 0, 5], [7, 0, 0, 7], [], [5, 0, 0, 5]),
        ([5, 5, 5, 5, 5], [7, 7, 7, 7, 7], [False, True, True, False], [5, 5, 7, 7, 5]),
    ],
    ids=["own", "begins", "silent for long", "nothing at the sockets", "the sockets decide"],
)
def test_no_request_counts_at_the_sockets_and_by_itself(
    begin: Begin, own: list[int], sockets: list[int], decides: list[bool], counted: list[int]
) -> None:
    watch, source, wire = begin(described(), Outside(FakeLog().follow)), Played(), Played()
    watch._sources, watch._wire = (source,), wire  # type: ignore[assignment]
    source.next, wire.next, wire.decisions = own, sockets, decides
    found = []
    for turn in range(len(counted)):
        fact, _ = watch.fact(1.0 + turn * (OWN_SILENT_S + 1.0), None)
        found.append(sum(one.latency.count for one in fact.reports if one.latency))
    assert found == counted


@pytest.mark.parametrize(("own", "waiting"), [(None, 4), (1, 1)], ids=["a page", "the sidecar"])
def test_where_a_source_counts_no_open_requests_the_sockets_do(
    begin: Begin, own: int | None, waiting: int
) -> None:
    watch, wire = begin(described(), Outside(FakeLog().follow)), Played()
    report = Report(1.0, latency=from_latencies([0.01]), in_flight=own)
    source = SimpleNamespace(read=lambda _: SourceReading((report,)), close=lambda: None)
    watch._sources, watch._wire = (source,), wire  # type: ignore[assignment]
    assert [one.in_flight for one in watch.fact(1.0, None)[0].reports] == [waiting]


def test_without_a_source_there_is_nothing_to_read(begin: Begin) -> None:
    watch = begin(described(), Outside(FakeLog().follow))
    fact, _ = watch.fact(1.0, None)
    assert (fact.sidecar_problem, fact.has_source, fact.reports) == (None, False, ())


def test_where_nothing_changed_the_fact_is_the_same_object(group: Group) -> None:
    watch, folder = group()
    first, _ = watch.fact(1.0, None)
    assert watch.fact(2.0, None)[0] is first
    assert watch.fact(3.0, doing("stopping"))[0].operation == doing("stopping")
    assert watch.fact(4.0, None)[0] == first
    (folder / "cpuacct.usage").write_text("9000000000\n")
    assert watch.fact(5.0, None)[0].usage_core_s == 9.0


SAMPLE = ThreadsFact(1.0, 8, 1.0, 7.0, 0.7, "libgomp.so.1")


@pytest.mark.parametrize("group", ["v1", "v2"], indirect=True)
def test_a_sample_of_its_threads_is_news_and_ends_with_its_start(group: Group) -> None:
    watch, folder = group()
    first, _ = watch.fact(1.0, None)
    counted = watch.counted()
    assert counted is not None
    assert (counted.container, counted.folder) == (WHOLE, folder)
    assert counted.usage_core_s == first.usage_core_s
    assert (counted.periods, counted.throttled_periods) == (first.periods, first.throttled_periods)
    watch.threads = SAMPLE
    assert watch.fact(2.0, None)[0].threads is SAMPLE
    again = replace(watch.described, started_at="2026-11-21T18:00:00Z", restarts=1)
    watch.take(ended(watch.described), 3.0)
    assert watch.counted() is None
    assert watch.fact(3.0, None)[0].threads is None
    watch.take(again, 4.0)
    assert watch.fact(4.0, None)[0].threads is None
    last = watch.counted()
    assert last is not None and last.start != counted.start


def test_on_version_1_a_reporting_services_waiting_is_measured(
    group: Group, tmp_path: Path
) -> None:
    watch, folder = group(MetricsFile("/m.jsonl"))
    proc = tmp_path / "v1" / "proc"
    (folder / "tasks").write_text("7\n")
    (proc / "7").mkdir()
    (proc / str(FIXTURE_PID) / "root").mkdir()
    (proc / str(FIXTURE_PID) / "mountinfo").symlink_to("/proc/self/mountinfo")
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
    assert told.usage.cpu_wait_ratio == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("adopted", "idles", "kernel", "idle"),
    [
        (None, True, None, None),
        (None, True, 1, True),
        (None, True, 0, False),
        (None, False, 1, True),  # it has to come back
        (None, False, 0, None),
        (job_spec("theirs"), True, 0, None),
    ],
)
def test_own_containers_are_idle_where_there_is_an_idle_class(
    group: Group, adopted: JobSpec | None, idles: bool, kernel: int | None, idle: bool | None
) -> None:
    _, folder = group()
    if kernel is not None:
        (folder / "cpu.idle").write_text(f"{kernel}\n")
    again, _ = group(adopted=adopted)
    fact = again.fact(1.0, None, idles=idles)[0]
    assert (fact.cpu_idle, fact.cpu_shares) == (idle, None if kernel else 512)


@ON_V2
def test_a_weight_is_reported_as_the_shares_it_was_given_for(group: Group) -> None:
    watch, folder = group(limits=EngineLimits(shares=512))
    weight = folder / "cpu.weight"
    assert watch.fact(1.0, None)[0].cpu_shares == 512  # weight 20, as the engine said
    for given, of_kernel in ((2000, 77), (3000, 3)):  # however a runtime makes weights of shares
        watch.doubt()
        watch.gave(given)
        weight.write_text(f"{of_kernel}\n")
        assert watch.fact(2.0, None)[0].cpu_shares == given
    watch.doubt()
    weight.write_text("5\n")  # somebody else's
    assert watch.fact(3.0, None)[0].cpu_shares == 107


@ON_V2
def test_shares_from_before_the_idle_class_do_not_explain_later_weights(group: Group) -> None:
    _, folder = group(limits=EngineLimits(shares=512))
    (folder / "cpu.idle").write_text("0\n")
    watch, _ = group(limits=EngineLimits(shares=512))
    for idle, weight, shares in ((1, 0, None), (0, 100, older_shares(100))):
        watch.doubt()
        if idle:
            watch.gave(6)
        (folder / "cpu.idle").write_text(f"{idle}\n")
        (folder / "cpu.weight").write_text(f"{weight}\n")
        assert watch.fact(2.0, None)[0].cpu_shares == shares


def test_limits_that_somebody_else_changed_are_seen_later(group: Group) -> None:
    watch, folder = group()
    assert watch.fact(1.0, None)[0].actual == Limits(0.37)
    (folder / "cpu.cfs_quota_us").write_text("50000\n")
    assert watch.fact(2.0, None)[0].actual == Limits(0.37), "though it used no CPU"
    (folder / "cpuacct.usage").write_text("9000000000\n")
    fact = watch.fact(3.0, None)[0]
    assert (fact.usage_core_s, fact.actual) == (9.0, Limits(0.37))
    assert watch.fact(1.0 + READ_ALL_S, None)[0].actual == Limits(0.5)
    (folder / "cpu.cfs_quota_us").write_text("60000\n")
    watch.take(replace(watch.described, limits=EngineLimits(quota_us=60_000)), 6.5)
    assert watch.fact(6.5, None)[0].actual == Limits(0.6), "the engine said so"


def test_limits_that_we_change_are_seen_at_once(group: Group) -> None:
    watch, folder = group()
    watch.fact(1.0, None)
    (folder / "cpu.cfs_quota_us").write_text("50000\n")
    watch.doubt()
    assert watch.fact(2.0, None)[0].actual == Limits(0.5)
    (folder / "cpu.cfs_quota_us").write_text("60000\n")
    assert watch.fact(3.0, doing("updating"))[0].actual == Limits(0.6)
    (folder / "cpu.cfs_quota_us").write_text("70000\n")
    assert watch.fact(4.0, None)[0].actual == Limits(0.7), "the operation is over: look once more"


def test_a_burst_that_cannot_be_set_is_not_reported(group: Group) -> None:
    watch, _ = group()
    assert watch.fact(1.0, None)[0].burst_cores == 0.111
    assert watch.fact(2.0, None, bursts=False)[0].burst_cores is None


def reports_of(watch: Watch, steps: int) -> list[int | None]:
    found: list[int | None] = []

    def read() -> bool:
        fact, _ = watch.fact(1.0, None)
        found.extend(one.sample.step for one in fact.reports if one.sample)
        return len(found) >= steps

    until(read, f"{steps} steps", every_s=0.001, shown=lambda: found)
    return found


@pytest.mark.timed
def test_a_job_file_says_where_its_progress_is_read(begin: Begin) -> None:
    log = FakeLog()
    watch = begin(described(), Outside(log.follow, running_still))
    assert not watch.fact(1.0, None)[0].has_source
    pattern = LogPattern(r"epoch (?P<step>\d+) acc (?P<acc>\S+)", metric="acc")
    spec = job_spec("web", target=AccuracyTarget("accuracy", 0.9, 0.97), sources=(pattern,))
    watch.read_from(spec)
    log.chunks.put(b"epoch 1 acc 0.5\n")
    assert reports_of(watch, 1) == [1]
    assert watch.fact(2.0, None)[0].has_source
    watch.read_from(spec)
    assert len(log.opened) == 1, "the same sources go on"
    watch.read_from(replace(spec, sources=()))
    assert log.closed and not watch.fact(3.0, None)[0].has_source


def test_an_adopted_containers_own_sources_stay(begin: Begin) -> None:
    adopted = job_spec("web")
    watch = begin(described(LOSS, adopted=adopted), Outside(FakeLog().follow))
    watch.read_from(replace(adopted, sources=(MetricsFile("/m.jsonl"),)))
    assert watch._asked == ((), None)


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


FOLLOW: Any = None
"""No log is followed here."""


def container(number: int) -> dict[str, Any]:
    """A running proxy with that address, as the engine describes it."""
    networks = {"net": {"IPAddress": f"10.0.0.{number}"}} if number else {}
    return {
        "Id": "e" * 64,
        "Name": "/edge",
        "State": {"Status": "running", "Pid": 7, "StartedAt": "2026-01-01T00:00:00Z"},
        "Config": {"Labels": {}, "Image": "proxy"},
        "HostConfig": {},
        "NetworkSettings": {"Networks": networks},
    }


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    made = VirtualClock(100.0)
    monkeypatch.setattr(reading, "time", SimpleNamespace(monotonic=made.now_s))
    return made


def test_a_proxy_is_inspected_again_after_a_while(clock: VirtualClock) -> None:
    asked = []

    def inspect(name: str) -> dict[str, Any]:
        asked.append(name)
        return container(len(asked))

    proxy = _Other("edge", Outside(FOLLOW, inspect))
    assert [proxy.locate(80), proxy.locate(80)] == ["10.0.0.1", "10.0.0.1"]
    clock.advance(reading.PROXY_KEPT_S)
    assert (proxy.locate(80), asked) == ("10.0.0.2", ["edge", "edge"])


@pytest.mark.usefixtures("clock")
def test_a_proxy_in_the_hosts_network_is_asked_where_it_listens_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def loopback_of(pid: int, container: str, port: int, *_: object) -> str:
        asked.append((pid, container, port))
        return "127.0.0.1"

    monkeypatch.setattr(reading, "loopback_of", loopback_of)
    proxy = _Other("edge", Outside(FOLLOW, lambda _: container(0)))
    assert [proxy.locate(80), proxy.locate(80)] == ["127.0.0.1"] * 2
    assert asked == [(7, "e" * 64, 80)] * 2, "each time"


@pytest.mark.parametrize(
    ("owner", "same", "own", "answer"),
    [
        (5, True, True, "10.0.0.5"),
        (5, False, True, NO_ADDRESS),  # the owner runs again, in a network of its own
        (0, True, True, NO_ADDRESS),
        (5, True, False, "another program listens on that port"),
    ],
)
def test_in_anothers_network_its_address_is_asked_for_own_sockets(
    monkeypatch: pytest.MonkeyPatch, owner: int, same: bool, own: bool, answer: str
) -> None:
    def require_own(*_: object) -> None:
        if not own:
            raise Unanswered("another program listens on that port")

    monkeypatch.setattr(reading, "require_own", require_own)
    monkeypatch.setattr(
        reading, "shares_network", lambda _, __, other="self": other != "self" and same
    )
    guest = replace(inspected(container(0)), network_of="f" * 64)
    try:
        found = reading.locate(guest, 80, lambda: inspected(container(owner)))
    except Unanswered as why:
        found = str(why)
    assert found == answer


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (EngineRefused(404, "No such container: edge"), "there is no such container"),
        (EngineUnavailable("does not answer"), "does not answer"),
        (None, "description of the container is not understood"),
    ],
)
@pytest.mark.usefixtures("clock")
def test_a_proxy_that_is_not_found_is_said(error: Exception | None, why: str) -> None:
    def inspect(_: str) -> dict[str, Any]:
        if error is not None:
            raise error
        return {"Id": 5}

    with pytest.raises(Unanswered, match=why):
        _Other("edge", Outside(FOLLOW, inspect)).locate(80)


def test_the_containers_name_stands_in_the_filter_as_proxies_write_it() -> None:
    metric = Metric(name="m", where=(LabelFilter("service", "${container}@docker"),))
    named = named_in(MetricsEndpoint((80,), metrics=(metric,)), "my_app.1")
    (one,) = named.metrics[0].where
    assert one.pattern == r"(?:my_app\.1|my\-app\-1)@docker"


def test_the_presets_group_takes_the_name_of_the_targets_metric() -> None:
    source = LogPattern("(?P<map50>.) (?P<map>.)", metric="map")
    assert _names(source, AccuracyTarget("quality", 0.5, 0.6)) == {"map": "quality"}
    assert _names(source, AccuracyTarget("map50", 0.5, 0.6)) == {}
    assert _names(source, None) == {}


def test_threads_are_sampled_while_that_is_asked(group: Group) -> None:
    watch, _ = group()
    assert watch.fact(1.0, None)[0].waits is None
    watch.examine(2.0, 1.9)
    fact, _ = watch.fact(2.0, None)
    assert fact.waits is not None
    assert (fact.waits.at_s, fact.name) == (2.0, "web")
    watch.examine(3.0, 1.9)  # too soon
    assert watch.fact(3.0, None)[0] is fact
    watch.examine(5.0, 1.9)
    again, _ = watch.fact(5.0, None)
    assert again.waits is not None
    assert again.waits.at_s == 5.0


def test_another_start_has_no_samples(group: Group) -> None:
    watch, _ = group()
    watch.examine(2.0, 1.9)
    watch.take(replace(watch.described, started_at="later"), 3.0)
    assert watch.fact(3.0, None)[0].waits is None


def test_many_jobs_are_sampled_less_often(tmp_path: Path) -> None:
    """Twenty that miss their targets: each every six seconds."""
    proc = tree("v1", tmp_path)
    ids = [f"{number:02}" + WHOLE[2:] for number in range(20)]
    containers = {
        one: replace(described(), job=one[:2], pid=FIXTURE_PID, container_id=one) for one in ids
    }
    outside = Outside(FakeLog().follow, proc=proc, begin=immediately, now_s=CLOCK.now_s)
    with closing(Watches(outside)) as watches:
        watches.show(Listing(1.0, containers), 1.0)
        jobs, taken = {one[:2] for one in ids[1:]} | {"gone"}, []
        for now_s in range(20):
            watches.examine(jobs, float(now_s))
            facts = [one.fact(float(now_s), None)[0] for one in watches.all()]
            taken += [fact.job for fact in facts if fact.waits and fact.waits.at_s == now_s]
    assert "00" not in taken
    assert {taken.count(one[:2]) for one in ids[1:]} == {4}


def test_a_sample_that_hangs_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose files do not answer has one thread wait for it, in all of its starts."""
    monkeypatch.setattr("dlsched.runtime.docker.watch.EXAMINE_WAIT_S", 0.0)
    begun: list[tuple[Callable[[], WaitFact | None], Future[WaitFact | None]]] = []

    def later(call: Callable[[], WaitFact | None], _name: str) -> Future[WaitFact | None]:
        begun.append((call, Future()))
        return begun[-1][1]

    one = replace(described(), job="a", pid=FIXTURE_PID, container_id=WHOLE)
    outside = Outside(FakeLog().follow, proc=tree("v1", tmp_path), begin=later, now_s=CLOCK.now_s)
    with closing(Watches(outside)) as watches:
        watches.show(Listing(1.0, {WHOLE: one}), 1.0)
        (watch,) = watches.all()
        watches.examine({"a"}, 2.0)
        watches.examine({"a"}, 9.0)
        assert watch.fact(9.0, None)[0].waits is None
        watch.take(replace(one, started_at="later"), 10.0)
        watches.examine({"a"}, 11.0)
        [(call, hung)] = begun
        hung.set_result(call())
        assert watch.fact(12.0, None)[0].waits is None  # of the earlier start
        watches.examine({"a"}, 13.0)
        again, future = begun[1]
        future.set_result(again())
        fact = watch.fact(13.0, None)[0]
        assert fact.waits is not None and fact.waits.at_s == 13.0
        watches.examine({"a"}, 16.0)
        begun[2][1].set_exception(OSError("gone"))
        assert watch.fact(16.0, None)[0].waits is fact.waits


def test_a_sample_that_ends_late_is_left_out(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that were read before it hung and after are not of one time."""
    times = iter((10.0, 10.0 + LATE_S + 0.1, 20.0, 20.1))
    monkeypatch.setattr(CLOCK, "now_s", lambda: next(times))
    watch, _ = group()
    watch.examine(2.0, 1.9)
    assert watch.fact(2.0, None)[0].waits is None
    watch.examine(5.0, 1.9)
    assert watch.fact(5.0, None)[0].waits is not None


def test_samples_that_hang_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlsched.runtime.docker.watch.EXAMINE_WAIT_S", 0.0)
    monkeypatch.setattr("dlsched.runtime.docker.watch.EXAMINED_MAX", 2)
    begun: list[Future[WaitFact | None]] = []

    def hangs(_call: Callable[[], WaitFact | None], _name: str) -> Future[WaitFact | None]:
        begun.append(Future())
        return begun[-1]

    ids = [f"{number}" + WHOLE[1:] for number in range(3)]
    containers = {
        one: replace(described(), job=one, pid=FIXTURE_PID, container_id=one) for one in ids
    }
    outside = Outside(FakeLog().follow, proc=tree("v1", tmp_path), begin=hangs, now_s=CLOCK.now_s)
    with closing(Watches(outside)) as watches:
        watches.show(Listing(1.0, containers), 1.0)
        watches.examine(ids, 2.0)
        watches.examine(ids, 9.0)
        assert len(begun) == 2
