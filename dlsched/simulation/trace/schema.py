"""The keys of a trace file: names, types and bounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dlsched.config.fields import Keys, Reader, choice, kind, number, seconds, size, text, whole
from dlsched.config.job_schema import Background, CpusKeys, TargetKeys
from dlsched.config.job_values import Image, RestartPolicy
from dlsched.model.spec import NAME

Moment = Annotated[float, seconds(0.0)]
Span = Annotated[float, seconds(0.001)]
Work = Annotated[float, number(0.000001, 1e9)]
Threads = Annotated[float, number(0.01, 4096)]
Factor = Annotated[float, number(0.001, 1000)]

DAY_MAX_S = 366 * 86_400.0
STEPS_MAX = 1_000_000_000
EVALUATIONS_MAX = 1_000_000
POINTS_MAX = 10_000


class NodeKeys(Keys):
    """The host's resources."""

    cores: Annotated[float, number(0.01, 4096)]
    memory: Annotated[int, size(1 << 20)] = 64 << 30


class HostKeys(Keys):
    """Other work on the host."""

    at: Moment
    for_s: Span = Field(alias="for")
    cores: Annotated[float, number(0.01, 4096)]
    shares: Annotated[int, whole(2, 262_144)] = 1024


_POINT_STEP = whole(0, STEPS_MAX)
_POINT_VALUE = number(-1e15, 1e15)


def _point(value: object) -> tuple[object, object]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{kind(value)} is not a step and a value, such as [50, 0.34]")
    return _POINT_STEP.read(value[0]), _POINT_VALUE.read(value[1])


Point = Annotated[
    tuple[int, float],
    Reader(_point, {"type": "array", "prefixItems": [_POINT_STEP.schema, _POINT_VALUE.schema]}),
]


class ClusterNodeKeys(Keys):
    """One node of a cluster."""

    name: Annotated[str, text(NAME, f"a name: {NAME}")]
    cores: Annotated[float, number(0.01, 4096)]
    memory: Annotated[int, size(1 << 20)] = 64 << 30
    speed: Annotated[float, number(0.01, 100)] = Field(
        1.0, description="Work done per core-second."
    )
    host: tuple[HostKeys, ...] = ()
    joins: Moment = 0.0
    leaves: Moment | None = Field(None, description="Time from which the node is drained.")

    @model_validator(mode="after")
    def _is_there(self) -> ClusterNodeKeys:
        if self.leaves is not None and self.leaves <= self.joins:
            raise ValueError(f"leaves at {self.leaves:g} s, but joins at {self.joins:g} s")
        return self


class CheckpointKeys(Keys):
    """What a move to another node carries, and how long a job takes to save it."""

    size_bytes: Annotated[int, size(0)] = Field(50 << 20, alias="size")
    save: Moment = 2.0


class CurveKeys(Keys):
    """A learning curve: the true value of the metric, step by step."""

    family: Annotated[
        Literal["power", "exponential", "plateau", "drop", "restart", "points"],
        choice("power", "exponential", "plateau", "drop", "restart", "points"),
    ]
    start: Annotated[float, number(-1e15, 1e15)] | None = None
    end: Annotated[float, number(-1e15, 1e15)] | None = None
    scale: Annotated[float, number(0.001, 1e9)] | None = Field(
        None,
        description="Steps after which 37 % (exponential) or half (power) of the way from start "
        "to end is left.",
    )
    exponent: Annotated[float, number(0.01, 10)] | None = None
    at: Annotated[int, whole(1, STEPS_MAX)] | None = None
    for_steps: Annotated[int, whole(1, STEPS_MAX)] | None = Field(None, alias="for")
    every: Annotated[int, whole(1, STEPS_MAX)] | None = None
    points: tuple[Point, ...] | None = Field(None, max_length=POINTS_MAX)

    @model_validator(mode="after")
    def _fits_family(self) -> CurveKeys:
        needed, optional = _CURVE_KEYS[self.family]
        given = {
            field.alias or name
            for name, field in type(self).model_fields.items()
            if getattr(self, name) is not None
        } - {"family"}
        for key in needed:
            if key not in given:
                steps = ", in steps" if key in ("at", "for", "every") else ""
                raise ValueError(f"the family {self.family} needs {key}{steps}")
        for key in sorted(given - {*needed, *optional}):
            raise ValueError(f"the family {self.family} has no key {key}: leave it out")
        if self.start is not None and self.start == self.end:
            raise ValueError(f"start and end are both {self.start:g}: nothing is learnt")
        if self.points is not None and len(self.points) < 2:
            raise ValueError("a curve needs at least two points")
        for (before, _), (step, _) in itertools.pairwise(self.points or ()):
            if step <= before:
                raise ValueError(
                    f"points must be in the order of their steps: step {step} comes after {before}"
                )
        return self

    @property
    def rises(self) -> bool | None:
        """Whether it leads to higher values; None: unknown from its values."""
        return None if self.start is None or self.end is None else self.end > self.start


