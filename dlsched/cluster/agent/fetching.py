"""Fetches checkpoints from other nodes' agents, in a thread of its own."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from dlsched.cluster.certificates import Certificates
from dlsched.cluster.https import (
    PORT,
    Answer,
    Destination,
    HttpsClient,
    LoopThread,
    NotAnswered,
    refusal,
)
from dlsched.cluster.wire import LINE_CHARACTERS
from dlsched.model.units import plain_text, render_bytes, render_seconds
from dlsched.store.atomic import sync_folder

log = logging.getLogger(__name__)

SILENT_S = 10.0
"""Longest silence of the other node, also before its answer begins."""
KNOWN_WITHIN_S = 30.0
"""After a start of the agent, the next report request has the addresses of the members."""
SLOWEST_BYTES_PER_S = 64 << 10
"""A source that sends a little now and then would otherwise never end."""
GRACE_S = 60.0
"""Time beyond that of the slowest rate."""
MARGIN = 1.2
"""Free space that the disk must have, in sizes of the archive."""
_POLL_S = 0.2
_ERROR_BYTES = 64 << 10


@dataclass(slots=True)
class _Fetch:
    """The last one of a job."""

    epoch: int
    to: Path
    work: Future[None] | None = None
    result: str | None = None
    """None: it is under way; else the empty text, or why it failed."""


class HttpsCheckpoints:
    """Fetches archives, one of a job at a time."""

    def __init__(
        self,
        certificates: Certificates,
        address: Callable[[str], str],
        port: int = PORT,
        free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    ) -> None:
        """`address`: the IP address of a node, empty while it is not known; from any thread.
        `free_bytes`: of the disk of a folder."""
        self._client = HttpsClient(certificates)
        self._address, self._port = address, port
        self._free_bytes = free_bytes
        self._thread = LoopThread("cluster-fetching")
        self._lock = threading.Lock()
        self._fetches: dict[str, _Fetch] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End all that is under way; what is not whole leaves no file."""
        self._thread.stop()

    def begin(self, source: str, job: str, epoch: int, to: Path, most_bytes: int) -> None:
        """Begin to fetch into that file; again: changes nothing. A lower epoch of the job is given
        up."""
        with self._lock:
            last = self._fetches.get(job)
            if last is not None and last.epoch >= epoch:
                return
            self._drop(job)
            self._fetches[job] = fetch = _Fetch(epoch, to)
            fetch.work = self._thread.begin(self._run(source, job, fetch, most_bytes))

    def end(self, job: str) -> None:
        """Give up what is being fetched of the job, if anything: once this returns, no file of it
        comes any more."""
        with self._lock:
            self._drop(job)

    def fetched(self, job: str, epoch: int) -> str | None:
        """None: under way; else the empty text, or why it failed, and then there is no file."""
        with self._lock:
            fetch = self._fetches.get(job)
            if fetch is None or fetch.epoch != epoch:
                return f"epoch {epoch} of {job} is not being fetched"
            return fetch.result

    def _drop(self, job: str) -> None:
        if (fetch := self._fetches.pop(job, None)) is not None and fetch.work is not None:
            fetch.work.cancel()

    async def _run(self, source: str, job: str, fetch: _Fetch, most_bytes: int) -> None:
        to = fetch.to
        result = "fetching the checkpoint was given up"
        try:
            destination = await self._find(source)
            target = f"/v1/cluster/jobs/{job}/checkpoint?epoch={fetch.epoch}"
            async with (
                asyncio.timeout(SILENT_S) as silence,
                self._client.ask(destination, "GET", target) as answer,
            ):
                size_bytes = await self._size(answer, to, most_bytes)
                await self._write(answer, size_bytes, job, fetch, silence)
            result = ""
        except NotAnswered as error:
            result = f"{source}: {error}"
        except TimeoutError:
            least = f"{render_bytes(SLOWEST_BYTES_PER_S)}/s"
            result = f"{source}: silent for {render_seconds(SILENT_S)}, or slower than {least}"
        except OSError as error:
            result = f"{to}: {error.strerror or error}"
        except Exception as error:  # other fetches go on
            log.exception("fetching the checkpoint of %s failed", job)
            result = f"{source}: {type(error).__name__}"
        finally:
            with self._lock:
                fetch.result = plain_text(result[:LINE_CHARACTERS])

    async def _find(self, source: str) -> Destination:
        """Raises NotAnswered."""
        clock = asyncio.get_running_loop().time
        until_s = clock() + KNOWN_WITHIN_S
        while not (address := self._address(source)):
            if clock() > until_s:
                raise NotAnswered("no manager has reported that node's address")
            await asyncio.sleep(_POLL_S)
        return Destination(source, address, self._port)

    async def _size(self, answer: Answer, to: Path, most_bytes: int) -> int:
        """How long the archive is. Raises NotAnswered where it cannot be taken, OSError."""
        if answer.status != HTTPStatus.OK:
            raise NotAnswered(refusal(answer.status, await answer.body(_ERROR_BYTES)))
        size_bytes = answer.size_bytes
        if size_bytes is None:
            raise NotAnswered("the answer does not say how long the checkpoint is")
        if size_bytes > most_bytes:
            most = render_bytes(most_bytes)
            raise NotAnswered(f"the checkpoint has {render_bytes(size_bytes)}, at most {most} fit")
        free_bytes, needed_bytes = self._free_bytes(to.parent), int(size_bytes * MARGIN)
        if free_bytes < needed_bytes:
            needed, free = render_bytes(needed_bytes), render_bytes(free_bytes)
            raise OSError(errno.ENOSPC, f"{needed} of free space are needed, there are {free}")
        return size_bytes

    async def _write(
        self, answer: Answer, size_bytes: int, job: str, fetch: _Fetch, silence: asyncio.Timeout
    ) -> None:
        """Write it durably; a cut one leaves no file. Raises OSError and what reading raises."""
        to = fetch.to
        unfinished = to.with_name(f".{to.name}.tmp")
        try:
            with unfinished.open("wb") as stream:
                async with asyncio.timeout(GRACE_S + size_bytes / SLOWEST_BYTES_PER_S):
                    left = size_bytes
                    async for block in answer.blocks():
                        if (left := left - len(block)) < 0:  # it may be chunked, too
                            raise NotAnswered("the checkpoint is longer than its answer says")
                        stream.write(block)
                        silence.reschedule(asyncio.get_running_loop().time() + SILENT_S)
                silence.reschedule(None)
                stream.flush()
                await asyncio.to_thread(os.fsync, stream.fileno())
            with self._lock:
                if self._fetches.get(job) is not fetch:
                    raise asyncio.CancelledError
                unfinished.rename(to)
        finally:
            unfinished.unlink(missing_ok=True)
        try:
            sync_folder(to.parent)
        except OSError:
            to.unlink(missing_ok=True)
            raise
