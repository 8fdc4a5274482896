"""Records as configs of a played swarm: what is refused, left alone, and reported."""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.cluster.core.records import Record, RecordState, Request, Saved, Wanted
from dlsched.cluster.store import Member, StaleRecord, StoreError
from dlsched.cluster.swarm.calls import SwarmCalls
from dlsched.cluster.swarm.labels import RECORDS, SUBMISSIONS, Names, read_record, record_labels
from dlsched.cluster.swarm.store import NotStorable, SwarmStore
from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker.engine import EngineRefused
from tests.cluster.store_contract import RECORD, SUBMISSION, StoreContract, Stores
from tests.cluster.swarm.played import PlayedSwarm

pytestmark = pytest.mark.timed

RECORD_NAME = "dlsched.lab.job.resnet"
SUBMISSION_NAME = "dlsched.lab.submitted.resnet"


@pytest.fixture
def swarm() -> PlayedSwarm:
    return PlayedSwarm()


@pytest.fixture
def store(swarm: PlayedSwarm) -> SwarmStore:
    return store_of(swarm)


def store_of(swarm: PlayedSwarm, instance: str = "lab") -> SwarmStore:
    return SwarmStore(swarm, instance)


class TestPlayed(StoreContract):
    @pytest.fixture
    def stores(self, swarm: PlayedSwarm) -> Stores:
        swarm.add_node("m1", ManagerStatus={"Addr": "10.0.0.1:2377"})
        return store_of(swarm), store_of(swarm)


# ---------------------------------------------------------------------- names


def test_a_job_called_like_anothers_digest_has_a_config_of_its_own(
    swarm: PlayedSwarm, store: SwarmStore
) -> None:
    store.put(replace(RECORD, job="a" * 63), None)
    (name,) = names_in(swarm)
    called_so = name.rpartition(".")[2]
    store.put(replace(RECORD, job=called_so), None)
    assert set(store.records()) == {"a" * 63, called_so}


def test_instances_have_nothing_to_do_with_each_other(swarm: PlayedSwarm) -> None:
    one, two, three = (store_of(swarm, name) for name in ("a", "a.job", "b"))
    one.put(replace(RECORD, job="job.x"), None)
    two.put(replace(RECORD, job="xy"), None)
    assert (set(one.records()), set(two.records()), set(three.records())) == (
        {"job.x"},
        {"xy"},
        set(),
    )
    assert {**one.problems(), **two.problems(), **three.problems()} == {}


def test_what_is_not_ours_is_not_asked_for(swarm: PlayedSwarm, store: SwarmStore) -> None:
    SwarmCalls(swarm).create("their.secrets", {"a": "b"})
    SwarmCalls(swarm).create("dlsched.lab.other", {"a": "b"})
    assert (store.records(), store.problems()) == ({}, {})


# ---------------------------------------------------------------------- what a person has edited


def edit(swarm: PlayedSwarm, name: str, key: str, value: object) -> None:
    """Change a label, or a key of what is stored in one; None: without it."""
    if key.startswith("dlsched."):
        swarm.edited(name, {key: None if value is None else str(value)})
        return
    stored = json.loads(swarm.labels(name)["dlsched.value"])
    changed = {**stored, key: value}
    if value is None:
        del changed[key]
    swarm.edited(name, {"dlsched.value": json.dumps(changed)})


EDITS: list[tuple[str, object, str]] = [
    ("state", None, "label dlsched.value: state: Field required"),
    ("state", "flying", "label dlsched.value: state: Input should be"),
    (
        "state",
        "leaving",
        "label dlsched.value: target is missing in the record of a job that is leaving",
    ),
    (
        "state",
        "moving",
        "label dlsched.value: source is missing in the record of a job that is moving",
    ),
    (
        "target",
        "node-b",
        "label dlsched.value: target is not allowed in the record of a job that is placed",
    ),
    ("epoch", "1", "label dlsched.value: epoch: Input should be a valid integer"),
    ("saved", {"step": "5"}, "label dlsched.value: saved.step: Input should be a valid integer"),
    ("pinned", "yes", "label dlsched.value: pinned: Unexpected keyword"),
    ("job", "bert", "its labels name another config"),
    ("dlsched.value", "{", "label dlsched.value: Invalid JSON"),
    ("dlsched.value", None, "label dlsched.value: Invalid JSON"),
    ("dlsched.v", "1", "label dlsched.v is '1', must be '2': another version"),
    ("dlsched.v", None, "label dlsched.v is '', must be '2'"),
    ("dlsched.instance", "lab2", "label dlsched.instance is 'lab2', must be 'lab'"),
]


