"""What the controller and the agents send each other: strict JSON, and its conversion from and to
the core's values.

What comes from another host is hostile: unknown keys, numbers that are not finite, and whatever is
out of bounds refuse the whole message, in one line. What a node reports stems from its containers
in part, so the sender keeps it within the same bounds: no job can have its node's report refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from dlsched.cluster import bounds
from dlsched.cluster.core.model import EVALUATIONS_MAX, Evaluation, Left, Sharing
from dlsched.cluster.core.records import Holding, Order, Phase, Saved, Verb
from dlsched.cluster.core.reports import JobReport, NodeReport
from dlsched.model.errors import DlschedError
from dlsched.model.units import CORES_MAX, plain_text, render_bytes, shown

VERSION: Final = 1

ORDER_BYTES = 256 << 10
"""Limit of an order, and of a report's request."""
REPORT_BYTES = 8 << 20
"""Limit of a report: 1,000 jobs with all their evaluations have half of it."""


class WireError(DlschedError):
    """A message is refused, in one line."""


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What an agent is asked for its report with."""

    placed: Mapping[str, int]
    """Jobs that are the node's own, by epoch."""
    nodes: Mapping[str, str]
    """The cluster's present members and their IP addresses; an empty one is not known."""
    heard_s: float | None = None
    """The node's clock in the last report that came from it; None: none has come."""


_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class _WireSaved:
    __pydantic_config__ = _STRICT
    step: bounds.Whole
    sha256: bounds.Sha256 = ""
    size_bytes: bounds.Whole = 0
    file: bounds.PathText = ""

    @classmethod
    def of(cls, saved: Saved | None) -> _WireSaved | None:
        if saved is None or bounds.whole(saved.step) is None or not bounds.is_path(saved.file):
            return None
        return cls(saved.step, saved.sha256, saved.size_bytes, saved.file)

    def core(self) -> Saved:
        return Saved(self.step, self.sha256, self.size_bytes, self.file)


@dataclass(frozen=True, slots=True)
class _WireHolding:
    __pydantic_config__ = _STRICT
    job: bounds.Job
    epoch: bounds.Epoch
    phase: Phase
    step: bounds.Whole | None = None
    saved: _WireSaved | None = None
    exit_code: bounds.ExitCode | None = None
    why: bounds.Line = ""
    came_bytes: bounds.Whole | None = None
    file: bounds.Version = ""

    @classmethod
    def of(cls, one: Holding) -> _WireHolding:
        return cls(
            one.job,
            one.epoch,
            one.phase,
            bounds.whole(one.step),
            _WireSaved.of(one.saved),
            one.exit_code,
            bounds.line(one.why),
            bounds.whole(one.came_bytes),
            one.file,
        )

    def core(self) -> Holding:
        saved = None if self.saved is None else self.saved.core()
        return Holding(
            self.job,
            self.epoch,
            self.phase,
            self.step,
            saved,
            self.exit_code,
            self.why,
            self.came_bytes,
            self.file,
        )


