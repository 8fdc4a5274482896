"""The lifecycle table, row by row."""

from __future__ import annotations

import pytest

from dlsched.control.ledger.lifecycle import adopted_status, status_of, untouched_status
from dlsched.model.facts import Begun, ContainerState
from dlsched.model.spec import ContainerSpec, Restart
from dlsched.model.state import Ended, JobState
from tests.doubles import doing, job_spec, running

MOVING = doing("moving to b")
SPEC = job_spec("a")


def fact(**changes: object):
    return running("a", **changes)


def begun(stage: str, retryable: bool = False, digest: str = SPEC.digest) -> Begun:
    return Begun("a", stage, "because", digest, retryable)  # type: ignore[arg-type]


def ended(kind: str, digest: str = SPEC.digest) -> Ended:
    return Ended("a", digest, kind, "so it was")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "container", "started", "word", "state", "call"),
    [
        (None, fact(), None, None, JobState.STOPPING, "remove"),
        (None, fact(operation=doing("stopping (9 s left)")), None, None, JobState.STOPPING, None),
        (SPEC, None, None, None, JobState.WAITING, "start"),
        (SPEC, None, begun("pulling"), None, JobState.PULLING, None),
        (SPEC, None, begun("pulled"), None, JobState.PULLING, "start"),
        (SPEC, None, begun("starting"), None, JobState.STARTING, None),
        (SPEC, None, begun("failed"), None, JobState.FAILED, None),
        (SPEC, None, begun("failed", retryable=True), None, JobState.WAITING, "start"),
        (SPEC, None, begun("failed", digest="old"), None, JobState.WAITING, "start"),
        (SPEC, fact(), None, ended("stopped"), JobState.STOPPING, "remove"),
        (SPEC, None, None, ended("stopped"), JobState.STOPPED, None),
        (SPEC, None, None, ended("finished"), JobState.FINISHED, None),
        (SPEC, None, None, ended("failed"), JobState.FAILED, None),
        (SPEC, None, None, ended("finished", digest="old"), JobState.WAITING, "start"),
        (SPEC, fact(), None, ended("finished"), JobState.RUNNING, None),
        (SPEC, fact(), None, ended("failed"), JobState.RUNNING, None),
        (SPEC, fact(container_digest="old"), None, None, JobState.STOPPING, "remove"),
        (SPEC, fact(state=ContainerState.CREATED), None, None, JobState.STARTING, "start"),
        (
            SPEC,
            fact(state=ContainerState.CREATED),
            begun("starting"),
            None,
            JobState.STARTING,
            None,
        ),
        (SPEC, fact(state=ContainerState.CREATED), begun("failed"), None, JobState.FAILED, None),
        (SPEC, fact(), None, None, JobState.RUNNING, None),
        (SPEC, fact(state=ContainerState.PAUSED), None, None, JobState.PAUSED, None),
        (SPEC, fact(state=ContainerState.RESTARTING), None, None, JobState.RESTARTING, None),
        (
            SPEC,
            fact(state=ContainerState.EXITED, exit_code=0),
            None,
            None,
            JobState.FINISHED,
            "record",
        ),
        (
            SPEC,
            fact(state=ContainerState.EXITED, exit_code=3),
            None,
            None,
            JobState.FAILED,
            "record",
        ),
        (
            SPEC,
            fact(state=ContainerState.EXITED, exit_code=0),
            None,
            ended("finished", digest="old"),
            JobState.STOPPING,
            "remove",
        ),
        (SPEC, fact(state=ContainerState.DEAD), None, None, JobState.STOPPING, None),
        (SPEC, fact(operation=MOVING), None, None, JobState.MOVING, None),
        (
            SPEC,
            fact(state=ContainerState.EXITED, exit_code=0, operation=MOVING),
            None,
            None,
            JobState.MOVING,
            None,
        ),
        (
            SPEC,
            fact(state=ContainerState.CREATED, operation=MOVING),
            None,
            None,
            JobState.MOVING,
            None,
        ),
        (None, fact(operation=MOVING), None, None, JobState.STOPPING, "remove"),
        (
            SPEC,
            fact(operation=MOVING),
            None,
            ended("stopped"),
            JobState.STOPPING,
            "remove",
        ),
        (
            SPEC,
            fact(operation=MOVING, container_digest="old"),
            None,
            None,
            JobState.STOPPING,
            "remove",
        ),
    ],
)
def test_each_row_of_the_table(spec, container, started, word, state, call):
    place = status_of(spec, container, started, word)
    assert (place.state, place.call) == (state, call)


def test_a_death_by_memory_names_the_limit():
    spec = job_spec("a", container=ContainerSpec(image="m", memory_bytes=64 * 2**20))
    dead = running(
        "a",
        container_digest=spec.container_digest,
        state=ContainerState.EXITED,
        exit_code=137,
        oom_killed=True,
    )
    assert status_of(spec, dead, None, None).reason == "killed: out of memory (limit 64 MiB)"


def test_a_crash_loop_that_docker_gave_up_tells_how_often():
    spec = job_spec("a", container=ContainerSpec(image="m", restart=Restart("on-failure", 4)))
    dead = running(
        "a",
        container_digest=spec.container_digest,
        state=ContainerState.EXITED,
        exit_code=7,
        starts=5,
    )
    assert status_of(spec, dead, None, None).reason == "exit code 7, given up after 4 restarts"


def test_a_dead_container_that_must_not_be_touched_holds_nothing():
    assert untouched_status(fact(), "why").state is JobState.UNMANAGED
    dead = untouched_status(fact(state=ContainerState.EXITED), "why")
    assert (dead.state, dead.state.holds) == (JobState.STOPPED, False)


@pytest.mark.parametrize(
    ("container", "state", "reason"),
    [
        (fact(), JobState.RUNNING, None),
        (fact(operation=doing("updating")), JobState.RUNNING, "updating"),
        (fact(state=ContainerState.PAUSED), JobState.PAUSED, None),
        (
            fact(state=ContainerState.RESTARTING, exit_code=3),
            JobState.RESTARTING,
            "restarted by Docker: exit code 3",
        ),
        (
            fact(state=ContainerState.CREATED),
            JobState.STOPPED,
            "the container has not been started yet",
        ),
        (fact(state=ContainerState.EXITED, exit_code=0), JobState.STOPPED, "exit code 0"),
        (fact(state=ContainerState.EXITED, exit_code=137), JobState.STOPPED, "exit code 137"),
        (
            fact(state=ContainerState.DEAD),
            JobState.STOPPED,
            "the engine reports the container as dead",
        ),
        (
            fact(state=ContainerState.REMOVING),
            JobState.STOPPED,
            "the engine reports the container as removing",
        ),
    ],
)
def test_an_adopted_container_is_shown_as_it_is_and_nothing_is_called_for(container, state, reason):
    place = adopted_status(SPEC, container)
    assert (place.state, place.reason, place.call) == (state, reason, None)
