"""Runs one command and leaves nothing behind: when it ends, or this process is asked to end, or
its parent dies, all processes below are killed, also those that left the session.

    python -m benchmarks.gpu.keeper PARENT-PID COMMAND ...

Ends with the command's exit code, or with 128 and the number of the signal that ended it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
"""Options of prctl(2)."""
KILLING_S = 3.0
"""After it a process that a driver holds is left alone."""

_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel kills the child when its parent dies."""
    _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def descendants(of: int) -> list[int]:
    """PIDs of all processes below that one, zombies too."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # it has just ended
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found = list(children.get(of, ()))
    for one in found:
        found += children.get(one, ())
    return found


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    code = 0
    _libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    with suppress(SystemExit):
        if os.getppid() == parent:
            code = subprocess.Popen(command, preexec_fn=die_with_parent).wait()  # noqa: PLW1509
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    until_s = time.monotonic() + KILLING_S
    while time.monotonic() < until_s and (left := descendants(os.getpid())):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        time.sleep(0.01)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
