"""What a range of the journal costs: to write a row a minute, to read a day and a week of them, and
to decode the frames of the same time instead.

Seven days of 200 jobs take hours to write cycle by cycle. So the rows of the minutes are written
as they are, each with other numbers, and frames only for the last `--frames-min` minutes: what
decoding a day would take is that time, multiplied.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dlsched.api.history import rendered
from dlsched.estimate.sketch import from_latencies
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import ContainerSpec, JobSpec, LatencyTarget, Limits
from dlsched.model.state import JobState, JobView, NodeView, Progress, Snapshot, Usage
from dlsched.store.journal.history import Range, default_step_s, read_curves
from dlsched.store.journal.minutes import Minute, Minutes, packed, wall_text
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.schema import open_for_writing
from dlsched.store.journal.writer import Journal

BEGIN_S = 1_763_683_200.0
DAY_S, HOUR_S, MINUTE_S = 86_400.0, 3600.0, 60.0
TARGET = LatencyTarget(0.1, 0.95)
REQUESTS = 20
"""Requests of each job in a cycle."""


def cycles(jobs: int, first: int, count: int, seed: int = 7) -> Iterator[CycleReport]:
    """One cycle a second of services whose latencies and use change all the time."""
    draw = random.Random(seed)
    for number in range(first, first + count):
        views = tuple(_view(f"job-{index:03}", draw, index) for index in range(jobs))
        node = NodeView(64.0, 64.0, 256 << 30, foreign_cores=draw.uniform(0.1, 0.3))
        yield CycleReport(
            Snapshot(number, float(number), node, views),
            policy="adaptive",
            wall_time=wall_text(BEGIN_S + number),
        )


def _view(name: str, draw: random.Random, index: int) -> JobView:
    fresh = from_latencies([draw.lognormvariate(-2.5, 0.4) for _ in range(REQUESTS)])
    recent = from_latencies([draw.lognormvariate(-2.5, 0.4) for _ in range(3 * REQUESTS)])
    cores = 64.0 / 200
    return JobView(
        JobSpec(name, ContainerSpec("image"), target=TARGET, owner=1000 + index % 20),
        JobState.RUNNING,
        actual=Limits(cores),
        usage=Usage(cpu_cores=cores * draw.uniform(0.3, 1.0), memory_bytes=1 << 28),
        progress=Progress(fresh=fresh, recent=recent),
    )


def write_minutes(path: Path, jobs: int, days: int) -> int:
    """Rows of that many days, each with other numbers; returns their bytes."""
    made = []
    for report in cycles(jobs, 0, 10):
        minutes = Minutes()
        minutes.take(report)
        made.append(minutes.current())
    connection, size_bytes = open_for_writing(path), 0
    connection.execute("BEGIN")
    for number in range(int(days * DAY_S / MINUTE_S)):
        one = made[number % len(made)]
        assert one is not None
        first = int(number * MINUTE_S)
        body = packed(Minute(first, first + 59, BEGIN_S + first, one.node, one.jobs))
        row = (first, first + 59, BEGIN_S + first, body)
        connection.execute("INSERT INTO minutes VALUES (?, ?, ?, ?)", row)
        size_bytes += len(body)
    connection.execute("COMMIT")
    connection.close()
    return size_bytes


def write_frames(path: Path, jobs: int, days: int, minutes: int) -> None:
    """The last minutes of these days, cycle by cycle."""
    count = int(minutes * MINUTE_S)
    journal = Journal(path, max_age_s=2 * days * DAY_S, queue_reports=60)
    for number, report in enumerate(cycles(jobs, int(days * DAY_S), count)):
        journal.write(report)
        if number % 50 == 49:
            journal.flush()
    journal.close()
    assert journal.problem() is None
    assert journal.lost_cycles == 0


def measured(path: Path, jobs: int, days: int, minutes: int) -> Iterator[tuple[str, float, str]]:
    """What was measured: name, value, unit."""
    size_bytes = write_minutes(path, jobs, days)
    rows = days * DAY_S / MINUTE_S
    yield "a minute's row", size_bytes / rows / 1024, "KiB"
    write_frames(path, jobs, days, minutes)
    end_s = BEGIN_S + days * DAY_S
    for name, length_s in (("an hour", HOUR_S), ("a day", DAY_S), (f"{days} days", days * DAY_S)):
        asked = Range(end_s - length_s, end_s, default_step_s(end_s - length_s, end_s))
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        curves = read_curves(path, asked, lambda: False)
        read_s = time.perf_counter() - began_s
        size = sum(map(len, rendered(asked, curves, {}, lambda: False)))
        yield f"{name}: read", read_s, "s"
        yield f"{name}: read and rendered", time.perf_counter() - began_s, "s"
        yield f"{name}: the same in CPU time", time.process_time() - began_cpu_s, "s"
        yield f"{name}: {asked.points} points, answer", size / (1 << 20), "MiB"
    began_s = time.process_time()
    with JournalReader(path) as reader:
        decoded = sum(1 for _ in reader.reports())
    each_s = (time.process_time() - began_s) / decoded
    yield f"a day decoded from frames, CPU time (of {decoded} cycles)", each_s * DAY_S, "s"
    reports = tuple(cycles(jobs, 0, 60))
    minute = Minutes()
    began_s = time.process_time()
    for report in reports:
        minute.take(report)
    yield "adding a cycle to its minute", (time.process_time() - began_s) / 60 * 1e3, "ms"
    current = minute.current()
    assert current is not None
    began_s = time.process_time()
    packed(current)
    yield "packing a row, each 10 s", (time.process_time() - began_s) * 1e3, "ms"
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield "peak memory of all this", peak_kib / 1024, "MiB"


def main(arguments: list[str] | None = None) -> int:
    """Print the table. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--frames-min", type=int, default=10)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        print(f"{given.jobs} jobs, {given.days} days")
        for name, value, unit in measured(path, given.jobs, given.days, given.frames_min):
            print(f"{name:<56} {value:>10.3g} {unit}", flush=True)
    return 0
