"""The API's paths, answers and errors. Requests never wait for the loop.

The live page at `/` has static files, read once, and the width of a target's band. What it shows it
asks at `/v1`, with the rights of its caller.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from time import time
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dlsched.api.access import Gate, caller_of, refusal
from dlsched.api.cluster import cluster_answer
from dlsched.api.codec import json_text
from dlsched.api.history import OneReading, asked_range, asked_usage, history_answer
from dlsched.api.log_stream import LogReading, LogResponse
from dlsched.api.metrics.page import CONTENT_TYPE, MetricsPage
from dlsched.api.schema import JobStatus
from dlsched.api.source import StatusSource
from dlsched.api.status import (
    cpu_beside,
    discreet,
    explanation,
    job_now,
    job_status,
    node_status,
)
from dlsched.api.stream import STREAM_FOLLOWERS_MAX, StreamResponse
from dlsched.api.usage import usage_status
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import AdoptionRefused, DlschedError, NotOurs
from dlsched.model.spec import BAND_RATIO
from dlsched.model.state import JobView
from dlsched.store.journal.minutes import wall_s

WEB = Path(__file__).resolve().parent.parent / "web"
"""The files as they are sent: no step builds them."""

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    "": "text/plain; charset=utf-8",  # the licence of what is vendored
}

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A page of an earlier version would not understand the answers of this one.
    "Cache-Control": "no-store",
}
"""Of each file: nothing of another origin is loaded, and no other page may frame or read it."""


class Page:
    """The page's files, in memory: a request's path is a key and never reaches the file system."""

    def __init__(self, folder: Path = WEB) -> None:
        self._files = {
            str(path.relative_to(folder)): (path.read_bytes(), _TYPES[path.suffix])
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        self._files["js/band.js"] = f"export const BAND = {BAND_RATIO};\n".encode(), _TYPES[".js"]

    @property
    def routes(self) -> list[Route]:
        return [Route("/", self._answer), Route("/static/{path:path}", self._answer)]

    async def _answer(self, request: Request) -> Response:
        name = request.path_params.get("path", "index.html")
        if name not in self._files:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"no file {name[:80]!a} belongs to the page")
        content, media_type = self._files[name]
        return Response(content, media_type=media_type, headers=HEADERS)


FOLLOWERS_MAX = 32
"""Limit of logs read concurrently at each address. Each takes a thread while it is read."""

BODY_BYTES = 64 << 10
"""Limit of a request's body: `adopt` sends at most 64 labels of 256 characters."""

FIRST_CHUNK_S = 1.0
"""Maximum wait for an error of the log's reader before the answer begins."""


class _Json(JSONResponse):
    """Any value of the schema or the model."""

    def render(self, content: Any) -> bytes:
        return json_text(content).encode()


def build_app(source: StatusSource) -> Starlette:
    """The API for that source. Every error is `{"error": "one line"}`."""
    routes = _Routes(source)
    app = Starlette(
        middleware=[Middleware(Gate)],
        routes=[
            *Page().routes,
            Route("/metrics", routes.metrics),
            Route("/v1/about", routes.about),
            Route("/v1/stream", routes.stream),
            Route("/v1/history", routes.history),
            Route("/v1/usage", routes.usage),
            Route("/v1/cluster", routes.cluster),
            Route("/v1/jobs", routes.jobs),
            Route("/v1/jobs/{name}/why", routes.why),
            Route("/v1/jobs/{name}/logs", routes.logs),
            Route("/v1/jobs/{name}/stop", routes.stop, methods=["POST"]),
            Route("/v1/jobs/{name}/start", routes.start, methods=["POST"]),
            Route("/v1/containers", routes.containers),
            Route("/v1/containers/{name}/adopt", routes.adopt, methods=["POST"]),
            Route("/v1/containers/{name}/drop", routes.drop, methods=["POST"]),
            Route("/v1/containers/{name}/labels", routes.adopted_labels),
            Route("/v1/release", routes.release, methods=["POST"]),
            Route("/v1/resume", routes.resume, methods=["POST"]),
        ],
        exception_handlers={
            HTTPException: _refuse,
            AdoptionRefused: _conflict,
            NotOurs: _conflict,
            DlschedError: _not_now,
            Exception: _fail,
        },
    )
    # An unknown path is an error, not a redirect to the host in the Host header.
    app.router.redirect_slashes = False
    return app