@dataclass(frozen=True, slots=True)
class _WireJob:
    __pydantic_config__ = _STRICT
    name: bounds.Job
    granted_cores: bounds.Cores = 0.0
    used_core_s: bounds.Amount = 0.0
    step: bounds.Whole | None = None
    reports: bounds.Whole = 0
    left: tuple[bounds.Amount, bounds.Amount, bounds.Amount] | None = None
    steps_per_core_s: bounds.Amount | None = None
    evaluations: Annotated[
        tuple[tuple[bounds.Amount, bounds.Value], ...], Field(max_length=EVALUATIONS_MAX)
    ] = ()
    unmovable: bounds.Line | None = None
    pause_s: bounds.Amount = 0.0

    @classmethod
    def of(cls, one: JobReport) -> _WireJob:
        left = one.left
        if left is not None and not bounds.is_interval(*left):
            left = None
        return cls(
            one.name,
            bounds.amount(one.granted_cores, CORES_MAX),
            bounds.amount(one.used_core_s),
            bounds.whole(one.step),
            bounds.whole(one.reports) or 0,
            left,
            bounds.known_amount(one.steps_per_core_s),
            tuple(
                (at_s, value)
                for at_s, value in one.evaluations[-EVALUATIONS_MAX:]
                if bounds.is_within(at_s, 0.0, bounds.AMOUNT_MAX)
                and bounds.is_within(value, -bounds.VALUE_MAX, bounds.VALUE_MAX)
            ),
            None if one.unmovable is None else bounds.line(one.unmovable),
            bounds.amount(one.pause_s),
        )

    def core(self) -> JobReport:
        left = None if self.left is None else Left(*self.left)
        if left is not None and not bounds.is_interval(*left):
            raise WireError(f"the work left of {self.name} is not in ascending order")
        return JobReport(
            self.name,
            self.granted_cores,
            self.used_core_s,
            self.step,
            self.reports,
            left,
            self.steps_per_core_s,
            tuple(Evaluation(*one) for one in self.evaluations),
            self.unmovable,
            self.pause_s,
        )


@dataclass(frozen=True, slots=True)
class _WireReport:
    __pydantic_config__ = _STRICT
    v: Literal[1]
    now_s: bounds.Amount
    node: bounds.Node
    capacity_cores: bounds.Cores
    foreign_cores: bounds.Cores = 0.0
    memory_free_bytes: bounds.Whole | None = None
    gpus_free: bounds.Whole = 0
    images: Annotated[tuple[bounds.Image, ...], Field(max_length=bounds.IMAGES_MAX)] = ()
    sharing: Sharing = Sharing.SHORTEST
    age_s: bounds.Amount = 0.0
    holdings: Annotated[tuple[_WireHolding, ...], Field(max_length=bounds.JOBS_MAX)] = ()
    jobs: Annotated[tuple[_WireJob, ...], Field(max_length=bounds.JOBS_MAX)] = ()

    @classmethod
    def of(cls, one: NodeReport, now_s: float) -> _WireReport:
        images = sorted(name for name in one.images if bounds.is_image(name))
        return cls(
            VERSION,
            bounds.amount(now_s),
            one.node,
            bounds.amount(one.capacity_cores, CORES_MAX),
            bounds.amount(one.foreign_cores, CORES_MAX),
            bounds.whole(one.memory_free_bytes),
            bounds.whole(one.gpus_free) or 0,
            tuple(images) if len(images) <= bounds.IMAGES_MAX else (),
            one.sharing,
            bounds.amount(one.age_s),
            tuple(map(_WireHolding.of, one.holdings[: bounds.JOBS_MAX])),
            tuple(map(_WireJob.of, one.jobs[: bounds.JOBS_MAX])),
        )

    def core(self) -> NodeReport:
        _check_once("holdings", (one.job for one in self.holdings))
        _check_once("jobs", (one.name for one in self.jobs))
        return NodeReport(
            self.node,
            self.capacity_cores,
            self.foreign_cores,
            self.memory_free_bytes,
            self.gpus_free,
            frozenset(self.images),
            self.sharing,
            self.age_s,
            tuple(one.core() for one in self.holdings),
            tuple(one.core() for one in self.jobs),
        )


@dataclass(frozen=True, slots=True)
class _WireRequest:
    __pydantic_config__ = _STRICT
    v: Literal[1]
    placed: Annotated[dict[bounds.Job, bounds.Epoch], Field(max_length=bounds.JOBS_MAX)]
    nodes: Annotated[dict[bounds.Node, bounds.Address], Field(max_length=bounds.NODES_MAX)]
    heard_s: bounds.Amount | None = None


@dataclass(frozen=True, slots=True)
class _WireOrder:
    __pydantic_config__ = _STRICT
    v: Literal[1]
    verb: Verb
    node: bounds.Node
    job: bounds.Job
    epoch: bounds.Epoch
    source: bounds.Node | None = None
    saved: _WireSaved | None = None
    target: bounds.Node | None = None
    text: str = ""
    keeps: bool = True


