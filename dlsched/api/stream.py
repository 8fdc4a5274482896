"""`/v1/stream`: every cycle as Server-Sent Events, to any number of followers.

The loop only hands its reports over. Everything else happens in the API's thread: a cycle is
rendered once, and all followers share the bytes. The ring is the only queue."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from dlsched.api.codec import json_text
from dlsched.api.status import discreet, node_status
from dlsched.api.stream_events import EventHistory, point
from dlsched.model.cycle import CycleReport

STREAM_FOLLOWERS_MAX = 32
"""Limit of followers at each address. Each may hold a message that it has not taken yet."""

KEPT_S = 900.0
"""Age of the oldest cycle that is sent again to a follower who comes back."""

KEPT_BYTES = 8 << 20
"""Limit of what is kept, compressed: 15 minutes of about 250 jobs at one cycle a second."""

COMMENT_S = 15.0
"""Time without a message after which a comment shows that the connection lives."""

SLOW_S = 5.0
"""A follower who takes no message for so long is dropped."""

_RETRY_MS = 1000
"""When browsers try again after a connection is lost."""

_PENDING_CYCLES = 60
"""Reports that wait at most while the API has no sockets."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """One cycle in the ring, rendered."""

    number: int
    """Without gaps, from 0."""
    cycle: int
    now_s: float
    stamp: bytes
    """The line with its id."""
    events: bytes
    """Empty: nothing happened."""
    packed_point: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.stamp) + len(self.events) + len(self.packed_point)


class _Ring:
    """The last cycles, bounded in age and bytes; at least the last one."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: deque[_Kept] = deque()
        self._bytes = 0
        self._next = 0
        self._newest = b""
        """The whole message of the last one, as all who follow take it at the same time."""

    def add(self, cycle: int, now_s: float, stamp: bytes, events: bytes, points: bytes) -> None:
        # Level 1: a fifth of the size, for 0.2 ms with 200 jobs.
        kept = _Kept(self._next, cycle, now_s, stamp, events, zlib.compress(points, 1))
        self._kept.append(kept)
        self._newest = events + stamp + points
        self._next += 1
        self._bytes += kept.size_bytes
        while len(self._kept) > 1 and (
            self._bytes > self._max_bytes or now_s - self._kept[0].now_s > KEPT_S
        ):
            self._bytes -= self._kept.popleft().size_bytes

    def after(self, cycle: int | None) -> int:
        """Number of the first one kept after that cycle; None: of the first one."""
        return next(
            (one.number for one in self._kept if cycle is None or one.cycle > cycle), self._next
        )

    def at(self, number: int) -> _Kept | None:
        """None: it is yet to come. Raises IndexError if it is not kept any more."""
        if number >= self._next:
            return None
        at = number - self._kept[0].number
        if at < 0:
            raise IndexError(number)
        return self._kept[at]

    def message(self, kept: _Kept, only_events: bool) -> bytes:
        """The messages of that cycle, of which the last has its id; empty: none."""
        if only_events:
            return kept.stamp + kept.events if kept.events else b""
        if kept.number == self._next - 1:
            return self._newest
        return kept.events + kept.stamp + zlib.decompress(kept.packed_point)