class _Routes:
    def __init__(self, source: StatusSource) -> None:
        self._source = source
        self._metrics = MetricsPage()
        self._journal = OneReading()
        self._followers: defaultdict[str, threading.BoundedSemaphore] = defaultdict(
            lambda: threading.BoundedSemaphore(FOLLOWERS_MAX)
        )

    async def metrics(self, _request: Request) -> Response:
        totals = self._source.totals()
        if totals is None:
            raise _no_cycle(self._source)
        # In a thread, so that other requests do not wait for it.
        page = await run_in_threadpool(self._metrics.render, totals, self._source.cluster)
        return Response(page, headers={"Content-Type": CONTENT_TYPE})

    async def about(self, _request: Request) -> Response:
        return _Json(self._source.about())

    def cluster(self, _request: Request) -> Response:
        return _Json(cluster_answer(self._source.cluster(), time()))

    async def jobs(self, request: Request) -> Response:
        return _Json(node_status(self._shown(request)))

    def why(self, request: Request) -> Response:
        name, report = _job_name(request), self._shown(request)
        limit = _count(request, "limit", default=10, low=1, high=1000)
        changes, events = self._source.changes(name, limit), self._source.events(name, limit)
        known = any(job.name == name for job in report.snapshot.jobs)
        # A job whose file and container are gone still has a history.
        row = None if not known and (changes or events) else self._row(name, report)
        effects = self._source.effects(name, limit)
        now = job_now(name, report)
        cpu = None if row is None else cpu_beside(row, report)
        return _Json(explanation(row, now, changes, events, effects, cpu))

    async def logs(self, request: Request) -> Response:
        name = _job_name(request)
        tail = _count(request, "tail", default=100, low=0, high=1_000_000)
        follow = bool(_count(request, "follow", default=0, low=0, high=1))
        caller, owner = caller_of(request), self._view(name, self._report()).spec.owner
        if not caller.may_read_logs(owner):
            whose = "" if owner is None else f"; the job's owner (uid {owner}) may read it here"
            raise HTTPException(
                HTTPStatus.FORBIDDEN,
                refusal(caller, f"the output of {name}, which may hold secrets") + whose,
            )
        followers = self._followers[caller.address]
        if not followers.acquire(blocking=False):
            raise HTTPException(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{FOLLOWERS_MAX} logs are being read already, the most at a time: try again later",
            )
        reading = LogReading(followers)
        reading.start(lambda: self._source.logs(name, tail, follow))
        try:
            await reading.first(FIRST_CHUNK_S)
        except KeyError:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"job {name} has no container") from None
        except asyncio.CancelledError:
            reading.close()
            raise
        return LogResponse(reading)

    async def stream(self, request: Request) -> Response:
        follow = bool(_count(request, "follow", default=1, low=0, high=1))
        only = request.query_params.get("only")
        if only not in (None, "events"):
            raise HTTPException(
                HTTPStatus.BAD_REQUEST, f"`only` is {only[:20]!a}, must be `events`, or left out"
            )
        stream, address = self._source.stream, caller_of(request).address
        if stream.followers[address] >= STREAM_FOLLOWERS_MAX:
            raise HTTPException(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{STREAM_FOLLOWERS_MAX} streams are being followed already, the most at a time: "
                "try again later",
            )
        # A browser sends the header when it connects again by itself, but a page cannot set it.
        after = request.headers.get("last-event-id", request.query_params.get("after", ""))
        messages = stream.messages(
            after,
            only_events=only is not None,
            follow=follow and request.method != "HEAD",
        )
        return StreamResponse(stream, address, request.state.abort, messages)

    async def history(self, request: Request) -> Response:
        report, source = self._report(), self._source
        known = [job.name for job in report.snapshot.jobs]
        asked = asked_range(request.query_params, wall_s(report.wall_time) or 0.0, len(known))
        return await self._read(
            request,
            lambda stopped: history_answer(
                asked, source.curves, source.some_effects, known, stopped
            ),
        )

    async def usage(self, request: Request) -> Response:
        # The last cycle is of this range too.
        now_s = (wall_s(self._report().wall_time) or 0.0) + 1.0
        by, from_s = asked_usage(request.query_params, now_s)

        def read(stopped: Callable[[], bool]) -> bytes:
            found = self._source.usage(from_s, now_s, stopped)
            return json_text(usage_status(found, by, from_s, now_s)).encode()

        return await self._read(request, read)

    async def _read(
        self, request: Request, read: Callable[[Callable[[], bool]], bytes]
    ) -> Response:
        answer = await self._journal.answer(request, read)
        if answer is None:  # it has no reader any more
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return Response(answer, media_type="application/json")

    async def stop(self, request: Request) -> Response:
        return await self._request(request, self._source.stop)

    async def start(self, request: Request) -> Response:
        return await self._request(request, self._source.start)

    async def containers(self, request: Request) -> Response:
        caller = caller_of(request)
        if not caller.may_change:
            raise HTTPException(
                HTTPStatus.FORBIDDEN, refusal(caller, "the list of other programs' containers")
            )
        return _Json(await run_in_threadpool(self._source.found))

    async def adopt(self, request: Request) -> Response:
        labels = await _labels(request)
        return await self._container(request, lambda name: self._source.adopt(name, labels))

    async def drop(self, request: Request) -> Response:
        return await self._container(request, self._source.drop)

    def adopted_labels(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            return _Json({"labels": dict(self._source.adopted_labels(name))})
        except KeyError:
            raise HTTPException(
                HTTPStatus.NOT_FOUND, f"{name[:80]!r} was not adopted by `dlsched adopt`"
            ) from None

    async def release(self, _request: Request) -> Response:
        return _Json({"containers": await run_in_threadpool(self._source.release)})

    async def resume(self, _request: Request) -> Response:
        await run_in_threadpool(self._source.resume)
        return _Json({}, HTTPStatus.ACCEPTED)

    async def _request(self, request: Request, change: Callable[[str], None]) -> Response:
        name = request.path_params["name"]
        try:
            await run_in_threadpool(change, name)
        except KeyError:
            raise self._unknown(name) from None
        return _Json({"job": name}, HTTPStatus.ACCEPTED)

    async def _container(
        self, request: Request, change: Callable[[str], Mapping[str, object]]
    ) -> Response:
        name = request.path_params["name"]
        try:
            return _Json(await run_in_threadpool(change, name))
        except KeyError:
            raise HTTPException(
                HTTPStatus.NOT_FOUND, f"no container {name[:80]!r}; `docker ps` lists them"
            ) from None

    def _report(self) -> CycleReport:
        report = self._source.last_report()
        if report is None:
            raise _no_cycle(self._source)
        return report

    def _shown(self, request: Request) -> CycleReport:
        """What the caller may see of it: output of jobs may hold secrets."""
        return discreet(self._report(), caller_of(request).may_read_logs)

    def _row(self, name: str, report: CycleReport) -> JobStatus:
        view = self._view(name, report)
        return job_status(view, report.snapshot.now_s, report.outlooks.get(name, ()))

    def _view(self, name: str, report: CycleReport) -> JobView:
        for job in report.snapshot.jobs:
            if job.name == name:
                return job
        raise self._unknown(name)

    def _unknown(self, name: str) -> HTTPException:
        report = self._source.last_report()
        names = [job.name for job in report.snapshot.jobs] if report else []
        known = f"known are {', '.join(names)}" if names else "there are no jobs"
        return HTTPException(HTTPStatus.NOT_FOUND, f"no job {name[:80]!r}; {known}")


def _job_name(request: Request) -> str:
    """The job that is asked for. An adopted container may have capitals, its job has none."""
    return str(request.path_params["name"]).lower()


def _no_cycle(source: StatusSource) -> HTTPException:
    failure = source.failure()
    detail = "the daemon's first control cycle has not ended yet" + (
        f": {failure}" if failure else ""
    )
    return HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, detail)