@pytest.mark.parametrize(("label", "value", "line"), EDITS)
def test_an_edited_record_is_left_as_it_is(
    swarm: PlayedSwarm, store: SwarmStore, label: str, value: object, line: str
) -> None:
    version = store.put(RECORD, None)
    store.put(replace(RECORD, job="bert"), None)
    store.submit(SUBMISSION)
    store.submit(replace(SUBMISSION, job="bert"))
    edit(swarm, RECORD_NAME, label, value)
    before = repr(swarm.configs)
    assert set(store.records()) == set(store.submissions()) == {"bert"}
    problem = store.problems()["resnet"]
    assert line in problem
    assert f"config {RECORD_NAME} is not touched" in problem
    assert "\n" not in problem
    present = swarm.exchange("GET", f"/configs/{RECORD_NAME}")["Version"]["Index"]
    for known in (None, version, present):
        with pytest.raises(StaleRecord, match="resnet"):
            store.put(RECORD, known)
    with pytest.raises(StaleRecord, match="is not touched"):
        store.remove("resnet", present)
    assert repr(swarm.configs) == before


SUBMISSION_EDITS: list[tuple[str, object, str]] = [
    ("text", None, "label dlsched.value: text: Field required"),
    ("text", "name: resnet", "label dlsched.value: text is not a compressed job file"),
    ("text", base64.b64encode(zlib.compress(b"\xff")).decode(), "not a compressed job file"),
    ("text", base64.b64encode(zlib.compress(b"a: b")[:-3]).decode(), "not a compressed job file"),
    ("owners", 0, "label dlsched.value: owners: Unexpected keyword"),
    ("dlsched.v", "1", "label dlsched.v is '1'"),
]


@pytest.mark.parametrize("job", ["resnet", "r" * 60])
@pytest.mark.parametrize(("label", "value", "line"), SUBMISSION_EDITS)
def test_a_job_with_an_edited_submission_is_not_taken_for_one_no_longer_desired(
    swarm: PlayedSwarm, store: SwarmStore, job: str, label: str, value: object, line: str
) -> None:
    store.put(replace(RECORD, job=job), None)
    store.submit(replace(SUBMISSION, job=job))
    (name,) = [one for one in names_in(swarm) if ".submitted." in one]
    edit(swarm, name, label, value)
    before = repr(swarm.configs)
    assert (store.records(), store.submissions()) == ({}, {})
    assert line in store.problems()[job]
    for change in (
        lambda: store.submit(replace(SUBMISSION, job=job, text="name: other\n")),
        lambda: store.withdraw(job, SUBMISSION.by),
    ):
        with pytest.raises(StaleRecord, match="is not touched"):
            change()
    assert repr(swarm.configs) == before


@pytest.mark.parametrize("owner", [0, None])
def test_a_submission_of_an_earlier_version_is_read_without_its_owner(
    swarm: PlayedSwarm, store: SwarmStore, owner: object
) -> None:
    store.submit(SUBMISSION)
    whole = json.loads(swarm.labels(SUBMISSION_NAME)["dlsched.value"])
    whole["owner"] = owner
    swarm.edited(SUBMISSION_NAME, {"dlsched.value": json.dumps(whole)})
    assert (store.submissions(), store.problems()) == ({SUBMISSION.job: SUBMISSION}, {})
    store.withdraw(SUBMISSION.job, SUBMISSION.by)
    assert store.submissions() == {}


