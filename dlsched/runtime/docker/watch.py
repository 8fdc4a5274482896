"""One container as the loop sees it: the engine's description, the kernel's counts, its progress.

Owns the descriptors and the progress sources of one container, opened once for each of its starts.
It must not call the engine: all of this goes on while the engine hangs or is gone.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent import futures
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice

from dlsched.model.bottleneck import WaitFact
from dlsched.model.errors import unexpected
from dlsched.model.facts import (
    ContainerFact,
    LogFact,
    MemoryFact,
    Operation,
    Report,
    ThreadsFact,
    Usage,
    WireFact,
)
from dlsched.model.sources import MetricsEndpoint, MetricsFile, ProgressSource
from dlsched.model.spec import JobSpec, LatencyTarget, Limits, Target
from dlsched.runtime.cgroup.cpu_units import DEFAULT_SHARES, older_shares, quota_cores, weights_of
from dlsched.runtime.cgroup.read import CgroupReader, CgroupReading, RunQueueWait
from dlsched.runtime.cgroup.waits import SAMPLE_EACH_S, SAMPLE_S, WaitReader
from dlsched.runtime.docker.progress_readers import Outside, open_sources, wall_s
from dlsched.runtime.machine.inspected import Inspected, Listing
from dlsched.runtime.progress.log_pattern import LogReader
from dlsched.runtime.progress.sidecar import SourceReading
from dlsched.runtime.progress.sources import Source
from dlsched.runtime.threads.reader import Group
from dlsched.runtime.wire.callers import Caller
from dlsched.runtime.wire.reader import OWN_SILENT_S, WireReader

_log = logging.getLogger(__name__)

READ_ALL_S = 5.0
"""Everything of a container is read so often at least: somebody else may have changed its
limits."""
EXAMINE_WAIT_S = 0.05
"""The loop waits so long for samples of what threads wait for, most of which take a millisecond.
The others are taken up in a later cycle."""
LATE_S = 1.0
"""A sample that took longer is left out: its counts are not of one time."""
EXAMINED_MAX = 32
"""Samples under way at a time. Each has a thread, and may hang."""
UNTARGETED = LatencyTarget(math.inf)
"""By which the answers of a container without a target are measured."""


class Waits:
    """What the threads of one container wait for, sampled off the loop's thread: the kernel's files
    hang while a process that begins another program waits for a dead file system."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._reader: WaitReader | None = None
        """None: it has met its target in this start."""
        self._pending: tuple[WaitReader, Future[WaitFact | None]] | None = None
        """The sample under way, perhaps of an earlier start."""
        self.last: WaitFact | None = None
        """The last sample of this start that was taken up."""

    @property
    def pending(self) -> bool:
        return self._pending is not None and not self._pending[1].done()

    def begin(
        self, described: Inspected, now_s: float, every_s: float
    ) -> Future[WaitFact | None] | None:
        """Begin a sample so often; None: not now."""
        if self.pending:
            return None
        self.take()
        outside = self._outside
        if self._reader is None:
            self._reader = WaitReader(described.pid, outside.proc, container=described.container_id)
        reader, last = self._reader, self._reader.last
        if last is not None and now_s - last.at_s < every_s:
            return None
        asked_s = outside.now_s()

        def sample() -> WaitFact | None:
            found = reader.sample(now_s)
            return None if outside.now_s() - asked_s > LATE_S else found

        future = outside.begin(sample, "waits")
        self._pending = reader, future
        return future

    def take(self) -> None:
        """Take up a sample that has ended."""
        if self._pending is None or self.pending:
            return
        (reader, future), self._pending = self._pending, None
        if (error := future.exception()) is not None:
            _log.debug("what threads wait for cannot be sampled: %s", unexpected(error))
        elif reader is self._reader and (found := future.result()) is not None:
            self.last = found

    def forget(self) -> None:
        """That start is over."""
        self._reader = self.last = None


