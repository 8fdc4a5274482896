"""Parses a trace's text into what the simulator runs, or into all of its problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import TypeAdapter

from dlsched.config.fields import validate
from dlsched.config.job import bounds_of, restart_of, target_of
from dlsched.config.text import judged_alone
from dlsched.config.yaml import Document, load_document
from dlsched.model.errors import FileError, Problem
from dlsched.model.facts import NodeFact
from dlsched.model.spec import ContainerSpec, JobSpec
from dlsched.simulation.node.learning_curves import Curve, Measured
from dlsched.simulation.node.workloads import (
    Fault,
    HostLoad,
    Load,
    SavedState,
    ServiceLoad,
    Shift,
    SimulatedJob,
    Trace,
    TraceNode,
    TrainingLoad,
)
from dlsched.simulation.trace.schema import (
    ClusterNodeKeys,
    CurveKeys,
    HostKeys,
    TraceJobKeys,
    TraceKeys,
    TrainingKeys,
    known_keys,
)

SIZE_MAX_BYTES = 8 << 20
NODES_MAX = 200_000
"""Higher than for a job file, as a trace may have a thousand jobs."""

_ADAPTER = TypeAdapter(TraceKeys)


class TraceError(FileError):
    """A trace is invalid: nothing is simulated."""


def parse_trace(text: str, file: str) -> Trace:
    """The trace that the text describes. Raises TraceError with all problems, in their order."""
    with judged_alone(file, TraceError):
        source = load_document(text, file, size_max_bytes=SIZE_MAX_BYTES, nodes_max=NODES_MAX)
        keys = validate(source, _ADAPTER, known_keys, TraceError, null_ok=False)
        if problems := tuple(_crossing(source, keys)):
            raise TraceError(problems)
    nodes = tuple(sorted((_node(one) for one in keys.nodes), key=lambda one: one.name))
    return Trace(
        node=NodeFact(keys.node.cores, keys.node.memory) if keys.node else nodes[0].node,
        nodes=nodes,
        network_bytes_per_s=keys.network,
        jobs=tuple(sorted((_job(one) for one in keys.jobs), key=lambda job: job.name)),
        duration_s=keys.duration,
        cycle_s=keys.cycle,
        window_s=keys.window,
        host=_host(keys.host),
        name=keys.name,
    )


def _node(keys: ClusterNodeKeys) -> TraceNode:
    return TraceNode(
        keys.name,
        NodeFact(keys.cores, keys.memory),
        keys.speed,
        _host(keys.host),
        joins_s=keys.joins,
        leaves_s=keys.leaves,
    )


def _host(loads: Iterable[HostKeys]) -> tuple[HostLoad, ...]:
    return tuple(HostLoad(one.at, one.for_s, one.cores, one.shares) for one in loads)


def _crossing(source: Document, keys: TraceKeys) -> Iterator[Problem]:
    """Problems between keys that are valid by themselves."""
    if not keys.jobs:
        yield source.problem(("jobs",), "is empty: a trace has at least one job")
    indices: dict[str, int] = {}
    for index, job in enumerate(keys.jobs):
        if job.name in indices:
            what = f"the name is already that of jobs[{indices[job.name]}]"
            yield source.problem(("jobs", index, "name"), what)
        indices.setdefault(job.name, index)
        late = f"is not before the end of the trace, {keys.duration:g} s"
        if job.at >= keys.duration:
            yield source.problem(("jobs", index, "at"), f"{job.at:g} s {late}")
        for part in ("faults", "shifts"):
            for place, one in enumerate(getattr(job, part)):
                if one.at >= keys.duration:
                    yield source.problem(("jobs", index, part, place, "at"), f"{one.at:g} s {late}")


def _job(keys: TraceJobKeys) -> SimulatedJob:
    restart, saved = restart_of(keys.restart), keys.checkpoint
    spec = JobSpec(
        name=keys.name,
        container=ContainerSpec(image=keys.image, restart=restart, memory_bytes=keys.memory),
        bounds=bounds_of(keys.cpus),
        weight=keys.weight,
        target=target_of(keys.target),
        background=keys.background,
        container_digest=keys.name,
        digest=keys.name,
    )
    return SimulatedJob(
        spec=spec,
        load=_load(keys),
        arrives_s=keys.at,
        leaves_s=keys.leaves,
        start_up_s=keys.start_up,
        start_up_work_core_s=keys.start_up_work,
        faults=tuple(Fault(one.kind, one.at, one.for_s, one.factor or 1.0) for one in keys.faults),
        shifts=tuple(Shift(one.at, one.work, one.arrivals) for one in keys.shifts),
        checkpoint=SavedState(saved.size_bytes, saved.save) if saved else SavedState(),
    )


def _load(keys: TraceJobKeys) -> Load:
    if keys.training is not None:
        return _training(keys.training, keys.rises)
    assert keys.service is not None
    one = keys.service
    return ServiceLoad(one.work, one.overhead, one.threads, one.noise, one.arrivals)


def _training(keys: TrainingKeys, rises: bool) -> TrainingLoad:
    return TrainingLoad(
        steps=keys.steps,
        work_core_s=keys.work,
        evaluate_every=keys.evaluate_every,
        curve=_curve(keys.curve, rises),
        threads=keys.threads,
        noise=keys.noise,
        validation_set=keys.validation_set,
        checkpoint_every=keys.checkpoint_every,
    )


def _curve(keys: CurveKeys, rises: bool) -> Curve | Measured:
    if keys.family == "points":
        return Measured(keys.points or (), rises)
    assert keys.start is not None and keys.end is not None and keys.scale is not None
    return Curve(
        start=keys.start,
        end=keys.end,
        scale_steps=keys.scale,
        family=keys.family,
        exponent=1.0 if keys.exponent is None else keys.exponent,
        at_step=keys.at or keys.every or 0,
        for_steps=keys.for_steps or 0,
    )