def test_an_edited_request_is_left_as_it_is(swarm: PlayedSwarm, store: SwarmStore) -> None:
    move, pause = Request(Wanted.MOVE, "resnet", "node-b"), Request(Wanted.PAUSE)
    for request in (move, pause):
        store.ask(request)
    (name,) = [one for one in names_in(swarm) if one.endswith(".asked.move.resnet")]
    whole = dict(swarm.labels(name))
    for label, value in (("verb", "stop"), ("subject", "bert"), ("target", 7), ("dlsched.v", "1")):
        edit(swarm, name, label, value)
        before = repr(swarm.configs)
        assert store.requests() == [pause]
        assert "is not touched" in store.problems()[name]
        for change in (store.ask, store.done):
            with pytest.raises(StaleRecord, match="is not touched"):
                change(move)
        assert repr(swarm.configs) == before
        swarm.edited(name, whole)
    assert set(store.requests()) == {move, pause}


def names_in(swarm: PlayedSwarm) -> list[str]:
    return [str(one["Spec"]["Name"]) for one in swarm.configs.values()]


def test_a_job_whose_name_cannot_be_read_is_left_out_whole(
    swarm: PlayedSwarm, store: SwarmStore
) -> None:
    job = "r" * 60
    store.put(replace(RECORD, job=job), None)
    store.submit(replace(SUBMISSION, job=job))
    (name,) = [one for one in names_in(swarm) if ".submitted." in one]
    swarm.edited(name, {"dlsched.job": None, "dlsched.value": "{"})
    assert (store.records(), store.submissions()) == ({}, {})
    (part,) = store.problems()
    assert part == name.rpartition(".")[2]


def test_labels_of_others_stay(swarm: PlayedSwarm, store: SwarmStore) -> None:
    store.put(RECORD, None)
    store.submit(SUBMISSION)
    for name in (RECORD_NAME, SUBMISSION_NAME):
        swarm.edited(name, {"team": "vision", "dlsched.state": "placed"})
    store.put(replace(RECORD, epoch=2), store.records()["resnet"].version)
    store.submit(replace(SUBMISSION, name="other.yaml"))
    assert store.records()["resnet"].record.epoch == 2
    assert store.submissions()["resnet"].name == "other.yaml"
    for name in (RECORD_NAME, SUBMISSION_NAME):
        assert swarm.labels(name)["team"] == "vision"
        assert "dlsched.state" not in swarm.labels(name), "of another format"


# ---------------------------------------------------------------------- writing


def test_a_remover_that_died_halfway_blocks_nobody(swarm: PlayedSwarm, store: SwarmStore) -> None:
    version = store.put(RECORD, None)
    swarm.fail_at["DELETE"] = EngineUnavailable("no answer")
    with pytest.raises(StoreError):
        store.remove("resnet", version)
    swarm.fail_at.clear()
    assert (store.records(), store.problems()) == ({}, {})
    again = store.put(replace(RECORD, on="node-b"), None)
    assert store.records()["resnet"].version == again
    assert names_in(swarm) == [RECORD_NAME]


def test_a_writer_that_is_overtaken_at_once_does_not_get_the_others_version(
    swarm: PlayedSwarm, store: SwarmStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = store.put(RECORD, None)
    relabel = SwarmCalls.relabel

    def overtaken(calls: SwarmCalls, *given: object) -> None:
        relabel(calls, *given)  # type: ignore[arg-type]
        swarm.edited(RECORD_NAME, {"dlsched.value": "{}"})

    monkeypatch.setattr(SwarmCalls, "relabel", overtaken)
    with pytest.raises(StaleRecord, match="resnet: another program replaced the record"):
        store.put(replace(RECORD, epoch=2), version)


def test_a_replaced_submission_is_never_absent(swarm: PlayedSwarm, store: SwarmStore) -> None:
    store.submit(SUBMISSION)
    swarm.calls.clear()
    store.submit(replace(SUBMISSION, text="name: resnet\nweight: 2\n"))
    assert not any(call.startswith("DELETE") for call in swarm.calls)
    swarm.calls.clear()
    store.submit(replace(SUBMISSION, text="name: resnet\nweight: 2\n"))
    assert swarm.calls == [f"GET /configs/{SUBMISSION_NAME}"]


def test_a_job_file_that_is_too_long_is_refused_in_one_line(
    swarm: PlayedSwarm, store: SwarmStore
) -> None:
    letters = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=40_000))
    with pytest.raises(NotStorable, match=r"resnet: .* when compressed; at most 16384") as refused:
        store.submit(replace(SUBMISSION, text=letters))
    assert "\n" not in str(refused.value)
    assert swarm.configs == {}
    store.submit(replace(SUBMISSION, text=" " * 200_000))
    assert len(store.submissions()["resnet"].text) == 200_000


