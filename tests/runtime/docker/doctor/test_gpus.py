"""What the doctor says of GPUs, their users, and how jobs get them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.control.gpus.placement import PlacementOptions
from dlsched.model.facts import ComputeMode, GpuFact, GpuProcess
from dlsched.runtime.docker.doctor import gpus as gpu_doctor
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.canary import ALARM_FILE
from dlsched.runtime.docker.gpus.injection import GpuOptions
from dlsched.runtime.doctor.finding import Finding
from dlsched.runtime.gpu import GpuSnapshot
from dlsched.runtime.gpu.nvml import NO_INSTANCE
from tests.nvml.library import Stub
from tests.nvml.scenario import GIB, VERSION_MISMATCH, Failure, Gpu, Process, Scenario

A100 = GpuFact("GPU-a", 0, "NVIDIA A100", 40 * GIB, 0, 0.0)
NVIDIA: Body = {"Runtimes": {"runc": {}, "nvidia": {}}}


def devices(*gpus: GpuFact, options: GpuOptions | None = None, **look: object) -> list[Finding]:
    seen = GpuSnapshot(gpus, at_s=0.0, **look)  # type: ignore[arg-type]
    return list(gpu_doctor.devices(seen, options or PlacementOptions(), Path("/absent")))


def test_a_host_without_a_driver_has_no_gpus() -> None:
    assert devices() == [Finding("gpu", "ok", "no GPU: this host has no NVIDIA driver")]


def test_a_driver_whose_library_does_not_reach_the_agent_is_told(tmp_path: Path) -> None:
    driver = tmp_path / "version"
    driver.write_text("NVRM version: ...")
    (found,) = gpu_doctor.devices(GpuSnapshot(at_s=0.0), PlacementOptions(), driver)
    assert found.state == "warn"
    assert "libnvidia-ml.so.1 cannot reach it" in found.line
    assert "NVIDIA_DRIVER_CAPABILITIES=utility" in found.remedy


def test_driver_and_gpus_are_told() -> None:
    part = replace(A100, uuid="MIG-b", index=1, part_of="GPU-b")
    options = PlacementOptions(reserved=("GPU-b",))
    told = devices(A100, part, driver="550.54.15", cost_s=0.0021, options=options)
    assert told == [
        Finding("gpu", "ok", "NVIDIA driver 550.54.15; reading the state of its GPUs takes 2.1 ms"),
        Finding("gpu", "ok", "GPU 0: NVIDIA A100, 40 GiB, GPU-a"),
        Finding("gpu", "ok", "GPU 1: NVIDIA A100, 40 GiB, MIG-b, MIG instance of GPU-b, reserved"),
    ]


@pytest.mark.parametrize(
    ("changes", "state", "line", "remedy"),
    [
        ({"trouble": "Unknown Error"}, "fail", "GPU-a: Unknown Error", ""),
        ({"trouble": NO_INSTANCE}, "fail", "the GPU has no instance", "nvidia-smi mig -cgi"),
        (
            {"compute_mode": ComputeMode.EXCLUSIVE},
            "warn",
            "GPU-a, mode exclusive-process: only one process at a time",
            "nvidia-smi -i 0 -c DEFAULT, or start MPS",
        ),
        (
            {"compute_mode": ComputeMode.PROHIBITED},
            "warn",
            "mode prohibited: no process may compute on this GPU",
            "nvidia-smi -i 0 -c DEFAULT",
        ),
        ({"nodes": ("/absent/nvidia0",)}, "warn", "/absent/nvidia0 does not exist", "persistenced"),
    ],
)
def test_a_gpu_that_cannot_be_used_as_usual_is_told_with_a_remedy(
    changes: dict[str, object], state: str, line: str, remedy: str
) -> None:
    (found,) = devices(replace(A100, **changes))  # type: ignore[arg-type]
    assert (found.state, line in found.line, remedy in found.remedy) == (state, True, True), found


def test_users_beside_the_jobs_are_told() -> None:
    used = replace(
        A100,
        processes=(GpuProcess(7, "c1", GIB), GpuProcess(8, "c2", 2 * GIB), GpuProcess(9, None)),
    )
    seen = GpuSnapshot((used, replace(A100, index=1)))
    (found,) = gpu_doctor.foreign_users(seen, {"c1"}, PlacementOptions())
    assert found.state == "warn"
    assert (
        "GPU 0 is used by processes outside jobs: pid 8, 9, 2 GiB; no job is placed" in found.line
    )
    assert "gpus.foreign: share" in found.remedy
    (shared,) = gpu_doctor.foreign_users(seen, {"c1"}, PlacementOptions(foreign="share"))
    assert shared.state == "ok"
    assert list(gpu_doctor.foreign_users(seen, {"c1", "c2", None}, PlacementOptions())) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "info", "options", "state", "says"),
    [
        ("cdi", NVIDIA, GpuOptions(), "ok", "by the NVIDIA runtime in CDI mode"),
        ("legacy", NVIDIA, GpuOptions(), "warn", "by NVIDIA's hook (mode legacy)"),
        (None, NVIDIA, GpuOptions(), "warn", "by NVIDIA's hook (mode auto)"),
        (None, {}, GpuOptions(injection="cdi"), "warn", "cannot give the job's GPUs by CDI"),
        (None, {}, GpuOptions(), "warn", "no way to give GPUs to a container"),
    ],
)
def test_how_jobs_get_gpus(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str | None,
    info: Body,
    options: GpuOptions,
    state: str,
    says: str,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    config = tmp_path / "config.toml"
    if mode is not None:
        config.write_text(f'[nvidia-container-runtime]\nmode = "{mode}"\n')
    found = gpu_doctor.access(GpuSnapshot((A100,)), info, options, config)
    assert (found.state, says in found.line) == (state, True), found
    assert bool(found.remedy) == (state == "warn")


def test_gpus_by_nodes_and_by_cdi(tmp_path: Path) -> None:
    gpu = replace(A100, nodes=(f"{tmp_path}/nvidia0",))
    by_nodes = gpu_doctor.access(
        GpuSnapshot((gpu,)),
        {},
        GpuOptions(injection="nodes", device_folder=tmp_path),
        tmp_path / "absent",
    )
    assert (by_nodes.state, "as device nodes" in by_nodes.line) == ("ok", True)
    info = {
        "CDISpecDirs": ["/etc/cdi"],
        "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=GPU-a"}],
    }
    by_cdi = gpu_doctor.access(GpuSnapshot((gpu,)), info, GpuOptions(), tmp_path / "absent")
    assert (by_cdi.state, "by CDI" in by_cdi.line) == ("ok", True)


def test_nodes_that_are_not_for_everybody_serve_no_user_namespace(tmp_path: Path) -> None:
    node = tmp_path / "nvidia0"
    node.touch(0o660)
    seen = GpuSnapshot((replace(A100, nodes=(str(node), "/absent")),))
    remapped: Body = {"SecurityOptions": ["name=userns"]}
    (found,) = gpu_doctor.user_namespaces(seen, remapped)
    assert (found.state, str(node) in found.line) == ("warn", True)
    assert "NVreg_DeviceFileMode=0666" in found.remedy
    assert list(gpu_doctor.user_namespaces(seen, {"SecurityOptions": ["name=seccomp"]})) == []
    node.chmod(0o666)
    assert list(gpu_doctor.user_namespaces(seen, remapped)) == []


def test_whether_mps_runs(tmp_path: Path) -> None:
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert "are advisory" in gpu_doctor.mps(environment).line
    os.mkfifo(tmp_path / "control")
    assert f"MPS runs ({tmp_path})" in gpu_doctor.mps(environment).line


def test_a_daemon_that_was_started_before_the_nodes_were_there(tmp_path: Path) -> None:
    node = tmp_path / "dev" / "nvidia0"
    node.parent.mkdir()
    node.touch()
    inside = tmp_path / "proc" / "7" / "root"
    (inside / "dev").mkdir(parents=True)
    seen = GpuSnapshot((replace(A100, nodes=(str(node),)),))
    (found,) = gpu_doctor.reached_by(7, seen, tmp_path / "proc")
    assert (found.state, str(node) in found.line) == ("warn", True)
    there = inside / str(node)[1:]
    there.parent.mkdir(parents=True)
    there.touch()
    assert list(gpu_doctor.reached_by(7, seen, tmp_path / "proc")) == []
    assert list(gpu_doctor.reached_by(8, seen, tmp_path / "proc")) == []


def test_a_look_tells_what_two_looks_see(nvml: Stub) -> None:
    nvml.show(Scenario((Gpu("GPU-a", processes=(Process(2**30, GIB),)),)))
    seen = gpu_doctor.poll(Path("/dev"))
    assert [one.uuid for one in seen.devices] == ["GPU-a"]
    assert "--pid=host" in str(seen.problem)


def test_a_driver_that_was_upgraded_fails_with_its_remedy(nvml: Stub) -> None:
    nvml.show(Scenario((Gpu("GPU-a"),), (Failure("nvmlInitWithFlags", VERSION_MISMATCH),)))
    (found,) = gpu_doctor.devices(gpu_doctor.poll(Path("/dev")), PlacementOptions())
    assert found.state == "fail"
    assert "reload the kernel modules or reboot, then restart dlsched" in found.line


def test_an_alarm_that_an_agent_left_behind_is_told(tmp_path: Path) -> None:
    assert list(gpu_doctor.alarm(tmp_path)) == []
    (tmp_path / ALARM_FILE).write_text("one: a CPU update took the container's GPU away")
    (found,) = gpu_doctor.alarm(tmp_path)
    assert found == Finding("gpu", "warn", "one: a CPU update took the container's GPU away")


@pytest.mark.parametrize(
    "gpus",
    [
        (replace(A100, trouble="it fell off the bus"),),
        (A100, replace(A100, uuid="MIG-b", part_of="GPU-a")),
    ],
)
def test_the_way_in_is_that_of_gpus_that_jobs_can_get(
    tmp_path: Path, gpus: tuple[GpuFact, ...]
) -> None:
    """Of a GPU that is divided CDI may name the instances alone."""
    folder = tmp_path / "cdi"
    folder.mkdir()
    name = gpus[-1].uuid
    (folder / "a.yaml").write_text(f"kind: nvidia.com/gpu\ndevices: [{{name: {name}}}]\n")
    info = {**NVIDIA, "CDISpecDirs": [str(folder)]}
    found = gpu_doctor.access(GpuSnapshot(gpus, at_s=0.0), info, GpuOptions(), tmp_path / "none")
    assert (found.state, found.line) == (
        "ok",
        "jobs get GPUs by CDI, so CPU updates do not take them away",
    )
