"""The way out of a container, step by step, on a fake engine and a clock of numbers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest

from dlsched.model.actions import Remove
from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import ContainerState, GpuAccess
from dlsched.model.spec import Limits, Restart, Stop
from dlsched.runtime.docker.engine import Body, EngineRefused
from dlsched.runtime.docker.listing import Listing
from dlsched.runtime.docker.stops import AFTER_S, Restarts, Stops
from dlsched.runtime.machine.inspected import Inspected
from tests.runtime.docker.rig import Rig, job_spec
from tests.waiting import until

pytestmark = pytest.mark.timed

RUNNING = Inspected(
    container_id="c",
    name="dlsched-job",
    image="image",
    instance="default",
    job="job",
    digest="",
    container_digest="",
    source="",
    stop=Stop(),
    state=ContainerState.RUNNING,
    pid=7,
    started_at="then",
    exit_code=None,
    oom_killed=False,
    error=None,
    restarts=0,
    quota_us=0,
    period_us=0,
    shares=0,
)
EXITED = replace(RUNNING, state=ContainerState.EXITED, pid=0, exit_code=0)
REMOVE = Remove("job", "c", Stop("SIGINT", 30.0), Limits(2.0), "a test")


class FakeEngine:
    """Writes down what it is asked, and raises what the test wants."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.calls: list[tuple[str, object]] = []
        self.raises: dict[str, Exception] = {}
        self.lock = threading.Lock()

    def _note(self, name: str, what: object) -> None:
        with self.lock:
            self.calls.append((name, what))
            if name in self.raises:
                raise self.raises[name]

    def update(self, container: str, body: Body) -> None:
        self._note("update", body)

    def lift(self, container: str, limits: Limits) -> None:
        self._note("lift", limits)

    def kill(self, container: str, signal: str) -> None:
        self._note("kill", signal)

    def unpause(self, container: str) -> None:
        self._note("unpause", container)

    def remove(self, container: str) -> None:
        self._note("remove", container)

    def until(self, *names: str) -> None:
        """Wait until exactly these calls were made since the last time."""
        until(
            lambda: [name for name, _ in self.calls] == list(names),
            f"the calls {names}",
            every_s=0.002,
            shown=lambda: self.calls,
        )


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def wanted() -> list[str | None]:
    """Containers to be inspected again."""
    return []


@pytest.fixture
def stops(engine: FakeEngine, wanted: list[str | None]) -> Stops:
    return stops_of(engine, wanted, threading.Semaphore(4))


def stops_of(engine: FakeEngine, wanted: list[str | None], gate: threading.Semaphore) -> Stops:
    return Stops(
        engine,  # type: ignore[arg-type]
        gate,
        wanted.append,
        engine.lift,  # type: ignore[arg-type]
        lambda: engine.now_s,
    )


def advance(stops: Stops, described: Inspected | None, now_s: float) -> None:
    """One observation, once the call under way has ended."""
    leaving = stops._leaving.get("c")
    if leaving is not None:
        leaving.call.exception(60)
    containers: Mapping[str, Inspected] = {} if described is None else {"c": described}
    stops.advance(Listing(now_s, containers), now_s)


