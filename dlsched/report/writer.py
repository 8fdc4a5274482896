"""Collects what the job reports and writes it once a second; one writer in each process.

It never raises into the job, and waits only for its own short lock. That lock is re-entrant, and so
is the thread's wake-up queue: a signal handler may report while its thread is reporting.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import math
import os
import queue
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from dlsched.report.lines import Tally, latency_lines, line

PERIOD_S = 1.0
"""Minimum time between two lines."""


FILE_BYTES = 256 * 1024
"""Size at which the file is renamed."""


class OutFile:
    """Appends whole lines to a path. What cannot be written is dropped and counted in `dropped`.

    It never raises, blocks, or keeps a descriptor: in a job that closes all its descriptors the
    reporter would write into whatever file got the number next.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.dropped = 0
        self._torn = False

    def append(self, line: bytes) -> None:
        """Append one line in a single write."""
        try:
            if self._torn:
                line = b"\n" + line
            descriptor = self._open()
            try:
                if self._turn(descriptor, len(line)):
                    os.close(descriptor)
                    descriptor = self._open()
                written = os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError:
            self.dropped += 1
        else:
            # A full disk may take part of a line: then the next one begins with a newline.
            self._torn = written < len(line)
            self.dropped += self._torn

    def _open(self) -> int:
        # Without O_CREAT first: in a world-writable sticky directory the kernel refuses O_CREAT on
        # another user's file. O_NONBLOCK: a FIFO in its place must not block the job.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            return os.open(self.path, flags)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
        descriptor = os.open(self.path, flags | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):
            # Other users' processes in the same container report here, too, whatever the umask.
            os.fchmod(descriptor, 0o666)
        return descriptor

    def _turn(self, descriptor: int, more: int) -> bool:
        """Rename a full file; returns whether the name must be opened again."""
        here = os.fstat(descriptor)
        if here.st_size + more <= FILE_BYTES:
            return False
        try:
            # Only one writer renames; the others notice that the name refers to another file.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            named = os.stat(self.path)  # noqa: PTH116 - imports few modules into a job
            if (named.st_dev, named.st_ino) == (here.st_dev, here.st_ino):
                os.rename(self.path, self.path + ".1")  # noqa: PTH104
        except OSError as error:
            return error.errno == errno.ENOENT
        return True


