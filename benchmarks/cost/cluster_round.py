"""What a round of a cluster's controller costs with 500 nodes and 5,000 jobs.

The controller, its ledger, the policy `adaptive` and its guards are the daemon's own; the store is
in memory, and agents answer with prepared reports, in which all jobs have gone on since the last
round. What is measured is CPU time; a loop that does nothing else is timed beside it.

    python -m benchmarks run cluster-round      writes benchmarks/results/cluster-round.json
    python -m benchmarks run cluster-round --nodes 50 --profile FILE      is only printed
"""

from __future__ import annotations

import argparse
import cProfile
import random
import resource
import statistics
import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from rich.console import Console

from benchmarks.publish import results
from benchmarks.publish.results import verdict
from dlsched.cluster.controller import ClusterController, ClusterPorts
from dlsched.cluster.core.decider import ClusterDecider
from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.leases import leased
from dlsched.cluster.core.ledger import ClusterLedger
from dlsched.cluster.core.model import Evaluation, Left
from dlsched.cluster.core.records import Holding, Order, Phase, Record, RecordState, Verb
from dlsched.cluster.core.registry import load
from dlsched.cluster.core.reports import JobReport, NodeReport
from dlsched.cluster.rounds import RoundLog, nodes
from dlsched.cluster.store import Member, MemoryStore
from dlsched.cluster.wire import read_report, report_bytes
from dlsched.model.spec import ContainerSpec, JobSpec

NAME = "cluster-round"
NODES, JOBS_PER_NODE, QUEUED = 500, 10, 1_000
CORES, PERIOD_S = 8.0, 10.0
WARM_ROUNDS, ROUNDS = 3, 20
EVALUATIONS = 20
ASKED_MS, ASKED_MIB, ASKED_PLACED_MS = 150.0, 200.0, 50.0
CALIBRATION_STEPS = 1_000_000
_MANAGER = "manager"
_DIGEST = "one"
_REST = "# of what else stands in a job file\n" * 20


class Plant:
    """Nodes and their jobs: store, agents, desired jobs and clock of the controller."""

    def __init__(self, count: int, seed: int) -> None:
        self._draw = random.Random(seed)
        self.now = 0.0
        names = [f"node-{number:03}" for number in range(count)]
        self.store = MemoryStore([Member(name) for name in names], leader=_MANAGER)
        self.jobs: dict[str, DesiredJob] = {}
        self.reports: dict[str, NodeReport] = {}
        self.orders = 0
        for name in names:
            jobs = [self._start(f"{name}-job-{number}", name) for number in range(JOBS_PER_NODE)]
            holdings = tuple(
                Holding(one.name, 1, Phase.RUNNING, one.step, file=self.jobs[one.name].version)
                for one in jobs
            )
            self.reports[name] = NodeReport(name, CORES, holdings=holdings, jobs=tuple(jobs))

    def report(self, node: str, placed: Mapping[str, int]) -> NodeReport | None:
        return self.reports[node]

    def send(self, order: Order) -> None:
        """A target keeps room for nothing here: a move is begun, and dropped in time."""
        self.orders += order.verb is not Verb.PREPARE

    def scan(self, now_s: float) -> Mapping[str, DesiredJob]:
        return self.jobs

    def unread(self) -> Collection[str]:
        return ()

    def now_s(self) -> float:
        return self.now

    def go_on(self) -> None:
        """A period passes: every job has done its work in it."""
        self.now += PERIOD_S
        for name, report in self.reports.items():
            self.reports[name] = replace(report, jobs=tuple(map(self._done, report.jobs)))

    def queue(self, count: int) -> None:
        """That many jobs are submitted in the same round."""
        for number in range(count):
            self._desire(f"queued-{number:04}")

    def _desire(self, name: str) -> None:
        container = ContainerSpec(f"image-{self._draw.randrange(5)}")
        text = f"name: {name}\nimage: {container.image}\n" + _REST
        self.jobs[name] = DesiredJob(JobSpec(name, container, digest=_DIGEST), self.now, text)

    def _start(self, name: str, node: str) -> JobReport:
        self._desire(name)
        record = Record(name, RecordState.PLACED, node)
        self.store.put(leased(record, self.jobs[name].spec), None)
        left_core_s = self._draw.lognormvariate(6.5, 1.0)
        return self._done(
            JobReport(
                name,
                granted_cores=CORES / JOBS_PER_NODE,
                step=1000,
                reports=EVALUATIONS,
                left=Left(0.8 * left_core_s, left_core_s, 1.2 * left_core_s),
                steps_per_core_s=self._draw.uniform(0.5, 5.0),
                pause_s=self._draw.uniform(5.0, 30.0),
            )
        )

    def _done(self, job: JobReport) -> JobReport:
        core_s = job.granted_cores * PERIOD_S
        left = Left(*(max(part - core_s, 1.0) for part in job.left or ()))
        value = 1.0 - 1.0 / (2.0 + self.now / 100.0)
        return replace(
            job,
            used_core_s=job.used_core_s + core_s,
            step=(job.step or 0) + 10,
            left=left,
            evaluations=(*job.evaluations, Evaluation(self.now, value))[-EVALUATIONS:],
        )


