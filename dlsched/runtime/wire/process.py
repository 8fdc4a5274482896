"""The process that reads packets, as its parent holds it: it may die, hang or answer nonsense."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlsched.runtime.progress.sidecar_line import BadLine
from dlsched.runtime.wire.child import FRAME, LINE_BYTES_MAX

ANSWER_S = 5.0
"""A child that does not take what it is given, or does not report, for so long is hung."""
START_S = 30.0
"""How long it may take to begin: where others use all CPU, a start of some tenths of a second takes
many seconds."""
READS_MAX = 16
"""Reads of the child's lines between two other things to do, of `LINE_BYTES_MAX` each."""
LINES_MAX = 128
"""Lines that a child may have ready: at most 32 in so many reads, since two that follow one another
fill one, and the last one of each report, of which it makes one a tick."""


class Child:
    """The process that reads packets."""

    def __init__(self, command: Iterable[str] = ()) -> None:
        """Raises OSError."""
        root = str(Path(__file__).parents[3])
        start = f"import sys; sys.path.insert(0, {root!r}); "
        start += "from dlsched.runtime.wire.child import main; main()"
        self._process = subprocess.Popen(
            tuple(command) or (sys.executable, "-I", "-c", start),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            close_fds=True,
            env={},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.frames = self._process.stdin.fileno()
        self.lines = self._process.stdout.fileno()
        os.set_blocking(self.frames, False)
        os.set_blocking(self.lines, False)
        with suppress(OSError):
            _enlarge(self.frames)
        self._partial = b""
        self.patience_s = START_S
        """How long it may take nothing, or not report; shorter once it has reported."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, kind: int, ring: int, data: bytes) -> bool:
        """Whether it took the frame within `patience_s`; raises OSError where it is gone."""
        left = [memoryview(FRAME.pack(kind, ring, len(data))), memoryview(data)]
        until_s = time.monotonic() + self.patience_s
        while left:
            try:
                written = os.writev(self.frames, left)
                while left and written >= len(left[0]):
                    written -= len(left.pop(0))
                if left:
                    left[0] = left[0][written:]
            except BlockingIOError:
                left_s = until_s - time.monotonic()
                if left_s <= 0.0:
                    return False
                room = select.poll()  # select() takes no descriptor above 1,023
                room.register(self.frames, select.POLLOUT)
                room.poll(1e3 * left_s)
        return True

    def reports(self) -> Iterator[dict[str, Any]]:
        """The lines that it has written. Raises OSError where it is gone, BadLine for nonsense:
        what came before is right, and a line that it did not end is left out."""
        found = 0
        with suppress(BlockingIOError):
            # A child that writes without end must not keep this thread.
            for _ in range(READS_MAX):
                chunk = os.read(self.lines, LINE_BYTES_MAX)
                if not chunk:
                    raise BrokenPipeError("the process has ended")
                *lines, self._partial = (self._partial + chunk).split(b"\n")
                found += len(lines)
                if found > LINES_MAX:
                    raise BadLine(f"the process wrote more than {LINES_MAX} lines at a time")
                if max(map(len, (*lines, self._partial))) > LINE_BYTES_MAX:
                    raise BadLine(f"the process wrote a line of more than {LINE_BYTES_MAX} bytes")
                for line in lines:
                    yield _decoded(line)

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()


def _enlarge(pipe: int) -> None:
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(line.decode())
    except (ValueError, RecursionError):
        raise BadLine("the process wrote a report that is not JSON") from None
    if not isinstance(decoded, dict) or not isinstance(decoded.get("ports"), dict):
        raise BadLine("the process wrote a report without ports")
    return decoded


def is_whole(line: Mapping[str, Any]) -> bool:
    """Whether this is the last line of a report."""
    return "packets" in line