class Watch:
    """One container, from its first listing to its last; to be closed."""

    def __init__(
        self,
        described: Inspected,
        now_s: float,
        outside: Outside,
        *,
        from_end: bool,
        ran_before: bool = False,
    ) -> None:
        """`from_end`: nothing that it has reported yet can be dated, so it is left out.
        `ran_before`: it ran before we looked: what it has reported yet is history."""
        self.described = described
        """What the engine last said of it."""
        self._outside = outside
        self.reader: CgroupReader | None = None
        """Its cgroup, while it runs."""
        self.threads: ThreadsFact | None = None
        """The last sample of its threads in this start."""
        self._waiting: RunQueueWait | None = None
        """On cgroup v1 alone: version 2 reports its pressure."""
        self.waits = Waits(outside)
        self._sources: tuple[Source, ...] = ()
        self._asked: tuple[tuple[ProgressSource, ...], Target | None] = ((), None)
        """Sources that its job's file names, and its target."""
        self._raises = False
        """Whether the memory limit of an own container may be raised."""
        self._wire: WireReader | None = None
        """Measures its answers at its sockets."""
        self._measured: tuple[object, ...] = ()
        """The ports that it was asked to measure, the target, and the sources whose own requests do
        not count."""
        self._reported_s = float("-inf")
        """When it last reported a latency itself."""
        self._counted_at_sockets = False
        """Whether requests were counted at its sockets since then."""
        self._wire_fact: WireFact | None = None
        self._last_read_s = float("-inf")
        self._leaving: tuple[LogReader, ...] = ()
        """Of a start that is over: the engine may not have delivered its last lines yet."""
        self._left_at_s = float("-inf")
        self._from_end = from_end
        self._reading = CgroupReading()
        self._read_all_s = float("-inf")
        """When everything was last read; not yet, where something is known to have changed."""
        self._given: tuple[int, int | None] | None = None
        """Shares as last given, and the weight that the kernel has since (None: not read yet)."""
        self._last_fact: ContainerFact | None = None
        self._last_made_of: tuple[object, ...] = ()
        self._started_at_s: float | None = None
        self._drained: list[Report] = []
        self._bad_lines = 0
        self._hides_failures = False
        self._refused: str | None = None
        self._log: LogFact | None = None
        self._problem: str | None = None
        if described.alive:
            self._open(now_s, from_end=from_end, ran_before=ran_before)

    def take(self, described: Inspected, now_s: float) -> None:
        """The engine describes it again: follow a new start, or read an ended one's last lines."""
        before, self.described = self.described, described
        if described != before:  # its limits may be others
            self.doubt()
        if before.start == described.start and before.alive == described.alive:
            if described.alive and _asks(described) != _asks(before):
                # Another adoption: what it reported before is not news.
                for source in self._sources:
                    source.close()
                self._begin_reading(from_end=True)
            elif described.alive and described.adopted is not None:
                self._measure(described.adopted, ())
            return
        if before.alive:
            self._end(now_s)
        if described.alive:
            self._open(now_s, from_end=False)

    def read_from(self, spec: JobSpec) -> None:
        """Read the progress of an own container where its job's file says, too."""
        asked = (spec.sources, spec.target if spec.sources else None)
        if self.described.adopted is not None:
            return
        self._raises = spec.memory_max_bytes is not None
        self._measure(spec, spec.sources)
        if asked == self._asked:
            return
        # The file of a job that just started is the one it started with.
        from_end = self._from_end or bool(self._asked[0])
        base = len(self.described.sources)
        for source in self._sources[base:]:
            source.close()
        self._sources, self._asked = self._sources[:base], asked
        self._problem = self._log = self._refused = None
        if self.reader is not None:
            self._sources += self._opened(*asked, from_end=from_end)

    def examine(self, now_s: float, every_s: float) -> Future[WaitFact | None] | None:
        """Begin a sample of what its threads wait for so often; None: not now."""
        return None if self.reader is None else self.waits.begin(self.described, now_s, every_s)

    def doubt(self) -> None:
        """Its limits are changed, or may have been: read everything of it next time."""
        self._read_all_s = float("-inf")

    def gave(self, shares: int) -> None:
        self._given = shares, None

    def fact(
        self,
        now_s: float,
        operation: Operation | None,
        *,
        bursts: bool = True,
        idles: bool = True,
        altered: bool = False,
    ) -> tuple[ContainerFact, bool]:
        """The container now, and whether it has ended before the engine reported it.

        The same object as before where nothing of it is new. `bursts`: whether one can be set, and
        `idles` whether there is an idle class to go to. `altered` as in the fact.
        """
        vanished = self.reader is not None and self._read_cgroup(self.reader, now_s, operation)
        self._read_sources(now_s)
        self.waits.take()
        made_of = (
            self.described,
            self._reading,
            operation,
            bursts,
            idles,
            altered,
            self._bad_lines,
            self._hides_failures,
            self._refused,
            self._log,
            self._problem,
            self._started_at_s,
            self.reader,
            self._asked,
            self._wire_fact,
            self.waits.last,
            self.threads,
        )
        if self._drained:
            reports, self._drained = tuple(self._drained), []
            # Without reported latency, no policy needs to know whether it waits.
            if self._waiting is not None and any(one.latency for one in reports):
                self._waiting.sample(now_s)
        elif self._last_fact is not None and made_of == self._last_made_of:
            return self._last_fact, vanished
        else:
            reports = ()
        fact = self._fact(reports, operation, bursts=bursts, idles=idles, altered=altered)
        # Reports are handed on once.
        self._last_fact, self._last_made_of = (None, ()) if reports else (fact, made_of)
        return fact, vanished

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        for source in (*self._sources, *self._leaving):
            source.close()
        if self._wire is not None:
            self._wire.close()
        self._wire, self._wire_fact, self._measured = None, None, ()
        self.waits.forget()
        self.reader, self._waiting, self._sources, self._leaving = None, None, (), ()

    def _read_cgroup(self, group: CgroupReader, now_s: float, operation: Operation | None) -> bool:
        """Take in what the kernel counts; whether its group is gone."""
        # Who does something to it changes its limits.
        if operation is not None or now_s - self._read_all_s >= READ_ALL_S:
            reading = group.read()
            self._read_all_s = now_s if operation is None else float("-inf")
        else:
            # Memory that may need a higher limit is read every time: a program can fill what is
            # left within seconds.
            adopted = self.described.adopted
            raises = self._raises if adopted is None else adopted.memory_max_bytes is not None
            reading = group.reread(self._reading, memory=raises)
        if reading is self._reading:
            return False
        if reading.gone:
            return group.opened
        if reading != self._reading:
            self._reading = reading
        return False

    def _fact(
        self,
        reports: tuple[Report, ...],
        operation: Operation | None,
        *,
        bursts: bool,
        idles: bool,
        altered: bool,
    ) -> ContainerFact:
        described, reading = self.described, self._reading
        limit_cores = described.limit_cores
        if reading.quota_us is not None:
            limit_cores = quota_cores(reading.quota_us, reading.period_us)
        runs = self.reader is not None
        usage = reading.usage if runs else Usage()
        if self._waiting is not None:
            usage = replace(usage, cpu_wait_ratio=self._waiting.ratio)
        burst_cores = None
        if runs and bursts and reading.burst_us is not None and reading.period_us:
            burst_cores = reading.burst_us / reading.period_us
        idle = None
        # There its owner's `docker update` would be refused.
        if (
            runs
            and described.adopted is None
            and (reading.idle or (idles and reading.idle is not None))
        ):
            idle = bool(reading.idle)
        return ContainerFact(
            job=described.job,
            container_id=described.container_id,
            state=described.state,
            container_digest=described.container_digest,
            digest=described.digest,
            adopted=described.adopted,
            source=described.source,
            origin=described.origin,
            stop=described.stop,
            started_at_s=self._started_at_s,
            starts=described.restarts + 1,
            exit_code=described.exit_code,
            oom_killed=described.oom_killed,
            error=described.error,
            actual=Limits(limit_cores),
            usage_core_s=reading.usage_core_s,
            periods=reading.periods,
            throttled_periods=reading.throttled_periods,
            reports=reports,
            bad_lines=self._bad_lines,
            refused=self._refused,
            log=self._log,
            sidecar_problem=self._problem,
            hides_failures=self._hides_failures,
            has_source=bool(described.sources or self._asked[0] or self._wire is not None),
            wire=self._wire_fact,
            operation=operation,
            altered=altered,
            cpu_shares=self.shares if runs else None,
            cpu_idle=idle,
            burst_cores=burst_cores,
            usage=usage,
            memory=reading.memory if runs else MemoryFact(),
            waits=self.waits.last,
            name=described.name,
            threads=self.threads if runs else None,
        )

    @property
    def shares(self) -> int | None:
        """Its weight in shares: those it was given, as long as the weight stays; None: unknown."""
        weight = self._reading.weight
        if self._reading.idle:
            self._given = None  # its weight is another's, until it is given one
            return None
        if weight is None:
            return self._reading.shares
        if self._given is not None and self._given[1] is None:
            self._given = self._given[0], weight
        if self._given is not None and self._given[1] == weight:
            return self._given[0]
        shares = self.described.limits.shares or DEFAULT_SHARES
        return shares if weight in weights_of(shares) else older_shares(weight)

    def counted(self) -> Group | None:
        """What its group counted last, for those who sample its threads; None: nothing."""
        used_core_s, folder = self._reading.usage_core_s, None
        if self.reader is not None:
            folder = self.reader.cpu_folder
        if self.reader is None or folder is None or used_core_s is None:
            return None
        container = self.described.container_id
        return Group(
            container,
            (container, self._started_at_s),
            folder,
            self.reader.v2,
            used_core_s,
            self._reading.periods or 0,
            self._reading.throttled_periods or 0,
        )

    @property
    def kernel_weight(self) -> int:
        """Its weight in the kernel's unit; 0 in the idle class, and while it is unknown."""
        reading = self._reading
        weight = reading.shares if reading.weight is None else reading.weight
        return 0 if reading.idle else weight or 0

    def _open(self, now_s: float, *, from_end: bool, ran_before: bool = False) -> None:
        self._reading, self._given, self.threads = CgroupReading(), None, None
        self._read_all_s = float("-inf")
        self._started_at_s = now_s
        self.reader = CgroupReader(
            self.described.pid, self._outside.proc, container=self.described.container_id
        )
        if not self.reader.v2 and self.reader.cpu_folder is not None:
            self._waiting = RunQueueWait(self.reader.cpu_folder, self._outside.proc)
        self._from_end = from_end
        self._begin_reading(from_end=from_end, ran_before=ran_before)

    def _begin_reading(self, *, from_end: bool, ran_before: bool = False) -> None:
        self._bad_lines, self._problem = 0, None
        self._refused = self._log = None
        asks = _asks(self.described)
        self._sources = self._opened(*asks, from_end=from_end, ran_before=ran_before)
        self._sources += self._opened(*self._asked, from_end=from_end, ran_before=ran_before)
        if (adopted := self.described.adopted) is not None:
            self._measure(adopted, ())

    def _measure(self, spec: JobSpec, named: tuple[ProgressSource, ...]) -> None:
        """Measure its ports for its target, where it is one of latency and they may be. `named`:
        the sources of its job's file, which are read by requests that do not count. One without a
        target is measured, too, unless it comes last: one that serves requests is no batch job."""
        pages = (*self.described.sources, *named)
        ports, target = spec.wire, spec.target
        if target is None and not spec.background:
            target = UNTARGETED
        asked = (ports, target, pages)
        if asked == self._measured or self.reader is None:
            return
        if self._wire is not None:
            self._wire.close()
        self._wire, self._wire_fact, self._measured = None, None, asked
        self._counted_at_sockets = False
        tap = self._outside.tap
        if tap is not None and ports is not None and isinstance(target, LatencyTarget):
            self._wire = WireReader(
                tap,
                self.described.pid,
                self.described.container_id,
                ports,
                target,
                {one.http_path for one in pages if isinstance(one, MetricsEndpoint)},
                yields=any(not isinstance(one, MetricsFile) and one.answers for one in pages),
            )

    def _opened(
        self,
        sources: tuple[ProgressSource, ...],
        target: Target | None,
        *,
        from_end: bool,
        ran_before: bool = False,
    ) -> tuple[Source, ...]:
        return tuple(
            open_sources(
                self.described,
                sources,
                target,
                self._outside,
                from_end=from_end,
                ran_before=ran_before,
            )
        )

    def _end(self, now_s: float) -> None:
        self._read_sources(now_s)
        leaving = tuple(source for source in self._sources if isinstance(source, LogReader))
        self._sources = tuple(source for source in self._sources if source not in leaving)
        self.close()
        self._leaving, self._left_at_s = leaving, now_s

    def _read_sources(self, now_s: float) -> None:
        self._last_read_s = now_s
        if self._leaving and now_s > self._left_at_s:
            for log in self._leaving:
                self._take_up(log.read(now_s))
                log.close()
            self._leaving = ()
        if self._sources or self._wire is not None:
            problem: str | None = None
            measured = None if self._wire is None else self._wire.read(now_s)
            for source in self._sources:
                reading = self._beside_wire(source.read(now_s))
                if reading.reports or reading.bad_lines:
                    self._take_up(reading)
                if problem is None:
                    problem = reading.problem
                if reading.log is not None:
                    self._log = reading.log
            if self._wire is not None and measured is not None:
                problem = self._read_wire(self._wire, measured, now_s, problem)
            self._problem = problem

    def _read_wire(
        self, wire: WireReader, measured: SourceReading, now_s: float, problem: str | None
    ) -> str | None:
        """Take in what was measured at its sockets, unless it reports its latencies itself; returns
        the problem to show."""
        # What it reports for the first time again is of requests that were counted there.
        again = self._counted_at_sockets and self._reported_s == now_s
        silent = now_s - self._reported_s > OWN_SILENT_S
        judges = wire.alone or wire.decides or again or silent
        self._wire_fact, lacks = wire.fact(now_s, judges=judges), measured.problem
        if lacks is not None and UNTARGETED in self._measured:
            self._wire_fact = lacks = None  # nothing is asked of it that needs them
        counted = self._counted_at_sockets or any(map(_counts, measured.reports))
        # The fact may have found that the sockets decide from the next read on.
        self._counted_at_sockets = wire.decides or (judges and not again and counted)
        if not judges:
            return problem
        hides = measured.hides_failures and UNTARGETED not in self._measured
        self._take_up(SourceReading(measured.reports, hides_failures=hides))
        return problem or (lacks if wire.alone or not self._sources else None)

    def _beside_wire(self, reading: SourceReading) -> SourceReading:
        """What a source has read, where its latencies stand beside those of the sockets: compared
        with them, and left out where the target is about another time of a request, or where the
        requests were counted there. A page does not say how many wait: the sockets do."""
        if self._wire is None or not any(one.latency for one in reading.reports):
            return reading
        if not self._wire.alone:
            self._wire.beside(reading.reports, self._last_read_s)
            self._reported_s = self._last_read_s
            if not self._counted_at_sockets:
                return replace(reading, reports=_open(reading.reports, self._wire.in_flight()))
        kept = tuple(one for one in reading.reports if one.latency is None)
        return replace(reading, reports=kept)

    def _take_up(self, reading: SourceReading) -> None:
        self._drained.extend(reading.reports)
        self._bad_lines += reading.bad_lines
        if any(report.latency is not None for report in reading.reports):
            self._hides_failures = reading.hides_failures
        self._refused = self._refused or reading.refused