def measured(count: int, seed: int, profile: str) -> dict[str, float]:
    """CPU times in milliseconds and memory in MiB."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plant = Plant(count, seed)
    ports = ClusterPorts(plant.store, plant, plant, plant)
    decider = ClusterDecider("adaptive", load("adaptive"))
    controller = ClusterController(_MANAGER, ports, ClusterLedger(), decider)
    profiler, times_ms = cProfile.Profile(), []
    for number in range(WARM_ROUNDS + ROUNDS):
        plant.go_on()
        if profile and number >= WARM_ROUNDS:
            profiler.enable()
        times_ms.append(_round_ms(controller))
        profiler.disable()
    if profile:
        profiler.dump_stats(profile)
    showing_ms = _showing_ms(controller, plant)
    bodies = [report_bytes(one, plant.now) for one in plant.reports.values()]
    began_s = time.process_time()
    for body in bodies:
        read_report(body)
    read_ms = 1e3 * (time.process_time() - began_s)
    plant.go_on()
    plant.queue(QUEUED)
    placing_ms = _round_ms(controller)
    judged_ms = times_ms[WARM_ROUNDS:]
    used_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    return {
        "nodes": count,
        "jobs": count * JOBS_PER_NODE,
        "round_median_ms": statistics.median(judged_ms),
        "round_most_ms": max(judged_ms),
        "reports_read_ms": read_ms,
        "shown_ms": showing_ms,
        "more_for_queue_ms": placing_ms - statistics.median(judged_ms),
        "memory_mib": used_kib / 1024,
        "calibration_ms": _calibration_ms(),
    }


def _round_ms(controller: ClusterController) -> float:
    began_s = time.process_time()
    report = controller.round()
    spent_s = time.process_time() - began_s
    assert report.snapshot is not None, report.alarms
    assert not report.alarms, report.alarms
    return 1e3 * spent_s


def _showing_ms(controller: ClusterController, plant: Plant) -> float:
    """What people read of a round: events, and a row a node and job."""
    plant.go_on()
    report, log = controller.round(), RoundLog()
    began_s = time.process_time()
    log.take(report, "2026-01-01T00:00:00.000Z")
    rows = (*log.jobs(report), *nodes(report, {}), *log.queue(report))
    spent_s = time.process_time() - began_s
    assert len(rows) == len(plant.reports) * (1 + JOBS_PER_NODE)
    return 1e3 * spent_s


def _calibration_ms() -> float:
    """A loop of additions."""
    began_s, total = time.process_time(), 0
    for number in range(CALIBRATION_STEPS):
        total += number
    return 1e3 * (time.process_time() - began_s)


def headlines(row: Mapping[str, float]) -> list[str]:
    """One sentence a figure that was asked for."""
    beside = f"(a loop of {CALIBRATION_STEPS:,} additions: {row['calibration_ms']:.0f} ms)"
    return [
        (
            f"a round of {row['nodes']} nodes and {row['jobs']:,} jobs: median "
            f"{row['round_median_ms']:.0f} ms, longest {row['round_most_ms']:.0f} ms of CPU time "
            f"{beside} (asked {ASKED_MS:.0f} ms): {verdict(row['round_median_ms'] <= ASKED_MS)}"
        ),
        (
            f"memory for it: {row['memory_mib']:.0f} MiB (asked {ASKED_MIB:.0f} MiB): "
            f"{verdict(row['memory_mib'] <= ASKED_MIB)}"
        ),
        (
            f"{QUEUED:,} queued jobs placed in one round: {row['more_for_queue_ms']:.0f} ms more, "
            f"their records included (asked {ASKED_PLACED_MS:.0f} ms): "
            f"{verdict(row['more_for_queue_ms'] <= ASKED_PLACED_MS)}"
        ),
        (
            f"beside it: reports of all nodes read from JSON {row['reports_read_ms']:.0f} ms, the "
            f"rows that people read {row['shown_ms']:.0f} ms"
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; write the result file for the size that was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", default="", help="write cProfile's statistics of the rounds")
    chosen = parser.parse_args(arguments)
    row = measured(chosen.nodes, chosen.seed, chosen.profile)
    told = headlines(row)
    Console(soft_wrap=True, highlight=False).print("\n".join(told), markup=False)
    if chosen.nodes == NODES and not chosen.profile:
        facts = results.host_facts("none")
        results.save(NAME, facts, [chosen.seed], [row], headlines=told)
    return 0