_CURVE_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "power": (("start", "end", "scale"), ("exponent",)),
    "exponential": (("start", "end", "scale"), ()),
    "plateau": (("start", "end", "scale", "at", "for"), ()),
    "drop": (("start", "end", "scale", "at"), ()),
    "restart": (("start", "end", "scale", "every"), ()),
    "points": (("points",), ()),
}
"""By family: required and optional keys."""


class TrainingKeys(Keys):
    """A training: steps of equal work, with evaluations."""

    steps: Annotated[int, whole(1, STEPS_MAX)]
    work: Work = Field(description="CPU work of a step, in core-seconds.")
    threads: Threads = 1.0
    evaluate_every: Annotated[int, whole(1, STEPS_MAX)]
    checkpoint_every: Annotated[int, whole(1, STEPS_MAX)] | None = None
    curve: CurveKeys
    noise: Annotated[float, number(0, 1e15)] = 0.0
    validation_set: Annotated[int, whole(1, 100_000_000)] | None = None

    @model_validator(mode="after")
    def _is_reportable(self) -> TrainingKeys:
        if self.steps / self.evaluate_every > EVALUATIONS_MAX:
            raise ValueError(f"more than {EVALUATIONS_MAX} evaluations: raise evaluate_every")
        return self


class ServiceKeys(Keys):
    """A service: requests that wait `overhead`, then compute `work`."""

    work: Work = Field(description="Mean CPU work of a request, in core-seconds.")
    overhead: Annotated[float, seconds(0.0, 3600.0)] = 0.0
    threads: Threads = 1.0
    noise: Annotated[float, number(0, 10)] = 0.2
    arrivals: Annotated[float, number(0.0001, 1e6)] | None = Field(
        None,
        description="Requests a second; where none is given, each request comes when the one "
        "before is answered.",
    )


class FaultKeys(Keys):
    """Something that goes wrong."""

    kind: Annotated[
        Literal["crash", "silent", "lying"],
        choice("crash", "silent", "lying"),
    ]
    at: Moment
    for_s: Span | None = Field(None, alias="for")
    factor: Factor | None = None

    @model_validator(mode="after")
    def _fits_kind(self) -> FaultKeys:
        if (self.factor is not None) != (self.kind == "lying"):
            need = "needs the key factor" if self.kind == "lying" else "has no key factor"
            raise ValueError(f"a fault of kind {self.kind} {need}")
        if self.kind == "crash" and self.for_s is not None:
            raise ValueError("a crash has no duration: leave out the key for")
        return self


class ShiftKeys(Keys):
    """Factors of a service's work and arrivals from then on."""

    at: Moment
    work: Factor = 1.0
    arrivals: Factor = 1.0


