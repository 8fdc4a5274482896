"""Stand-ins for the ports: an engine of plain dictionaries, job files and records in memory.

They show faults that a real engine cannot be made to show on demand (an update that fails, an
answer that never comes), and let a cycle run without time passing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.updated import State
from dlsched.model.actions import Action, Memory, Move, Outcome, Remove, Resize
from dlsched.model.alarms import Alarm
from dlsched.model.cycle import HookRun, RejectedFile
from dlsched.model.decision import Decision
from dlsched.model.facts import (
    Begun,
    ContainerFact,
    ContainerState,
    GpuFact,
    LatencySketch,
    NodeFact,
    Observation,
    Operation,
    OperationKind,
    Report,
)
from dlsched.model.spec import Bounds, ContainerSpec, JobSpec, LatencyTarget, Limits
from dlsched.model.state import Ended, GpuView, JobState, JobView, NodeView, Snapshot
from dlsched.store.adoptions import Adoptions

NONE_ADOPTED = Adoptions(Path("/nonexistent"), read_only=True)
"""No container was adopted or dropped by command."""


def job_spec(name: str, **changes: object) -> JobSpec:
    """A valid spec; digests follow the content as the parser's do."""
    container = changes.pop("container", None) or ContainerSpec(image="model:1")
    spec = JobSpec(name=name, container=container, target=LatencyTarget(0.05))  # type: ignore[arg-type]
    spec = replace(spec, **changes)  # type: ignore[arg-type]
    return replace(spec, digest=f"d:{spec!r}", container_digest=f"c:{container!r}")


def running(name: str, **changes: object) -> ContainerFact:
    """A running container of `job_spec(name)`."""
    spec = job_spec(name)
    fact = ContainerFact(
        job=name,
        container_id=f"id-{name}",
        state=ContainerState.RUNNING,
        container_digest=spec.container_digest,
        digest=spec.digest,
        started_at_s=0.0,
    )
    return replace(fact, **changes)  # type: ignore[arg-type]


def gpu_fact(index: int, gib: int = 16, **changes: object) -> GpuFact:
    """`GPU-<index>`, a device without users."""
    fact = GpuFact(f"GPU-{index}", index, "NVIDIA T4", gib * 2**30)
    return replace(fact, **changes)  # type: ignore[arg-type]


def gpu_node(*gpus: GpuFact | GpuView, cores: float = 64.0) -> NodeView:
    """A node with these GPUs, and with cores and memory for many jobs."""
    views = tuple(GpuView(one) if isinstance(one, GpuFact) else one for one in gpus)
    return NodeView(cores, cores, 2**40, gpus=views)


def gpu_spec(
    name: str,
    gpus: int = 1,
    share: float = 1.0,
    *,
    gib: float | None = None,
    model: str | None = None,
    **changes: object,
) -> JobSpec:
    """A training job with GPUs; its floor of cores is small."""
    memory_bytes = None if gib is None else round(gib * 2**30)
    container = ContainerSpec("m", gpus=gpus, gpu_memory_bytes=memory_bytes, gpu_model=model)
    bounds = Bounds(0.01, floor_share=share)
    return job_spec(name, **{"container": container, "bounds": bounds, "target": None, **changes})


def sketch(*latencies_s: float) -> LatencySketch:
    """A sketch with plain count and sum; buckets do not matter where the mean is judged."""
    return LatencySketch(count=len(latencies_s), sum_s=sum(latencies_s))


