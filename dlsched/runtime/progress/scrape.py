"""Reads a container's Prometheus endpoint in a thread, with bounds.

`http_page` asks, and `exposition` reads what it answers while it arrives. Of an endpoint that names
no metric, the target's is read, or the one by which a preset's program is recognised.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache

from dlsched.config.metrics.loading import package_presets
from dlsched.model.facts import Report
from dlsched.model.sources import LabelFilter, Metric, MetricsEndpoint
from dlsched.model.spec import AccuracyTarget, Target
from dlsched.model.units import render_address, shown
from dlsched.runtime.progress.exposition import PageDelta, Pages
from dlsched.runtime.progress.http_page import PROBES, Unanswered, fetch
from dlsched.runtime.progress.samples import Samples
from dlsched.runtime.progress.sidecar import SourceReading

PATH_LABELS = ("endpoint", "handler", "http_route", "http_target", "path", "route", "uri", "url")
"""Labels in which servers and clients of Prometheus put a request's path."""


STATUS_LABELS = (
    "code", "http_code", "http_response_code", "http_response_status_code", "http_status",
    "http_status_code", "response_code", "status", "status_code",
)  # fmt: skip
"""Labels in which servers and clients of Prometheus put the status of an answer."""
_FAILURES = "error|fail|time.?out|deadline|cancel|abort|reject|drop|exhaust|unavailable|exception"
_GRPC = "internal|unknown|data.?loss"
FAILED_STATUS = f"(5..|408|429|499)( .*)?|000|(?i:.*({_FAILURES}).*|{_GRPC})"
"""Failed on the server's side: errors, timeouts (408, 504), dropped (429, 503), cancelled by the
client (499, or 000: it left before there was a status), with or without its phrase; `5xx` too; the
same as a text such as `timeout`. Other 4xx are answers: the client asked for what there is not."""
_HTTP_ONLY = ("http_", "response_code")
"""Labels that begin so have statuses of HTTP alone, of which 0 is none; that of gRPC is an answer.
"""
_GRPC_ANSWERS = "invalid.?argument|not.?found|already.?exists|permission.?denied"
_GRPC_ANSWERS += "|failed.?precondition|out.?of.?range|unauthenticated"
ANSWERED_STATUS = f"0|[1-4](..|xx)( .*)?|(?i:ok|.*succe.*|completed?|{_GRPC_ANSWERS})"
"""Statuses of answers. Of any other text it is unknown which requests failed."""
_FAILED = tuple(
    LabelFilter(
        label,
        FAILED_STATUS + ("|0" if label.startswith(_HTTP_ONLY) else ""),
        otherwise=ANSWERED_STATUS,
    )
    for label in STATUS_LABELS
)


def named(endpoint: MetricsEndpoint, target: str | None) -> tuple[Metric, ...]:
    """The metrics to look for, each with a name, or with total and count; without filters of their
    own, they leave out scrapes and health checks, and without a counter of failures they know them
    by their status. `target`: the target's metric."""
    unwatched = tuple(
        LabelFilter(label, path, True)
        for path in (PROBES, re.escape(endpoint.http_path))
        for label in PATH_LABELS
    )
    found = _named(endpoint.metrics, target)
    return tuple(
        replace(
            one,
            where=one.where or unwatched,
            failed=one.failed or (() if one.errors else _FAILED),
        )
        for one in found
    )


def _named(metrics: Sequence[Metric], target: str | None) -> tuple[Metric, ...]:
    if any(one.name or one.total for one in metrics):
        return tuple(replace(one, beside=None) for one in metrics)
    candidates = (Metric(name=target),) if target else known_metrics()
    given = metrics[0] if metrics else Metric()
    return tuple(
        replace(
            one,
            errors=given.errors or one.errors,
            errors_timed=given.errors_timed if given.errors else one.errors_timed,
            failed=given.failed or one.failed,
            unit_s=given.unit_s or one.unit_s,
            where=given.where or one.where,
            per=given.per or one.per,
        )
        for one in candidates
    )


@cache
def known_metrics() -> tuple[Metric, ...]:
    """The metrics by which pages are recognised, in the order in which they are looked for: those
    that are a preset's by their own name, then those that need another metric beside them, since
    servers such as vLLM are built on a framework that publishes these."""
    presets = package_presets()
    every = (one.keys for one in presets.by_name.values())
    # A preset with a base reads something else of the same program; one with `via`, its proxy.
    keys = (one for one in every if one.base is None and one.port is not None and one.via is None)
    sources = (source for one in keys for source in presets.sources(one))
    metrics = (
        metric
        for source in sources
        if isinstance(source, MetricsEndpoint)
        for metric in source.metrics
    )
    return tuple(sorted(metrics, key=lambda one: one.beside is not None))


APART_S = 0.9
"""Time between requests; slightly less than a second, since cycles jitter."""
APART_MAX_S = 30.0
CPU_RATIO = 0.05
"""Part of a core that reading one container's pages may take: costly ones are asked less often."""


