"""What reads the progress of one start of a container: a reader for each of its sources."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from dlsched.config.metrics.pattern import pattern_of
from dlsched.model.bottleneck import WaitFact
from dlsched.model.errors import DlschedError
from dlsched.model.sources import LogPattern, MetricsEndpoint, MetricsFile, ProgressSource
from dlsched.model.spec import AccuracyTarget, Target
from dlsched.runtime.cgroup.read import PROC, belongs
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.engine import Body, EngineRefused
from dlsched.runtime.docker.identity.labels import inspected
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.progress.http_page import Unanswered
from dlsched.runtime.progress.listening import (
    NO_ADDRESS,
    loopback_of,
    require_own,
    shares_network,
)
from dlsched.runtime.progress.log_pattern import HISTORY_LINES, LogReader, LogStream
from dlsched.runtime.progress.scrape import ScrapeReader
from dlsched.runtime.progress.sidecar import SidecarReader
from dlsched.runtime.progress.sources import Source
from dlsched.runtime.wire.tap import Tap

Begin = Callable[[Callable[[], WaitFact | None], str], Future[WaitFact | None]]
Follow = Callable[[str, float | None], LogStream]
"""Opens a container's output from that wall time on (None: from now on); raises DlschedError."""

LOGGED_WITHIN_S = 1.0
"""A line is in the engine's log by then. It is stamped before it is written there: one stamped just
before the news begin could be written just after the history was read, and be lost."""

PROXY_KEPT_S = 30.0
"""Another container is inspected so often: its address changes when it is recreated."""

CONTAINER = "${container}"
"""In a filter: the container's name."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What readers use beside the container itself."""

    follow: Follow
    inspect: Callable[[str], Body] = lambda _: {}
    """What the engine knows of the container of that name; raises DlschedError. It blocks."""
    proc: Path = PROC
    logs: Callable[[str, int, bool, float | None], Iterable[bytes]] = lambda *_: ()
    """A container's last lines; whether to follow them; up to which wall time. It may raise
    DlschedError, and blocks."""
    tap: Tap | None = None
    """What measures response times at sockets; None: nothing does."""
    begin: Begin = begin
    """Runs what may hang in a thread of that name."""
    now_s: Callable[[], float] = time.monotonic


def open_sources(
    described: Inspected,
    sources: tuple[ProgressSource, ...],
    target: Target | None,
    outside: Outside,
    *,
    from_end: bool,
    ran_before: bool = False,
) -> Iterator[Source]:
    """Readers for this start of a container. `ran_before`: it ran before we looked, and what it
    has reported so far is history, unless `from_end` leaves it out."""
    container, pid, proc = described.container_id, described.pid, outside.proc
    history = ran_before and not from_end
    # Between what is history and what is news no line is lost, and none is read twice.
    news_from_s = time.time() - LOGGED_WITHIN_S if history else printed_from_s(described)

    def follow(from_start: bool) -> LogStream:
        # After a lost connection it may run again already: that output is another reader's.
        if not from_start and _pid(outside.inspect(container)) != pid:
            raise Unanswered("this run of the container has ended")
        return outside.follow(container, news_from_s if from_start else None)

    for source in sources:
        match source:
            case MetricsFile(path):
                yield SidecarReader(
                    pid,
                    path,
                    proc,
                    expect=lambda: belongs(pid, container, proc),
                    from_end=from_end,
                    history=history,
                )
            case MetricsEndpoint():
                yield ScrapeReader(
                    _locator(described, source, outside),
                    named_in(source, described.name),
                    target,
                    from_end=from_end,
                )
            case LogPattern():
                yield LogReader(
                    follow,
                    source.pattern,
                    step=source.step,
                    when=source.when,
                    names=_names(source, target),
                    failed=source.failed,
                    from_end=from_end,
                    history=(
                        (lambda: outside.logs(container, HISTORY_LINES, False, news_from_s))
                        if history
                        else None
                    ),
                )


