"""Simulated nodes, and their journals as a daemon would have written them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dlsched.model.cycle import CycleReport
from dlsched.model.facts import NodeFact
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.review.tally import Tally
from dlsched.simulation.node.learning_curves import Curve
from dlsched.simulation.node.workloads import ServiceLoad, Trace, TrainingLoad
from dlsched.simulation.run import simulate
from dlsched.store.journal.writer import Journal
from tests.simulation.worlds import job

BEGINS = datetime(2026, 11, 24, 7, 0, tzinfo=UTC)


def busy_node(duration_s: float = 600.0) -> Trace:
    """Four cores, three trainings that want all of them, and two services: under plain Docker one
    misses its target."""
    training = TrainingLoad(
        steps=4000,
        work_core_s=0.2,
        evaluate_every=20,
        curve=Curve(0.1, 0.95, 300, "exponential"),
        threads=4.0,
    )
    return Trace(
        NodeFact(4.0, 8 << 30),
        (
            job("bulk-a", training, AccuracyTarget("accuracy", 0.5, 0.8)),
            job("bulk-b", training, AccuracyTarget("accuracy", 0.6, 0.9)),
            job("bulk-c", training, AccuracyTarget("accuracy", 0.4, 0.7)),
            job("easy", ServiceLoad(0.02, 0.005, threads=1.0), LatencyTarget(0.2)),
            job("hard", ServiceLoad(0.16, 0.002, threads=2.0), LatencyTarget(0.125)),
        ),
        duration_s,
    )


def run(trace: Trace, policy: str, publish: Callable[[CycleReport], None], seed: int = 1) -> None:
    """Simulate it, with wall times that go on as the simulated clock does."""

    def timed(report: CycleReport) -> None:
        moment = BEGINS + timedelta(seconds=report.snapshot.now_s)
        text = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        publish(replace(report, wall_time=text))

    simulate(trace, policy, seed, publish=timed)


def written(path: Path, trace: Trace, policy: str = "adaptive") -> Path:
    """The journal of that simulation."""
    journal = Journal(path, frame_s=60.0, queue_reports=10_000)
    run(trace, policy, journal.write)
    journal.close()
    assert journal.problem() is None
    return path


def counted(trace: Trace, policy: str, seed: int = 1, slice_s: float = 10.0) -> Tally:
    """What a tally counts of that simulation."""
    tally = Tally(slice_s)
    run(trace, policy, tally.take, seed)
    tally.close()
    return tally