def _open(reports: Iterable[Report], in_flight: int | None) -> tuple[Report, ...]:
    """These reports, those of latencies with that number of open requests if they have none."""
    return tuple(
        one
        if one.latency is None or one.in_flight is not None
        else replace(one, in_flight=in_flight)
        for one in reports
    )


def _counts(report: Report) -> bool:
    """Whether a request is counted in it."""
    return report.latency is not None and bool(report.latency.count or report.latency.errors)


def _asks(described: Inspected) -> tuple[tuple[ProgressSource, ...], Target | None]:
    """Where an adopted container is to be read, and for which target."""
    adopted = described.adopted
    return described.sources, None if adopted is None else adopted.target


_EARLY_S = 0.1
"""Cycles begin a little sooner or later than their period."""
JUST_STARTED_S = 10.0
"""A container of which a listing says so is new: listings follow events within seconds."""


class Watches:
    """One watch for each container; used by the loop's thread, but for `ids`."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._watches: dict[str, Watch] = {}
        self.get, self.all = self._watches.get, self._watches.values
        self.listing: Listing | None = None
        self.ids: Mapping[str, str] = {}
        """Container ids by job; replaced whole, so that other threads may read it."""

    def show(self, listing: Listing, now_s: float) -> list[Inspected]:
        """Watch the containers of a new listing, and no others; returns those just adopted."""
        first, adopted = self.listing is None, []
        for container, described in listing.containers.items():
            watch = self._watches.get(container)
            if watch is not None:
                watch.take(described, now_s)
                continue
            ran_before = _ran_before(described)
            # A service's old requests are not news; a training's old lines hold its present value.
            target = None if described.adopted is None else described.adopted.target
            self._watches[container] = Watch(
                described,
                now_s,
                self._outside,
                from_end=first or (ran_before and isinstance(target, LatencyTarget)),
                ran_before=ran_before,
            )
            if described.adopted is not None:
                adopted.append(described)
        for container in self._watches.keys() - listing.containers.keys():
            self._watches.pop(container).close()
        if self._outside.tap is not None:
            self._outside.tap.callers.know(
                Caller(one.name, one.container_id, one.pid, one.address)
                for one in listing.containers.values()
                if one.alive
            )
        self.listing = listing
        self.ids = {watch.described.job: key for key, watch in self._watches.items()}
        return adopted

    def read_from(self, specs: Iterable[JobSpec]) -> None:
        """Read the progress of these jobs where their files say, too."""
        for spec in specs:
            watch = self._watches.get(self.ids.get(spec.name, ""))
            if watch is not None:
                watch.read_from(spec)

    def examine(self, jobs: Collection[str], now_s: float) -> None:
        """Sample what the threads of these jobs wait for, and of no others."""
        every_s = max(SAMPLE_S, SAMPLE_EACH_S * len(jobs)) - _EARLY_S
        left = EXAMINED_MAX - sum(watch.waits.pending for watch in self._watches.values())
        missed = (one for one in self._watches.values() if one.described.job in jobs)
        begun = (future for one in missed if (future := one.examine(now_s, every_s)) is not None)
        futures.wait(list(islice(begun, max(left, 0))), EXAMINE_WAIT_S)

    def of_job(self, job: str) -> Inspected | None:
        """That job's container; None: none is listed."""
        watch = self._watches.get(self.ids.get(job, ""))
        return None if watch is None else watch.described

    def own(self) -> dict[str, str]:
        """The ids of the containers that the agent made, by job."""
        watches = self._watches.items()
        return {one.described.job: key for key, one in watches if one.described.adopted is None}

    def close(self) -> None:
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()
        if self._outside.tap is not None:
            self._outside.tap.close()


def _ran_before(described: Inspected) -> bool:
    """Whether it ran before it was adopted."""
    started_s = None if described.adopted is None else wall_s(described.started_at)
    return started_s is not None and time.time() - started_s > JUST_STARTED_S