async def _labels(request: Request) -> dict[str, str]:
    """The request's body: {"labels": {NAME: VALUE}}, at most `BODY_BYTES`."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is longer than {BODY_BYTES} bytes"
            )
    labels = labels_in_body(body)
    if labels is None:
        raise HTTPException(HTTPStatus.BAD_REQUEST, 'the body must be {"labels": {NAME: TEXT}}')
    return labels


def labels_in_body(body: bytes) -> dict[str, str] | None:
    """The labels that the body asks for; None: it has another form."""
    try:
        labels = json.loads(body.decode())["labels"]
    except (KeyError, RecursionError, TypeError, ValueError):
        return None
    if not isinstance(labels, dict) or not all(isinstance(one, str) for one in labels.values()):
        return None
    return labels


def _count(request: Request, key: str, *, default: int, low: int, high: int) -> int:
    text = request.query_params.get(key, str(default))
    # Digits only: int() would also accept signs, spaces and underscores.
    if text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high:
        return int(text)
    raise HTTPException(
        HTTPStatus.BAD_REQUEST,
        f"{key} is {text[:20]!r}, must be a whole number from {low} to {high}",
    )


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _Json({"error": error.detail}, error.status_code)


async def _conflict(_request: Request, error: Exception) -> Response:
    return _Json({"error": str(error)}, HTTPStatus.CONFLICT)


async def _not_now(_request: Request, error: Exception) -> Response:
    return _Json({"error": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)


async def _fail(_request: Request, error: Exception) -> Response:
    line = f"the daemon failed to answer: {type(error).__name__}"
    return _Json({"error": line}, HTTPStatus.INTERNAL_SERVER_ERROR)
