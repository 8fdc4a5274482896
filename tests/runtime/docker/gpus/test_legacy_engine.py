"""The legacy mode whole, on an engine of its own, whose NVIDIA hook is an imitation.

As the true one it is run by `--gpus` before the container's first process and opens the devices
behind the engine's back; what it opens is a stand-in that containers may not open by default.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.model.actions import Start
from dlsched.model.facts import ContainerFact, GpuAccess
from dlsched.model.spec import Limits
from dlsched.runtime.allotment import job_dir, read_allotment
from dlsched.runtime.cgroup.cpu_units import PERIOD_US
from dlsched.runtime.docker.gpus.injection import GpuOptions
from tests.runtime.docker.rig import Rig, cpu_files, fact, job_spec, options_for
from tests.runtime.docker.stand_ins import Seen, devices_folder, may_open, with_ceiling
from tools.base_image import ensure_base
from tools.private_engine import private_engine

pytestmark = [pytest.mark.engine]

HOOK = """\
#!{python}
import json, sys
from pathlib import Path
state = json.load(sys.stdin)
config = json.loads(Path(state["bundle"], "config.json").read_text())
variables = dict(entry.partition("=")[::2] for entry in config["process"]["env"])
asked = variables.get("NVIDIA_VISIBLE_DEVICES", "")
with Path(__file__).with_suffix(".log").open("a") as log:
    log.write(asked + "\\n")
for line in Path("/proc", str(state["pid"]), "cgroup").read_text().splitlines():
    _, names, group = line.split(":", 2)
    if names == "devices" and asked not in ("", "void"):
        Path("/sys/fs/cgroup/devices" + group, "devices.allow").write_text("c 1:11 rwm")
"""


class Hooked(Rig):
    """A rig on an engine with the hook."""

    hook_log: Path

    @property
    def asked(self) -> list[str]:
        """What the hook was asked for, start by start."""
        return self.hook_log.read_text().splitlines()

    def quota(self, found: ContainerFact) -> str:
        """What the kernel has."""
        files = cpu_files(self.client, found.container_id)
        return files.get("cpu.cfs_quota_us", files.get("cpu.max", ""))

    def told(self, found: ContainerFact) -> dict[str, Any]:
        """What the engine has."""
        return dict(self.client.inspect_container(found.container_id)["HostConfig"])


@pytest.fixture
def rig(
    docker_host: str, tmp_path: Path, dev: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hooked]:
    if os.geteuid() != 0:
        pytest.skip("a private engine needs root")
    tools = tmp_path / "bin"
    tools.mkdir()
    hook = tools / "nvidia-container-runtime-hook"
    hook.write_text(HOOK.format(python=sys.executable))
    hook.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with private_engine(tmp_path / "engines") as engine:
        ensure_base(engine.host)
        options = options_for(
            engine.host,
            f"l{secrets.token_hex(3)}",
            tmp_path / "state",
            gpus=GpuOptions(device_folder=dev),
            cgroup_under=engine.cgroup_parent or "",
        )
        inventory: Any = Seen(dev)
        rig = Hooked(options, engine.host, inventory)
        rig.hook_log = hook.with_suffix(".log")
        try:
            yield rig
        finally:
            rig.close()


def test_a_job_of_ours_keeps_its_gpu_through_all_that_is_done_to_it(rig: Hooked, dev: Path) -> None:
    rig.observe()
    spec = with_ceiling(job_spec("job", gpus=1), 1.0)
    assert rig.apply(Start(spec, Limits(0.25), 512, gpus=("GPU-0",))).status == "begun"
    rig.until(lambda seen: seen.containers != () and _cores(fact(seen, "job")) == 0.25)
    found = fact(rig.observe(), "job")
    devices_folder(rig.client, found.container_id)  # or the test ends here
    assert rig.asked == ["GPU-0"]
    assert (found.gpus, found.gpu_access) == (("GPU-0",), GpuAccess.LEGACY)
    assert dict(found.gpu_enforced)["cpu"] == "dlsched, in the control group's file"
    assert rig.told(found)["CpuQuota"] == PERIOD_US  # its ceiling, for its next start
    assert may_open(rig.client, found.container_id, dev) == ["nvidia0"]

    rig.resized(found, 0.4, shares=300)
    assert (rig.quota(found), rig.told(found)["CpuQuota"]) == ("40000", PERIOD_US)

    rig.client.restart(found.container_id, timeout=0)
    again = fact(rig.until(lambda seen: _cores(fact(seen, "job")) == 1.0), "job")
    assert again is not None and rig.asked == ["GPU-0", "GPU-0"]
    rig.resized(again, 0.4, shares=300)
    assert rig.quota(again) == "40000"

    rig.reopen()  # another agent
    rig.until(lambda seen: _cores(fact(seen, "job")) == 0.4)
    (back,) = rig.runtime.release({"job": 1.0})
    assert back.failure is None
    assert rig.quota(found) == "100000"
    assert may_open(rig.client, found.container_id, dev) == ["nvidia0"]
    told = read_allotment(job_dir(rig.options.state_dir, "job"))
    assert (told.cpu_cores, told.gpus) == (1.0, ("GPU-0",))
    rig.remove(again)
    rig.until(lambda seen: seen.containers == ())


def _cores(found: ContainerFact | None) -> float | None:
    return None if found is None else found.actual.cpu_cores