_REPORT = TypeAdapter(_WireReport)
_REQUEST = TypeAdapter(_WireRequest)
_ORDER = TypeAdapter(_WireOrder)


def report_bytes(report: NodeReport, now_s: float) -> bytes:
    """The report as JSON. What is out of bounds is left out, or set to the bound; `now_s` is the
    node's clock, by which its evaluations have their times. Raises WireError if it is too long."""
    return _written(_REPORT, _WireReport.of(report, now_s), REPORT_BYTES)


def read_report(body: bytes) -> tuple[NodeReport, float]:
    """The report, and the node's clock when it was written. Raises WireError."""
    found = _read(_REPORT, body, REPORT_BYTES)
    return found.core(), found.now_s


def request_bytes(request: ReportRequest) -> bytes:
    """The request as JSON. Raises WireError if it is too long."""
    made = _WireRequest(VERSION, dict(request.placed), dict(request.nodes), request.heard_s)
    return _written(_REQUEST, made, ORDER_BYTES)


def read_request(body: bytes) -> ReportRequest:
    """The request. Raises WireError."""
    found = _read(_REQUEST, body, ORDER_BYTES)
    return ReportRequest(found.placed, found.nodes, found.heard_s)


def order_bytes(order: Order) -> bytes:
    """The order as JSON. Raises WireError if it is too long."""
    made = _WireOrder(
        VERSION,
        order.verb,
        order.node,
        order.job,
        order.epoch,
        order.source,
        _WireSaved.of(order.saved),
        order.target,
        order.text,
        order.keeps,
    )
    return _written(_ORDER, made, ORDER_BYTES)


def read_order(body: bytes) -> Order:
    """The order. Raises WireError."""
    found = _read(_ORDER, body, ORDER_BYTES)
    saved = None if found.saved is None else found.saved.core()
    return Order(
        found.verb,
        found.node,
        found.job,
        found.epoch,
        found.source,
        saved,
        found.target,
        found.text,
        found.keeps,
    )


_Wire = TypeVar("_Wire")


def _written(adapter: TypeAdapter[_Wire], value: _Wire, most_bytes: int) -> bytes:
    try:
        body = adapter.dump_json(value, exclude_defaults=True)
    except ValueError as error:  # such as half a pair of surrogates
        raise WireError(f"it cannot be written: {_short(str(error))}") from error
    _check_size(len(body), most_bytes)
    return body


def _read(adapter: TypeAdapter[_Wire], body: bytes, most_bytes: int) -> _Wire:
    _check_size(len(body), most_bytes)
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        raise WireError(_first(error)) from None


def _check_size(size_bytes: int, most_bytes: int) -> None:
    if size_bytes > most_bytes:
        raise WireError(f"it has {size_bytes} bytes, must have at most {render_bytes(most_bytes)}")


def _first(error: ValidationError) -> str:
    """One of the problems, in one line: another version explains all others."""
    problems = error.errors(include_url=False, include_context=False)
    versions = [one for one in problems if one["loc"] == ("v",)]
    if versions:
        return f"v is {_version(versions[0]['input'])}, must be {VERSION}: another version speaks"
    one, more = problems[0], len(problems) - 1
    place = _short(".".join(map(str, one["loc"])))
    rest = f" (and {more} more)" if more else ""
    return f"{place + ': ' if place else ''}{_short(one['msg'])}{rest}"


def _version(value: object) -> str:
    is_plain = isinstance(value, str) or (type(value) is int and abs(value) < bounds.WHOLE_MAX)
    return shown(value) if is_plain else "no version"


def _short(text: str) -> str:
    return plain_text(text[:120])


def _check_once(what: str, names: Iterable[str]) -> None:
    known = set()
    for name in names:
        if name in known:
            raise WireError(f"{what}: {name} is there twice")
        known.add(name)
