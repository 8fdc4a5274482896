"""The store and the certificates on real engines: three managers and a worker of one swarm."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pytest

from dlsched.cluster.store import StaleRecord, StoreError
from dlsched.cluster.swarm.membership import swarm_certificates
from dlsched.cluster.swarm.store import SwarmStore
from dlsched.runtime.docker.engine import Engine, EngineRefused
from tests.cluster.authority import meet
from tests.cluster.store_contract import RECORD, SUBMISSION, StoreContract, Stores
from tests.tools.live import needs_dockerd
from tests.waiting import until
from tools.engines import EngineNode, EngineNodes, swarm

pytestmark = [pytest.mark.slow, pytest.mark.engine, needs_dockerd]

TIMEOUT_S = 20.0
"""A manager that was cut off calls the others again with growing pauses."""


Make = Callable[..., SwarmStore]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineNodes]:
    with swarm(4, 3, tmp_path_factory.mktemp("engines")) as engines:

        def beat_fast(spec: dict[str, Any]) -> None:
            spec["Dispatcher"]["HeartbeatPeriod"] = 1_000_000_000

        change_swarm(engines.nodes[0], beat_fast)
        yield engines


@pytest.fixture
def instance() -> str:
    return f"test-{secrets.token_hex(4)}"


@pytest.fixture
def store_on(instance: str) -> Iterator[Make]:
    """Makes a store over a node's engine."""
    opened: list[Engine] = []

    def make(node: EngineNode, timeout_s: float = TIMEOUT_S) -> SwarmStore:
        opened.append(Engine(node.host, timeout_s))
        return SwarmStore(opened[-1], instance)

    yield make
    for engine in opened:
        engine.close()


class TestReal(StoreContract):
    @pytest.fixture
    def stores(self, engines: EngineNodes, store_on: Make) -> Stores:
        """Over the leader, and over a manager that asks it."""
        return store_on(engines.nodes[0]), store_on(engines.nodes[1])


def until_so(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that fails meanwhile."""

    def so() -> bool:
        with suppress(StoreError):
            return holds()
        return False

    until(so, what, every_s=0.1)


def until_silent(call: Callable[[], object]) -> None:
    def fails() -> bool:
        try:
            call()
        except StoreError:
            return True
        return False

    until(fails, "no answer", every_s=0.1)


def leading(engines: EngineNodes, store: SwarmStore) -> tuple[EngineNode, list[EngineNode]]:
    """The manager that leads, and the other managers."""
    leader = store.leader()
    managers = [node for node in engines.nodes if node.is_manager]
    (one,) = [node for node in managers if node.node_id == leader]
    return one, [node for node in managers if node is not one]


def test_records_survive_the_death_of_the_leading_manager(
    engines: EngineNodes, store_on: Make
) -> None:
    leader, others = leading(engines, store_on(engines.nodes[0]))
    store = store_on(others[0])
    version = store.put(RECORD, None)
    store.submit(SUBMISSION)
    leader.engine.kill()
    until_so(lambda: store.leader() != leader.node_id, "another manager leads")
    until_so(lambda: bool(store.records()), "the next one answers")
    kept = store.records()["resnet"]
    assert (kept.record, kept.version) == (RECORD, version)
    assert store.submissions() == {"resnet": SUBMISSION}
    until_so(lambda: not store.nodes()[leader.node_id].up, "the dead manager is down")
    second = store.put(replace(RECORD, epoch=2), version)
    leader.engine.restart()
    back = store_on(leader)
    until_so(lambda: back.records()["resnet"].version == second, "the restarted one has them")
    with pytest.raises(StaleRecord):
        back.put(RECORD, version)
    until_so(lambda: all(one.up for one in store.nodes().values()), "all nodes are up again")


def test_a_manager_that_is_cut_off_changes_nothing(engines: EngineNodes, store_on: Make) -> None:
    leader, others = leading(engines, store_on(engines.nodes[0]))
    cut_off, store = store_on(leader, timeout_s=1.0), store_on(others[0])
    version = store.put(RECORD, None)
    engines.cut(leader)
    try:
        # For up to 20 s it still takes itself for the leader, and reads; but it commits nothing.
        for write in (
            lambda: cut_off.put(replace(RECORD, on="cut-off"), version),
            lambda: cut_off.put(replace(RECORD, job="bert", on="cut-off"), None),
            lambda: cut_off.submit(SUBMISSION),
            lambda: cut_off.remove("resnet", version),
        ):
            with pytest.raises(StoreError) as failed:
                write()
            assert not isinstance(failed.value, StaleRecord)
            assert "\n" not in str(failed.value)
        until_so(lambda: store.leader() != leader.node_id, "another manager leads")
        second = store.put(replace(RECORD, on="majority"), version)
        until_silent(cut_off.leader)
        until_silent(cut_off.records)
    finally:
        engines.mend(leader)
    until_so(lambda: cut_off.leader() != leader.node_id, "the cut-off one is back")
    until_so(lambda: cut_off.records()["resnet"].version == second, "it has the others' record")
    back = store_on(leader)
    assert {job: one.record.on for job, one in back.records().items()} == {"resnet": "majority"}
    assert back.submissions() == {}
    until_so(lambda: all(one.up for one in store.nodes().values()), "all nodes are up again")


def change_swarm(node: EngineNode, change: Callable[[dict[str, Any]], None]) -> None:
    with closing(Engine(node.host, TIMEOUT_S)) as engine:

        def is_changed() -> bool:
            found = engine.exchange("GET", "/swarm")
            change(found["Spec"])
            asked = {"version": str(found["Version"]["Index"])}
            with suppress(EngineRefused):  # the swarm itself has changed it meanwhile
                engine.exchange("POST", "/swarm/update", asked, found["Spec"])
                return True
            return False

        until_so(is_changed, "the swarm is changed")


def test_a_rotated_authority_is_followed_by_running_servers(engines: EngineNodes) -> None:
    one, worker = engines.nodes[0], engines.nodes[3]
    at_manager = swarm_certificates(one.engine.data_root)
    at_worker = swarm_certificates(worker.engine.data_root)
    former = at_manager.client_context()
    server = at_worker.server_context()
    folders = [node.engine.data_root / "swarm" / "certificates" for node in (one, worker)]
    certificates = [folder / "swarm-node.crt" for folder in folders]
    authority = folders[1] / "swarm-root-ca.crt"
    before = authority.read_bytes()

    def rotate(spec: dict[str, Any]) -> None:
        spec["CAConfig"]["ForceRotate"] = spec["CAConfig"].get("ForceRotate", 0) + 1

    change_swarm(one, rotate)

    def is_rotated() -> bool:
        renewed = all(file.read_bytes().count(b"BEGIN") == 2 for file in certificates)
        try:
            meet(server, at_manager.client_context(), worker.node_id)
        except ssl.SSLError:
            # For a moment only one of the two has a certificate of the next authority.
            assert not renewed
        return authority.read_bytes() != before

    until(is_rotated, "the next authority")
    meet(server, at_manager.client_context(), worker.node_id)
    assert at_manager.client_context() is not former
