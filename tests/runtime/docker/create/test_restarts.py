"""Restart policies that an interrupted stop left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import ContainerState, GpuAccess
from dlsched.model.spec import Restart
from dlsched.runtime.docker.create.restarts import AFTER_S, Restarts
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.identity.labels import Inspected
from tests.runtime.docker.end.test_stops import RUNNING
from tests.runtime.docker.rig import Rig, job_spec

STRAYS = replace(RUNNING, restart=Restart("on-failure", 3), restart_strays=True)


class FakeEngine:
    def __init__(self) -> None:
        self.updates: list[tuple[str, Body]] = []
        self.trouble: Exception | None = None

    def update(self, container: str, body: Body) -> None:
        self.updates.append((container, body))
        if self.trouble is not None:
            raise self.trouble


class Bench:
    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.wanted: list[str | None] = []
        self.restarts = Restarts(self.engine, self.wanted.append)  # type: ignore[arg-type]

    def observe(self, now_s: float, *idle: Inspected) -> int:
        """How many are set back at that time."""
        calls = self.restarts.set_back(idle, now_s)
        for call in calls.values():
            call.exception(60)
        return len(calls)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.timed
def test_what_strays_for_a_while_is_set_back_to_its_spec(bench: Bench) -> None:
    assert bench.observe(100.0, STRAYS) == 0
    assert bench.observe(100.0 + AFTER_S - 0.1, STRAYS) == 0
    assert bench.observe(100.0 + AFTER_S, STRAYS) == 1
    policy = {"Name": "on-failure", "MaximumRetryCount": 3}
    assert bench.engine.updates == [("c", {"RestartPolicy": policy})]
    assert bench.wanted == ["c"]


@pytest.mark.timed
def test_one_that_is_being_stopped_meanwhile_waits_anew(bench: Bench) -> None:
    bench.observe(100.0, STRAYS)
    bench.observe(100.0 + AFTER_S)  # somebody is stopping it
    assert bench.observe(101.0 + AFTER_S, STRAYS) == 0
    assert bench.observe(101.0 + 2 * AFTER_S, STRAYS) == 1


@pytest.mark.parametrize(
    "one",
    [
        RUNNING,
        replace(STRAYS, restart_strays=False),
        replace(STRAYS, restart=None),
        replace(STRAYS, gpu_access=GpuAccess.NODES),
        replace(STRAYS, state=ContainerState.EXITED, pid=0),
    ],
)
def test_others_are_left_as_they_are(bench: Bench, one: Inspected) -> None:
    assert bench.observe(100.0, one) == bench.observe(200.0, one) == 0


@pytest.mark.timed
def test_what_failed_is_tried_again_after_a_while(bench: Bench) -> None:
    bench.engine.trouble = EngineUnavailable("no answer")
    bench.observe(100.0, STRAYS)
    assert bench.observe(100.0 + AFTER_S, STRAYS) == 1
    assert bench.observe(101.0 + AFTER_S, STRAYS) == 0
    assert bench.observe(100.0 + 2 * AFTER_S, STRAYS) == 1
    assert bench.wanted == ["c", "c"]


@pytest.mark.engine
@pytest.mark.gate
def test_a_stop_that_the_agent_did_not_survive_leaves_no_trace(rig: Rig) -> None:
    deaf = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")
    found = rig.start(job_spec("back", deaf, restart=Restart("always")))
    rig.remove(found, grace_s=600)

    def policy() -> str:
        host = rig.client.inspect_container(found.container_id)["HostConfig"]
        return str(host["RestartPolicy"]["Name"])

    rig.until(lambda _: policy() == "no")
    rig.reopen()
    rig.until(lambda _: policy() == "always", within_s=AFTER_S + 60)
    now = rig.until_fact("back", lambda one: one.operation is None)
    assert now.container_id == found.container_id
