"""What it costs the daemon to be looked at: 20 followers of the stream, and a scrape each second.

The daemon's own loop runs over files, as in `loop`, at a cycle a second of real time; every service
reports in each. Stretches without and with the followers alternate. The followers are one process.
Beside the figures stands what a fixed loop of Python costs on this host at this time.
"""

from __future__ import annotations

import argparse
import logging
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks.cost.loop import WARM_CYCLES, World, world
from benchmarks.cost.top import LOOPS, calibration_s
from benchmarks.places import ROOT

SIZES = (20, 200)
"""Numbers of jobs."""
FOLLOWERS = 20
STRETCH_CYCLES = 20
STRETCHES = 3
"""Of each kind."""


def follow(path: str) -> None:
    """Followers, and a scrape each second. Does not return."""
    waiting = selectors.DefaultSelector()
    for _ in range(FOLLOWERS):
        waiting.register(_asked(path, "/v1/stream"), selectors.EVENT_READ)
    print("ready", flush=True)
    scrape_s, scrape = time.monotonic(), None
    while True:
        if scrape is None and time.monotonic() >= scrape_s:
            scrape, scrape_s = _asked(path, "/metrics"), scrape_s + 1.0
            waiting.register(scrape, selectors.EVENT_READ)
        for key, _ in waiting.select(0.1):
            one = key.fileobj
            assert isinstance(one, socket.socket)
            if one.recv(1 << 20):
                continue
            waiting.unregister(one)
            one.close()
            if one is not scrape:
                raise SystemExit("a follower was hung up on")
            scrape = None


def _asked(path: str, what: str) -> socket.socket:
    one = socket.socket(socket.AF_UNIX)
    one.connect(path)
    one.sendall(f"GET {what} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n".encode())
    return one


@contextmanager
def followed(path: Path) -> Iterator[None]:
    """The followers, in a process of their own."""
    words = [sys.executable, "-m", "benchmarks.cost.followers", "--follow", str(path)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise SystemExit("the followers do not start")
            yield
            if process.poll() is not None:
                raise SystemExit("the followers ended")
        finally:
            process.kill()


def stretch(one: World) -> tuple[list[float], float]:
    """Wall time of each cycle, and the part of a core that the daemon used."""
    walls_s: list[float] = []
    began_s, cpu_s = time.monotonic(), time.process_time()
    for number in range(STRETCH_CYCLES):
        time.sleep(max(0.0, began_s + number - time.monotonic()))
        one.second(reports=True)
        cycle_s = time.monotonic()
        one.agent.cycle()
        walls_s.append(time.monotonic() - cycle_s)
    time.sleep(max(0.0, began_s + STRETCH_CYCLES - time.monotonic()))
    return walls_s, (time.process_time() - cpu_s) / STRETCH_CYCLES


def measure(jobs: int, policy: str) -> Iterator[dict[str, float | str]]:
    """A row without the followers, and one with them."""
    with world(jobs, policy) as one:
        one.agent._api.start()
        path = one.agent._api.status_path
        for _ in range(WARM_CYCLES):
            one.second(reports=True)
            one.agent.cycle()
        walls_s: dict[bool, list[float]] = {False: [], True: []}
        cores: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(STRETCHES):
            for watched in (False, True):
                with followed(path) if watched else nullcontext():
                    found_s, used = stretch(one)
                walls_s[watched] += found_s
                cores[watched].append(used)
    for watched in (False, True):
        yield {
            "jobs": jobs,
            "followers": FOLLOWERS if watched else 0,
            "median_cycle_ms": round(1000 * statistics.median(walls_s[watched]), 2),
            "worst_cycle_ms": round(1000 * max(walls_s[watched]), 1),
            "core_percent": round(100 * statistics.median(cores[watched]), 1),
        }


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print a line for each number of jobs, without and with followers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="adaptive")
    parser.add_argument("--jobs", type=int, nargs="*", default=SIZES)
    parser.add_argument("--follow", metavar="SOCKET", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.follow:
        follow(chosen.follow)
    logging.disable()
    for jobs in chosen.jobs:
        for row in measure(jobs, chosen.policy):
            print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    print(f"calibration: {LOOPS:,} rounds of a loop took {calibration_s():.3f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
