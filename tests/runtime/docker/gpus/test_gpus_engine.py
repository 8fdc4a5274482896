"""A lost GPU on a real engine: a stand-in, a character device that containers may not open."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.model.actions import Start
from dlsched.model.facts import ContainerState
from dlsched.model.spec import Limits
from dlsched.runtime.docker import engine as engine_module
from dlsched.runtime.docker.engine import Body, Engine
from dlsched.runtime.docker.gpus.injection import GpuOptions
from tests.doubles import texts
from tests.runtime.docker.rig import Rig, fact, job_spec, options_for
from tests.runtime.docker.stand_ins import Seen, devices_folder, may_open, with_ceiling

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


def test_a_loss_is_reported_until_the_container_is_restarted(
    rig: Rig, dev: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.observe()
    spec = with_ceiling(job_spec("one", gpus=1), 1.0)
    assert rig.apply(Start(spec, Limits(0.5), 1024, gpus=("GPU-0",))).status == "begun"
    one = rig.until_state("one", ContainerState.RUNNING)
    folder = devices_folder(rig.client, one.container_id)
    real = engine_module.Engine.update

    def update(self: Engine, container: str, body: Body) -> None:
        real(self, container, body)
        (folder / "devices.deny").write_text("c 1:11 rwm")

    monkeypatch.setattr(engine_module.Engine, "update", update)
    rig.resized(one, 0.3)
    found = fact(rig.observe(), "one")
    assert found is not None and found.actual.cpu_cores == 0.3
    assert (found.gpu_lost or "").startswith(
        "a CPU update took the container's GPU away: it may not open"
    )
    assert dict(found.gpu_enforced)["cpu"] == "dlsched, in the control group's file"
    alarm, harm = texts(rig.runtime.alarms())
    assert "no container with GPUs is updated through the engine now" in alarm
    assert harm.startswith("gpu: one: a CPU update took the container's GPU away")
    rig.client.restart(one.container_id, timeout=0)
    rig.until(lambda seen: (again := fact(seen, "one")) is not None and again.gpu_lost is None)
    rig.until_state("one", ContainerState.RUNNING)
    assert texts(rig.runtime.alarms()) == (alarm,)
    assert may_open(rig.client, one.container_id, dev) == ["nvidia0", "nvidiactl"]