class Writer:
    """Collects from all threads of one process; a forked child starts with an empty one."""

    def __init__(
        self,
        path: str,
        threaded: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.out = OutFile(path)
        self._threaded = threaded
        self._monotonic = monotonic
        self._wall = wall
        self.reset()

    def reset(self) -> None:
        """Drop everything pending, and the thread, as a forked child must."""
        self.name = "{}-{}".format(os.getpid(), os.urandom(3).hex())
        self._lock = threading.RLock()
        self._tally = Tally()
        self._in_flight: Dict[object, float] = {}
        self._reported_in_flight = False
        self._step: Optional[int] = None
        self._metrics: Dict[str, float] = {}
        self._checkpoint: Optional[Tuple[int, str]] = None
        self._gpu_ratio: Optional[float] = None
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._armed = False
        self._flushed_s = self._monotonic()

    @property
    def dropped(self) -> int:
        """Number of lines and values that could not be reported."""
        return self.out.dropped

    def drop(self) -> None:
        """Count a value that cannot be reported."""
        self.out.dropped += 1

    def request_begun(self) -> object:
        """A request arrived; returns its token for `request_ended`."""
        token = object()
        with self._lock:
            self._in_flight[token] = self._monotonic()
        self._touch()
        return token

    def request_ended(self, token: object, counted: str) -> None:
        """It was answered (`latency`), failed (`error`), or does not count (`neither`)."""
        with self._lock:
            begun_s = self._in_flight.pop(token, None)
            if begun_s is None:
                return
            if counted == "latency":
                self._tally.add(max(0.0, self._monotonic() - begun_s))
            elif counted == "error":
                self._tally.errors += 1
        self._touch()

    def observed(self, seconds: float) -> None:
        """A request was answered in that many seconds."""
        with self._lock:
            self._tally.add(seconds)
        self._touch()

    def failed(self) -> None:
        with self._lock:
            self._tally.errors += 1
        self._touch()

    def stepped(self, step: int, metrics: Dict[str, float]) -> None:
        """A step was made; of each metric the last value within a second is written."""
        with self._lock:
            self._step = step
            self._metrics.update(metrics)
        self._touch()

    def saved(self, step: int, path: str) -> None:
        with self._lock:
            self._checkpoint = (step, path)
        self._touch()

    def paced(self, gpu_ratio: float) -> None:
        """The job's recent fraction of its GPUs' time."""
        with self._lock:
            self._gpu_ratio = gpu_ratio
        self._touch()

    def flush(self) -> bool:
        """Write what is pending; returns whether requests are in flight."""
        with contextlib.suppress(Exception):
            with self._lock:
                self._flushed_s = self._monotonic()
                self._armed = False
                lines = self._take()
                more = bool(self._in_flight)
            for each in lines:
                self.out.append(each)
            return more
        return False

    def _take(self) -> List[bytes]:
        head: Dict[str, Any] = {"t": round(self._wall(), 3), "w": self.name}
        lines: List[bytes] = []
        if self._step is not None:
            lines.append(self._sample_line(head, self._step, self._metrics))
            self._step, self._metrics = None, {}
        if self._checkpoint is not None:
            (step, path), self._checkpoint = self._checkpoint, None
            try:
                lines.append(line(dict(head, checkpoint={"step": step, "path": path})))
            except ValueError:
                self.drop()
        if self._gpu_ratio is not None:
            ratio, self._gpu_ratio = self._gpu_ratio, None
            lines.append(line(dict(head, gpu={"busy_ratio": round(ratio, 4)})))
        if self._tally or self._in_flight or self._reported_in_flight:
            tally, self._tally = self._tally, Tally()
            oldest_s = 0.0
            if self._in_flight:
                oldest_s = self._monotonic() - next(iter(self._in_flight.values()))
            lines += latency_lines(head, tally, len(self._in_flight), oldest_s)
            self._reported_in_flight = bool(self._in_flight)
        return lines

    def _sample_line(self, head: Dict[str, Any], step: int, metrics: Dict[str, float]) -> bytes:
        while True:
            fields: Dict[str, Any] = {k: v for k, v in metrics.items() if math.isfinite(v)}
            if len(fields) < len(metrics):
                # JSON has no word for these.
                others = {k: f"{v:g}" for k, v in metrics.items() if not math.isfinite(v)}
                fields["diverged"] = others
            try:
                return line(dict(fields, step=step, **head))
            except ValueError:
                # With long names fewer metrics fit than are allowed.
                metrics.popitem()
                self.drop()

    def _touch(self) -> None:
        """Make sure that what was counted is written within about a period."""
        if self._armed:
            return
        self._armed = True
        if self._thread is None and self._threaded:
            self._start()
        if self._thread is not None:
            self._wakes.put(None)
            return
        self._armed = False
        if self._monotonic() - self._flushed_s >= PERIOD_S:
            self.flush()

    def _start(self) -> None:
        thread = threading.Thread(
            target=self._run, args=(self._wakes,), name="dlsched-report", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            # No thread available (container's limit, interpreter ending): see _touch.
            self._threaded = False
        else:
            self._thread = thread

    def _run(self, wakes: queue.SimpleQueue[None]) -> None:
        while True:
            wakes.get()
            time.sleep(PERIOD_S)
            while self.flush():
                time.sleep(PERIOD_S)


_UNKNOWN = object()
_current: Any = _UNKNOWN


def current() -> Optional[Writer]:
    """This process's writer; None without DLSCHED_METRICS_FILE."""
    global _current  # noqa: PLW0603 - one writer a process is the point
    if _current is _UNKNOWN:
        path = os.environ.get("DLSCHED_METRICS_FILE")
        if not path:
            _current = None
        else:
            writer = Writer(path)
            atexit.register(writer.flush)
            os.register_at_fork(after_in_child=writer.reset)
            _current = writer
    writer_or_none: Optional[Writer] = _current
    return writer_or_none
