"""What is read from the engine's description of a container."""

from __future__ import annotations

import pytest

from dlsched.model import ContainerSpec, ContainerState, JobSpec, Stop
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.labels import container_name, inspected, labels_of

SPEC = JobSpec(
    "job",
    ContainerSpec("image", labels=(("team", "vision"), ("dlsched.job", "another"))),
    stop=Stop("SIGINT", 2.5),
    digest="d1",
    container_digest="c1",
)


def description(labels: dict[str, str] | None, **state: object) -> Body:
    return {
        "Id": "i" * 64,
        "Name": "/dlsched-job",
        "RestartCount": 2,
        "State": {"Status": "running", "Pid": 7, "StartedAt": "then", "ExitCode": 0, **state},
        "Config": {"Labels": labels, "Image": "image"},
        "HostConfig": {"CpuQuota": 37_000, "CpuPeriod": 100_000, "CpuShares": 512},
    }


def test_what_is_written_into_the_labels_is_read_back() -> None:
    labels = labels_of(SPEC, "default", "job.yaml")
    assert labels["team"] == "vision"
    found = inspected(description(labels))
    assert (found.instance, found.job, found.source) == ("default", "job", "job.yaml")
    assert (found.digest, found.container_digest, found.stop) == ("d1", "c1", Stop("SIGINT", 2.5))
    assert (found.restarts, found.quota_us, found.shares) == (2, 37_000, 512)


def test_a_running_container_has_no_exit_code_yet_and_an_ended_one_has() -> None:
    running = inspected(description({}))
    assert running.alive and running.exit_code is None
    ended = inspected(
        description({}, Status="exited", Pid=0, ExitCode=137, OOMKilled=True, Error="a\n b")
    )
    assert not ended.alive
    assert (ended.state, ended.exit_code) == (ContainerState.EXITED, 137)
    assert (ended.oom_killed, ended.error) == (True, "a b")


@pytest.mark.parametrize("grace", ["soon", "", "1e"])
def test_labels_that_somebody_broke_do_no_harm(grace: str) -> None:
    found = inspected(description({"dlsched.stop.grace": grace}))
    assert found.stop == Stop()
    assert (found.instance, found.job) == (None, "")
    assert inspected(description(None)).job == ""


def test_a_state_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="flying"):
        inspected(description({}, Status="flying"))


def test_the_default_instance_is_not_in_the_name() -> None:
    assert container_name("default", "job") == "dlsched-job"
    assert container_name("demo", "job") == "dlsched-demo-job"