def test_first_the_restart_policy_and_the_ceiling_then_the_signal(
    engine: FakeEngine, stops: Stops
) -> None:
    assert stops.begin(REMOVE, RUNNING, 100.0).status == "begun"
    engine.until("update", "lift", "kill")
    assert engine.calls == [
        ("update", {"RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}}),
        ("lift", Limits(2.0)),
        ("kill", "SIGINT"),
    ]
    assert str(stops.operation("c", 118.0)) == "stopping (12 s of grace left)"
    assert stops.operation("another", 118.0) is None


@pytest.mark.parametrize(
    ("one", "calls"),
    [
        (replace(RUNNING, gpu_access=GpuAccess.CDI), ("lift", "kill")),
        (replace(RUNNING, state=ContainerState.PAUSED), ("update", "lift", "unpause", "kill")),
        (EXITED, ("remove",)),
    ],
    ids=["gpus", "paused", "ended"],
)
def test_calls_that_a_stop_takes(
    engine: FakeEngine, stops: Stops, one: Inspected, calls: tuple[str, ...]
) -> None:
    stops.begin(REMOVE, one, 100.0)
    engine.until(*calls)


@pytest.mark.parametrize("seen_s", [101.0, 500.0])
def test_one_that_starts_while_it_is_removed_is_stopped(
    engine: FakeEngine, stops: Stops, seen_s: float
) -> None:
    # The engine holds the removal back until the start is done, then refuses it.
    engine.raises["remove"] = EngineRefused(409, "cannot remove a running container")
    stops.begin(REMOVE, replace(EXITED, state=ContainerState.CREATED), 100.0)
    advance(stops, RUNNING, seen_s)
    assert stops.idle, "to be begun again, with its signal and its whole grace"
    engine.now_s = seen_s
    stops.begin(REMOVE, RUNNING, seen_s)
    engine.until("remove", "update", "lift", "kill")
    advance(stops, RUNNING, seen_s + 30.0)
    assert engine.calls[-1] == ("kill", "SIGKILL")
    del engine.raises["remove"]
    advance(stops, EXITED, seen_s + 31.0)
    engine.until("remove", "update", "lift", "kill", "kill", "remove")
    advance(stops, None, seen_s + 32.0)
    assert stops.idle


def test_grace_then_sigkill_then_removal(engine: FakeEngine, stops: Stops) -> None:
    stops.begin(REMOVE, RUNNING, 100.0)
    advance(stops, RUNNING, 129.9)
    engine.until("update", "lift", "kill")
    assert stops.begin(REMOVE, RUNNING, 129.9).detail == "stopping (0 s of grace left)"
    advance(stops, RUNNING, 130.0)
    assert str(stops.operation("c", 131.0)) == "stopping (killed: its grace is over)"
    advance(stops, RUNNING, 131.0)
    engine.until("update", "lift", "kill", "kill")
    assert engine.calls[-1] == ("kill", "SIGKILL")
    advance(stops, RUNNING, 135.0)
    engine.until("update", "lift", "kill", "kill", "kill")
    advance(stops, EXITED, 136.0)
    engine.until("update", "lift", "kill", "kill", "kill", "remove")
    assert str(stops.operation("c", 136.0)) == "removing"
    advance(stops, None, 137.0)
    assert stops.operation("c", 137.0) is None


def test_a_refusal_on_the_way_stops_nothing(engine: FakeEngine, stops: Stops) -> None:
    engine.raises["update"] = engine.raises["lift"] = EngineRefused(500, "no such cgroup")
    engine.raises["kill"] = EngineRefused(400, "no such signal")
    stops.begin(REMOVE, RUNNING, 100.0)
    engine.until("update", "lift", "kill")
    advance(stops, RUNNING, 101.0)
    assert str(stops.operation("c", 101.0)).startswith("stopping")


def test_stop_without_an_answer_is_given_up_and_inspected(
    engine: FakeEngine, stops: Stops, wanted: list[str | None]
) -> None:
    engine.raises["update"] = EngineUnavailable("timed out, and may have been done all the same")
    stops.begin(REMOVE, RUNNING, 100.0)
    engine.until("update")
    assert wanted == []
    advance(stops, RUNNING, 101.0)
    assert (wanted, stops.operation("c", 101.0)) == (["c"], None)
    engine.raises.clear()
    engine.now_s = 200.0
    stops.begin(REMOVE, RUNNING, 200.0)
    engine.until("update", "update", "lift", "kill")
    assert str(stops.operation("c", 200.0)) == "stopping (30 s of grace left)"


def test_grace_begins_with_the_signal_and_not_while_the_stop_waits_for_starts(
    engine: FakeEngine, wanted: list[str | None]
) -> None:
    starts = threading.Semaphore(0)
    stops = stops_of(engine, wanted, starts)
    stops.begin(REMOVE, RUNNING, 100.0)
    stops.advance(Listing(135.0, {"c": RUNNING}), 135.0)
    assert str(stops.operation("c", 135.0)) == "stopping (30 s of grace left)"
    engine.now_s = 140.0
    starts.release()
    advance(stops, RUNNING, 169.9)
    engine.until("update", "lift", "kill")
    advance(stops, RUNNING, 170.0)
    engine.until("update", "lift", "kill", "kill")


def test_a_job_is_not_killed_before_its_signal_was_sent(engine: FakeEngine, stops: Stops) -> None:
    engine.raises["update"] = EngineUnavailable("no answer within 120 s")
    stops.begin(REMOVE, RUNNING, 100.0)
    advance(stops, RUNNING, 220.0)
    assert stops.idle, "to be begun again, with its signal"
    engine.until("update")


def test_a_removal_that_failed_is_tried_again(engine: FakeEngine, stops: Stops) -> None:
    engine.raises["remove"] = EngineUnavailable("no answer")
    stops.begin(REMOVE, EXITED, 100.0)
    engine.until("remove")
    advance(stops, EXITED, 101.0)
    engine.until("remove", "remove")


def test_what_is_gone_already_is_done(engine: FakeEngine, stops: Stops) -> None:
    assert stops.begin(REMOVE, None, 100.0).status == "done"
    assert engine.calls == []


# ---------------------------------------------------------------------- restart policies

STRAYS = replace(RUNNING, restart=Restart("on-failure", 3), restart_strays=True)


@pytest.fixture
def restarts(engine: FakeEngine, wanted: list[str | None]) -> Restarts:
    return Restarts(engine, wanted.append)  # type: ignore[arg-type]


def set_back(restarts: Restarts, now_s: float, *idle: Inspected) -> int:
    """How many are set back at that time."""
    calls = restarts.set_back(idle, now_s)
    for call in calls.values():
        call.exception(60)
    return len(calls)


def test_stray_restart_policy_is_set_back_after_a_while(
    engine: FakeEngine, restarts: Restarts, wanted: list[str | None]
) -> None:
    assert set_back(restarts, 100.0, STRAYS) == 0
    assert set_back(restarts, 100.0 + AFTER_S - 0.1, STRAYS) == 0
    assert set_back(restarts, 100.0 + AFTER_S, STRAYS) == 1
    policy = {"Name": "on-failure", "MaximumRetryCount": 3}
    assert engine.calls == [("update", {"RestartPolicy": policy})]
    assert wanted == ["c"]


def test_policy_of_a_container_that_is_stopped_waits_again(restarts: Restarts) -> None:
    set_back(restarts, 100.0, STRAYS)
    set_back(restarts, 100.0 + AFTER_S)  # somebody is stopping it
    assert set_back(restarts, 101.0 + AFTER_S, STRAYS) == 0
    assert set_back(restarts, 101.0 + 2 * AFTER_S, STRAYS) == 1


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
def test_other_restart_policies_are_left(restarts: Restarts, one: Inspected) -> None:
    assert set_back(restarts, 100.0, one) == set_back(restarts, 200.0, one) == 0


def test_failed_restoration_is_tried_again_after_a_while(
    engine: FakeEngine, restarts: Restarts, wanted: list[str | None]
) -> None:
    engine.raises["update"] = EngineUnavailable("no answer")
    set_back(restarts, 100.0, STRAYS)
    assert set_back(restarts, 100.0 + AFTER_S, STRAYS) == 1
    assert set_back(restarts, 101.0 + AFTER_S, STRAYS) == 0
    assert set_back(restarts, 100.0 + 2 * AFTER_S, STRAYS) == 1
    assert wanted == ["c", "c"]


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
