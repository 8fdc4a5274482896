"""A job's lifecycle: its state by facts, and the call for action that follows.

The table below is the whole rule. It has no memory: equal facts give equal statuses, so a restarted
agent reaches the same states from labels and records alone.

    spec  container            record of its end   -> state        calls for
    ----  -------------------  ------------------     ----------   ---------
    no    any                  any                    STOPPING     remove
    yes   none                 none                   WAITING      start (when admitted)
    yes   none, pull begun     none                   PULLING      -
    yes   none, image pulled   none                   PULLING      start
    yes   none, create begun   none                   STARTING     -
    yes   none, start failed   none                   FAILED       start again, if retryable
    yes   any                  stopped                STOPPED      remove
    yes   exited or none       finished, failed       as recorded  -
    yes   runs again           finished, failed       as `none`    - (the record is lifted)
    yes   exited               of another digest      STOPPING     remove, then as `none`
    yes   of another spec      any                    STOPPING     remove, then as `none`
    yes   being moved          none                   MOVING       -
    yes   created              none                   STARTING     start
    yes   running, paused,     none                   the same     -
          restarting
    yes   exited, code 0       none                   FINISHED     record
    yes   exited, other code   none                   FAILED       record

An adopted container's spec is its labels. Only its owner starts, stops and removes it, so it never
calls for anything:

    running, paused, restarting      the same
    any other                        STOPPED, and gone once it is removed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlsched.model.facts import Begun, ContainerFact, ContainerState, OperationKind
from dlsched.model.spec import JobSpec
from dlsched.model.state import STOPPED_BY_COMMAND, Ended, JobState

Call = Literal["start", "remove", "record"]

_ALIVE = {
    ContainerState.RUNNING: JobState.RUNNING,
    ContainerState.PAUSED: JobState.PAUSED,
    ContainerState.RESTARTING: JobState.RESTARTING,
}


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A job's state with its reason, and the action that it calls for (None: none)."""

    state: JobState
    reason: str | None = None
    call: Call | None = None
    retry: bool = False
    """The start follows a failure, so it waits for its back-off."""


def status_of(
    spec: JobSpec | None, fact: ContainerFact | None, begun: Begun | None, ended: Ended | None
) -> Lifecycle:
    """The job's row of the table. `ended` counts only while it has the spec's digest and, unless it
    is a stop, until its container runs again, started by a person or a restarted engine. With
    another digest, its file was changed since, or a start was asked for."""
    if spec is None:
        return _leaving(fact, "the job's file was removed")
    runs = fact is not None and fact.state in _ALIVE
    if ended is not None and ended.digest == spec.digest and not (runs and ended.kind != "stopped"):
        return _ended(fact, ended)
    if fact is None:
        return _absent(spec, begun)
    if fact.container_digest != spec.container_digest:
        return _leaving(fact, "the container is replaced, as the job file's keys for it changed")
    if ended is not None and fact.state is ContainerState.EXITED:
        return _leaving(fact, "the container is replaced: it ended, and the job is to run again")
    return _present(spec, fact, begun)


def adopted_status(spec: JobSpec, fact: ContainerFact) -> Lifecycle:
    """The status of a job whose container someone else starts and ends."""
    if fact.state in _ALIVE:
        return _present(spec, fact, None)
    match fact.state:
        case ContainerState.CREATED:
            return Lifecycle(JobState.STOPPED, "the container has not been started yet")
        case ContainerState.EXITED:
            return Lifecycle(JobState.STOPPED, exit_reason(spec, fact))
    return Lifecycle(JobState.STOPPED, f"the engine reports the container as {fact.state}")


def untouched_status(fact: ContainerFact, why: str) -> Lifecycle:
    """The status of a job whose container must not be touched."""
    return Lifecycle(JobState.UNMANAGED if fact.state in _ALIVE else JobState.STOPPED, why)


def exit_reason(spec: JobSpec, fact: ContainerFact) -> str:
    if fact.oom_killed:
        bound = spec.container.memory_bytes
        limit = f" (limit {bound / 2**20:.0f} MiB)" if bound else ""
        return f"killed: out of memory{limit}"
    code = "unknown" if fact.exit_code is None else str(fact.exit_code)
    given_up = ""
    if spec.container.restart.name == "on-failure" and fact.starts > 1:
        given_up = f", given up after {fact.starts - 1} restarts"
    return f"exit code {code}{given_up}" + (f": {fact.error}" if fact.error else "")


def _leaving(fact: ContainerFact | None, reason: str) -> Lifecycle:
    if fact is None:
        return Lifecycle(JobState.STOPPED, reason)
    if fact.operation is not None and not _is(fact, OperationKind.MOVING):
        return Lifecycle(JobState.STOPPING, f"{reason}; {fact.operation}")
    return Lifecycle(JobState.STOPPING, reason, "remove")


def _ended(fact: ContainerFact | None, ended: Ended) -> Lifecycle:
    if ended.kind == "stopped":
        return _leaving(fact, ended.detail or STOPPED_BY_COMMAND)
    return Lifecycle(JobState(ended.kind), ended.detail)


def _absent(spec: JobSpec, begun: Begun | None) -> Lifecycle:
    if begun is None or begun.digest != spec.digest:
        return Lifecycle(JobState.WAITING, None, "start")
    if begun.stage == "pulled":
        return Lifecycle(JobState.PULLING, "the job's image is being pulled", "start")
    if begun.stage != "failed":
        return Lifecycle(JobState(begun.stage), begun.detail)
    if begun.retryable:
        return Lifecycle(JobState.WAITING, begun.detail, "start", retry=True)
    return Lifecycle(JobState.FAILED, begun.detail)


def _is(fact: ContainerFact, kind: OperationKind) -> bool:
    return fact.operation is not None and fact.operation.kind is kind


def _present(spec: JobSpec, fact: ContainerFact, begun: Begun | None) -> Lifecycle:
    doing = None if fact.operation is None else fact.operation.text
    if _is(fact, OperationKind.MOVING):  # whatever the state of its container
        return Lifecycle(JobState.MOVING, doing)
    alive = _ALIVE.get(fact.state)
    if alive is not None:
        if alive is JobState.RESTARTING:
            return Lifecycle(alive, f"restarted by Docker: {exit_reason(spec, fact)}")
        if _is(fact, OperationKind.STOPPING):
            return Lifecycle(JobState.STOPPING, doing)
        return Lifecycle(alive, doing)
    if fact.state is ContainerState.CREATED:
        failed = begun is not None and begun.digest == spec.digest and begun.stage == "failed"
        if begun is not None and failed:
            if begun.retryable:
                return Lifecycle(JobState.STARTING, begun.detail, "start", retry=True)
            return Lifecycle(JobState.FAILED, begun.detail)
        call: Call | None = None if fact.operation or begun else "start"
        return Lifecycle(JobState.STARTING, doing, call)
    if fact.state is ContainerState.EXITED:
        if fact.operation is not None:
            return Lifecycle(JobState.STOPPING, doing)
        if fact.exit_code == 0:
            return Lifecycle(JobState.FINISHED, "exit code 0", "record")
        return Lifecycle(JobState.FAILED, exit_reason(spec, fact), "record")
    return Lifecycle(JobState.STOPPING, f"the engine reports the container as {fact.state}")
