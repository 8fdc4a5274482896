"""The way out of a container, step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.model.actions import Remove
from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import ContainerState, GpuAccess
from dlsched.model.spec import Limits, Restart, Stop
from dlsched.runtime.machine.calls import AskToEnd, SetRestart
from dlsched.runtime.machine.container import POLICY_AFTER_S, Ended, Unwanted
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.machine.stop import CALLS, TABLE, Sign, Step, begin
from dlsched.runtime.machine.stop import step as take_step
from tests.runtime.machine.described import EXITED, RUNNING
from tests.runtime.machine.machine import Table

REMOVE = Remove("job", "c", Stop("SIGINT", 30.0), Limits(2.0), "a test")
STRAYS = replace(RUNNING, restart=Restart("on-failure", 3), restart_strays=True)
NO_ANSWER = EngineUnavailable("no answer")


@pytest.fixture
def table() -> Table:
    return Table()


def stop(table: Table, described: Inspected = RUNNING, at_s: float = 100.0) -> None:
    table.post(Unwanted(REMOVE, described), at_s)


@pytest.mark.parametrize(("step", "sign"), [(a, b) for a in TABLE for b in Sign])
def test_a_step_gets_what_it_waits_for_and_no_end_of_another_call(step: Step, sign: Sign) -> None:
    begun = begin(REMOVE, RUNNING, 100.0)
    waits = replace(begun, step=step, kill_at_s=None if step is Step.ASKING else 130.0)
    if sign in (Sign.DONE, Sign.FAILED) and step not in CALLS:
        with pytest.raises(KeyError):
            take_step(waits, sign, 130.0)
        return
    after = take_step(waits, sign, 130.0)
    wanted = TABLE[step].get(sign, step)
    assert (Step.OVER if after is None else after.step) is wanted
    is_new = after is not None and after.call is not begun.call
    assert is_new == (wanted in CALLS and wanted is not step)


def test_grace_then_sigkill_then_removal(table: Table) -> None:
    stop(table)
    (asked,) = table.made
    assert isinstance(asked, AskToEnd) and asked.action is REMOVE and asked.described is RUNNING
    table.end(100.0)
    assert table.see(RUNNING, 129.9).stop is not None
    assert table.operation == "stopping (0 s of grace time left)"
    table.see(RUNNING, 130.0)
    assert table.operation == "stopping (killed: the grace time is over)"
    table.end(130.0)
    table.see(RUNNING, 134.9)
    assert table.calls == ["AskToEnd", "Kill"]
    table.see(RUNNING, 135.0)
    table.end(135.0, NO_ANSWER)
    table.see(EXITED, 136.0)
    assert table.calls == ["AskToEnd", "Kill", "Kill", "RemoveContainer"]
    assert table.operation == "removing"
    table.end(136.0)
    table.see(replace(EXITED, state=ContainerState.REMOVING), 136.5)
    table.see(EXITED, 136.5)
    table.see(None, 137.0)
    assert table.operation == ""
    assert not table.machine.busy


def test_one_that_has_ended_is_removed(table: Table) -> None:
    stop(table, EXITED)
    assert table.calls == ["RemoveContainer"]


def test_second_request_changes_nothing(table: Table) -> None:
    stop(table)
    stop(table, at_s=110.0)
    assert table.calls == ["AskToEnd"]


def test_grace_begins_with_the_signal_and_not_while_the_call_waits_for_others(
    table: Table,
) -> None:
    stop(table)
    table.see(RUNNING, 135.0)
    assert table.operation == "stopping (30 s of grace time left)"
    table.end(140.0)
    table.see(RUNNING, 169.9)
    assert table.calls == ["AskToEnd"]
    table.see(RUNNING, 170.0)
    assert table.calls == ["AskToEnd", "Kill"]


@pytest.mark.parametrize("seen_s", [101.0, 500.0])
def test_one_that_starts_while_it_is_removed_is_stopped(table: Table, seen_s: float) -> None:
    # The engine holds the removal back until the start is done, then refuses it.
    stop(table, replace(EXITED, state=ContainerState.CREATED))
    table.end(error=NO_ANSWER)
    table.see(RUNNING, seen_s)
    assert not table.machine.busy, "to be begun again, with its signal and its whole grace"
    stop(table, at_s=seen_s)
    table.end()
    table.see(RUNNING, seen_s + 30.0)
    assert table.calls == ["RemoveContainer", "AskToEnd", "Kill"]


def test_a_job_is_not_killed_before_its_signal_was_sent(table: Table) -> None:
    stop(table)
    table.end(220.0, NO_ANSWER)
    table.see(RUNNING, 220.0)
    assert not table.machine.busy, "to be begun again, with its signal"
    assert table.calls == ["AskToEnd"]


def test_one_that_ends_although_its_signal_was_lost_is_removed(table: Table) -> None:
    stop(table)
    table.end(error=NO_ANSWER)
    table.see(EXITED, 101.0)
    assert table.calls == ["AskToEnd", "RemoveContainer"]


def test_a_removal_that_failed_is_tried_again(table: Table) -> None:
    stop(table, EXITED)
    table.end(error=NO_ANSWER)
    table.see(EXITED, 101.0)
    assert table.calls == ["RemoveContainer"] * 2


def test_one_that_is_gone_while_its_call_lasts_is_forgotten_with_the_calls_end(
    table: Table,
) -> None:
    stop(table)
    table.see(None, 100.0)  # this listing may be older than the stop
    assert table.operation != ""
    table.see(None, 101.0)
    assert table.operation == ""
    assert table.machine.busy
    table.end(102.0)
    assert not table.machine.busy


def test_a_second_end_of_a_call_is_said_and_changes_nothing(table: Table) -> None:
    stop(table)
    (asked,) = table.made
    table.end()
    before = table.see(RUNNING, 130.0)
    assert table.post(Ended(asked, 131.0, NO_ANSWER)) == before
    assert table.calls == ["AskToEnd", "Kill", "Say"]


# ---------------------------------------------------------------------- restart policies


def test_stray_restart_policy_is_set_back_after_a_while(table: Table) -> None:
    table.see(STRAYS, 100.0)
    table.see(STRAYS, 100.0 + POLICY_AFTER_S - 0.1)
    assert table.made == []
    table.see(STRAYS, 100.0 + POLICY_AFTER_S)
    (call,) = table.made
    assert isinstance(call, SetRestart) and call.restart == STRAYS.restart
    assert table.operation == "updating"
    table.end()
    table.see(RUNNING)
    assert not table.machine.busy


@pytest.mark.parametrize("hinders", ["other", "stop"])
def test_policy_of_a_container_to_which_something_is_done_waits_again(
    table: Table, hinders: str
) -> None:
    table.see(STRAYS, 100.0)
    if hinders == "stop":
        stop(table, STRAYS)
        table.see(None, 101.0)
    else:
        table.see(STRAYS, 101.0, moves=True)
    table.see(STRAYS, 101.0 + POLICY_AFTER_S)
    assert "SetRestart" not in table.calls
    table.see(STRAYS, 101.0 + 2 * POLICY_AFTER_S)
    assert "SetRestart" in table.calls


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
def test_other_restart_policies_are_left(table: Table, one: Inspected) -> None:
    table.see(one, 100.0)
    table.see(one, 200.0)
    assert table.made == []


def test_failed_restoration_is_tried_again_after_a_while(table: Table) -> None:
    for at_s in (100.0, 100.0 + POLICY_AFTER_S):
        table.see(STRAYS, at_s)
    table.end(error=NO_ANSWER)
    table.see(STRAYS, 101.0 + POLICY_AFTER_S)
    assert len(table.made) == 1
    table.see(STRAYS, 100.0 + 2 * POLICY_AFTER_S)
    assert len(table.made) == 2
