"""The real API over a made-up daemon, as a process that a test can stop, kill and start again.

    python -m tests.browser.server SCENE PORT FOLDER [--period SECONDS]

FOLDER gets the sockets. A line on standard output says when it answers.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from dlsched.api.server import ApiServer
from dlsched.api.stream import Stream
from dlsched.model.cycle import CycleReport
from tests.browser.scenes import SCENES, Scene

PATIENCE_S = 3600.0
"""A server that its test has forgotten ends by itself."""
SLOW_S = 60.0
"""A browser that is traced, beside other lanes, took nothing for over 5 s and was dropped."""


def dated(report: CycleReport, wall_s: float, cycle: int, now_s: float) -> CycleReport:
    """The report as that of another time."""
    wall_time = datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    snapshot = replace(report.snapshot, cycle=cycle, now_s=now_s)
    return replace(report, snapshot=snapshot, wall_time=wall_time)


def serve(scene: Scene, port: int, folder: Path, period_s: float) -> None:
    """Publish what was before, then a cycle each period."""
    source = scene.source
    source.stream = Stream(f"run{os.getpid()}", slow_s=SLOW_S)
    server = ApiServer(source, folder, listen=("127.0.0.1", port))
    began_s, first = time.time(), len(scene.before)

    def publish(report: CycleReport, at_s: float, cycle: int) -> None:
        if scene.dated:
            # Monotonic time goes on over restarts, as the daemon's does with a journal.
            report = dated(report, at_s, cycle, at_s)
        source.report = report
        source.stream.publish(report)
        scene.keep(report)

    server.start()
    for number, report in enumerate(scene.before):
        publish(report, began_s - (first - number) * 1.0, number + 1)
        while number % 30 == 0 and source.stream._pending:
            time.sleep(0.001)  # more than 60 that wait would be dropped
    sys.stdout.write("answering\n")
    sys.stdout.flush()
    cycle = first
    while time.time() - began_s < PATIENCE_S:
        report = scene.at(cycle)
        cycle += 1
        if report is not None:
            publish(report, time.time(), cycle)
        time.sleep(period_s)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.server", description=__doc__)
    parser.add_argument("scene", choices=sorted(SCENES))
    parser.add_argument("port", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--period", type=float, default=0.25)
    options = parser.parse_args()
    serve(SCENES[options.scene](options.folder), options.port, options.folder, options.period)
    return 0


if __name__ == "__main__":
    sys.exit(main())
