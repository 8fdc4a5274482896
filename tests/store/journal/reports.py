"""Cycle reports for tests: hypothesis strategies of every field, and a plain run of cycles; and
queries of a journal's file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from dlsched.model.actions import Move, Outcome, Resize, Start
from dlsched.model.cycle import CycleReport, HookRun, Shadow
from dlsched.model.decision import Decision
from dlsched.model.facts import (
    CheckpointAck,
    ComputeMode,
    GpuFact,
    GpuProcess,
    LatencySketch,
    LogFact,
    Sample,
    Usage,
)
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.sources import LabelFilter, LogPattern, Metric, MetricsEndpoint
from dlsched.model.spec import Checkpoint, ContainerSpec, JobSpec, Limits
from dlsched.model.state import (
    Delivered,
    GpuHolder,
    GpuView,
    HolderKind,
    JobState,
    JobView,
    Lacks,
    NodeView,
    Progress,
    Reached,
    Snapshot,
    Tiers,
)


@dataclass(frozen=True, slots=True)
class Remembered:
    """A policy's memory."""

    wants: tuple[tuple[str, float], ...] = ()
    interval_s: float = 5.0


st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(object, st.none())


def whole(kind: type[Any], **given: Any) -> st.SearchStrategy[Any]:
    """Every field of the dataclass drawn, also those that have defaults."""
    return st.builds(kind, **{item.name: ... for item in fields(kind)} | given)


# Without secrets, which the journal does not keep: they would not come back.
st.register_type_strategy(
    ContainerSpec,
    st.builds(ContainerSpec, st.text(max_size=5), environment=st.just((("TOKEN", "***"),))),
)

# All fields of a source at once would be more than Hypothesis draws.
_METRIC = Metric(name="m", kind="histogram", unit_s=0.001, where=(LabelFilter("a", "b", True),))
st.register_type_strategy(
    MetricsEndpoint,
    st.sampled_from(
        [
            MetricsEndpoint((1,)),
            MetricsEndpoint(
                (1, 2), "/m", (_METRIC, Metric(total="t", count="c")), "n", "h", "proxy"
            ),
        ]
    ),
)
st.register_type_strategy(
    LogPattern,
    st.sampled_from([LogPattern("p"), LogPattern("p", "carried", ("at", "of"), "m", "n")]),
)

_SKETCHES = whole(
    LatencySketch,
    buckets=st.one_of(
        st.dictionaries(st.integers(0, 90), st.integers(1, 40), max_size=8).map(
            lambda counts: tuple(sorted(counts.items()))
        ),
        st.lists(st.tuples(st.integers(-2, 2), st.integers(-1, 2)), max_size=3).map(tuple),
    ),
)
_DELIVERED = Delivered(
    name="a",
    container_id="c1",
    metric="accuracy",
    deliver=0.9,
    finish=0.97,
    tiers=Tiers(Reached(1.5, 0.93, 500)),
    checkpoint=CheckpointAck(480, "/ckpt"),
    wall_time="then",
    told=True,
)
GPU = GpuView(
    GpuFact(
        uuid="GPU-a",
        index=1,
        model="NVIDIA A100",
        memory_bytes=40 << 30,
        memory_used_bytes=3 << 30,
        busy_ratio=0.37,
        compute_mode=ComputeMode.EXCLUSIVE,
        part_of="GPU-b",
        numa_node=1,
        nodes=("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap66"),
        processes=(GpuProcess(11, "c" * 64, 1 << 30, 0.4), GpuProcess(12)),
        trouble="fell off the bus",
    ),
    reserved=True,
    foreign_processes=1,
    foreign_memory_bytes=5,
    holders=(
        GpuHolder(
            HolderKind.FOREIGN, "c" * 64, "notebook", None, 7, 8, "ada", 9, False, 10.0, 11.0
        ),
        GpuHolder(HolderKind.OWN),
    ),
    holders_left_out=3,
)
_IDLE = replace(GPU, fact=replace(GPU.fact, busy_ratio=None, processes=(), trouble=None))
_GPUS = st.sampled_from([(), (GPU,), (_IDLE,), (GPU, _IDLE)])
_UUIDS = st.sampled_from([(), ("GPU-a",), ("GPU-a", "GPU-b")])
_MOVE = Move(
    "id", Start(JobSpec("a", ContainerSpec("i")), Limits(), 2), Checkpoint("HUP", 1, "/c"), "w"
)
_LOGS = st.none() | whole(LogFact, example=st.none(), named=st.just(()))
"""No quotation of output is kept."""
_LACKS = st.none() | whole(Lacks, names=st.just(()))
_SAMPLES = st.lists(whole(Sample), max_size=3).map(tuple)
_JOBS = whole(
    JobView,
    spec=st.builds(JobSpec)
    | whole(JobSpec, container=whole(ContainerSpec).map(lambda drawn: drawn.discreet)),
    desired=whole(Limits),
    gpus=_UUIDS,
    gpus_kept=_UUIDS,
    gpu_enforced=st.sampled_from([(), (("devices", "CDI"), ("cpu", "engine"))]),
    usage=whole(Usage),
    tiers=st.sampled_from([Tiers(), _DELIVERED.tiers]),
    progress=whole(
        Progress,
        fresh=_SKETCHES,
        window=_SKETCHES,
        recent=_SKETCHES,
        samples=_SAMPLES,
        refused=st.none(),
        log=_LOGS,
        lacks=_LACKS,
    ),
)
_NAMES = st.sampled_from(["a", "b", "c", "d"])


