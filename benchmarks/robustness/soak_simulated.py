"""Days of simulated work through the daemon's own controller, with a real journal on a real disk.

What is measured is this process: the controller, ledger and journal as in the daemon, and the
simulated world beside them. A cycle is 10 s; every day brings other jobs, and takes all away.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks.judge.flatness import Sample, held
from benchmarks.simulated.playing import play
from dlsched.model.cycle import CycleReport
from dlsched.simulation.node.workloads import SimulatedJob, Trace
from dlsched.simulation.trace import Recipe, generate
from dlsched.store.journal.schema import JOURNAL_NAME
from dlsched.store.journal.writer import Journal

DAY_S = 86_400.0
JOBS_A_DAY = 20
CYCLE_S = 10.0
SAMPLES_A_DAY = 8
POLICY = "dqoes"

_JOURNAL_BYTES = 8 << 20
"""So little that retention works all the time after the first day."""
_FLUSH_CYCLES = 60
"""The simulation is faster than the disk: it waits for the journal now and then."""


def trace_of(days: int, jobs_a_day: int = JOBS_A_DAY) -> Trace:
    """So many days, each with its own jobs, all gone at its end."""
    recipe = Recipe(jobs=jobs_a_day, duration_s=DAY_S, cycle_s=CYCLE_S, stay_s=7200.0)
    jobs: list[SimulatedJob] = []
    for day in range(days):
        one = generate(replace(recipe, seed=day))
        jobs += (_on_day(job, day) for job in one.jobs)
    jobs.sort(key=lambda job: job.name)
    return replace(one, jobs=tuple(jobs), duration_s=days * DAY_S, name=f"{days} days")


def _on_day(job: SimulatedJob, day: int) -> SimulatedJob:
    begins_s = day * DAY_S
    name = f"day{day:02}-{job.name}"
    leaves_s = DAY_S - CYCLE_S if job.leaves_s is None else job.leaves_s
    return replace(
        job,
        spec=replace(job.spec, name=name, digest=f"{name}-{job.spec.digest}"),
        arrives_s=begins_s + job.arrives_s,
        leaves_s=begins_s + leaves_s,
        shifts=tuple(replace(shift, at_s=begins_s + shift.at_s) for shift in job.shifts),
        faults=tuple(replace(fault, at_s=begins_s + fault.at_s) for fault in job.faults),
    )


def run(
    days: int, tell: Callable[[str], None], jobs_a_day: int = JOBS_A_DAY
) -> tuple[list[Sample], dict[str, object]]:
    """Samples over the days, at simulated seconds, and what was done meanwhile."""
    samples: list[Sample] = []
    process = psutil.Process()
    began_s = time.process_time()
    with tempfile.TemporaryDirectory(prefix="dlsched-soak-") as folder:
        journal = Journal(Path(folder) / JOURNAL_NAME, max_bytes=_JOURNAL_BYTES)

        def publish(report: CycleReport) -> None:
            journal.write(report)
            now_s, cycle = report.snapshot.now_s, report.snapshot.cycle
            if cycle % _FLUSH_CYCLES == 0:
                journal.flush()
            if now_s >= len(samples) * DAY_S / SAMPLES_A_DAY:
                gc.collect()  # garbage is not held
                samples.append(held(process, Path(folder), now_s))
                if len(samples) % (5 * SAMPLES_A_DAY) == 0:
                    tell(f"day {now_s / DAY_S:.0f}: {dict(samples[-1].values)}")

        trace = trace_of(days, jobs_a_day)
        result = play(trace, POLICY, 0, publish=publish)
        journal.flush()
        lost, trouble = journal.lost_cycles, journal.problem()
        journal.close()
    if lost or trouble is not None:
        raise RuntimeError(f"the journal lost {lost} cycles: {trouble}")
    return samples, {
        "days": days,
        "jobs": len(result.jobs),
        "cycles": result.cycles,
        "updates": result.updates,
        "CPU s": round(time.process_time() - began_s),
    }
