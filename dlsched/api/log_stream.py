"""Streams a job's log to a caller, with a thread for each log."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dlsched.model.errors import DlschedError, EngineUnavailable


class LogReading:
    """A log, read by a daemon thread. The next line may never come: a worker thread of the event
    loop would then delay the end of the program, a daemon thread does not."""

    _CHUNKS_AHEAD = 64

    def __init__(self, slots: threading.BoundedSemaphore) -> None:
        """`slots` has one slot acquired for this reading, which releases it at its end."""
        self._slots = slots
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._room = threading.Semaphore(self._CHUNKS_AHEAD)
        self._gone = threading.Event()
        self._source: Iterator[bytes] | None = None
        self._first: bytes | None = None
        self._ended = False

    def start(self, open_log: Callable[[], Iterator[bytes]]) -> None:
        threading.Thread(target=self._pump, args=(open_log,), name="api-log", daemon=True).start()

    async def first(self, timeout_s: float) -> None:
        """Wait at most this long for the first chunk; raises what the reader raised."""
        with contextlib.suppress(asyncio.TimeoutError):
            self._first = await asyncio.wait_for(self._next(), timeout_s)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The chunks, until the log ends or the caller disconnects."""
        try:
            if self._first is not None:
                yield self._first
            while not self._ended:
                chunk = await self._next()
                if chunk is not None:
                    yield chunk
        # The status is already sent, so the log itself says why it ends here.
        except KeyError:
            yield b"\ndlsched: the job has no container\n"
        except DlschedError as error:
            yield f"\ndlsched: {error}\n".encode()

    def close(self) -> None:
        self._gone.set()
        self._room.release()
        self._close_source()

    def _close_source(self) -> None:
        close = getattr(self._source, "close", None)
        # It may be in the middle of a read: that ends it, in whatever way.
        with contextlib.suppress(Exception):
            if close is not None:
                close()

    async def _next(self) -> bytes | None:
        chunk = await self._queue.get()
        if isinstance(chunk, Exception):
            self._ended = True
            raise chunk
        self._ended = chunk is None
        self._room.release()
        return chunk

    def _pump(self, open_log: Callable[[], Iterator[bytes]]) -> None:
        last: Exception | None = None
        try:
            self._source = open_log()
            if self._gone.is_set():  # the caller left before there was anything to close
                self._close_source()
            for chunk in self._source or ():
                self._room.acquire()
                if self._gone.is_set():
                    break
                self._loop.call_soon_threadsafe(self._queue.put_nowait, chunk)
        except (KeyError, DlschedError) as error:
            last = error
        except Exception as error:  # noqa: BLE001 - a reader cut off by close() may raise anything
            last = (
                None
                if self._gone.is_set()
                else EngineUnavailable(f"the job's log cannot be read: {error}")
            )
        finally:
            self._slots.release()
            with contextlib.suppress(RuntimeError):  # the event loop has ended before us
                self._loop.call_soon_threadsafe(self._queue.put_nowait, last)


class LogResponse(StreamingResponse):
    """A response that closes its reading however it ends, even if it never began."""

    def __init__(self, reading: LogReading) -> None:
        super().__init__(reading.chunks(), media_type="text/plain; charset=utf-8")
        self._reading = reading

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reading.close()
