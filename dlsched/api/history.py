"""`/v1/history` and `/v1/usage`: ranges of the journal, one reader at a time, in a thread that ends
when the asker goes away. The loop does not notice: the reader has a connection of its own."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from dlsched.api.access import disconnected
from dlsched.api.codec import json_text
from dlsched.api.history_schema import History
from dlsched.api.schema import SCHEMA_VERSION
from dlsched.api.status import effect_status
from dlsched.api.usage import By
from dlsched.estimate.effect import Effect
from dlsched.store.journal.history import (
    POINTS_MAX,
    STEPS_S,
    Cancelled,
    Curves,
    Range,
    TooMuch,
    default_step_s,
)
from dlsched.store.journal.minutes import MINUTE_S
from dlsched.store.journal.rows import Change

DEFAULT_RANGE_S = 3600.0
DAY_S = 86_400.0
RANGE_MAX_S = 366 * DAY_S
"""Longer than any journal is kept."""
READ_MAX_S = 30.0
"""Time after which reading is given up."""
TURN_MAX_S = 5.0
"""How long an asker waits for the one before; with READ_MAX_S within what clients wait."""
_POLL_S = 0.05
"""Too short for people to notice."""
NAMES_MAX = 20
"""Names in the line on a job that is not known."""
JOBS_MAX = 256
"""Limit of job names in one query."""

_SECONDS = re.compile(r"[0-9]{1,11}(\.[0-9]{1,9})?")

Read = Callable[[Range, Callable[[], bool]], Curves]
Effects = Callable[[Sequence[Change], Callable[[], bool]], Mapping[tuple[str, int], Effect]]


class OneReading:
    """Reads the journal for one asker at a time. For the API's thread."""

    def __init__(self) -> None:
        self._busy = False

    async def answer(
        self, request: Request, read: Callable[[Callable[[], bool]], bytes]
    ) -> bytes | None:
        """What `read` returns, in a thread; None: the client has gone. `read` must
        end soon after its argument is true. Raises what it raises, and HTTPException when the one
        before or this one takes too long."""
        await self._take_turn()
        stop = threading.Event()
        work = asyncio.ensure_future(run_in_threadpool(read, stop.is_set))
        work.add_done_callback(self._free)
        gone = asyncio.ensure_future(disconnected(request.receive))
        try:
            done, _ = await asyncio.wait(
                {work, gone}, timeout=READ_MAX_S, return_when=asyncio.FIRST_COMPLETED
            )
            if work in done:
                return work.result()
            if gone in done:
                return None
            raise HTTPException(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"reading this range takes more than {READ_MAX_S:.0f} s: ask a shorter one",
            )
        finally:
            stop.set()
            gone.cancel()

    async def _take_turn(self) -> None:
        try:
            async with asyncio.timeout(TURN_MAX_S):
                while self._busy:
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise HTTPException(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the journal is being read for another request: ask again in a second",
            ) from None
        self._busy = True

    def _free(self, work: asyncio.Future[bytes]) -> None:
        self._busy = False
        if not work.cancelled():
            work.exception()  # of a reading that has no reader any more


def history_answer(
    asked: Range,
    read: Read,
    effects: Effects,
    known: Sequence[str],
    stopped: Callable[[], bool],
) -> bytes:
    """The answer's JSON. `known`: the jobs of the last cycle. Raises HTTPException for a job that
    is not known or for too much, NoJournal, and Cancelled soon after `stopped` is true."""
    try:
        curves = read(asked, stopped)
    except TooMuch as error:
        raise _bad(str(error)) from None
    for name in asked.jobs or ():
        if name not in curves.known and name not in known:
            names = sorted({*curves.known, *known})
            more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
            some = ", ".join(names[:NAMES_MAX]) or "none"
            raise HTTPException(
                HTTPStatus.NOT_FOUND, f"no job {name[:80]!r} in this range; known are {some}{more}"
            )
    return b"".join(rendered(asked, curves, effects(curves.changes, stopped), stopped))


