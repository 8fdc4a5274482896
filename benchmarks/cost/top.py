"""What `dlsched top` costs: CPU, memory, and what it writes to the terminal, at one cycle a second.

The daemon is made up, in a process of its own; top runs in a pseudo-terminal. Beside the figures
stands what a fixed loop of Python costs on this host at this time, as hosts differ.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import random
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks.places import ROOT

SIZES = (20, 200)
"""Numbers of jobs."""
START_S = 8.0
"""Until top shows jobs, and what it does at its start is over."""
COLUMNS, ROWS = 120, 40
LOOPS = 2_000_000
"""Of the calibration: about 0.1 s."""
EARLIER = 900
"""Cycles that the daemon has done before: top reads the last 15 minutes at its start."""


def serve(folder: Path, jobs: int) -> None:
    """A daemon's API, whose services' latencies change in each cycle. Does not return."""
    from dlsched.api.server import ApiServer
    from tests.status_source import FakeSource, example_report, job

    drawn = random.Random(1)
    source = FakeSource()
    ApiServer(source, folder).start()
    usual_s = [drawn.uniform(0.02, 0.09) for _ in range(jobs)]
    report = example_report()
    began_s = time.monotonic()
    for cycle in range(-EARLIER, 1 << 30):
        if cycle == 0:
            print("ready", flush=True)
            began_s = time.monotonic()
        views = tuple(
            job(f"job-{index:03}", latency_s=one * drawn.uniform(0.9, 1.1))
            for index, one in enumerate(usual_s)
        )
        number, now_s = EARLIER + cycle, 1000.0 + cycle
        snapshot = replace(report.snapshot, cycle=number, now_s=now_s, jobs=views)
        source.report = replace(report, snapshot=snapshot)
        source.stream.publish(source.report)
        if cycle < 0:
            time.sleep(0.02)  # the API's thread renders it meanwhile
        else:
            time.sleep(max(0.0, began_s + cycle + 1 - time.monotonic()))


def measure(jobs: int, seconds: float) -> dict[str, float]:
    """One row."""
    with tempfile.TemporaryDirectory() as name, _daemon(Path(name), jobs):
        pid, terminal = pty.fork()
        if pid == 0:
            words = [sys.executable, "-m", "dlsched", "top", "--run-dir", name]
            os.execve(sys.executable, words, {**os.environ, "TERM": "xterm-256color"})
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        top = psutil.Process(pid)
        _read_for(terminal, START_S)
        before_s = sum(top.cpu_times()[:2])
        written = _read_for(terminal, seconds)
        used_s = sum(top.cpu_times()[:2]) - before_s
        rss_bytes = top.memory_info().rss
        os.write(terminal, b"q")
        _read_for(terminal, 2.0)
        os.close(terminal)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0 or written == 0:
        raise SystemExit(f"top ended with {status}, and wrote {written} bytes")
    return {
        "jobs": jobs,
        "core_percent": round(100 * used_s / seconds, 2),
        "rss_mb": round(rss_bytes / 1e6, 1),
        "written_kb_s": round(written / seconds / 1e3, 1),
    }


@contextmanager
def _daemon(folder: Path, jobs: int) -> Iterator[None]:
    words = [sys.executable, "-m", "benchmarks.cost.top", "--serve", str(folder), str(jobs)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise SystemExit("the made-up daemon does not start")
            yield
        finally:
            process.kill()


def _read_for(terminal: int, seconds: float) -> int:
    """Take what is drawn, as a terminal would; returns the number of bytes."""
    taken, until_s = 0, time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        if select.select([terminal], [], [], left_s)[0]:
            try:
                taken += len(os.read(terminal, 1 << 16))
            except OSError:  # it has ended
                return taken
    return taken


def calibration_s() -> float:
    """CPU time of a fixed loop."""
    before_s, total = time.process_time(), 0
    for one in range(LOOPS):
        total += one & 7
    return time.process_time() - before_s


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print a line for each number of jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--serve", nargs=2, metavar=("FOLDER", "JOBS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.serve:
        serve(Path(chosen.serve[0]), int(chosen.serve[1]))
    for jobs in SIZES:
        row = measure(jobs, chosen.seconds)
        print(", ".join(f"{name} {value:g}" for name, value in row.items()))
    print(f"calibration: {LOOPS:,} rounds of a loop took {calibration_s():.3f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