class Stream:
    """The ring, and everybody who follows it. For the API's thread, but for `publish` and `end`."""

    def __init__(
        self,
        boot: str,
        earlier: CycleReport | None = None,
        *,
        keep_bytes: int = KEPT_BYTES,
        comment_s: float = COMMENT_S,
        slow_s: float = SLOW_S,
    ) -> None:
        """`boot` names this run of the daemon; `earlier` is the last cycle of the run before."""
        self._boot = boot
        self._history = EventHistory(earlier)
        self._ring = _Ring(keep_bytes)
        self._comment_s = comment_s
        self.slow_s = slow_s
        self._pending: deque[CycleReport] = deque(maxlen=_PENDING_CYCLES)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._ended = False
        self._last: CycleReport | None = None
        self._status: tuple[int, bytes] = (0, b"")
        """The last Status that was asked for, and its cycle."""
        self.followers: Counter[str] = Counter()
        """Followers now, by address."""

    # ------------------------------------------------------------------ any thread

    def publish(self, report: CycleReport) -> None:
        """Hand over a cycle's report without blocking."""
        self._pending.append(report)
        self._call(self._take)

    def end(self) -> None:
        """End every stream, as the server is about to stop."""
        self._call(self._end)

    def _call(self, call: Callable[[], None]) -> None:
        loop = self._loop
        with suppress(RuntimeError):  # that loop has ended; the next one begins with `attach`
            if loop is not None:
                loop.call_soon_threadsafe(call)

    # ------------------------------------------------------------------ the API's thread

    def attach(self) -> None:
        """Work in this thread's event loop from now on."""
        self._changed = asyncio.Event()
        self._ended = False
        self._loop = asyncio.get_running_loop()
        self._take()

    def _end(self) -> None:
        self._ended = True
        self._changed.set()

    def _take(self) -> None:
        """Render what the loop has handed over, and wake the followers."""
        while self._pending:
            # Whose output is quoted differs by caller, but the bytes are for all of them.
            report = discreet(self._pending.popleft(), lambda _owner: False)
            cycle = report.snapshot.cycle
            events = self._history.next(report)
            self._ring.add(
                cycle,
                report.snapshot.now_s,
                f"id: {self._boot}:{cycle}\n".encode(),
                b"" if events is None else _message("events", events),
                _message("point", point(report)),
            )
            self._last = report
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def messages(
        self, last_id: str, *, only_events: bool = False, follow: bool = True
    ) -> AsyncIterator[bytes]:
        """What is kept after the message of that id (of all, where this run did not send it), then
        each cycle as it comes."""
        yield f"retry: {_RETRY_MS}\n\n".encode()
        clock = asyncio.get_running_loop().time
        sent_s = clock()
        number = self._ring.after(self._cycle_of(last_id))
        with suppress(IndexError):  # too far behind: it may come back with its last id
            while True:
                changed = self._changed  # before the ring is read, so that no cycle is missed
                before = number
                while (kept := self._ring.at(number)) is not None:
                    number = kept.number + 1
                    if message := self._ring.message(kept, only_events):
                        yield message
                        sent_s = clock()
                if number > before and follow and not only_events:
                    yield self._rendered_status()
                if not follow or self._ended:
                    return
                try:
                    async with asyncio.timeout_at(sent_s + self._comment_s):
                        await changed.wait()
                except TimeoutError:
                    yield b":\n\n"
                    sent_s = clock()

    def _cycle_of(self, last_id: str) -> int | None:
        """The cycle of an id that this run has sent."""
        boot, _, cycle = last_id.partition(":")
        known = boot == self._boot and cycle.isascii() and cycle.isdigit() and len(cycle) < 19
        return int(cycle) if known else None

    def _rendered_status(self) -> bytes:
        """The last cycle's Status, rendered for the first who asks. It has no id, as it is never
        sent again."""
        if self._last is not None and self._status[0] != self._last.snapshot.cycle:
            self._status = (self._last.snapshot.cycle, _message("status", node_status(self._last)))
        return self._status[1]


def in_time(send: Send, within_s: float, abort: Callable[[], None]) -> Send:
    """A `send` that aborts the connection of a caller who takes nothing for so long, in a response
    whose disconnect cancels it."""

    async def send_in_time(message: Message) -> None:
        try:
            async with asyncio.timeout(within_s):
                await send(message)
        except TimeoutError:
            abort()
            await asyncio.get_running_loop().create_future()

    return send_in_time


class StreamResponse(StreamingResponse):
    """A response that counts as a follower, and drops one who does not keep up."""

    def __init__(
        self,
        stream: Stream,
        address: str,
        abort: Callable[[], None],
        messages: AsyncIterator[bytes],
    ) -> None:
        """`abort` closes the connection without waiting for what is not taken."""
        super().__init__(
            messages, headers={"Cache-Control": "no-store"}, media_type="text/event-stream"
        )
        self._stream, self._address, self._abort = stream, address, abort

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._stream.followers[self._address] += 1
        try:
            await super().__call__(scope, receive, in_time(send, self._stream.slow_s, self._abort))
        finally:
            self._stream.followers[self._address] -= 1


def _message(kind: str, value: object) -> bytes:
    # ASCII on one line: no text in it can end the message or begin another one.
    return f"event: {kind}\ndata: {json_text(value)}\n\n".encode()
