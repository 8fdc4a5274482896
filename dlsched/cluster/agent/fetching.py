"""Fetches checkpoints from other nodes' agents, in a thread of its own."""

from __future__ import annotations

import asyncio
import errno
import hashlib
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
from dlsched.cluster.core.records import Saved
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
MARGIN = 1.2
"""Free space that the disk must have, in sizes of the archive."""
_ERROR_BYTES = 64 << 10


@dataclass(slots=True)
class _Fetch:
    """The last one of a job."""

    epoch: int
    to: Path
    work: Future[None] | None = None
    result: str | None = None
    """None: it is under way; else the empty text, or why it failed."""
    came_bytes: int = 0


class HttpsCheckpoints:
    """Fetches archives, one of a job at a time."""

    def __init__(
        self,
        certificates: Certificates,
        address: Callable[[str], str],
        most_bytes: int,
        port: int = PORT,
        free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    ) -> None:
        """`address`: the IP address of a node, empty while it is not known; `most_bytes`: of a
        checkpoint; `free_bytes`: of the disk of a folder."""
        self._client = HttpsClient(certificates)
        self._address, self._most_bytes, self._port = address, most_bytes, port
        self._free_bytes = free_bytes
        self._thread = LoopThread("cluster-fetching")
        self.start, self.stop = self._thread.start, self._thread.stop
        """The end of it ends all that is under way; what is not whole leaves no file."""
        self._lock = threading.Lock()
        self._fetches: dict[str, _Fetch] = {}

    def begin(self, source: str, job: str, epoch: int, to: Path, saved: Saved) -> bool:
        """Begin to fetch that checkpoint into the file; False: the source's address is not known
        yet. Again: changes nothing. A lower epoch of the job is given up."""
        address = self._address(source)
        with self._lock:
            last = self._fetches.get(job)
            if last is not None and last.epoch >= epoch:
                return True
            if not address:
                return False
            self._drop(job)
            self._fetches[job] = fetch = _Fetch(epoch, to)
            destination = Destination(source, address, self._port)
            fetch.work = self._thread.begin(self._run(destination, job, fetch, saved))
            return True

    def end(self, job: str) -> None:
        """Give up what is being fetched of the job, if anything: once this returns, no file of it
        comes any more."""
        with self._lock:
            self._drop(job)

    def fetched(self, job: str, epoch: int) -> str | None:
        """None: not yet; else the empty text, or why it failed, and then there is no file."""
        with self._lock:
            fetch = self._fetches.get(job)
            return None if fetch is None or fetch.epoch != epoch else fetch.result

    def came_bytes(self, job: str, epoch: int) -> int | None:
        """How much of it has come; None: it is not being fetched."""
        with self._lock:
            fetch = self._fetches.get(job)
            return None if fetch is None or fetch.epoch != epoch else fetch.came_bytes

    def _drop(self, job: str) -> None:
        if (fetch := self._fetches.pop(job, None)) is not None and fetch.work is not None:
            fetch.work.cancel()

    async def _run(self, source: Destination, job: str, fetch: _Fetch, saved: Saved) -> None:
        to = fetch.to
        result = "fetching the checkpoint was given up"
        try:
            target = f"/v1/cluster/jobs/{job}/checkpoint?epoch={fetch.epoch}"
            async with (
                asyncio.timeout(SILENT_S) as silence,
                self._client.ask(source, "GET", target) as answer,
            ):
                await self._check(answer, to, saved.size_bytes)
                await self._write(answer, saved, job, fetch, silence)
            result = ""
        except NotAnswered as error:
            result = f"{source.node}: {error}"
        except TimeoutError:
            result = f"{source.node}: silent for {render_seconds(SILENT_S)}"
        except OSError as error:
            result = f"{to}: {error.strerror or error}"
        except Exception as error:  # other fetches go on
            log.exception("fetching the checkpoint of %s failed", job)
            result = f"{source.node}: {type(error).__name__}"
        finally:
            with self._lock:
                fetch.result = plain_text(result[:LINE_CHARACTERS])

    async def _check(self, answer: Answer, to: Path, size_bytes: int) -> None:
        """Raises NotAnswered where it is not that checkpoint or too long, OSError without space."""
        if answer.status != HTTPStatus.OK:
            raise NotAnswered(refusal(answer.status, await answer.body(_ERROR_BYTES)))
        if answer.size_bytes != size_bytes:
            line = f"the checkpoint has {answer.size_bytes} bytes instead of {size_bytes}"
            raise NotAnswered(line)
        if size_bytes > self._most_bytes:
            most = render_bytes(self._most_bytes)
            raise NotAnswered(
                f"the checkpoint has {render_bytes(size_bytes)}, and this node takes at most {most}"
            )
        free_bytes, needed_bytes = self._free_bytes(to.parent), int(size_bytes * MARGIN)
        if free_bytes < needed_bytes:
            needed, free = render_bytes(needed_bytes), render_bytes(free_bytes)
            raise OSError(
                errno.ENOSPC, f"the checkpoint needs {needed} of free space, there are {free}"
            )

    async def _write(
        self, answer: Answer, saved: Saved, job: str, fetch: _Fetch, silence: asyncio.Timeout
    ) -> None:
        """Write it durably; a cut or changed one leaves no file. Raises OSError and what reading
        raises."""
        to = fetch.to
        unfinished = to.with_name(f".{to.name}.tmp")
        try:
            with unfinished.open("wb") as stream:
                left, digest = saved.size_bytes, hashlib.sha256()
                async for block in answer.blocks():
                    if (left := left - len(block)) < 0:  # it may be chunked, too
                        raise NotAnswered("the node sent more bytes than the checkpoint has")
                    stream.write(block)
                    digest.update(block)
                    fetch.came_bytes = saved.size_bytes - left
                    silence.reschedule(asyncio.get_running_loop().time() + SILENT_S)
                silence.reschedule(None)
                if (found := digest.hexdigest()) != saved.sha256:
                    line = f"the checkpoint has digest {found[:12]} instead of {saved.sha256[:12]}"
                    raise NotAnswered(line)
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