def printed_from_s(described: Inspected) -> float | None:
    """The wall time after which the output is of this start, not of the one before; None where the
    engine does not tell. The last lines of a start may be stamped after its end."""
    started_at_s, ended_at_s = wall_s(described.started_at), wall_s(described.ended_at)
    if started_at_s is None:
        return None
    if ended_at_s is None or ended_at_s > started_at_s:
        return started_at_s - LOGGED_WITHIN_S
    return max(started_at_s - LOGGED_WITHIN_S, (ended_at_s + started_at_s) / 2)


def _pid(body: Body) -> int:
    """The container's process; 0: none. Raises Unanswered where the body is malformed."""
    try:
        return inspected(body).pid
    except ValueError as error:
        raise Unanswered(str(error)) from error


def _names(source: LogPattern, target: Target | None) -> dict[str, str]:
    """The target's metric by the group that stands for it, where none has its name."""
    if not isinstance(target, AccuracyTarget) or source.metric is None:
        return {}
    own = pattern_of(source.pattern)[1]
    return {} if target.metric in own else {source.metric: target.metric}


def _locator(
    described: Inspected, endpoint: MetricsEndpoint, outside: Outside
) -> Callable[[int], str]:
    """What finds the address to ask for a port; raises Unanswered."""
    if endpoint.via is not None:
        return _Other(endpoint.via, outside).locate
    owner = _Other(described.network_of or "", outside)
    return lambda port: locate(described, port, owner.inspected, outside.proc)


def locate(
    described: Inspected, port: int, owner: Callable[[], Inspected], proc: Path = PROC
) -> str:
    """The address to ask a container for that port; raises Unanswered. `owner` describes the
    container whose network it shares."""
    if described.address is not None:
        return described.address
    if described.network_of is None or shares_network(described.pid, proc):
        return loopback_of(described.pid, described.container_id, port, proc)
    other = owner()
    if other.address is None or not shares_network(described.pid, proc, other.pid):
        raise Unanswered(NO_ADDRESS)
    require_own(described.pid, described.container_id, other.address, port, proc)
    return other.address


class _Other:
    """Another container than the one that is read: its proxy, or the owner of its network."""

    def __init__(self, name: str, outside: Outside) -> None:
        self._name = name
        self._outside = outside
        self._found: tuple[float, Inspected] | None = None

    def locate(self, port: int) -> str:
        """Its address for that port; raises Unanswered."""
        found = self.inspected()
        if found.address is not None:
            return found.address
        return loopback_of(found.pid, found.container_id, port, self._outside.proc)

    def inspected(self) -> Inspected:
        """What the engine says of it, at most `PROXY_KEPT_S` old; raises Unanswered."""
        now_s = time.monotonic()
        if self._found is not None and now_s - self._found[0] < PROXY_KEPT_S:
            return self._found[1]
        self._found = None
        try:
            found = inspected(self._outside.inspect(self._name))
        except EngineRefused as error:
            why = "there is no such container" if error.status == 404 else str(error)
            raise Unanswered(why) from error
        except (DlschedError, ValueError) as error:
            raise Unanswered(str(error)) from error
        self._found = now_s, found
        return found


def named_in(endpoint: MetricsEndpoint, container: str) -> MetricsEndpoint:
    """With the container's name in its filters: as it is, and as proxies normalize it."""
    normal = "-".join(re.findall("[A-Za-z0-9]+", container))
    spelled = f"(?:{re.escape(container)}|{re.escape(normal)})"
    metrics = tuple(
        replace(
            metric,
            where=tuple(
                replace(one, pattern=one.pattern.replace(CONTAINER, spelled))
                for one in metric.where
            ),
        )
        for metric in endpoint.metrics
    )
    return replace(endpoint, metrics=metrics)


def wall_s(started_at: str) -> float | None:
    """The engine's time stamp as wall time; None where it is none."""
    try:
        return datetime.fromisoformat(started_at).timestamp()
    except ValueError:
        return None
