"""GPUs on a real engine, with stand-ins: character devices that containers may not open by default.

No GPU is needed, nor meant: what is shown is that a device reaches its container, that a change of
limits never takes it away, and that a loss is noticed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest

from dlsched.model.actions import Resize, Start
from dlsched.model.facts import ContainerFact, GpuAccess
from dlsched.model.spec import Limits
from dlsched.runtime.cgroup.group_limits import LimitFiles
from dlsched.runtime.cgroup.read import group_folders
from dlsched.runtime.docker import engine as engine_module
from dlsched.runtime.docker.engine import Body, Engine
from dlsched.runtime.docker.gpus.canary import ALARM_FILE
from dlsched.runtime.docker.gpus.options import GpuOptions
from dlsched.runtime.docker.identity.labels import GPU_ACCESS
from dlsched.runtime.docker.limits.outcome import Own
from dlsched.runtime.docker.limits.writer import LimitWriter, release_all
from dlsched.runtime.originals import Originals
from tests.doubles import texts
from tests.inside import run_inside
from tests.runtime.docker.rig import Rig, cpu_files, fact, job_spec, options_for
from tests.runtime.docker.stand_ins import Seen, devices_folder, may_open, with_ceiling
from tools.base_image import BASE

pytestmark = pytest.mark.engine


@pytest.fixture
def rig(docker_host: str, base_image: str, tmp_path: Path, dev: Path) -> Iterator[Rig]:
    """A runtime that gives stand-ins to containers."""
    gpus = GpuOptions(injection="nodes", device_folder=dev)
    options = options_for(docker_host, f"g{secrets.token_hex(3)}", tmp_path / "state", gpus=gpus)
    inventory: Any = Seen(dev)
    rig = Rig(options, docker_host, inventory)
    try:
        yield rig
    finally:
        rig.close()


def start(rig: Rig, job: str, *gpus: str, cores: float = 0.5) -> ContainerFact:
    spec = with_ceiling(job_spec(job, gpus=len(gpus)), 1.0)
    rig.observe()
    assert rig.apply(Start(spec, Limits(cores), 1024, gpus=gpus)).status == "begun"
    found = fact(rig.until(lambda seen: _runs(fact(seen, job))), job)
    assert found is not None
    return found


def _runs(found: ContainerFact | None) -> bool:
    return found is not None and found.state == "running"


@pytest.mark.gate
def test_the_assignment_reaches_the_container_and_no_other(rig: Rig, dev: Path) -> None:
    one, none = start(rig, "one", "GPU-0"), start(rig, "none")
    assert (one.gpus, one.gpu_access) == (("GPU-0",), GpuAccess.NODES)
    assert dict(one.gpu_enforced) == {"devices": "device nodes", "cpu": "the engine"}
    assert (none.gpus, none.gpu_access, none.gpu_enforced) == ((), None, ())
    assert may_open(rig.client, one.container_id, dev) == ["nvidia0", "nvidiactl"]
    assert may_open(rig.client, none.container_id, dev) == []
    code, _ = run_inside(rig.client, one.container_id, ["ls", "/dev/nvidia0", "/dev/nvidiactl"])
    assert code == 0
    rig.reopen()
    again = fact(rig.until(lambda seen: _runs(fact(seen, "one"))), "one")
    assert again is not None and (again.gpus, again.gpu_access) == (("GPU-0",), GpuAccess.NODES)


def test_limits_change_through_the_engine_once_the_canary_lives(rig: Rig, dev: Path) -> None:
    one, two = start(rig, "one", "GPU-0"), start(rig, "two", "GPU-1")
    rig.resized(one, 0.3)
    rig.resized(two, 0.4)
    assert rig.client.inspect_container(one.container_id)["HostConfig"]["CpuQuota"] == 30_000
    assert texts(rig.runtime.alarms()) == ()
    assert may_open(rig.client, one.container_id, dev) == ["nvidia0", "nvidiactl"]
    assert may_open(rig.client, two.container_id, dev) == ["nvidia1", "nvidiactl"]
    backs = rig.runtime.release({"one": 1.0, "two": 1.0})
    assert [back.failure for back in backs] == [None, None]
    assert may_open(rig.client, one.container_id, dev) == ["nvidia0", "nvidiactl"]


def test_after_an_alarm_neither_another_agent_nor_a_release_makes_an_update(
    rig: Rig, dev: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process that began anew would try it on one more container."""
    one = start(rig, "one", "GPU-0")
    rig.runtime.close()
    (rig.options.state_dir / ALARM_FILE).write_text("other: a CPU update took its GPU away\n")
    rig.reopen()
    rig.until(lambda seen: _runs(fact(seen, "one")))

    def never(*_: object) -> None:
        raise AssertionError("an update was made")

    monkeypatch.setattr(engine_module.Engine, "update", never)
    rig.resized(one, 0.3)
    assert texts(rig.runtime.alarms()) == ("other: a CPU update took its GPU away",)
    assert dict(rig.observe().containers[0].gpu_enforced)["cpu"].startswith("control group file")
    (back,) = release_all(rig.options)
    assert "an update now could take its GPUs away" in (back.failure or "")
    assert may_open(rig.client, one.container_id, dev) == ["nvidia0", "nvidiactl"]


