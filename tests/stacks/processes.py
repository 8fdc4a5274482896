"""Runs a real program as a process of this machine."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.stacks.stack import Stack

PROGRAMS = Path(__file__).parent / "programs"
CHUNK_BYTES = 1 << 16
TAIL_BYTES = 2000

Log = list[tuple[float, bytes]]
"""What a program printed as it arrived, in seconds since its start."""

SETTINGS = {"PYTHONUNBUFFERED": "1", "COLUMNS": "120", "OMP_NUM_THREADS": "2"}
"""Environment of every program. COLUMNS: the width of progress bars."""


class ProgramFailed(Exception):
    """A program has not done what it is for; what it printed last."""


def tail(log: Sequence[tuple[float, bytes]]) -> str:
    """The end of a log."""
    return b"".join(chunk for _, chunk in log)[-TAIL_BYTES:].decode("utf-8", "replace")


def printed(packages: Path, stack: Stack, out: Path) -> Log:
    """Run it with these packages; what it printed. Raises ProgramFailed."""
    command = [str(packages / "bin" / "python"), str(PROGRAMS / stack.command[0])]
    log: Log = []
    ours = {"STACKS_OUT": str(out), "PYTHONPATH": str(PROGRAMS)}
    began_s = time.monotonic()
    with subprocess.Popen(
        [*command, *stack.command[1:]],
        env={**os.environ, **SETTINGS, **ours},
        cwd=out,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            while True:
                left_s = began_s + stack.timeout_s - time.monotonic()
                if left_s <= 0 or not ready.select(left_s):
                    process.terminate()
                    raise ProgramFailed(f"{stack.name}: over {stack.timeout_s:g} s: {tail(log)}")
                chunk = os.read(process.stdout.fileno(), CHUNK_BYTES)
                if not chunk:
                    break
                log.append((time.monotonic() - began_s, chunk))
    if process.returncode:
        raise ProgramFailed(f"{stack.name}: exit code {process.returncode}: {tail(log)}")
    return log
