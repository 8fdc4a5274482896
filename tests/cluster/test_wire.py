"""What crosses the network: nothing is lost, and nothing out of bounds is taken."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.cluster import wire
from dlsched.cluster.core.records import Holding, Order, Phase, Saved, Verb
from dlsched.cluster.core.reports import JobReport, NodeReport
from dlsched.cluster.core.snapshot import EVALUATIONS_MAX, Evaluation, Left, Sharing
from dlsched.cluster.wire import ReportRequest, WireError
from dlsched.model.spec import NAME
from dlsched.model.units import CORES_MAX

names = st.from_regex(NAME, fullmatch=True)
nodes = st.from_regex("[A-Za-z0-9]{1,25}", fullmatch=True)
epochs = st.integers(1, wire.WHOLE_MAX)
wholes = st.integers(0, wire.WHOLE_MAX)
amounts = st.floats(0.0, wire.AMOUNT_MAX)
cores = st.floats(0.0, CORES_MAX)
lines = st.text(st.characters(exclude_categories=("C", "Z")), max_size=wire.LINE_CHARACTERS)
digests = st.just("") | st.from_regex("[0-9a-f]{64}", fullmatch=True)
files = st.just("") | lines.map(lambda line: f"/{line}")
saved = st.builds(Saved, wholes, digests, wholes, files)
lefts = st.lists(amounts, min_size=3, max_size=3).map(lambda three: Left(*sorted(three)))
evaluations = st.builds(Evaluation, amounts, st.floats(-wire.VALUE_MAX, wire.VALUE_MAX))
holdings = st.builds(
    Holding,
    names,
    epochs,
    st.sampled_from(Phase),
    st.none() | wholes,
    st.none() | saved,
    st.none() | st.integers(-255, 255),
    lines,
    st.none() | wholes,
)
jobs = st.builds(
    JobReport,
    names,
    cores,
    amounts,
    st.none() | wholes,
    wholes,
    st.none() | lefts,
    st.none() | st.floats(1e-9, wire.AMOUNT_MAX),
    st.lists(evaluations, max_size=5).map(tuple),
    st.none() | lines,
    amounts,
)
reports = st.builds(
    NodeReport,
    nodes,
    cores,
    cores,
    st.none() | wholes,
    wholes,
    st.frozensets(lines, max_size=3),
    st.sampled_from(Sharing),
    amounts,
    amounts,
    st.lists(holdings, max_size=3, unique_by=lambda one: one.job).map(tuple),
    st.lists(jobs, max_size=3, unique_by=lambda one: one.name).map(tuple),
)
orders = st.builds(
    Order,
    st.sampled_from(Verb),
    nodes,
    names,
    epochs,
    st.none() | nodes,
    st.none() | saved,
    st.none() | nodes,
    st.text(st.characters(codec="utf-8"), max_size=200),
    st.booleans(),
)
REPORT = NodeReport(
    "node-1",
    8.0,
    holdings=(Holding("train", 7, Phase.AWAY, saved=Saved(1200, "ab" * 32, 4096)),),
    jobs=(JobReport("train", left=Left(1.0, 2.0, 3.0), evaluations=(Evaluation(5.0, 0.7),)),),
)


@given(reports)
def test_a_report_arrives_as_it_was_sent(report: NodeReport) -> None:
    assert wire.read_report(wire.report_bytes(report)) == report


@given(orders)
def test_an_order_arrives_as_it_was_sent(order: Order) -> None:
    assert wire.read_order(wire.order_bytes(order)) == order


@given(
    st.dictionaries(names, epochs, max_size=4),
    st.dictionaries(nodes, st.just("") | st.ip_addresses().map(str), max_size=4),
    st.none() | amounts,
)
def test_a_request_arrives_as_it_was_sent(
    placed: dict[str, int], members: dict[str, str], heard_s: float | None
) -> None:
    request = ReportRequest(placed, members, heard_s)
    assert wire.read_request(wire.request_bytes(request)) == request


@given(
    st.floats(),
    st.integers(),
    st.text(st.characters(codec=None), max_size=600),
    st.lists(st.builds(Evaluation, st.floats(), st.floats()), max_size=3),
    st.lists(st.floats(), min_size=3, max_size=3),
)
def test_nothing_that_a_job_does_has_its_nodes_report_refused(
    number: float, whole: int, text: str, evaluated: list[Evaluation], left: list[float]
) -> None:
    holding = Holding("train", 7, Phase.SAVING, whole, Saved(whole), why=text)
    job = JobReport(
        "train", number, number, whole, whole, Left(*left), number, tuple(evaluated), text, number
    )
    report = NodeReport("n", 8.0, number, whole, whole, frozenset({text}), age_s=number)
    report = replace(report, now_s=number, holdings=(holding,), jobs=(job,))
    read = wire.read_report(wire.report_bytes(report))
    assert read.jobs[0].name == "train"


def test_what_is_out_of_bounds_is_left_out_or_set_to_the_bound() -> None:
    job = JobReport(
        "train",
        used_core_s=math.nan,
        step=-1,
        left=Left(3.0, 2.0, 1.0),
        steps_per_core_s=math.inf,
        evaluations=(Evaluation(1.0, math.nan), Evaluation(2.0, 0.5)),
        unmovable="it\nhas\x1b[2J ports",
        pause_s=1e300,
    )
    (read,) = wire.read_report(wire.report_bytes(replace(REPORT, jobs=(job,)))).jobs
    assert read == JobReport(
        "train",
        evaluations=(Evaluation(2.0, 0.5),),
        unmovable="it has [2J ports",
        pause_s=wire.AMOUNT_MAX,
    )


def test_a_thousand_jobs_with_all_their_evaluations_fit() -> None:
    evaluated = tuple(Evaluation(1e5 + index / 7, -1e-5 / 7) for index in range(EVALUATIONS_MAX))
    job = JobReport("x", 1 / 3, 1e9 / 7, 10**9, 10**6, Left(1 / 7, 1e9 / 7, 1e10 / 7), 1 / 7)
    job = replace(job, evaluations=evaluated, unmovable="x" * wire.LINE_CHARACTERS, pause_s=1 / 7)
    held = Holding(
        "x", 1 << 40, Phase.RUNNING, 10**9, Saved(10**9, "ab" * 32, 10**12), why="y" * 99
    )
    many = [f"{'job' * 19}-{index:04}" for index in range(1000)]
    report = NodeReport(
        "n",
        8.0,
        images=frozenset(f"registry.example.org/group/image-{index}:tag" for index in range(1000)),
        holdings=tuple(replace(held, job=name) for name in many),
        jobs=tuple(replace(job, name=name) for name in many),
    )
    body = wire.report_bytes(report)
    assert len(body) < wire.REPORT_BYTES * 0.6
    assert wire.read_report(body) == report


READERS: list[Callable[[bytes], object]] = [wire.read_report, wire.read_request, wire.read_order]
WHOLE = [
    wire.report_bytes(REPORT),
    wire.request_bytes(ReportRequest({"train": 7}, {"node-1": "10.0.0.1"})),
    wire.order_bytes(Order(Verb.ARRIVE, "node-1", "train", 8, "node-2", Saved(3, "ab" * 32, 9))),
]


def is_only_refused(read: Callable[[bytes], object], body: bytes) -> None:
    try:
        read(body)
    except WireError as error:
        assert str(error).isprintable()
        assert 0 < len(str(error)) < 400


@given(st.binary(max_size=200))
def test_bytes_are_never_more_than_refused(body: bytes) -> None:
    for read in READERS:
        is_only_refused(read, body)


@given(st.sampled_from(range(3)), st.integers(0, 400), st.binary(max_size=8), st.integers(0, 8))
def test_changed_messages_are_never_more_than_refused(
    which: int, at: int, other: bytes, cut: int
) -> None:
    whole = WHOLE[which]
    is_only_refused(READERS[which], whole[:at] + other + whole[at + cut :])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.sampled_from(range(3)), st.data())
def test_other_values_at_any_key_are_never_more_than_refused(which: int, data: Any) -> None:
    message = json.loads(WHOLE[which])
    part = data.draw(st.sampled_from([message, message["value"]]))
    part[data.draw(st.sampled_from([*part, "\x1b[2J"]))] = data.draw(json_values)
    is_only_refused(READERS[which], json.dumps(message).encode())


def changed(which: int, v: object = wire.VERSION, **more: Any) -> bytes:
    value = json.loads(WHOLE[which])["value"] | more
    return json.dumps({"v": v, "value": value}).encode()


def holding(**more: Any) -> bytes:
    return changed(0, holdings=[{"job": "ab", "epoch": 1, "phase": "away", **more}])


@pytest.mark.parametrize(
    ("which", "body", "line"),
    [
        (0, changed(0, v=4, extra=1), "v is 4, must be 3: the other node runs another version"),
        (0, changed(0, v="3"), "v is '3', must be 3: the other node runs another version"),
        (0, changed(0, v=[3]), "v is no version, must be 3: the other node runs another"),
        # What earlier versions wrote.
        (0, b'{"v":2,"now_s":5.0,"report":{"node":"n","capacity_cores":8.0}}', "v is 2, must be 3"),
        (1, b'{"v":2,"request":{"placed":{},"nodes":{}}}', "v is 2, must be 3: the other node"),
        (2, b'{"v":1,"verb":"clear","node":"n","job":"ab","epoch":7}', "v is 1, must be 3: the"),
        (2, b'{"verb":"clear","node":"n","job":"ab","epoch":7}', "v is no version, must be 3"),
        (0, changed(0, extra=1), "value.extra: "),
        (0, changed(0, capacity_cores=math.nan), "value.capacity_cores: Input should be a finite"),
        (0, changed(0, capacity_cores="8"), "value.capacity_cores: Input should be a valid"),
        (0, changed(0, capacity_cores=-1.0), "capacity_cores is out of bounds"),
        (0, changed(0, memory_free_bytes=1 << 60), "memory_free_bytes is out of bounds"),
        (0, changed(0, images=["x" * 513]), "images is out of bounds"),
        (0, changed(0, images=["a\nb"]), "images is out of bounds"),
        (0, changed(0, jobs=[{"name": "../etc"}]), "jobs: '../etc' is not a valid name"),
        (0, changed(0, jobs=[{"name": "train\n"}]), "jobs: 'train\\n' is not a valid name"),
        (0, changed(0, jobs=[{"name": "ab"}] * 2), "jobs: ab appears twice"),
        (0, changed(0, jobs=[{"name": "ab", "left": [3, 2, 1]}]), "jobs is out of bounds"),
        (0, changed(0, jobs=[{"name": "ab", "left": [1, 2]}]), "value.jobs.0.left.2: "),
        (
            0,
            changed(0, jobs=[{"name": "ab", "evaluations": [[1, 1]] * 65}]),
            "jobs is out of bounds",
        ),
        (0, holding(epoch=0), "holdings.0 is out of bounds"),
        (0, holding(exit_code=1 << 60), "holdings.0 is out of bounds"),
        (0, holding(file="x" * 17), "holdings.0 is out of bounds"),
        (0, holding(phase="x"), "value.holdings.0.phase"),
        (0, holding(why="a\nb"), "holdings is out of bounds"),
        (0, holding(saved={"step": 1, "sha256": "xy"}), "holdings is out of bounds"),
        (0, holding(saved={"step": 1, "file": "/" * 1025}), "holdings is out of bounds"),
        (0, holding(saved={"step": 1, "file": "/a\n"}), "holdings is out of bounds"),
        (0, holding(saved={"step": 1, "file": "a"}), "holdings is out of bounds"),
        (1, changed(1, placed={"train": "7"}), "value.placed.train: Input should be"),
        (2, changed(2, verb="destroy"), "value.verb: Input should be"),
        (2, changed(2, job="../etc"), "order: '../etc' is not a valid name"),
    ],
)
def test_what_is_refused(which: int, body: bytes, line: str) -> None:
    with pytest.raises(WireError) as caught:
        READERS[which](body)
    assert str(caught.value).startswith(line)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("key", ["jobs", "holdings", "images", "evaluations"])
def test_a_collection_is_read_no_further_than_its_first_problem(key: str) -> None:
    """Of 8 MiB of them a node could make gigabytes and half a minute for the controller."""
    wrong: list[object] = [7] * 9
    more = {"jobs": [{"name": "ab", key: wrong}]} if key == "evaluations" else {key: wrong}
    with pytest.raises(WireError, match=rf"{key}\.0") as caught:
        wire.read_report(changed(0, **more))
    assert " more)" not in str(caught.value)


def test_an_order_that_is_too_long_is_not_written() -> None:
    with pytest.raises(WireError, match="at most 256 KiB"):
        wire.order_bytes(Order(Verb.PREPARE, "n", "train", 1, text="\n" * (200 << 10)))
