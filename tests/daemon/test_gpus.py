"""The daemon with GPUs that are none: true pynvml on a stand-in driver, stand-in device nodes in
containers of a real engine. What CUDA would do with them is not told here."""

from __future__ import annotations

import json
import os
import pwd
import signal
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.forked import command
from tests.daemon.test_daemon import (
    containers,
    goes_on,
    inspect,
    quota,
    reaches,
    row,
    runs,
    shows,
    spec,
    waits,
)
from tests.inside import run_inside
from tests.nvml.library import Stub
from tests.nvml.scenario import GIB, GPU_IS_LOST, Failure, Gpu, Process, Scenario
from tools.session import Session, wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="device nodes can only be made by root"),
]

NODES = {
    "nvidia0": (10, 229),
    "nvidia1": (10, 237),
    "nvidiactl": (1, 7),
    "nvidia-uvm": (1, 3),
    "nvidia-uvm-tools": (1, 5),
}
"""Stand-ins that every kernel lets be opened; no container has those of the GPUs by itself."""

A, B = "GPU-aaaa0000-0000-0000-0000-000000000000", "GPU-bbbb1111-0000-0000-0000-000000000000"
TWO = (
    Gpu(A, "NVIDIA A100-SXM4-40GB", minor=0, memory_bytes=40 * GIB),
    Gpu(B, "Tesla T4", minor=1, memory_bytes=16 * GIB),
)
CONTROL = ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"]


@dataclass(slots=True)
class Host:
    """A daemon's home on a host with two GPUs."""

    node: Session
    driver: Stub
    folder: Path

    def show(self, *failures: Failure, gpus: tuple[Gpu, ...] = TWO, life: int = 1) -> None:
        """What the driver tells from now on."""
        self.driver.show(Scenario(gpus, failures, life=life))

    def start(self, **gpus: object) -> None:
        """The daemon, with these settings about GPUs."""
        self.node.start("fair", more=self._settings(gpus))

    def reload(self, **gpus: object) -> None:
        """Have the daemon read these settings instead."""
        self.node.configure("fair", more=self._settings(gpus))
        self.node.process.send_signal(signal.SIGHUP)

    def _settings(self, gpus: Mapping[str, object]) -> dict[str, object]:
        return {"gpus": {"injection": "nodes", "device_folder": str(self.folder), **gpus}}

    def gpu(self, uuid: str) -> dict[str, Any]:
        """The GPU's row."""
        return next(gpu for gpu in self.node.client.jobs()["node"]["gpus"] if gpu["uuid"] == uuid)

    def runs(self, name: str, gpus: str, **keys: str) -> dict[str, Any]:
        """The row of a job on so many GPUs, once it runs as its new file says."""
        return runs(self.node, name, gpus=gpus, **keys)

    def inside(self, name: str, *words: str) -> str:
        """What a program says in the job's container."""
        container = f"dlsched-{self.node.instance}-{name}"
        return run_inside(self.node.engine.api, container, words)[1].decode()

    def allotment(self, name: str) -> dict[str, Any]:
        """What the job is told."""
        return dict(json.loads(self.inside(name, "cat", "/run/dlsched/in/allotment.json")))