class FakeRuntime:
    """An engine that does at once what it is told, unless told to fail."""

    def __init__(self, cores: float = 4.0) -> None:
        self.node = NodeFact(cores=cores, memory_bytes=8 * 2**30)
        self.containers: dict[str, ContainerFact] = {}
        self.begun: tuple[Begun, ...] = ()
        self.applied: list[Action] = []
        self.together: list[int] = []
        """How many changes came at once."""
        self.fails: dict[type, str] = {}
        self.begins: set[type] = set()
        self.engine_ok = True
        self.held: str | None = None
        self.advanced_s: list[float] = []

    def resume(self, now_s: float) -> None:
        pass

    def observe(self, now_s: float) -> Observation:
        facts = tuple(self.containers.values())
        self.containers = {job: replace(fact, reports=()) for job, fact in self.containers.items()}
        return Observation(
            now_s=now_s,
            engine_ok=self.engine_ok,
            engine_problem=None if self.engine_ok else "does not answer",
            containers=facts,
            begun=self.begun,
            node=self.node,
        )

    def advance(self, now_s: float) -> None:
        self.advanced_s.append(now_s)

    def apply(self, action: Action, now_s: float) -> Outcome:
        self.applied.append(action)
        if type(action) in self.fails:
            return Outcome(action, "failed", self.fails[type(action)])
        if type(action) in self.begins or isinstance(action, Move):
            return Outcome(action, "begun")
        if isinstance(action, Remove):
            self.containers.pop(action.job, None)
        elif isinstance(action, Resize):
            fact = self.containers[action.job]
            self.containers[action.job] = replace(fact, actual=action.limits)
        elif isinstance(action, Memory):
            fact, limit = self.containers[action.job], action.limit_bytes
            memory = replace(fact.memory, own_bytes=limit, limit_bytes=limit)
            self.containers[action.job] = replace(fact, memory=memory)
        else:
            self.containers[action.job] = running(
                action.job,
                container_digest=action.spec.container_digest,
                digest=action.spec.digest,
                actual=action.limits,
                started_at_s=now_s,
                source=action.source,
            )
        return Outcome(action, "done")

    def apply_all(self, actions: Sequence[Resize | Memory], now_s: float) -> tuple[Outcome, ...]:
        self.together.append(len(actions))
        return tuple(self.apply(action, now_s) for action in actions)

    def report(self, job: str, now_s: float, *latencies_s: float) -> None:
        """One sidecar line, to be seen by the next observation."""
        fact = self.containers[job]
        line = Report(received_s=now_s, latency=sketch(*latencies_s))
        self.containers[job] = replace(fact, reports=(*fact.reports, line))

    def sum_of_ceilings(self) -> float:
        """What the kernel would hold."""
        return sum(fact.actual.cpu_cores or self.node.cores for fact in self.containers.values())


class FakeInbox:
    """Job files that a test sets."""

    def __init__(self, *specs: JobSpec) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.rejected: tuple[RejectedFile, ...] = ()
        self.spares: Callable[[ContainerFact], str | None] = lambda _: None

    def scan(self, now_s: float) -> Desired:
        return Desired(dict(self.specs), rejected=self.rejected, spares=self.spares)


class FakeRecords:
    """Ended jobs in memory, and the runs of a hook that a test sets."""

    def __init__(self) -> None:
        self.jobs: dict[str, Ended] = {}
        self.runs: tuple[HookRun, ...] = ()
        self.kept: list[State] = []

    def ended(self) -> Mapping[str, Ended]:
        return dict(self.jobs)

    def keep(self, state: State) -> tuple[HookRun, ...]:
        self.kept.append(state)
        for name in state.lifts:
            del self.jobs[name]
        self.jobs |= {one.name: one for one in state.ended}
        return self.runs


def doing(text: str) -> Operation:
    """The operation of that text, which begins with its kind."""
    return Operation(OperationKind(re.split(r"\W", text)[0]), text)


def texts(alarms: Iterable[Alarm]) -> tuple[str, ...]:
    """What people read of them."""
    return tuple(alarm.text for alarm in alarms)


def view(name: str, actual: float | None = 1.0, floor: float = 0.1, ceiling: float | None = None):
    return JobView(
        spec=job_spec(name, bounds=Bounds(floor, ceiling)),
        state=JobState.RUNNING,
        container_id=f"id-{name}",
        desired=Limits(actual),
        actual=Limits(actual),
        changed_at_s=95.0,
    )


def snapshot(*jobs: JobView, capacity: float = 4.0) -> Snapshot:
    return Snapshot(1, 100.0, NodeView(capacity, capacity, 2**33), jobs)


def decide(**cores: float | None) -> Decision:
    return Decision(limits={name: Limits(value) for name, value in cores.items()})
