"""What each call of the machine does at the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args
from unittest.mock import Mock

import pytest

from dlsched.model.actions import Remove
from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import ContainerState, GpuAccess
from dlsched.model.spec import Limits, Restart, Stop
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.engine_calls import EngineCalls
from dlsched.runtime.docker.executor import CONCURRENT_FORKS, Executor
from dlsched.runtime.machine.calls import (
    ActName,
    AskToEnd,
    Kill,
    ReleaseContainer,
    RemoveContainer,
    SetRestart,
    Tidy,
)
from dlsched.runtime.machine.container import POLICY_AFTER_S
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.originals import Original
from tests.runtime.docker.making import calls_of
from tests.runtime.docker.rig import Rig, job_spec
from tests.runtime.machine.described import RUNNING

REMOVE = Remove("job", "c", Stop("SIGINT", 30.0), Limits(2.0), "a test")


class Noting:
    """Writes down what it is asked, as the engine and as the writer of limits."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.refuses = False
        self.answer: object = None

    def __getattr__(self, name: str) -> Any:
        def call(_container: object, what: object = None) -> object:
            self.calls.append((name, what))
            if self.refuses:
                raise EngineRefused(409, "no")
            return self.answer

        return call


@pytest.fixture
def engine() -> Any:
    return Noting()


def executor_of(engine: Any, note: Callable[[str | None], None] = lambda _: None) -> Executor:
    return Executor(calls_of(engine, engine), note, note, lambda: 7.0)


@pytest.fixture
def calls(engine: Any) -> EngineCalls:
    return calls_of(engine, engine)


@pytest.mark.parametrize("refuses", [False, True])
def test_first_the_restart_policy_and_the_ceiling_then_the_signal(
    engine: Any, calls: EngineCalls, refuses: bool
) -> None:
    engine.refuses = refuses
    calls.make(AskToEnd("c", REMOVE, RUNNING))
    assert engine.calls == [
        ("update", {"RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}}),
        ("lift", Limits(2.0)),
        ("kill", "SIGINT"),
    ]


@pytest.mark.parametrize(
    ("one", "made"),
    [
        (replace(RUNNING, gpu_access=GpuAccess.CDI), ["lift", "kill"]),
        (replace(RUNNING, state=ContainerState.PAUSED), ["update", "lift", "unpause", "kill"]),
    ],
    ids=["gpus", "paused"],
)
def test_calls_that_a_stop_takes(
    engine: Any, calls: EngineCalls, one: Inspected, made: list[str]
) -> None:
    calls.make(AskToEnd("c", REMOVE, one))
    assert [name for name, _ in engine.calls] == made


def test_other_calls_are_one_of_the_engine(engine: Any, calls: EngineCalls) -> None:
    calls.make(Kill("c"))
    calls.make(RemoveContainer("c"))
    calls.make(SetRestart("c", Restart("on-failure", 3)))
    policy = {"RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3}}
    assert engine.calls == [("kill", "SIGKILL"), ("remove", None), ("update", policy)]


@pytest.mark.parametrize(
    ("gone", "given_back", "made"),
    [
        (True, False, ["forget_if_gone"]),
        (False, True, ["forget_if_gone"]),
        (False, False, ["forget_if_gone", "give_back"]),
    ],
)
def test_record_of_one_that_is_missing_is_dropped_or_its_limits_given_back(
    engine: Any, calls: EngineCalls, gone: bool, given_back: bool, made: list[str]
) -> None:
    engine.answer = gone
    calls.make(Tidy("c", Original("c", "job", adopted=True, given_back=given_back)))
    assert [name for name, _ in engine.calls] == made


def test_every_act_of_a_move_is_there() -> None:
    names = [name for part in get_args(ActName) for name in get_args(part)]
    assert all(callable(getattr(EngineCalls, name)) for name in names)


@pytest.mark.parametrize("kind", [EngineUnavailable, OSError, ValueError, KeyError])
def test_an_error_that_is_kept_keeps_no_answers_of_the_engine(engine: Any, kind: Any) -> None:
    def remove(_: str) -> None:
        raise kind("no answer") from RuntimeError("what the engine's client raises")

    engine.remove = remove
    error = executor_of(engine)._run(RemoveContainer("c")).error
    assert error is not None
    kept = (error.__traceback__, error.__cause__, error.__context__)
    # Where a fault of dlsched is raised, its place is to be shown.
    assert (kept == (None, None, None)) == (kind is not KeyError)


@pytest.mark.usefixtures("without_threads")
def test_end_of_a_call_is_kept_for_the_loop_and_its_container_inspected(engine: Any) -> None:
    wanted: list[str | None] = []
    executor = executor_of(engine, wanted.append)
    engine.refuses = True
    call = RemoveContainer("c")
    executor.do(call)
    ended = executor.wait(call)
    assert (ended.call, ended.at_s, wanted) == (call, 7.0, ["c"])
    assert isinstance(ended.error, EngineRefused)
    assert list(executor.ended()) == [ended]
    assert list(executor.ended()) == []


@pytest.mark.usefixtures("without_threads")
def test_a_call_whose_end_cannot_be_passed_on_costs_the_loop_nothing(engine: Any) -> None:
    executor = executor_of(engine, Mock(side_effect=OSError("closed")))
    call = RemoveContainer("c")
    executor.do(call)
    assert [(one.call, str(one.error)) for one in executor.ended()] == [
        (call, "None"),
        (call, "closed"),
    ]


@pytest.mark.timed
def test_what_is_given_back_does_not_wait_for_slow_removals(engine: Any) -> None:
    may_end = threading.Event()
    engine.remove = lambda _: may_end.wait(60)
    executor = executor_of(engine)
    for number in range(CONCURRENT_FORKS + 1):
        executor.do(RemoveContainer(f"c{number}"))
    back = ReleaseContainer("c", Original("c", "job", adopted=True))
    executor.do(back)
    assert executor.wait(back, 60.0).error is None
    may_end.set()


def test_without_a_thread_a_call_fails(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("no thread")))
    executor, call = executor_of(engine), Kill("c")
    executor.do(call)
    assert isinstance(executor.wait(call).error, EngineUnavailable)
    (ended,) = executor.ended()
    assert isinstance(ended.error, EngineUnavailable)


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
    rig.until(lambda _: policy() == "always", within_s=POLICY_AFTER_S + 60)
    now = rig.until_fact("back", lambda one: one.operation is None)
    assert now.container_id == found.container_id