def history_of(asked: Range, curves: Curves, effects: Mapping[tuple[str, int], Effect]) -> History:
    """The answer, without the jobs' curves, which are many."""
    found = [effects.get((one.job, one.cycle)) for one in curves.changes]
    return History.of(
        asked,
        curves,
        schema_version=SCHEMA_VERSION,
        node=curves.node.curves(),
        effects=tuple(
            None if effect is None else effect_status(one.cycle, effect)
            for one, effect in zip(curves.changes, found, strict=True)
        ),
        jobs={},
    )


def rendered(
    asked: Range,
    curves: Curves,
    effects: Mapping[tuple[str, int], Effect],
    stopped: Callable[[], bool],
) -> Iterator[bytes]:
    """The answer's JSON in parts, a job each: rendering all at once would hold the interpreter's
    lock, and so the loop, for most of a second."""
    head = json_text(history_of(asked, curves, effects))
    assert head.endswith("{}}")  # `jobs` is the last key, and empty
    yield head[:-2].encode()
    for number, (name, steps) in enumerate(curves.jobs.items()):
        if stopped():
            raise Cancelled("the client has closed the connection")
        text = f"{',' if number else ''}{json.dumps(name)}:{json_text(steps.curves())}"
        yield text.encode()
    yield b"}}"


def asked_usage(query: Mapping[str, str], now_s: float) -> tuple[By, float]:
    """How to sum up, and the begin of the range that ends now. Raises HTTPException."""
    since_s = _seconds(query, "since", DAY_S)
    if not MINUTE_S <= since_s <= RANGE_MAX_S:
        raise _bad(f"since is {since_s:g} s ago, must be {MINUTE_S:.0f} to {RANGE_MAX_S:.0f} s ago")
    by = query.get("by", "user")
    if by not in ("user", "job"):
        raise _bad(f"`by` is {by[:20]!a}, must be `user` or `job`")
    return ("user" if by == "user" else "job"), max(now_s - since_s, 0.0)


def asked_range(query: Mapping[str, str], now_s: float, jobs: int = 0) -> Range:
    """The range that a query asks for, aligned to its step. `jobs`: how many there are now. Raises
    HTTPException."""
    to_s = _seconds(query, "to", now_s)
    from_s = _seconds(query, "from", max(to_s - DEFAULT_RANGE_S, 0.0))
    if from_s >= to_s:
        raise _bad(f"from is {from_s:g}, must be before to, which is {to_s:g}")
    if to_s - from_s > RANGE_MAX_S:
        days = (to_s - from_s) / DAY_S
        raise _bad(f"the range is {days:.0f} days, must be at most {RANGE_MAX_S / DAY_S:.0f}")
    names = _jobs(query)
    default_s = default_step_s(from_s, to_s, jobs if names is None else len(names))
    step_s = _seconds(query, "step", default_s)
    if not STEPS_S[0] <= step_s <= RANGE_MAX_S:
        raise _bad(f"step is {step_s:g} s, must be from {STEPS_S[0]} s to {RANGE_MAX_S:.0f} s")
    asked = Range(from_s // step_s * step_s, to_s, step_s, names)
    if asked.points > POINTS_MAX:
        least_s = -(-(to_s - from_s) // (POINTS_MAX - 1))
        raise _bad(
            f"the range has {asked.points} steps of {step_s:g} s, must have at most {POINTS_MAX}: "
            f"ask for a step of {least_s:.0f} s"
        )
    return asked


def _seconds(query: Mapping[str, str], key: str, default_s: float) -> float:
    text = query.get(key)
    if text is None:
        return default_s
    # Digits only: float() would also accept signs, `inf`, `nan` and underscores.
    if not text.isascii() or not _SECONDS.fullmatch(text):
        raise _bad(f"{key} is {text[:20]!a}, must be seconds from 0 to 99999999999, in digits")
    return float(text)


def _jobs(query: Mapping[str, str]) -> tuple[str, ...] | None:
    text = query.get("jobs")
    if text is None:
        return None
    # An adopted container may have capitals, its job has none.
    names = tuple(dict.fromkeys(name.lower() for name in text.split(",") if name))
    if not 0 < len(names) <= JOBS_MAX:
        raise _bad(f"jobs names {len(names)} jobs, must name from 1 to {JOBS_MAX}")
    return names


def _bad(detail: str) -> HTTPException:
    return HTTPException(HTTPStatus.BAD_REQUEST, detail)
