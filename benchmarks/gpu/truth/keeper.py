"""Runs one command and leaves nothing behind: when it ends, or this process is asked to end, or
its parent dies, all processes below are killed, also those that left the session.

    python -m benchmarks.gpu.truth.keeper PARENT-PID COMMAND ...

Ends as the command did: with its exit code, or by its signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

_SET_DEATH_SIGNAL = 1
_SET_SUBREAPER = 36
"""Options of prctl(2)."""
KILLING_S = 3.0
"""After it a process that a driver holds is left alone."""

_libc = ctypes.CDLL(None)


class _Asked(BaseException):
    """SIGTERM came."""


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel kills the child when its parent dies."""
    _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def descendants(of: int) -> list[int]:
    """PIDs of all processes below that one, zombies too."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
        children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    heads = [of]
    while heads:
        below = children.get(heads.pop(), [])
        found += below
        heads += below
    return found


def _ask(*_: object) -> None:
    raise _Asked


def _kill_all() -> None:
    until_s = time.monotonic() + KILLING_S
    while time.monotonic() < until_s and (left := descendants(os.getpid())):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
            time.sleep(0.01)


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    status = 0
    _libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    with contextlib.suppress(_Asked):
        signal.signal(signal.SIGTERM, _ask)
        _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
        if os.getppid() == parent:
            child = subprocess.Popen(command, preexec_fn=die_with_parent)  # noqa: PLW1509
            while True:
                pid, status = os.wait()
                if pid == child.pid:
                    break
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _kill_all()
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
