"""What the controller and the agents send each other: the core's values as strict JSON.

What a node reports stems from its containers in part, so the sender keeps it within bounds: no job
can have its node's report refused. A report that comes with unknown keys, other types or anything
out of these bounds is refused whole, in one line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Generic, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from dlsched.cluster.core.records import STRICT, Holding, Order, Saved
from dlsched.cluster.core.reports import JobReport, NodeReport
from dlsched.cluster.core.snapshot import EVALUATIONS_MAX, Left
from dlsched.model.errors import DlschedError
from dlsched.model.spec import NAME
from dlsched.model.units import CORES_MAX, plain_text, render_bytes, shown
from dlsched.report.lines import PATH_CHARACTERS

VERSION: Final = 3
"""2 had the node's clock outside of its report, and `report`, `request` or `order` as the key of
the value; 1 had no such key."""

ORDER_BYTES = 256 << 10
"""Limit of an order, and of a report's request."""
REPORT_BYTES = 8 << 20
"""Limit of a report: 1,000 jobs with all their evaluations have half of it."""
JOBS_MAX = 4096
IMAGES_MAX = 4096
IMAGE_CHARACTERS = 512
LINE_CHARACTERS = 500
WHOLE_MAX = 1 << 53
"""Of steps, epochs, bytes and counts: larger ones have no exact number in JSON."""
AMOUNT_MAX = 1e15
"""Of seconds, core-seconds and rates."""
VALUE_MAX = 1e100
"""Of a metric, with either sign."""
VERSION_CHARACTERS = 16
"""Of a job file's version."""


class WireError(DlschedError):
    """A message is refused, in one line."""


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What an agent is asked for its report with."""

    __pydantic_config__ = STRICT
    placed: Mapping[str, int]
    """Jobs that are the node's own, by epoch."""
    nodes: Mapping[str, str]
    """The cluster's present members and their IP addresses; an empty one is not known."""
    heard_s: float | None = None
    """The node's clock in the last report that came from it; None: none has come."""


_Wire = TypeVar("_Wire")


@dataclass(frozen=True, slots=True)
class _Message(Generic[_Wire]):
    __pydantic_config__ = STRICT
    v: Literal[3]
    value: _Wire


_REPORT = TypeAdapter(_Message[NodeReport])
_REQUEST = TypeAdapter(_Message[ReportRequest])
_ORDER = TypeAdapter(_Message[Order])


def report_bytes(report: NodeReport) -> bytes:
    """The report as JSON. What is out of bounds is left out, or set to the bound. Raises WireError
    if it is too long."""
    return _written(_REPORT, _within(report), REPORT_BYTES)


def read_report(body: bytes) -> NodeReport:
    """The report. Raises WireError."""
    report = _read(_REPORT, body)
    within = _within(report)
    _check_names("holdings", [one.job for one in report.holdings])
    _check_names("jobs", [one.name for one in report.jobs])
    outside = [f"holdings.{i}" for i, one in enumerate(report.holdings) if not _is_sound(one)]
    outside += [
        one.name for one in fields(report) if getattr(report, one.name) != getattr(within, one.name)
    ]
    if outside:
        raise WireError(f"{outside[0]} is out of bounds")
    return report


def request_bytes(request: ReportRequest) -> bytes:
    """The request as JSON. Raises WireError if it is too long."""
    return _written(_REQUEST, request, ORDER_BYTES)


def read_request(body: bytes) -> ReportRequest:
    """The request. Raises WireError."""
    return _read(_REQUEST, body)


def order_bytes(order: Order) -> bytes:
    """The order as JSON. Raises WireError if it is too long."""
    return _written(_ORDER, order, ORDER_BYTES)


def read_order(body: bytes) -> Order:
    """The order. Raises WireError."""
    order = _read(_ORDER, body)
    _check_names("order", [order.job])
    return order


# ---------------------------------------------------------------------- bounds


def _within(report: NodeReport) -> NodeReport:
    """The report within bounds. What is within them already stays as it is."""
    images = frozenset(
        name for name in report.images if len(name) <= IMAGE_CHARACTERS and name.isprintable()
    )
    return replace(
        report,
        capacity_cores=_amount(report.capacity_cores, CORES_MAX),
        foreign_cores=_amount(report.foreign_cores, CORES_MAX),
        memory_free_bytes=_whole(report.memory_free_bytes),
        gpus_free=_whole(report.gpus_free) or 0,
        images=images if len(images) <= IMAGES_MAX else frozenset(),
        age_s=_amount(report.age_s),
        now_s=_amount(report.now_s),
        holdings=tuple(map(_holding_within, report.holdings[:JOBS_MAX])),
        jobs=tuple(map(_job_within, report.jobs[:JOBS_MAX])),
    )