@pytest.fixture
def host(node: Session, nvml_stub: Stub, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Two GPUs, of which the driver tells, with their device nodes."""
    for name, value in nvml_stub.environment.items():
        monkeypatch.setenv(name, value)
    folder = node.root / "dev"
    folder.mkdir()
    for name, (major, minor) in NODES.items():
        os.mknod(folder / name, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
    one = Host(node, nvml_stub, folder)
    one.show()
    return one


def on(name: str, gpus: str, **keys: str) -> str:
    return spec(name, gpus=gpus, **keys)


def held(host: Host, name: str) -> list[str]:
    """The UUIDs that the container was made with."""
    return str(inspect(host.node, name)["Config"]["Labels"]["dlsched.gpus"]).split(",")


@pytest.mark.gate
def test_a_job_gets_its_gpus_nodes_and_no_others(host: Host):
    host.start()
    host.runs("alpha", "{count: 1, model: A100}")
    assert held(host, "alpha") == [A]
    devices = inspect(host.node, "alpha")["HostConfig"]["Devices"]
    own = [str(host.folder / name) for name in NODES if name != "nvidia1"]
    assert sorted(one["PathOnHost"] for one in devices) == sorted(own)
    seen = host.inside("alpha", "sh", "-c", "ls /dev/nvidia*").split()
    assert seen == [*CONTROL[:2], "/dev/nvidia0", CONTROL[2]]
    tried = "mknod /b c 10 237 && exec 3<>/dev/nvidia0 && echo own && exec 4<>/b && echo other"
    said = host.inside("alpha", "bash", "-c", tried)
    assert sorted(said.splitlines()) == ["bash: line 1: /b: Operation not permitted", "own"]
    assert host.allotment("alpha")["gpus"] == [A]


def test_two_share_a_gpu_and_a_third_waits_until_there_is_room(host: Host):
    half = "{count: 1, share: 0.5, model: A100}"
    host.start()
    for name in ("alpha", "beta"):
        host.runs(name, half)
    assert held(host, "alpha") == held(host, "beta") == [A]
    wait_for(lambda: host.allotment("alpha").get("gpu_share") == 0.5, 30, "half of the time")
    memory = 20 * GIB
    wait_for(lambda: host.allotment("beta").get("gpu_memory_bytes") == memory, 30, "its memory")

    host.node.drop("gamma", on("gamma", half))
    host.runs("other", "1")
    assert held(host, "other") == [B]
    waits(host.node, "gamma", "needs 0.50 of a GPU's time, at most 0.00 is left")

    shown = command(host.node, "ps").stdout
    assert "A100" in shown
    assert "needs 0.50 of a GPU's time" in " ".join(shown.split())
    assert "GPU" in command(host.node, "why", "alpha").stdout
    rows = json.loads(command(host.node, "ps", "-o", "json").stdout)
    assert {gpu["uuid"] for gpu in rows["node"]["gpus"]} == {A, B}

    (host.node.watch / "alpha.yaml").unlink()
    reaches(host.node, "gamma", "running")
    assert held(host, "gamma") == [A]


def test_a_changed_share_is_told_live_and_another_model_takes_a_new_container(host: Host):
    host.start()
    first = host.runs("alpha", "{count: 1, share: 0.5}")["container"]
    host.node.drop("alpha", on("alpha", "{count: 1, share: {min: 0.2, max: 0.4}}"))
    wait_for(lambda: host.allotment("alpha").get("gpu_share") == 0.4, 30, "the new share")
    assert row(host.node, "alpha")["container"] == first
    host.node.drop("alpha", on("alpha", "{count: 1, share: {min: 0.2, max: 0.4}, model: T4}"))
    wait_for(lambda: row(host.node, "alpha")["container"] not in (None, first), 30, "a new one")
    reaches(host.node, "alpha", "running")
    assert held(host, "alpha") == [B]


PACED = """
  - python
  - -c
  - |
    import time
    from dlsched.report import pace
    while True:
        with pace:
            time.sleep(0.02)
"""


def test_two_jobs_follow_the_shares_by_weight_and_a_replay_agrees(host: Host):
    host.start()
    for name, weight in (("heavy", "3"), ("light", "1")):
        share = "{count: 1, share: 0.1, model: A100}"
        runs(host.node, name, PACED, gpus=share, weight=weight)

    def follows(name: str, share: float) -> bool:
        gpu = row(host.node, name)["gpu"]
        told = gpu["told_ratio"]
        return gpu["actual_share"] == share and told is not None and abs(told - share) <= 0.05

    wait_for(lambda: follows("heavy", 0.75), 60, "three quarters of its time")
    wait_for(lambda: follows("light", 0.25), 60, "a quarter of its time")
    told = " ".join(command(host.node, "why", "light").stdout.split())
    assert "0.250 of GPU 0's time" in told
    assert "time: advisory: the GPU share is sent to the job, which paces itself" in told

    assert command(host.node, "release").returncode == 0
    wait_for(lambda: host.allotment("light")["gpu_share"] is None, 30, "nothing to be said")
    host.node.stop()
    again = command(host.node, "replay", str(host.node.state_dir), "--policy", "fair", "-o", "json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["summary"]["all"]["agreed_ratio"] == 1.0


def test_a_changed_cpu_ceiling_leaves_the_gpu_where_it_is(host: Host):
    host.start()
    first = host.runs("alpha", "{count: 1, model: A100}")["container"]
    host.node.drop("alpha", on("alpha", "{count: 1, model: A100}", cpus="{min: 0.05, max: 0.5}"))
    wait_for(lambda: quota(host.node, "alpha") == 50_000, 30, "the ceiling")
    assert row(host.node, "alpha")["container"] == first
    assert row(host.node, "alpha")["gpu"]["lost"] is None
    assert host.inside("alpha", "bash", "-c", "exec 3<>/dev/nvidia0 && echo open") == "open\n"


def test_a_gpu_that_vanishes_is_shown_and_nothing_is_disturbed(host: Host):
    host.start()
    before = {
        "alpha": host.runs("alpha", "{count: 1, model: A100}")["container"],
        "beta": host.runs("beta", "{count: 1, share: 0.5, model: T4}")["container"],
    }
    host.show(Failure("*", GPU_IS_LOST, A))
    wait_for(lambda: host.gpu(A)["trouble"], 30, "the loss to be seen")
    host.node.drop("gamma", on("gamma", "{count: 1, share: 0.5, model: A100}"))
    host.runs("delta", "{count: 1, share: 0.5}")
    assert held(host, "delta") == [B]
    assert reaches(host.node, "gamma", "waiting")["reason"]
    goes_on(host.node, 4)
    for name, container in before.items():
        assert row(host.node, name)["state"] == "running"
        assert row(host.node, name)["container"] == container
    assert host.gpu(B)["trouble"] is None

    (host.node.watch / "alpha.yaml").unlink()
    reaches(host.node, "alpha", "absent")
    host.show()
    reaches(host.node, "gamma", "running")
    assert held(host, "gamma") == [A]


def test_the_driver_goes_away_and_comes_back(host: Host):
    host.start()
    first = host.runs("alpha", "{count: 1, share: 0.5, model: A100}")["container"]
    host.driver.unload_driver()
    wait_for(lambda: host.node.client.jobs()["node"]["gpu_trouble"], 30, "the trouble to be told")
    host.node.drop("beta", on("beta", "{count: 1, share: 0.5, model: A100}"))
    runs(host.node, "plain")
    assert reaches(host.node, "beta", "waiting")["reason"]
    assert "can never start" not in row(host.node, "beta")["reason"]
    assert row(host.node, "alpha")["container"] == first
    host.show(life=2)
    reaches(host.node, "beta", "running")
    assert held(host, "beta") == [A]
    assert row(host.node, "alpha")["container"] == first
    assert host.node.client.jobs()["node"]["gpu_trouble"] is None


def test_of_many_at_once_none_gets_what_is_promised_to_another_also_over_a_kill(host: Host):
    names = [f"job-{number}" for number in range(6)]
    host.start()
    for name in names:
        host.node.drop(name, on(name, "{count: 1, share: 0.5}"))
    wait_for(lambda: placed(host), 30, "the first container")
    host.node.kill()
    host.start()
    wait_for(lambda: host.node.running() == 4, 60, "four of them to run")
    goes_on(host.node, 4)
    assert sorted(placed(host)) == [A, A, B, B]
    rows = [row(host.node, name) for name in names]
    waiting = [one for one in rows if one["state"] == "waiting"]
    assert len(waiting) == 2
    assert all("at most 0.00 is left" in one["reason"] for one in waiting)


def placed(host: Host) -> list[str]:
    """The GPUs of all containers."""
    return [one.labels["dlsched.gpus"] for one in containers(host.node)]


def test_every_holder_of_a_gpu_is_shown_with_its_idle_time(host: Host) -> None:
    host.start(idle_after="10s", foreign="share")
    host.runs("own", "{count: 1, share: 0.5, model: A100}")
    pids = [inspect(host.node, "own")["State"]["Pid"]]
    asks = {"dlsched.enable": "true", "dlsched.instance": host.node.instance}
    for kind, labels in (("adopted", asks), ("foreign", {})):
        one = host.node.engine.containers.run(
            "dlsched-examples/base:3.11",
            ["sleep", "600"],
            name=f"{kind}-{host.node.instance}",
            detach=True,
            network_mode="none",
            labels=labels,
        )
        one.reload()
        pids.append(one.attrs["State"]["Pid"])
    adopted, foreign = (f"{kind}-{host.node.instance}" for kind in ("adopted", "foreign"))
    reaches(host.node, adopted, "running")
    used = [Process(pid, 3 * GIB, sm_percent=40) for pid in (*pids[:2], os.getpid())]
    idle = Process(pids[2], 20 * GIB)

    def show(*processes: Process) -> None:
        host.show(gpus=(replace(TWO[0], processes=processes, used_bytes=29 * GIB), TWO[1]))

    show(*used, idle)
    text = f"container {foreign}, not a job, holds 20 GiB of memory and has not used the GPU"

    def alarmed() -> bool:
        return any(text in one for one in host.node.client.jobs()["alarms"])

    wait_for(alarmed, 60, "the alarm")
    user = pwd.getpwuid(os.getuid()).pw_name
    found = {one["text"]: one for one in host.gpu(A)["holders"]}
    assert {name: (one["kind"], one["computes"]) for name, one in found.items()} == {
        "job own": ("own", True),
        f"job {adopted}": ("adopted", True),
        f"container {foreign}": ("foreign", False),
        f"process {os.getpid()} of {user}": ("foreign", True),
    }
    assert found["job own"]["name"] == f"dlsched-{host.node.instance}-own"
    shown = command(host.node, "ps").stdout
    assert f"container {foreign}" in " ".join(shown.split())
    show(*used, replace(idle, sm_percent=1))
    wait_for(lambda: not alarmed(), 30, "the end of the alarm")


def test_a_container_that_others_gave_a_gpu_has_it_alone_once_it_is_adopted(host: Host):
    host.start()
    name = f"theirs-{host.node.instance}"
    host.node.engine.containers.run(
        "dlsched-examples/base:3.11",
        ["sleep", "600"],
        name=name,
        detach=True,
        network_mode="none",
        devices=[f"{host.folder}/nvidia0:/dev/nvidia0:rw"],
        labels={"dlsched.enable": "true", "dlsched.instance": host.node.instance},
    )
    reaches(host.node, name, "running")
    shows(host.node, name, lambda one: (one["gpu"] or {}).get("uuids") == [A], "its GPU")
    host.node.drop("alpha", on("alpha", "{count: 1, share: 0.1, model: A100}"))
    waits(host.node, "alpha", "at most 0.00 is left")
    host.runs("beta", "{count: 1, share: 0.1}")
    assert held(host, "beta") == [B]


def test_an_engine_that_has_no_way_to_give_gpus_is_told_with_the_remedy(host: Host):
    host.start(injection="cdi")
    host.node.drop("alpha", on("alpha", "1"))
    told = "gpus.injection is cdi, but the engine cannot give the job's GPUs by CDI"
    wait_for(lambda: told in str(row(host.node, "alpha")["reason"]), 30, told)
    runs(host.node, "plain")