@dataclass(frozen=True, slots=True)
class _Answer:
    where: str
    """Whom it asked."""
    delta: PageDelta | None
    problem: str | None = None
    """Why there is no page."""
    cpu_s: float = 0.0


class ScrapeReader:
    """Scrapes one container start, once a second at most; for one thread.

    Each page is fetched in a thread of its own and returned by a later read, so that no read
    blocks. Reports are stamped with the time of the request.
    """

    def __init__(
        self,
        locate: Callable[[int], str],
        endpoint: MetricsEndpoint,
        target: Target | None = None,
        *,
        from_end: bool = False,
    ) -> None:
        """`locate` gives the address to ask for a port, or raises Unanswered; it is called in the
        thread. `target`: its metric names a gauge in the reports; where the endpoint names none, it
        is also the Prometheus metric. `from_end`: skip what the server counted before the first
        page."""
        metric = target.metric if isinstance(target, AccuracyTarget) else None
        wanted = named(endpoint, metric)
        self._metric = metric or next((one.name for one in wanted if one.name), "")
        self._pages = Pages(wanted, from_end=from_end, target=target, hint=endpoint.hint)
        self._endpoint = endpoint
        self._turn = 0
        """Of the endpoint's ports, the one to ask."""
        self._locate = locate
        self._problem: str | None = None
        self._asked_s = float("-inf")
        self._apart_s = APART_S
        self._answered_s: float | None = None
        """Time of the last successful request; at first, when reading began."""
        self._answer: Future[_Answer] | None = None
        # Each new value of a gauge is an evaluation.
        self._samples = Samples("evaluations")
        self._closed = False
        self._found = False
        """Whether a port has had the metric."""

    @property
    def asking(self) -> bool:
        return self._answer is not None and not self._answer.done()

    def read(self, now_s: float) -> SourceReading:
        """What the last page added, once it has arrived; starts the next request when due."""
        reading = SourceReading(problem=self._problem)
        if self._answered_s is None:
            self._answered_s = now_s
        if self._answer is not None and self._answer.done():
            reading, self._answer = self._taken(self._answer), None
        if self._answer is None and not self._closed and now_s - self._asked_s >= self._apart_s:
            self._asked_s = now_s
            self._answer = self._ask(self._endpoint.ports[self._turn])
        return reading

    def close(self) -> None:
        """Abandon a request in progress; it ends by itself."""
        self._answer, self._closed = None, True

    def _taken(self, future: Future[_Answer]) -> SourceReading:
        answer = future.result()
        delta = answer.delta or PageDelta(problem=answer.problem, absent=True)
        self._apart_s = min(max(APART_S, answer.cpu_s / CPU_RATIO), APART_MAX_S)
        self._problem = None
        if delta.problem is not None:
            needs = self._endpoint.needs if delta.absent else None
            remedy = "" if needs is None else f"; it needs {needs}"
            self._problem = f"http://{answer.where}: {delta.problem}{remedy}"
        at_s = self._asked_s
        if delta.absent:
            if not self._found:
                self._turn = (self._turn + 1) % len(self._endpoint.ports)
        else:
            self._found = True
        span_s = max(APART_S, at_s - (self._answered_s or 0.0))
        reports = []
        if delta.latency is not None:
            reports.append(Report(at_s, latency=delta.latency, span_s=span_s))
        if delta.value is not None:
            sample = self._samples.add({self._metric: delta.value}, at_s)
            reports.append(Report(at_s, sample=sample))
        if not delta.absent and not delta.bad_lines:
            self._answered_s = at_s
        return SourceReading(
            tuple(reports),
            delta.bad_lines,
            self._problem,
            delta.refused,
            hides_failures=delta.hides_failures,
        )

    def _ask(self, port: int) -> Future[_Answer]:
        future: Future[_Answer] = Future()
        try:
            threading.Thread(
                target=lambda: future.set_result(self._asked(port)),
                name="dlsched-scrape",
                daemon=True,
            ).start()
        except RuntimeError as error:
            future.set_result(_Answer(self._shown(None, port), None, f"not asked: {error}"))
        return future

    def _asked(self, port: int) -> _Answer:
        """Ask once; never raises."""
        began_s = time.thread_time()
        address: str | None = None
        delta, problem = None, None
        try:
            address = self._locate(port)
            at_s = time.time()
            reading = self._pages.begin()
            fetch(address, port, self._endpoint.http_path, reading.feed)
            delta = self._pages.end(reading, at_s)
        except Unanswered as why:
            problem = str(why)
        except Exception as error:  # noqa: BLE001 - no answer of a container ends the loop
            problem = f"not understood: {shown(repr(error))}"
        cpu_s = time.thread_time() - began_s
        return _Answer(self._shown(address, port), delta, problem, cpu_s)

    def _shown(self, address: str | None, port: int) -> str:
        place = render_address(address or self._endpoint.via or "container", port)
        return f"{place}{self._endpoint.http_path}"
