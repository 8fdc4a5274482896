"""The contract of the status schema: filled by the server, parsed back equal by the client."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import yaml

from dlsched.api import (
    cluster_schema,
    history_schema,
    review_schema,
    schema,
    stream_schema,
    usage_schema,
    why_schema,
)
from dlsched.api.client import Daemon
from dlsched.api.codec import SchemaMismatch, as_json, read
from dlsched.api.json_schema import status_schema
from dlsched.api.schema import SCHEMA_VERSION, Status
from dlsched.api.status import cpu_beside, explanation, job_now, node_status
from dlsched.api.stream_events import EventHistory, point
from dlsched.api.why_schema import Explanation
from dlsched.model.cycle import CycleReport
from dlsched.store.journal.history import JOB_JOINS, NODE_JOINS
from dlsched.store.journal.rows import Change, Event
from tests.status_source import CHANGE, EFFECT, EVENT, FakeSource, everything_report
from tests.texts import same_text


def types_of(*modules: ModuleType) -> dict[str, type[Any]]:
    return {
        name: kind
        for module in modules
        for name, kind in vars(module).items()
        if dataclasses.is_dataclass(kind) and isinstance(kind, type)
    }


KINDS = types_of(schema, stream_schema, why_schema)


def explained(
    report: CycleReport,
    change: Change = CHANGE,
    event: Event = EVENT,
) -> Explanation:
    name = "digits-resnet"
    (row,) = [job for job in node_status(report).jobs if job.name == name]
    cpu = cpu_beside(row, report)
    return explanation(row, job_now(name, report), [change], [event], {70: EFFECT}, cpu)


def sent(value: object) -> Any:
    return json.loads(json.dumps(as_json(value), allow_nan=False))


def filled(value: object, found: dict[str, set[str]]) -> dict[str, set[str]]:
    """The fields of each type that hold something, in this value and all below it."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        some = {name for name, one in fields.items() if one not in (None, (), {}, "")}
        found.setdefault(type(value).__name__, set()).update(some)
        value = tuple(fields.values())
    elif isinstance(value, Mapping):
        value = tuple(value.values())
    for part in value if isinstance(value, tuple) else ():
        filled(part, found)
    return found


def test_every_field_is_filled_by_the_server_from_a_rich_report() -> None:
    found: dict[str, set[str]] = {}
    report = everything_report()
    shared = replace(CHANGE, before_share=0.25, after_share=0.5, gpus="GPU-1")
    change = replace(shared, guard="bounds", detail="engine said: busy")
    event = replace(EVENT, reason="image was pulled")
    happened = EventHistory().next(report)
    assert report.shadow is not None
    shown = point(replace(report, shadow=replace(report.shadow, trouble=None)))
    for value in (node_status(report), explained(report, change, event), happened, shown):
        filled(value, found)
    all_fields = {
        name: {field.name for field in dataclasses.fields(kind)} for name, kind in KINDS.items()
    }
    assert found == all_fields


def test_what_the_server_fills_is_parsed_back_equal() -> None:
    report = everything_report()
    assert report.shadow is not None
    shadowed = point(replace(report, shadow=replace(report.shadow, trouble=None)))
    happened = EventHistory().next(report)
    for value in (node_status(report), explained(report), happened, point(report), shadowed):
        assert read(type(value), sent(value)) == value


def test_each_field_has_the_value_that_clients_expect() -> None:
    report = everything_report()
    assert report.shadow is not None
    shown = point(replace(report, shadow=replace(report.shadow, trouble=None)))
    found = (node_status(report), explained(report), EventHistory().next(report), shown)
    same_text("api", yaml.safe_dump_all(map(as_json, found), sort_keys=False, width=100))


@pytest.mark.timed
def test_the_client_parses_what_the_socket_answers(daemon: Daemon, source: FakeSource) -> None:
    source.report = everything_report()
    assert daemon.status() == node_status(source.report)
    assert daemon.explain("digits-resnet", 5) == explained(source.report)


def test_unknown_keys_are_ignored() -> None:
    status = node_status(everything_report())
    answer = sent(status)
    for place in (answer, answer["jobs"][0], answer["node"]["gpus"][0], answer["engine"]):
        place["new"] = {"later": 1}
    assert read(Status, answer) == status


@pytest.mark.parametrize(
    ("version", "line"),
    [
        (None, "has no version, this dlsched reads version 1: restart the daemon with this"),
        (0, "has version 0, this dlsched reads version 1: restart the daemon with this dlsched"),
        (2, "has version 2, this dlsched reads version 1: upgrade this dlsched"),
        ("x", "has version 'x', this dlsched reads version 1: restart the daemon"),
    ],
)
def test_another_version_is_one_clear_line(version: object, line: str) -> None:
    answer = {**sent(node_status(everything_report())), "schema_version": version}
    with pytest.raises(SchemaMismatch) as caught:
        read(Status, answer)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value", "line"),
    [
        ("alarms", ..., "alarms is missing"),
        ("alarms", {}, "alarms has the value {}; this version of dlsched reads a list there"),
        ("jobs.0.cpu.floor_cores", ..., "jobs[0].cpu.floor_cores is missing"),
        ("jobs.0.cpu.floor_cores", "much", "jobs[0].cpu.floor_cores has the value 'much'; this"),
        ("jobs.0.starts", True, "jobs[0].starts has the value True; this version"),
        ("jobs.0.target.kind", "size", "jobs[0].target.kind has the value 'size'; this version"),
        ("jobs.0.target", 5, "jobs[0].target.kind has the value None"),
        ("jobs.0.cpu", None, "jobs[0].cpu has the value None; this version of"),
        ("node.gpus.0.jobs", [7], "node.gpus[0].jobs[0] has the value 7; this version"),
    ],
)
def test_a_key_that_is_missing_or_wrong_is_one_clear_line(
    place: str, value: object, line: str
) -> None:
    answer = sent(node_status(everything_report()))
    *above, last = place.split(".")
    where: Any = answer
    for key in above:
        where = where[int(key) if key.isdigit() else key]
    if value is ...:
        del where[last]
    else:
        where[last] = value
    with pytest.raises(SchemaMismatch) as caught:
        read(Status, answer)
    assert str(caught.value).startswith(f"the daemon's status: {line}")
    assert ": restart the daemon with this dlsched (`--output json`" in str(caught.value)


def test_a_number_that_is_not_finite_becomes_text() -> None:
    assert as_json({"a": (float("nan"), float("inf"))}) == {"a": ["nan", "inf"]}


ELSEWHERE = (history_schema, usage_schema, review_schema, cluster_schema)


def test_the_published_schema_has_every_type_and_field() -> None:
    definitions = status_schema()["$defs"]
    assert {name: list(one["properties"]) for name, one in definitions.items()} == {
        name: [field.name for field in dataclasses.fields(kind)]
        for name, kind in (KINDS | types_of(*ELSEWHERE)).items()
    }
    optional = {
        name: set(one["properties"]) - set(one["required"]) for name, one in definitions.items()
    }
    assert not any(optional.values()), "every key is sent"
    history = definitions["History"]["properties"]
    for key, joins in (("node", NODE_JOINS), ("jobs", JOB_JOINS)):
        assert all(f"`{name}`" in history[key]["description"] for name in joins)
    for root in (
        "Status",
        "Explanation",
        "CycleEvents",
        "CyclePoint",
        "History",
        "UsageStatus",
        "Review",
        "ClusterAnswer",
    ):
        version = definitions[root]["properties"]["schema_version"]
        assert version["const"] == SCHEMA_VERSION
    assert "Measured latency over target" in json.dumps(definitions["JobStatus"])
