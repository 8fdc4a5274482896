"""From a spec to the engine's create body, field by field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsched.model.facts import GpuAccess
from dlsched.model.spec import (
    ContainerSpec,
    Healthcheck,
    JobSpec,
    Limits,
    Logging,
    Restart,
    Stop,
    Ulimit,
)
from dlsched.runtime.confinement import Confinement
from dlsched.runtime.docker.create.containers import Surroundings, create_body
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.injection import Injection, MpsClient

AROUND = Surroundings(
    environment={"A": "1", "B": "x=y"},
    labels={"dlsched.job": "job"},
    cgroup_parent="/dlsched-test",
    tmpfs={"/run/out": "size=1m"},
    read_only={"/run/in": Path("/state/in/job")},
)


def body(cores: float | None = 0.5, **container: Any) -> Body:
    spec = JobSpec("job", ContainerSpec("image", **container), stop=Stop("SIGINT", 12))
    return create_body(spec, Limits(cores), 512, AROUND)


def host(**container: Any) -> Body:
    return dict(body(**container)["HostConfig"])


def test_a_bare_spec_asks_for_nothing_but_limits_and_the_sidecar() -> None:
    assert body() == {
        "Image": "image",
        "Env": ["A=1", "B=x=y"],
        "Labels": {"dlsched.job": "job"},
        "StopSignal": "SIGINT",
        "HostConfig": {
            "CpuPeriod": 100_000,
            "CpuQuota": 50_000,
            "CpuShares": 512,
            "CgroupParent": "/dlsched-test",
            "Mounts": [
                {
                    "Type": "bind",
                    "Source": "/state/in/job",
                    "Target": "/run/in",
                    "ReadOnly": True,
                }
            ],
            "Tmpfs": {"/run/out": "size=1m"},
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "ReadonlyRootfs": False,
            "LogConfig": {
                "Type": "json-file",
                "Config": {"max-file": "3", "max-size": "10m"},
            },
        },
    }


def test_no_limit_is_minus_one_and_never_nano_cpus() -> None:
    made = host(cores=None)
    assert (made["CpuPeriod"], made["CpuQuota"]) == (100_000, -1)
    assert "NanoCpus" not in host()
    assert "NanoCpus" not in made


def test_memory_has_equal_swap() -> None:
    made = host(memory_bytes=1 << 30)
    assert made["Memory"] == made["MemorySwap"] == 1 << 30


@pytest.mark.parametrize(
    ("field", "value", "key", "expected"),
    [
        ("network", "host", "NetworkMode", "host"),
        ("shm_size_bytes", 1 << 20, "ShmSize", 1 << 20),
        ("extra_hosts", ("db:10.0.0.1",), "ExtraHosts", ["db:10.0.0.1"]),
        ("cap_drop", ("ALL",), "CapDrop", ["ALL"]),
        ("read_only", True, "ReadonlyRootfs", True),
        (
            "ulimits",
            (Ulimit("nofile", 10, 20),),
            "Ulimits",
            [{"Name": "nofile", "Soft": 10, "Hard": 20}],
        ),
        (
            "restart",
            Restart("on-failure", 3),
            "RestartPolicy",
            {"Name": "on-failure", "MaximumRetryCount": 3},
        ),
        (
            "restart",
            Restart("always", 3),
            "RestartPolicy",
            {"Name": "always", "MaximumRetryCount": 0},
        ),
        ("logging", Logging("none", ()), "LogConfig", {"Type": "none", "Config": {}}),
        (
            "tmpfs",
            ("/a", "/b:size=1m,mode=1777"),
            "Tmpfs",
            {"/a": "", "/b": "size=1m,mode=1777", "/run/out": "size=1m"},
        ),
        (
            "ports",
            ("8080:80", "127.0.0.1:53:53/udp", "9000"),
            "PortBindings",
            {
                "80/tcp": [{"HostIp": "", "HostPort": "8080"}],
                "53/udp": [{"HostIp": "127.0.0.1", "HostPort": "53"}],
                "9000/tcp": [{"HostIp": "", "HostPort": ""}],
            },
        ),
    ],
)
def test_each_host_field(field: str, value: object, key: str, expected: object) -> None:
    assert host(**{field: value})[key] == expected


@pytest.mark.parametrize(
    ("field", "value", "key", "expected"),
    [
        ("command", ("a", "b"), "Cmd", ["a", "b"]),
        ("entrypoint", (), "Entrypoint", []),
        ("user", "1000:1000", "User", "1000:1000"),
        ("working_dir", "/work", "WorkingDir", "/work"),
        ("ports", ("8080:80",), "ExposedPorts", {"80/tcp": {}}),
        (
            "healthcheck",
            Healthcheck(("CMD", "true"), interval_s=1.5, retries=2),
            "Healthcheck",
            {"Test": ["CMD", "true"], "Interval": 1_500_000_000, "Retries": 2},
        ),
    ],
)
def test_each_container_field(field: str, value: object, key: str, expected: object) -> None:
    assert body(**{field: value})[key] == expected


def test_a_users_bind_for_reading_leaves_out_what_is_mounted_below_it() -> None:
    container = ContainerSpec("i", volumes=("/a:/a:ro", "/b:/b", "vol:/c:ro"))
    spec = JobSpec("job", container)
    for confined, options in ((Confinement(64), {"NonRecursive": True}), (None, None)):
        around = replace(AROUND, confined=confined, read_only={})
        made = create_body(spec, Limits(), 1024, around)["HostConfig"]["Mounts"]
        assert [mount.get("BindOptions") for mount in made] == [options, None, None]


def test_volumes_are_mounts_whose_missing_source_the_engine_refuses() -> None:
    volumes = ("/data:/d:ro", "/cache:/c:rslave", "models:/m", "scratch:/s:nocopy")
    made = host(volumes=volumes)["Mounts"][:-1]
    assert [(m["Type"], m["Source"], m["Target"], m["ReadOnly"]) for m in made] == [
        ("bind", "/data", "/d", True),
        ("bind", "/cache", "/c", False),
        ("volume", "models", "/m", False),
        ("volume", "scratch", "/s", False),
    ]
    assert made[1]["BindOptions"] == {"Propagation": "rslave"}
    assert made[3]["VolumeOptions"] == {"NoCopy": True}


def test_only_binds_can_relabel_for_selinux() -> None:
    made = host(volumes=("/data:/d:ro,z",))
    assert made["Binds"] == ["/data:/d:ro,z"]
    assert len(made["Mounts"]) == 1


def test_a_users_container_is_confined_and_the_operators_is_not() -> None:
    spec = JobSpec("job", ContainerSpec("image"))
    confined = replace(AROUND, confined=Confinement(pids=64))
    host = create_body(spec, Limits(0.5), 512, confined)["HostConfig"]
    assert (host["PidsLimit"], host["SecurityOpt"]) == (64, ["no-new-privileges:true"])
    assert not {"PidsLimit", "SecurityOpt"} & body()["HostConfig"].keys()


def test_gpus_come_in_as_their_injection_says_and_mps_by_its_pipes() -> None:
    spec = JobSpec("job", ContainerSpec("image", gpus=1))
    devices = [{"PathOnHost": "/x/nvidia0", "PathInContainer": "/dev/nvidia0"}]
    way = Injection(GpuAccess.NODES, {"Devices": devices})
    host = create_body(spec, Limits(0.5), None, replace(AROUND, gpus=way))["HostConfig"]
    assert host["Devices"] == devices
    assert "CpuShares" not in host and "IpcMode" not in host
    shared = replace(AROUND, gpus=way, mps=MpsClient(Path("/run/mps"), 50, None))
    host = create_body(spec, Limits(0.5), 512, shared)["HostConfig"]
    assert host["IpcMode"] == "host"
    pipes = {"Type": "bind", "Source": "/run/mps", "Target": "/run/mps", "ReadOnly": False}
    assert pipes in host["Mounts"]


def test_no_body_asks_for_more_than_a_container() -> None:
    """What has no key in a job file is in no request either, whatever the file says."""
    full = body(network="none", user="1:1", cap_drop=("ALL",), volumes=("/a:/b",), gpus=1)
    wide = {"Privileged", "CapAdd", "Devices", "PidMode", "IpcMode", "UTSMode", "UsernsMode",
            "CgroupnsMode", "SecurityOpt", "VolumesFrom", "Links", "Sysctls", "Runtime",
            "DeviceCgroupRules", "GroupAdd", "OomScoreAdj", "StorageOpt"}  # fmt: skip
    assert not wide & full["HostConfig"].keys()