class TraceJobKeys(Keys):
    """One job: its life, its target, and its computation."""

    name: Annotated[str, text(NAME, f"a name: {NAME}")]
    at: Moment = 0.0
    leaves: Moment | None = None
    start_up: Moment = 1.0
    start_up_work: Annotated[float, number(0, 1e9)] = 0.0
    weight: Annotated[float, number(0, 1000, above=True)] = 1.0
    cpus: CpusKeys | None = None
    memory: Annotated[int, size(1 << 20)] | None = None
    image: Image = "simulated"
    checkpoint: CheckpointKeys | None = None
    restart: RestartPolicy = "no"
    target: TargetKeys | None = None
    background: Background = False
    service: ServiceKeys | None = None
    training: TrainingKeys | None = None
    faults: tuple[FaultKeys, ...] = ()
    shifts: tuple[ShiftKeys, ...] = ()

    @model_validator(mode="after")
    def _one_load(self) -> TraceJobKeys:
        if (self.service is None) == (self.training is None):
            raise ValueError("a job needs either service or training")
        if self.leaves is not None and self.leaves <= self.at:
            raise ValueError(f"leaves at {self.leaves:g} s, but comes at {self.at:g} s")
        if self.background and self.target is not None:
            raise ValueError("a background job cannot have a target: leave out one of the two")
        if self.target is not None and (self.target.latency is None) == (self.training is None):
            what = "a latency" if self.training else "a metric"
            raise ValueError(f"{what} cannot be the target of a {self._kind}")
        if self.training and self.shifts:
            raise ValueError("shifts are for services only")
        curve = self.training.curve if self.training else None
        rises, wanted = curve.rises if curve else None, _wants_more(self.target)
        if rises is not None and wanted is not None and rises != wanted:
            turn = "rises" if rises else "falls"
            raise ValueError(f"the training's curve {turn}, but the target's values do not")
        return self

    @property
    def rises(self) -> bool:
        """Whether higher values of its metric are better."""
        wanted = _wants_more(self.target)
        if wanted is not None or self.training is None:
            return bool(wanted)
        points = self.training.curve.points
        return points[-1][1] >= points[0][1] if points else bool(self.training.curve.rises)

    @property
    def _kind(self) -> str:
        return "training" if self.training else "service"


def _wants_more(target: TargetKeys | None) -> bool | None:
    """Whether the target asks for higher values; None: it asks for no metric."""
    if target is None or target.deliver is None or target.finish is None:
        return None
    return target.finish > target.deliver


class TraceKeys(Keys):
    """A trace."""

    trace: Annotated[int, whole(1, 1)] = Field(description="Version of this format: 1.")
    name: Annotated[str, text(NAME, f"a name: {NAME}")] = "trace"
    node: NodeKeys | None = None
    nodes: tuple[ClusterNodeKeys, ...] = ()
    network: Annotated[int, size(1)] = Field(
        100 << 20, description="Bytes a second of a checkpoint from node to node."
    )
    duration: Annotated[float, seconds(1.0, DAY_MAX_S)]
    cycle: Annotated[float, seconds(0.1, 3600.0)] = 1.0
    window: Annotated[float, seconds(1.0, 3600.0)] = 30.0
    host: tuple[HostKeys, ...] = ()
    jobs: tuple[TraceJobKeys, ...]

    @model_validator(mode="after")
    def _has_a_node(self) -> TraceKeys:
        if (self.node is None) == (not self.nodes):
            raise ValueError("a trace needs either node or nodes")
        if self.nodes and self.host:
            raise ValueError("with nodes, host is a key of each node, not of the trace")
        names = [one.name for one in self.nodes]
        if len(set(names)) < len(names):
            raise ValueError("two nodes of the trace have the same name")
        return self


_INNER: dict[str, type[Keys]] = {
    "node": NodeKeys, "nodes": ClusterNodeKeys, "checkpoint": CheckpointKeys,
    "host": HostKeys, "jobs": TraceJobKeys, "cpus": CpusKeys,
    "target": TargetKeys, "service": ServiceKeys, "training": TrainingKeys,
    "curve": CurveKeys, "faults": FaultKeys, "shifts": ShiftKeys,
}  # fmt: skip


def known_keys(path: tuple[str | int, ...]) -> Iterable[str]:
    """The keys allowed in the mapping at that path of a trace."""
    keys = [part for part in path if isinstance(part, str)]
    model = _INNER.get(keys[-1], TraceKeys) if keys else TraceKeys
    return [field.alias or name for name, field in model.model_fields.items()]
