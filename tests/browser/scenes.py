"""What a made-up daemon shows: one scene a name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dlsched.api.cluster_schema import ClusterStatus
from dlsched.api.codec import as_json, read_part
from dlsched.control.decider import NamedPolicy
from dlsched.estimate.effect import Effect
from dlsched.estimate.sketch import from_latencies
from dlsched.model.actions import Outcome, Resize
from dlsched.model.cycle import CycleReport, Shadow
from dlsched.model.decision import Decision
from dlsched.model.facts import CpuUser, CpuUserKind, HostCpu
from dlsched.model.spec import LatencyTarget, Limits
from dlsched.model.state import JobView, Progress
from dlsched.policies.registry import load
from dlsched.simulation.run import simulate
from dlsched.simulation.trace.reading import parse_trace
from dlsched.store.journal.effects import Effects
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.rows import Change, Event
from dlsched.store.journal.writer import Journal
from tests.cluster_status import example, written_ago
from tests.status_source import (
    P95_50MS,
    FakeSource,
    everything_report,
    example_report,
    foretold,
    gpu_report,
    job,
    report_of,
)

MARKUP = "<img src=x onerror=\"document.body.dataset.owned='1'\">"
"""What a name must never do to the page."""


@dataclass
class Scene:
    """A source, what it has published before, and what it publishes next."""

    source: FakeSource
    before: Sequence[CycleReport] = ()
    at: Callable[[int], CycleReport | None] = lambda _cycle: None
    keep: Callable[[CycleReport], None] = lambda _report: None
    dated: bool = True


def _still(report: CycleReport, source: type[FakeSource] = FakeSource) -> Scene:
    """One report, again and again."""
    return Scene(source(report), at=lambda _cycle: report)


def _empty() -> CycleReport:
    return report_of(alarms=(), rejected=(), outcomes=(), limits={}, guarded={})


def _hostile(_folder: Path) -> Scene:
    """Markup and escape sequences in every text that a job or a file can write."""
    report = example_report()
    rogue = replace(
        job("rogue", latency_s=None, reason=MARKUP),
        spec=replace(job("rogue").spec, name=MARKUP),
        blind=f"no source {MARKUP} \x1b[31m\u202e",
    )
    slow = job("digits-resnet", latency_s=0.081)
    outcome = report.outcomes[0]
    assert isinstance(outcome.action, Resize)
    resize = replace(outcome.action, why=f"slow {MARKUP}")
    shown = report_of(
        rogue,
        slow,
        outcomes=(replace(outcome, action=resize, detail=MARKUP),),
        guarded={"digits-resnet": MARKUP},
        alarms=(f"alarm {MARKUP}",),
    )
    gpu, *_ = gpu_report().snapshot.node.gpus
    holders = tuple(replace(one, name=MARKUP, user=MARKUP, job=None) for one in gpu.holders)
    user = CpuUser(CpuUserKind.UNIT, MARKUP, 1.0, MARKUP)
    node = replace(
        shown.snapshot.node,
        gpus=(replace(gpu, holders=holders),),
        host_cpu=HostCpu(4.0, (user,)),
    )
    shown = replace(shown, snapshot=replace(shown.snapshot, node=node))
    return _still(shown, _HostileSource)


def _cluster(_folder: Path) -> Scene:
    """A manager of four nodes: one job moves, one waits, one failed."""
    report = foretold(example_report())
    source = FakeSource(report)
    source.cluster_status = with_jobs(example())

    def at(_cycle: int) -> CycleReport:
        source.cluster_status = with_jobs(example())  # as new as the cycle
        return report

    return Scene(source, at=at)


def with_jobs(status: ClusterStatus) -> ClusterStatus:
    """The status with jobs that run, and one that failed, beside the one that moves."""
    (moving,) = status.jobs
    plain = replace(
        moving, target=None, state="running", moves=0, why="placed: its work ends first"
    )
    jobs = [replace(plain, name=f"bert-{number}", node="n3", goal="") for number in range(9)]
    failed = replace(plain, name="vit", state="failed", since_s=300.0, measured=None)
    return replace(status, jobs=(*jobs, failed, moving))


def _cluster_many(folder: Path) -> Scene:
    scene = _cluster(folder)
    status = example()
    jobs = status.jobs * 250
    rejected = tuple(f"{number}.yaml: no text" for number in range(300))
    scene.source.cluster_status = replace(
        status, jobs=jobs, nodes=status.nodes * 60, rejected=rejected
    )
    return Scene(scene.source, at=lambda _cycle: scene.source.report)


def _cluster_old(_folder: Path) -> Scene:
    """A manager that does not lead, and whose controller has ended."""
    scene = _still(example_report())
    ended = replace(example(), manager="n2", written_at=written_ago(600.0))
    scene.source.cluster_status = replace(ended, nodes=(), jobs=(), queue=(), observed_at="")
    return scene


def _cluster_hostile(_folder: Path) -> Scene:
    """Markup in every text of a cluster's status."""
    scene = _still(example_report())

    def marked(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: marked(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [marked(one) for one in value]
        kept = key in ("written_at", "observed_at")
        return f"{value} {MARKUP}" if isinstance(value, str) and not kept else value

    scene.source.cluster_status = read_part(ClusterStatus, marked(as_json(example())))
    return scene


class _HostileSource(FakeSource):
    def changes(self, job: str, limit: int) -> Sequence[Change]:
        texts = dict.fromkeys(("why", "guard", "detail", "kind"), f"slow {MARKUP}")
        return [replace(one, **texts, status="failed") for one in super().changes(job, limit)]  # type: ignore[arg-type]

    def events(self, job: str, limit: int) -> Sequence[Event]:
        return [replace(one, reason=MARKUP) for one in super().events(job, limit)]


def _wave(name: str, at: int, number: int) -> JobView:
    """A service whose latency swings about its target."""
    swing = math.sin(at / 40 + number) * 0.3 + math.sin(at / 7 + 2.1 * number) * 0.08
    latency_s = 0.05 * (0.72 + (number % 17) / 30) * 2**swing
    limit = 0.2 + (number % 5) * 0.15 + 0.1 * math.floor(2 * math.sin(at / 60 + number))
    sketch = from_latencies((latency_s,) * 20)
    made = job(
        name,
        target=P95_50MS if number % 3 else LatencyTarget(0.05),
        progress=Progress(recent=sketch, as_of_s=0.0),
        limit_cores=round(max(limit, 0.1), 2),
    )
    return replace(made, usage=replace(made.usage, cpu_cores=round(0.85 * max(limit, 0.1), 3)))


def waves(count: int, at: int) -> CycleReport:
    """Many services, and a decision every ten cycles."""
    report = example_report()
    jobs = tuple(_wave(f"job-{number:03d}", at, number) for number in range(count))
    outcomes: tuple[Outcome, ...] = ()
    decision = Decision()
    if at % 10 == 0:
        one = jobs[at // 10 % count]
        resize = Resize(
            job=one.name,
            container_id="0" * 64,
            before=Limits(0.4),
            limits=Limits(0.5 + at % 7 / 10),
            cpu_shares=1024,
            why="p95 81 ms of 50 ms: one step up",
        )
        outcomes = (Outcome(resize, "done", ""),)
        decision = Decision(expected_s={one.name: 0.045})
    node = replace(report.snapshot.node, capacity_cores=count * 0.55, cores=count * 0.55)
    return replace(
        report,
        snapshot=replace(report.snapshot, jobs=jobs, node=node),
        decision=decision,
        outcomes=outcomes,
        limits={},
        guarded={},
        alarms=(),
        rejected=(),
    )


def _waves(count: int, before: int) -> Callable[[Path], Scene]:
    def scene(_folder: Path) -> Scene:
        kept = [waves(count, at) for at in range(before)]
        return Scene(FakeSource(kept[-1]), kept, at=lambda cycle: waves(count, cycle))

    return scene


def shadowed(at: int) -> CycleReport:
    """Three services, and a shadow policy that would give each another ceiling, or none."""
    report = waves(3, at)
    jobs = tuple(
        replace(one, usage=replace(one.usage, cpu_cores=0.1)) for one in report.snapshot.jobs
    )
    limits = {"job-000": Limits(0.3), "job-001": Limits(1.25), "job-002": Limits()}
    snapshot = replace(report.snapshot, jobs=jobs)
    return replace(report, snapshot=snapshot, shadow=Shadow("fair", limits=limits))


def _shadow(_folder: Path) -> Scene:
    kept = [shadowed(at) for at in range(100)]
    return Scene(FakeSource(kept[-1]), kept, at=shadowed)


PLAYED_S = 900.0
"""Time of the played trace that has passed when the server starts."""


class JournalSource(FakeSource):
    """Tells history and effects from a journal, as the daemon does."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.journal = self._path = folder / "journal.db"
        self.writer = Journal(self._path, queue_reports=100_000)
        self._effects = Effects(self._path)

    def changes(self, job: str, limit: int) -> Sequence[Change]:
        with JournalReader(self._path) as reader:
            return reader.last_changes(job, limit)

    def events(self, job: str, limit: int) -> Sequence[Event]:
        with JournalReader(self._path) as reader:
            return reader.events(job, limit)

    def effects(self, job: str, limit: int) -> Mapping[int, Effect]:
        assert self.report is not None
        (view,) = (one for one in self.report.snapshot.jobs if one.name == job)
        target = view.spec.target
        return (
            self._effects.last(job, target.quantile, limit)
            if isinstance(target, LatencyTarget)
            else {}
        )

    def about(self) -> Mapping[str, object]:
        return {**super().about(), "policy": "adaptive"}


def _played(folder: Path) -> Scene:
    """The trace `afternoon`, simulated under `adaptive` with the daemon's own loop, then played."""
    source, file = JournalSource(folder), Path(__file__).with_name("afternoon.yaml")
    reports: list[CycleReport] = []
    trace = parse_trace(file.read_text(), str(file))
    simulate(trace, NamedPolicy("adaptive", load("adaptive")), publish=reports.append)
    zero_s = time.time() - PLAYED_S

    def dated(report: CycleReport) -> CycleReport:
        wall = datetime.fromtimestamp(zero_s + report.snapshot.now_s, UTC)
        return replace(report, wall_time=wall.strftime("%Y-%m-%dT%H:%M:%SZ"))

    before = [dated(one) for one in reports if one.snapshot.now_s < PLAYED_S]
    later = [dated(one) for one in reports if one.snapshot.now_s >= PLAYED_S]

    def due(_cycle: int) -> CycleReport | None:
        is_due = bool(later) and later[0].snapshot.now_s <= time.time() - zero_s
        return later.pop(0) if is_due else None

    def keep(report: CycleReport) -> None:
        source.writer.write(report)
        if report.snapshot.cycle == before[-1].snapshot.cycle:
            source.writer.flush()

    return Scene(source, before, due, keep, dated=False)


SCENES: Mapping[str, Callable[[Path], Scene]] = {
    "example": lambda _folder: _still(foretold(example_report())),
    "gpus": lambda _folder: _still(everything_report()),
    "empty": lambda _folder: _still(_empty()),
    "no-cycle": lambda _folder: Scene(FakeSource()),
    "hostile": _hostile,
    "eight": _waves(8, 300),
    "many": _waves(200, 900),
    "played": _played,
    "shadow": _shadow,
    "cluster": _cluster,
    "cluster-many": _cluster_many,
    "cluster-old": _cluster_old,
    "cluster-hostile": _cluster_hostile,
}