def _named(jobs: dict[str, JobView]) -> tuple[JobView, ...]:
    return tuple(
        replace(job, spec=replace(job.spec, name=name)) for name, job in sorted(jobs.items())
    )


_LACKS = st.sampled_from([(), (("b", 0.5),)])
_OUTLOOKS = st.dictionaries(
    _NAMES,
    st.sampled_from([ForecastKind.EXPECTED, ForecastKind.CROWDED]).flatmap(
        lambda kind: st.builds(
            Forecast, st.just(kind), st.just("deliver"), st.floats(0, 9), lacks=_LACKS
        ).map(lambda outlook: (outlook, replace(outlook, tier="end")))
    ),
    max_size=2,
)
_DECISIONS = st.none() | whole(
    Decision,
    memory=st.none() | st.just({"a": [1, 2.5, None]}),
    weights=st.dictionaries(_NAMES, st.floats(0.1, 9), max_size=2),
    outlooks=_OUTLOOKS,
    gpus=st.dictionaries(_NAMES, _UUIDS, max_size=2),
)
REPORTS = whole(
    CycleReport,
    snapshot=whole(
        Snapshot,
        node=whole(NodeView, gpus=_GPUS),
        jobs=st.dictionaries(_NAMES, _JOBS, max_size=3).map(_named),
    ),
    decision=_DECISIONS,
    outlooks=_OUTLOOKS,
    shadow=st.none() | whole(Shadow, decision=_DECISIONS),
    hooks=st.sampled_from([(), (HookRun(_DELIVERED, "failed", "exit code 3"),)]),
    outcomes=st.lists(whole(Outcome) | st.just(Outcome(_MOVE, "begun")), max_size=2).map(tuple),
    raised=st.just(()),  # the journal keeps the texts of alarms only
)


def job(
    name: str = "alpha", state: JobState = JobState.RUNNING, reason: str | None = None
) -> JobView:
    """A job in that state."""
    return JobView(JobSpec(name, ContainerSpec("image")), state, reason=reason)


def report(cycle: int, *jobs: JobView, decision: Decision | None = None) -> CycleReport:
    """A cycle a second, each with other numbers."""
    told = tuple(
        replace(
            view,
            attained_core_s=cycle / 3,
            progress=Progress(
                fresh=LatencySketch(2, cycle / 7, ((cycle % 50, 2),)),
                recent=LatencySketch(9, 1.5, tuple((cycle % 50 + i, 1) for i in range(9))),
            ),
        )
        for view in jobs or (job(),)
    )
    return CycleReport(
        Snapshot(cycle, 1000.0 + cycle, NodeView(2.0, 2.0, 1 << 30), told),
        policy="dqoes",
        decision=decision,
        wall_time=f"cycle {cycle}",
    )


def resized(report: CycleReport, status: str = "done", detail: str = "") -> CycleReport:
    """The report with an outcome: `alpha` from 0.5 to 0.75 cores."""
    action = Resize("alpha", "id", Limits(0.5), Limits(0.75), 768, "late: 60 ms of 50 ms")
    outcome = Outcome(action, status, detail)  # type: ignore[arg-type]
    return replace(report, outcomes=(outcome,), guarded={"alpha": "step cut to 0.25"})


def execute(path: Path, query: str) -> list[tuple[Any, ...]]:
    """What that query finds in the journal's file, or changes there."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(query).fetchall()