def test_what_a_container_said_is_one_short_line(store: SwarmStore) -> None:
    store.put(replace(RECORD, why="a\nb\x1b[2J " + "c" * 5000), None)
    why = store.records()["resnet"].record.why
    assert why.startswith("a b [2J c")
    assert len(why) == 300


# ---------------------------------------------------------------------- no answer


def calls(store: SwarmStore) -> list[Callable[[], object]]:
    """Every method."""
    return [
        store.own_id,
        store.leader,
        store.nodes,
        store.records,
        store.submissions,
        lambda: store.put(RECORD, None),
        lambda: store.put(RECORD, 1),
        lambda: store.remove("resnet", 1),
        lambda: store.submit(SUBMISSION),
        lambda: store.withdraw("resnet", "node-a"),
        lambda: store.drain("node1"),
        lambda: store.drain("node1", on=False),
    ]


@pytest.mark.parametrize("index", range(12))
@pytest.mark.parametrize(
    "error",
    [
        EngineUnavailable("no answer from the Docker Engine: timed out"),
        EngineRefused(500, "rpc error: code = DeadlineExceeded desc = context deadline exceeded"),
    ],
)
def test_no_answer_is_a_store_error(
    swarm: PlayedSwarm, store: SwarmStore, index: int, error: Exception
) -> None:
    for method in ("GET", "POST", "DELETE"):
        swarm.fail_at[method] = error
    with pytest.raises(StoreError) as failed:
        calls(store)[index]()
    assert not isinstance(failed.value, StaleRecord)
    assert "\n" not in str(failed.value)
    assert "rpc error" not in str(failed.value)


@pytest.mark.parametrize("answer", [None, [], "text", [{"ID": "x"}], {"Swarm": {}}])
def test_an_answer_that_is_no_swarms_is_a_store_error(answer: object) -> None:
    class Odd:
        def exchange(self, *given: object) -> object:
            return answer

    store = SwarmStore(Odd(), "lab")
    reading = [store.own_id, lambda: store.put(RECORD, 1), *([store.nodes] if answer else [])]
    for call in reading:
        with pytest.raises(StoreError, match="the engine's answer is not that of a Swarm"):
            call()


# ---------------------------------------------------------------------- nodes


def test_nodes_as_the_swarm_knows_them(swarm: PlayedSwarm, store: SwarmStore) -> None:
    leads = {"Leader": True, "Addr": "10.0.0.1:2377"}
    swarm.add_node("node1", ManagerStatus=leads, Status={"State": "ready", "Addr": "0.0.0.0"})
    swarm.add_node("node2", Status={"State": "down", "Addr": "fd00::2"})
    swarm.add_node(
        "node3",
        ManagerStatus={"Addr": "[fd00::3]:2377"},
        Spec={"Availability": "drain"},
        Description={"Hostname": "a\x1b[2Jb" + "c" * 300},
    )
    swarm.add_node("node4", Status={"State": "unknown"}, Description=None)
    swarm.add_node(
        "node5",
        Status={"State": "ready", "Addr": "0.0.0.0"},
        Spec={"Availability": "active", "Labels": {"data": "imagenet"}},
    )
    assert store.nodes() == {
        "node1": Member("node1", True, False, "host-of-node1", "10.0.0.1"),
        "node2": Member("node2", False, False, "host-of-node2", "fd00::2", manages=False),
        "node3": Member("node3", True, True, ("a [2Jb" + "c" * 300)[:253], "fd00::3"),
        "node4": Member("node4", False, False, "", "", manages=False),
        "node5": Member(
            "node5", True, False, "host-of-node5", "", {"data": "imagenet"}, manages=False
        ),
    }
    assert store.leader() == "node1"


