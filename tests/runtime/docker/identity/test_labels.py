"""What is read from the engine's description of a container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlsched.model.facts import ContainerState, GpuAccess
from dlsched.model.spec import ContainerSpec, JobSpec, Restart, Stop
from dlsched.runtime.docker.create.creation import Heritage, heritage_of
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.injection import GPUS_MAX, MpsClient
from dlsched.runtime.docker.identity.labels import (
    container_name,
    gpu_labels,
    inherits,
    inspected,
    labels_of,
)
from dlsched.runtime.docker.instance import own_containers

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
    assert (found.restarts, found.limits.quota_us, found.limits.shares) == (2, 37_000, 512)


def test_an_image_cannot_make_its_work_anothers() -> None:
    image = {"dlsched.origin": "a" * 64}
    found = inspected(description({**image, **labels_of(SPEC, "default", "job.yaml")}))
    assert found.origin is None
    moved = {**labels_of(SPEC, "default", "job.yaml"), **image}
    assert inspected(description(moved)).origin == "a" * 64


def test_the_gpus_that_it_was_made_with_are_read_back() -> None:
    mps = MpsClient(Path("/run/mps"), 50, 1 << 30)
    body = description(gpu_labels(("GPU-a", "MIG-b"), GpuAccess.NODES, mps))
    body["HostConfig"]["Devices"] = [
        {"PathOnHost": "/x/nvidia0", "PathInContainer": "/dev/nvidia0"}
    ]
    found = inspected(body)
    assert (found.gpus, found.gpu_access) == (("GPU-a", "MIG-b"), GpuAccess.NODES)
    assert (found.mps_threads_percent, found.mps_memory_bytes) == (50, 1 << 30)
    assert found.risks_gpus
    found = inspected({**body, "State": {"Status": "exited", "ExitCode": 0}})
    assert not found.risks_gpus
    none = inspected(description(gpu_labels((), None, None)))
    assert (none.gpus, none.gpu_access, none.mps_memory_bytes) == ((), None, None)


def test_the_legacy_mode_by_the_label_holds_whatever_the_runtime_is_set_to_now() -> None:
    body = description({"dlsched.gpu-access": "legacy"})
    assert inspected(body).gpu_access is GpuAccess.LEGACY
    body["Config"]["Labels"] = {"dlsched.gpu-access": "cdi"}  # nobody's word for what it is not
    assert inspected(body).gpu_access is None


def test_labels_of_gpus_that_somebody_broke_do_no_harm() -> None:
    many = ",".join(f"GPU-{index}" for index in range(1000))
    labels = {"dlsched.gpus": many, "dlsched.mps-threads": "9" * 30, "dlsched.mps-memory": "-1"}
    found = inspected(description(labels))
    assert len(found.gpus) == GPUS_MAX
    assert (found.mps_threads_percent, found.mps_memory_bytes) == (None, None)
    # Pacing divides by it: an older container has such labels from its image.
    assert inspected(description({"dlsched.mps-threads": "0"})).mps_threads_percent is None


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


@pytest.mark.parametrize(
    ("grace", "grace_s"),
    [("inf", 3600.0), ("1e9", 3600.0), ("-5", 0.0), ("-inf", 0.0), ("nan", Stop().grace_s)],
)
def test_a_grace_stays_within_what_a_spec_may_say(grace: str, grace_s: float) -> None:
    assert inspected(description({"dlsched.stop.grace": grace})).stop.grace_s == grace_s


@pytest.mark.parametrize(
    ("restart", "name", "retries", "strays"),
    [
        (Restart("always"), "always", 0, False),
        (Restart("always"), "no", 0, True),
        (Restart("on-failure", 3), "on-failure", 3, False),
        (Restart("on-failure", 3), "on-failure", 0, True),
        (Restart("no"), "", 0, False),
        (Restart("no"), "unless-stopped", 0, True),
    ],
)
def test_a_restart_policy_strays_when_it_is_not_the_spec_s(
    restart: Restart, name: str, retries: int, strays: bool
) -> None:
    spec = JobSpec("job", ContainerSpec("image", restart=restart))
    body = description(labels_of(spec, "default", ""))
    body["HostConfig"]["RestartPolicy"] = {"Name": name, "MaximumRetryCount": retries}
    found = inspected(body)
    assert (found.restart, found.restart_strays) == (restart, strays)


@pytest.mark.parametrize(
    "label", ["", "always", "sometimes:0", "always:-1", "on-failure:" + "9" * 99]
)
def test_a_broken_restart_label_says_nothing(label: str) -> None:
    found = inspected(description({"dlsched.restart": label}))
    assert (found.restart, found.restart_strays) == (None, False)


def test_only_what_was_made_by_us_has_labels_that_its_image_has_not() -> None:
    first, second = labels_of(SPEC, "default", ""), labels_of(SPEC, "default", "")
    assert inherits(first, first)
    assert not inherits(second, first)
    assert not inherits(first, {"team": "vision"})
    assert not inherits(first, {})


def test_a_state_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="flying"):
        inspected(description({}, Status="flying"))
    with pytest.raises(ValueError, match="KeyError"):
        inspected({"Id": "i"})


def test_the_default_instance_is_not_in_the_name() -> None:
    assert container_name("default", "job") == "dlsched-job"
    assert container_name("demo", "job") == "dlsched-demo-job"


@pytest.mark.parametrize(
    ("mode", "owner"), [(f"container:{'f' * 64}", "f" * 64), ("host", None), ("container:", None)]
)
def test_whose_network_it_shares_is_read(mode: str, owner: str | None) -> None:
    body = description({})
    shared = {**body, "HostConfig": {**body["HostConfig"], "NetworkMode": mode}}
    assert inspected(shared).network_of == owner


@pytest.mark.parametrize(
    ("networks", "address"),
    [
        ({"b": {"IPAddress": "10.0.0.2"}, "a": {"IPAddress": ""}}, "10.0.0.2"),
        ({"b": {"IPAddress": "10.0.0.2"}, "a": {"IPAddress": "10.9.0.2"}}, "10.9.0.2"),
        ({"six": {"IPAddress": "", "GlobalIPv6Address": "fd00::2"}}, "fd00::2"),
        ({"host": {"IPAddress": ""}}, None),
        ({"odd": {"IPAddress": "127.0.0.1"}, "cloud": {"IPAddress": "169.254.169.254"}}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_containers_address_is_its_own_or_none(
    networks: dict[str, dict[str, str]] | None, address: str | None
) -> None:
    body = {**description({}), "NetworkSettings": {"Networks": networks}}
    assert inspected(body).address == address


MINE, OTHER = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("cgroup", "mountinfo", "found"),
    [
        (f"0::/system.slice/docker-{MINE}.scope\n", "", {MINE}),
        (
            "0::/\n",
            f"9 1 8:1 /docker/containers/{MINE}/hostname /etc/hostname rw - ext4 /dev/sda rw\n",
            {MINE},
        ),
        (
            "0::/user.slice\n",
            f"9 1 0:9 / /var/lib/docker/containers/{OTHER}/mounts/shm rw - tmpfs shm rw\n",
            set(),
        ),
    ],
)
def test_the_agents_own_container(
    tmp_path: Path, cgroup: str, mountinfo: str, found: set[str]
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(cgroup)
    (tmp_path / "self" / "mountinfo").write_text(mountinfo)
    assert own_containers(tmp_path) == found


def test_where_nothing_can_be_read_nothing_is_found(tmp_path: Path) -> None:
    assert own_containers(tmp_path) == frozenset()


BODY = {
    "Id": "first",
    "Image": "sha256:1234",
    "Config": {"Hostname": "first", "Labels": {}},
    "HostConfig": {"NetworkMode": "default"},
    "Mounts": [
        {"Type": "bind", "Source": "/data", "Destination": "/data"},
        {"Type": "volume", "Name": "models", "Destination": "/models"},
        {"Type": "volume", "Name": "f00d", "Destination": "/scratch"},
    ],
}


def with_(**changes: Any) -> dict[str, Any]:
    return {**BODY, **changes}


def create_body(*mounts: dict[str, Any], **host: Any) -> dict[str, Any]:
    return {"HostConfig": {"Mounts": list(mounts), "Tmpfs": {}, **host}}


def test_the_origin_is_the_first_container_however_often_it_was_moved() -> None:
    assert heritage_of(BODY).origin == "first"
    third = with_(Id="third", Config={"Hostname": "x", "Labels": {"dlsched.origin": "first"}})
    assert heritage_of(third).origin == "first"


@pytest.mark.parametrize(
    ("mode", "name"),
    [("default", "first"), ("none", "first"), ("host", None), ("container:abc", None)],
)
def test_the_host_name_goes_over_where_it_is_its_own(mode: str, name: str | None) -> None:
    body = create_body()
    heritage_of(with_(HostConfig={"NetworkMode": mode})).give(body)
    assert body.get("Hostname") == name


def test_volumes_that_have_no_name_in_the_spec_go_over() -> None:
    by_name = {"Type": "volume", "Source": "other", "Target": "/models", "ReadOnly": True}
    nameless = {"Type": "volume", "Source": "", "Target": "/scratch"}
    body = create_body(by_name, nameless)
    heritage_of(BODY).give(body)
    taken_over = {"Type": "volume", "Source": "f00d", "Target": "/scratch"}
    assert body["HostConfig"]["Mounts"] == [by_name, taken_over]


def test_what_the_spec_mounts_there_comes_first() -> None:
    heritage = Heritage("first", "image", None, {"/a": "one", "/b": "two", "/c": "three"})
    bind = {"Type": "bind", "Source": "/host", "Target": "/a"}
    body = create_body(bind, Binds=["/host:/b:z"], Tmpfs={"/c": ""})
    heritage.give(body)
    assert body["HostConfig"]["Mounts"] == [bind]