def _holding_within(one: Holding) -> Holding:
    return replace(
        one,
        step=_whole(one.step),
        saved=one.saved if one.saved is not None and _is_within(one.saved) else None,
        why=_line(one.why),
        came_bytes=_whole(one.came_bytes),
    )


def _is_sound(one: Holding) -> bool:
    """Whether it has what no container says, and so no sender has to bound."""
    is_code = one.exit_code is None or abs(one.exit_code) <= WHOLE_MAX
    return 1 <= one.epoch <= WHOLE_MAX and is_code and len(one.file) <= VERSION_CHARACTERS


def _is_within(saved: Saved) -> bool:
    path = saved.file
    is_path = path.startswith("/") and len(path) <= PATH_CHARACTERS and path.isprintable()
    is_digest = re.fullmatch("([0-9a-f]{64})?", saved.sha256) is not None
    is_whole = _whole(saved.step) is not None and _whole(saved.size_bytes) is not None
    return (is_path or not path) and is_digest and is_whole


def _job_within(one: JobReport) -> JobReport:
    pace = one.steps_per_core_s
    return replace(
        one,
        granted_cores=_amount(one.granted_cores, CORES_MAX),
        used_core_s=_amount(one.used_core_s),
        step=_whole(one.step),
        reports=_whole(one.reports) or 0,
        left=one.left if one.left is not None and _ascends(one.left) else None,
        steps_per_core_s=pace if pace is not None and 0.0 < pace <= AMOUNT_MAX else None,
        evaluations=tuple(
            each
            for each in one.evaluations[-EVALUATIONS_MAX:]
            if _amount(each.at_s) == each.at_s and abs(each.value) <= VALUE_MAX
        ),
        unmovable=None if one.unmovable is None else _line(one.unmovable),
        pause_s=_amount(one.pause_s),
    )


def _ascends(left: Left) -> bool:
    return 0.0 <= left.low_core_s <= left.mid_core_s <= left.high_core_s <= AMOUNT_MAX


def _amount(number: float, most: float = AMOUNT_MAX) -> float:
    return min(max(float(number), 0.0), most) if not math.isnan(number) else 0.0


def _whole(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= WHOLE_MAX else None


def _line(text: str) -> str:
    return plain_text(text[:LINE_CHARACTERS])


def _check_names(what: str, names: Iterable[str]) -> None:
    known = set()
    for name in names:
        if not re.fullmatch(NAME, name):
            raise WireError(f"{what}: {shown(name)} is not a valid name")
        if name in known:
            raise WireError(f"{what}: {name} appears twice")
        known.add(name)


# ---------------------------------------------------------------------- JSON


def _written(adapter: TypeAdapter[_Message[_Wire]], value: _Wire, most_bytes: int) -> bytes:
    try:
        body = adapter.dump_json(_Message(VERSION, value), exclude_defaults=True)
    except ValueError as error:  # such as half a pair of surrogates
        raise WireError(f"the message cannot be written: {_short(str(error))}") from error
    if len(body) > most_bytes:
        size = f"{len(body)} bytes, must have at most {render_bytes(most_bytes)}"
        raise WireError(f"the message has {size}")
    return body


def _read(adapter: TypeAdapter[_Message[_Wire]], body: bytes) -> _Wire:
    try:
        return adapter.validate_json(body).value
    except ValidationError as error:
        raise WireError(_other_version(error) or first_problem(error)) from None


def _other_version(error: ValidationError) -> str:
    """It explains all other problems."""
    for one in error.errors(include_url=False, include_context=False):
        if one["loc"] == ("v",):
            found = one["input"]
            is_plain = isinstance(found, str) or (type(found) is int and abs(found) < WHOLE_MAX)
            version = shown(found) if is_plain else "no version"
            return f"v is {version}, must be {VERSION}: the other node runs another version"
    return ""


def first_problem(error: ValidationError) -> str:
    """One of the problems, in one line."""
    problems = error.errors(include_url=False, include_context=False)
    one, more = problems[0], len(problems) - 1
    place = _short(".".join(map(str, one["loc"])))
    rest = f" (and {more} more)" if more else ""
    return f"{place + ': ' if place else ''}{_short(one['msg'])}{rest}"


def _short(text: str) -> str:
    return plain_text(text[:120])