def test_no_leader_and_no_manager_are_store_errors(swarm: PlayedSwarm, store: SwarmStore) -> None:
    swarm.add_node("node1", ManagerStatus={"Leader": False, "Addr": "10.0.0.1:2377"})
    with pytest.raises(StoreError, match="no manager of the swarm leads"):
        store.leader()
    assert store.own_id() == "node1"
    for change in ({"ControlAvailable": False}, {"LocalNodeState": "inactive"}):
        swarm.info = {**swarm.info, **change}
        with pytest.raises(StoreError, match="not a manager of a swarm"):
            store.own_id()


def test_a_drain_is_one_label_that_is_written_once(swarm: PlayedSwarm, store: SwarmStore) -> None:
    swarm.add_node("node1")
    swarm.nodes["node1"]["Spec"]["Labels"]["rack"] = "7"
    store.drain("node1")
    store.drain("node1")
    assert swarm.nodes["node1"]["Spec"]["Labels"] == {"rack": "7", "dlsched.drain": "true"}
    assert swarm.nodes["node1"]["Spec"]["Availability"] == "active"
    store.drain("node1", on=False)
    store.drain("node1", on=False)
    assert swarm.nodes["node1"]["Spec"]["Labels"] == {"rack": "7"}
    assert [call for call in swarm.calls if call.startswith("POST")] == [
        "POST /nodes/node1/update"
    ] * 2


def test_what_swarm_drains_stays_drained_and_is_said(swarm: PlayedSwarm, store: SwarmStore) -> None:
    swarm.add_node("node1", Spec={"Availability": "drain", "Labels": {"dlsched.drain": "true"}})
    with pytest.raises(StoreError, match="docker node update --availability active node1"):
        store.drain("node1", on=False)
    assert swarm.nodes["node1"]["Spec"]["Labels"] == {}


NODES = st.from_regex(r"[a-z0-9]{1,25}", fullmatch=True)
JOBS = st.from_regex(r"[a-z0-9][a-z0-9_.-]{1,62}", fullmatch=True)
DIGESTS = st.sampled_from(["", "0123456789abcdef" * 4])
COUNTS = st.integers(0, 2**53)
FILES = st.sampled_from(["", "/ckpt/7.pt", "/" + "c" * 1023])


@st.composite
def records(draw: st.DrawFn) -> Record:
    state = draw(st.sampled_from(RecordState))
    epoch = draw(st.integers(1, 2**53))
    moved = state in (RecordState.MOVING, RecordState.UNDOING, RecordState.RETURNING)
    return Record(
        job=draw(JOBS),
        state=state,
        on=draw(NODES),
        epoch=epoch,
        digest=draw(DIGESTS),
        first=draw(st.integers(1, epoch)),
        target=draw(NODES) if state is RecordState.LEAVING else None,
        source=draw(NODES) if moved else None,
        saved=draw(st.none() | st.builds(Saved, COUNTS, DIGESTS, COUNTS, FILES)),
        moves=draw(COUNTS),
        exit_code=draw(st.none() | st.integers(-(2**31), 2**31)),
        why=draw(st.from_regex(r"([a-z]{1,9} ){0,9}[a-z]", fullmatch=True)),
    )


@given(records())
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert read_record(record_labels(record, "lab"), "lab") == record


@given(JOBS, JOBS, JOBS, JOBS)
def test_names_fit_and_differ(instance: str, other: str, job: str, another: str) -> None:
    names = Names(instance)
    both = [names.of(RECORDS, job), names.of(SUBMISSIONS, job)]
    assert all(len(name) <= 64 and name[-1].isalnum() for name in both)
    assert (names.of(RECORDS, job) == names.of(RECORDS, another)) is (job == another)
    assert names.of(RECORDS, job).startswith(Names(other).prefix) is (instance == other)