def test_an_allotment_alone_needs_no_engine(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    one = start(rig, "one", "GPU-0")
    shares = one.cpu_shares or 1024

    def never(*_: object) -> None:
        raise AssertionError("the engine was asked")

    monkeypatch.setattr(engine_module.Engine, "update", never)
    monkeypatch.setattr(engine_module.Engine, "inspect", never)
    limits = Limits(0.5, 0.25)
    action = Resize("one", one.container_id, one.actual, limits, shares, "a test")
    assert rig.apply(action).status == "done"
    found = fact(rig.observe(), "one")
    assert found is not None and found.actual == Limits(0.5, 0.25)


# ---------------------------------------------------------- the hook imitated, behind the engine


@pytest.fixture
def legacy(docker_client: docker.APIClient, base_image: str, dev: Path) -> Iterator[str]:
    """A container whose GPU was opened past the engine after its start, as the legacy hook does."""
    config = {
        "Image": BASE,
        "Cmd": ["sleep", "600"],
        "Labels": {GPU_ACCESS: "legacy"},
        "HostConfig": {"NetworkMode": "none"},
    }
    name = f"legacy-{secrets.token_hex(4)}"
    made = str(docker_client.create_container_from_config(config, name)["Id"])  # type: ignore[no-untyped-call]
    try:
        docker_client.start(made)
        assert may_open(docker_client, made, dev) == []
        (devices_folder(docker_client, made) / "devices.allow").write_text("c 1:11 rwm")
        assert may_open(docker_client, made, dev) == ["nvidia0"]
        yield made
    finally:
        docker_client.remove_container(made, force=True)


class TakesGpus(Engine):
    """An engine whose updates write the engine's own list of devices anew, as older ones do.

    The runc that this was first run with (1.1.5) leaves the list alone in an update, so the test
    does at that moment what others do.
    """

    def __init__(self, host: str, take: Callable[[str], None]) -> None:
        super().__init__(host, 30)
        self.updates: list[str] = []
        self.take = take

    def update(self, container: str, body: Body) -> None:
        super().update(container, body)
        self.updates.append(container)
        self.take(container)


@pytest.fixture
def harmful(docker_host: str, docker_client: docker.APIClient) -> Iterator[TakesGpus]:
    def take(container: str) -> None:
        folder = devices_folder(docker_client, container)
        (folder / "devices.deny").write_text("c 1:11 rwm")

    with closing(TakesGpus(docker_host, take)) as engine:
        yield engine


def hands_of(engine: Engine, state_dir: Path) -> LimitWriter:
    return LimitWriter(engine, Originals(state_dir), state_dir, lambda: "now")


def test_in_the_legacy_mode_no_change_of_limits_takes_the_gpu_away(
    harmful: TakesGpus, legacy: str, dev: Path, tmp_path: Path, docker_client: docker.APIClient
) -> None:
    hands = hands_of(harmful, tmp_path / "state")
    before = cpu_files(docker_client, legacy)
    for cores, shares in ((0.25, 512), (0.5, 2048), (0.05, 2)):
        hands.set(legacy, Limits(cores), shares, burst_cores=0.02)
        files = LimitFiles(_pid(docker_client, legacy), legacy).read()
        assert (files.quota_us, files.shares) == (round(cores * 100_000), shares)
        assert may_open(docker_client, legacy, dev) == ["nvidia0"]
    hands.claims.close()
    hands = hands_of(harmful, tmp_path / "state")  # another agent
    original = Originals(tmp_path / "state").of(legacy)
    assert original is not None
    assert hands.give_back(original).failure is None
    assert cpu_files(docker_client, legacy) == before
    assert may_open(docker_client, legacy, dev) == ["nvidia0"]
    assert harmful.updates == []
    harmful.update(legacy, {"CpuQuota": 50_000})  # what would have become of it
    assert may_open(docker_client, legacy, dev) == []


@pytest.mark.gate
def test_the_canary_notices_the_loss_and_the_others_are_spared(
    harmful: TakesGpus, rig: Rig, dev: Path, tmp_path: Path
) -> None:
    devices_folder(rig.client, start(rig, "one", "GPU-0").container_id)
    found = {job: start(rig, job, "GPU-0") for job in ("one", "two")}
    hands = hands_of(harmful, tmp_path / "hands")
    hands._injector = replace(hands._injector, options=rig.options.gpus)
    one, two = (found[job].container_id for job in ("one", "two"))
    hands.set(one, Limits(0.3), 512, own=Own("one", 1.0))
    assert may_open(rig.client, one, dev) == ["nvidiactl"]
    why = hands.canary.lost(one, _pid(rig.client, one))
    assert why is not None and "a CPU update took its GPU away" in why
    assert "nvidia0" in why and "nvidiactl" not in why
    assert "nvidia-container-runtime.mode=cdi" in (hands.canary.alarm or "")
    hands.set(two, Limits(0.2), 300, own=Own("two", 1.0))
    assert may_open(rig.client, two, dev) == ["nvidia0", "nvidiactl"]
    seen = LimitFiles(_pid(rig.client, two), two).read()
    assert (seen.quota_us, seen.shares) == (20_000, 300)
    assert harmful.updates == [one]


def test_a_loss_is_told_until_the_container_is_started_anew(
    rig: Rig, dev: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = start(rig, "one", "GPU-0")
    folder = devices_folder(rig.client, one.container_id)
    real = engine_module.Engine.update

    def update(self: Engine, container: str, body: Body) -> None:
        real(self, container, body)
        (folder / "devices.deny").write_text("c 1:11 rwm")

    monkeypatch.setattr(engine_module.Engine, "update", update)
    rig.resized(one, 0.3)
    found = fact(rig.observe(), "one")
    assert found is not None and found.actual.cpu_cores == 0.3
    assert (found.gpu_lost or "").startswith("a CPU update took its GPU away: it may not open")
    assert dict(found.gpu_enforced)["cpu"] == "control group file, set again when lost"
    alarm, harm = texts(rig.runtime.alarms())
    assert "no container with GPUs is updated through the engine now" in alarm
    assert harm.startswith("gpu: one: a CPU update took its GPU away")
    rig.client.restart(one.container_id, timeout=0)
    rig.until(lambda seen: _has_them_again(fact(seen, "one")))
    assert texts(rig.runtime.alarms()) == (alarm,)
    assert may_open(rig.client, one.container_id, dev) == ["nvidia0", "nvidiactl"]


def _has_them_again(found: ContainerFact | None) -> bool:
    return _runs(found) and found is not None and found.gpu_lost is None


def test_a_look_leaves_no_trace(rig: Rig, dev: Path) -> None:
    one = start(rig, "one", "GPU-0").container_id
    pid = _pid(rig.client, one)
    folders = {folder for folder in group_folders(pid, container=one).values() if folder.exists()}
    before = {folder: (folder / "cgroup.procs").read_text() for folder in folders}
    assert may_open(rig.client, one, dev) == ["nvidia0", "nvidiactl"]
    assert {folder: (folder / "cgroup.procs").read_text() for folder in folders} == before
    assert rig.client.inspect_container(one)["State"]["Running"]


def _pid(client: docker.APIClient, container: str) -> int:
    return int(client.inspect_container(container)["State"]["Pid"])
