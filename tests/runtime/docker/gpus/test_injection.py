"""The ways in which GPUs reach a container, and which of them a CPU update can take away."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dlsched.model.facts import GpuAccess, GpuFact
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.injection import (
    GpuOptions,
    Injector,
    NotInjectable,
    access_of,
    gpu_names,
    named_nodes,
    uuids_of,
)

ONE, TWO = "GPU-11111111-aaaa", "GPU-22222222-bbbb"
WITH_RUNTIME: Body = {"Runtimes": {"runc": {}, "nvidia": {}}, "DefaultRuntime": "nvidia"}
WITHOUT: Body = {"Runtimes": {"runc": {}}}
VOID = {"NVIDIA_VISIBLE_DEVICES": "void"}

BY_FLAG: Body = {"HostConfig": {"DeviceRequests": [{"Driver": "", "Count": -1}]}}
BY_CDI: Body = {
    "HostConfig": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={ONE}"]}]}
}


def by_device(path: str, inside: str | None = None) -> Body:
    return {"HostConfig": {"Devices": [{"PathOnHost": path, "PathInContainer": inside or path}]}}


def by_runtime(*environment: str) -> Body:
    return {"HostConfig": {"Runtime": "nvidia"}, "Config": {"Env": list(environment)}}


def config(folder: Path, mode: str) -> Path:
    file = folder / "config.toml"
    file.write_text(f'[nvidia-container-runtime]\nmode = "{mode}"\n')
    return file


# ------------------------------------------------------------------------------- inspected


@pytest.mark.parametrize(
    ("body", "access"),
    [
        ({}, None),
        (BY_FLAG, GpuAccess.LEGACY),
        (BY_CDI, GpuAccess.CDI),
        (by_device("/dev/nvidia0"), GpuAccess.NODES),
        (by_device("/tmp/any/nvidia0", "/dev/nvidia0"), GpuAccess.NODES),
        (by_device("/dev/nvidia-caps/nvidia-cap12"), GpuAccess.NODES),
        (by_device("/dev/fuse"), None),
        (by_device("/dev/nvidia0x"), None),
        (by_runtime(), None),
        (by_runtime("NVIDIA_VISIBLE_DEVICES=void"), None),
        (by_runtime("NVIDIA_VISIBLE_DEVICES=none"), None),
        (by_runtime("NVIDIA_VISIBLE_DEVICES=all", "PATH=/bin"), GpuAccess.LEGACY),
        ({"HostConfig": {**BY_FLAG["HostConfig"], "Runtime": "nvidia"}}, GpuAccess.LEGACY),
    ],
)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_how_a_container_has_its_gpus(
    tmp_path: Path, body: Body, access: GpuAccess | None, mode: str
) -> None:
    assert access_of(body, config(tmp_path, mode)) is access


@pytest.mark.parametrize("mode", ["cdi", "jit-cdi"])
def test_the_runtime_in_its_cdi_mode_leaves_them_in_the_engines_list(
    tmp_path: Path, mode: str
) -> None:
    file = config(tmp_path, mode)
    assert access_of(by_runtime("NVIDIA_VISIBLE_DEVICES=0"), file) is GpuAccess.RUNTIME
    # Without that runtime the request goes to the hook all the same.
    assert access_of(BY_FLAG, file) is GpuAccess.LEGACY


def test_a_configuration_that_is_none_counts_as_the_default(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert access_of(by_runtime("NVIDIA_VISIBLE_DEVICES=0"), file) is GpuAccess.LEGACY
    file.write_text("[[[")
    assert access_of(by_runtime("NVIDIA_VISIBLE_DEVICES=0"), file) is GpuAccess.LEGACY


def test_which_gpus_a_container_was_told_to_get() -> None:
    devices = (gpu(ONE, 0), gpu(TWO, 1))
    cases: list[tuple[Body, tuple[str, ...]]] = [
        ({}, ()),
        (BY_CDI, (ONE,)),
        (BY_FLAG, (ONE, TWO)),
        ({"HostConfig": {"DeviceRequests": [{"Count": 1}]}}, (ONE,)),
        (by_runtime(f"NVIDIA_VISIBLE_DEVICES={TWO},0"), (TWO, ONE)),
        (by_runtime("NVIDIA_VISIBLE_DEVICES=all"), (ONE, TWO)),
        (by_device("/dev/nvidia1"), (TWO,)),
        (by_device("/dev/nvidia7"), ()),
        (by_runtime("NVIDIA_VISIBLE_DEVICES=GPU-of-another-time"), ("GPU-of-another-time",)),
    ]
    for body, uuids in cases:
        assert uuids_of(gpu_names(body), devices) == uuids, body
    assert len(gpu_names({"HostConfig": {"DeviceRequests": [{"Count": 1 << 60}]}})) == 64


def test_the_nodes_that_tell_whether_it_has_them(tmp_path: Path) -> None:
    found = injector(tmp_path, injection="nodes")
    control = str(tmp_path / "dev/nvidiactl")
    assert list(named_nodes(by_device("/x/nvidia1", "/dev/nvidia1"))) == ["/x/nvidia1"]
    assert found.to_try((ONE,), {}) == (str(tmp_path / "dev/nvidia0"), control)
    assert found.to_try((), by_device("/x/nvidia1", "/dev/nvidia1")) == ("/x/nvidia1",)


# ------------------------------------------------------------------------------- made


def gpu(uuid: str, index: int, *nodes: str) -> GpuFact:
    return GpuFact(uuid, index, "Model", 1 << 34, nodes=nodes or (f"/dev/nvidia{index}",))


def injector(root: Path, mode: str = "auto", **options: Any) -> Injector:
    dev = root / "dev"
    dev.mkdir(exist_ok=True)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (dev / name).touch()
    devices = (gpu(ONE, 0, f"{dev}/nvidia0"), gpu(TWO, 1, f"{dev}/nvidia1"))
    return Injector(GpuOptions(device_folder=dev, **options), lambda: devices, config(root, mode))


def with_cdi(root: Path, text: str, name: str = "nvidia.yaml", **more: Any) -> Body:
    folder = root / "cdi"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return {**WITHOUT, "CDISpecDirs": [str(folder), str(root / "none")], **more}


def spec_of(*devices: tuple[str, str], kind: str = "nvidia.com/gpu") -> str:
    text = f"cdiVersion: 0.5.0\nkind: {kind}\ndevices:\n"
    for name, node in devices:
        text += f"- name: {name}\n  containerEdits:\n    deviceNodes:\n    - path: {node}\n"
        text += "    - path: /dev/dri/card0\n"
    return text


def test_by_cdi_where_a_specification_names_them(tmp_path: Path) -> None:
    info = with_cdi(tmp_path, spec_of((ONE, "/dev/nvidia0"), (TWO, "/dev/nvidia1")))
    for asked in ("auto", "cdi"):
        way = injector(tmp_path, injection=asked).of((TWO, ONE), info)
        assert way.access is GpuAccess.CDI
        ids = [f"nvidia.com/gpu={TWO}", f"nvidia.com/gpu={ONE}"]
        assert way.host == {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ids}]}
        assert way.environment == {}
    info["Runtimes"] = WITH_RUNTIME["Runtimes"]
    assert injector(tmp_path).of((ONE,), info).environment == VOID


def test_a_specification_by_index_is_understood_by_its_nodes(tmp_path: Path) -> None:
    info = with_cdi(
        tmp_path,
        '{"kind": "nvidia.com/gpu", "devices": ['
        '{"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia1"}]}},'
        '{"name": "all", "containerEdits": {"deviceNodes":'
        ' [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidia1"}]}}]}',
        "nvidia.json",
    )
    way = injector(tmp_path, injection="cdi").of((TWO,), info)
    assert way.host["DeviceRequests"][0]["DeviceIDs"] == ["nvidia.com/gpu=1"]
    with pytest.raises(NotInjectable, match="no CDI specification names these GPUs"):
        injector(tmp_path, injection="cdi").of((ONE,), info)


def test_the_engines_own_word_for_its_devices_is_enough(tmp_path: Path) -> None:
    found = [{"Source": "cdi", "ID": f"nvidia.com/gpu={ONE}"}]
    info = with_cdi(tmp_path, "", DiscoveredDevices=found)
    assert injector(tmp_path).of((ONE,), info).access is GpuAccess.CDI
    found[0]["Source"] = "other"
    with pytest.raises(NotInjectable):
        injector(tmp_path).of((ONE,), info)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "- a\n- b", "kind: nvidia.com/gpu\ndevices: [{}]", "\udcff", "kind: 3"),
        *("devices: 1", "kind: nvidia.com/gpu\ndevices: 5", "a: [" * 1000, "&a [*a]"),
        "[" * 200_000,
    ],
)
def test_a_specification_that_is_none_hides_no_other(tmp_path: Path, text: str) -> None:
    with_cdi(tmp_path, spec_of((ONE, "/dev/nvidia0")))
    info = with_cdi(tmp_path, spec_of((ONE, "/dev/x"), kind="other.com/gpu"), "other.yaml")
    (tmp_path / "cdi/broken.yaml").write_text(text, errors="surrogateescape")
    assert injector(tmp_path, injection="cdi").of((ONE,), info).access is GpuAccess.CDI


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    info = with_cdi(tmp_path, spec_of((ONE, "/dev/nvidia0")))
    os.mkfifo(tmp_path / "cdi/a.yaml")
    (tmp_path / "cdi/b.yaml").symlink_to("/dev/zero")
    (tmp_path / "cdi/c.yaml").symlink_to(tmp_path / "cdi/c.yaml")
    assert injector(tmp_path, injection="cdi").of((ONE,), info).access is GpuAccess.CDI


def test_what_a_toolkit_writes_is_read_to_its_end(tmp_path: Path) -> None:
    edits = "\n".join(
        f"  - hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-{index}.so.550.90.07\n"
        f"    containerPath: /usr/lib/x86_64-linux-gnu/libnvidia-{index}.so.550.90.07\n"
        "    options:\n    - ro\n    - nosuid\n    - rbind"
        for index in range(200)
    )
    text = f"---\ncdiVersion: 0.5.0\ncontainerEdits:\n  mounts:\n{edits}\n"
    text += (
        f"devices:\n- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n  name: {ONE}\n"
    )
    info = with_cdi(tmp_path, f"{text}kind: nvidia.com/gpu\n")
    assert injector(tmp_path, injection="cdi").of((ONE,), info).access is GpuAccess.CDI


def test_what_a_swarm_names_gpus_by_is_heard_too(tmp_path: Path) -> None:
    """The toolkit's `swarm-resource` comes before its usual variable."""
    found = injector(tmp_path)
    found.config.write_text('swarm-resource = "DOCKER_RESOURCE_GPU"\n')
    void = {"DOCKER_RESOURCE_GPU": "void", **VOID}
    assert found.of((), WITH_RUNTIME).environment == void
    way = found.of((ONE,), WITH_RUNTIME)
    assert way.environment == {"DOCKER_RESOURCE_GPU": ONE, "NVIDIA_VISIBLE_DEVICES": ONE}
    body = by_runtime("DOCKER_RESOURCE_GPU=1", "NVIDIA_VISIBLE_DEVICES=void")
    assert access_of(body, found.config) is GpuAccess.LEGACY
    assert gpu_names(body, found.config) == ("1",)


def test_the_runtime_goes_by_other_names_too(tmp_path: Path) -> None:
    """An engine is told runtimes under any name: nvidia-legacy, nvidia-cdi, gpu."""
    body = by_runtime("NVIDIA_VISIBLE_DEVICES=0")
    for name, access in (
        ("nvidia-legacy", GpuAccess.LEGACY),
        ("gpu", GpuAccess.LEGACY),
        ("runc", None),
    ):
        body["HostConfig"]["Runtime"] = name
        assert access_of(body, config(tmp_path, "cdi")) is access
    info = {"Runtimes": {"gpu": {}, "runc": {}}, "DefaultRuntime": "gpu"}
    assert injector(tmp_path).of((), info).environment == VOID
    assert injector(tmp_path).of((), {**info, "DefaultRuntime": "runc"}).environment == {}


def test_by_request_where_the_runtime_is_there(tmp_path: Path) -> None:
    for asked in ("auto", "request"):
        way = injector(tmp_path, injection=asked).of((ONE, TWO), WITH_RUNTIME)
        assert way.access is GpuAccess.LEGACY
        request = {"Driver": "nvidia", "DeviceIDs": [ONE, TWO], "Capabilities": [["gpu"]]}
        assert way.host == {"DeviceRequests": [request]}
        assert way.environment == {"NVIDIA_VISIBLE_DEVICES": f"{ONE},{TWO}"}


def test_in_the_cdi_mode_the_runtime_is_asked_and_not_the_hook(tmp_path: Path) -> None:
    way = injector(tmp_path, "cdi").of((ONE,), WITH_RUNTIME)
    assert (way.access, way.host) == (GpuAccess.RUNTIME, {"Runtime": "nvidia"})
    assert way.environment == {"NVIDIA_VISIBLE_DEVICES": ONE}


def test_the_hook_alone_is_enough_for_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = tmp_path / "nvidia-container-runtime-hook"
    hook.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert injector(tmp_path).of((ONE,), WITHOUT).access is GpuAccess.LEGACY
    with pytest.raises(NotInjectable):  # in that mode it refuses
        injector(tmp_path, "cdi").of((ONE,), WITHOUT)


def test_by_nodes_with_those_that_all_gpus_need(tmp_path: Path) -> None:
    way = injector(tmp_path, injection="nodes").of((TWO,), WITH_RUNTIME)
    assert way.access is GpuAccess.NODES
    assert way.environment == VOID
    dev = f"{tmp_path}/dev"
    assert way.host["Devices"] == [
        {"PathOnHost": f"{dev}/{name}", "PathInContainer": place, "CgroupPermissions": "rw"}
        for name, place in (
            ("nvidia1", "/dev/nvidia1"),
            ("nvidiactl", "/dev/nvidiactl"),
            ("nvidia-uvm", "/dev/nvidia-uvm"),
        )
    ]
    with pytest.raises(NotInjectable, match="device nodes of the GPUs GPU-gone are not known"):
        injector(tmp_path, injection="nodes").of((ONE, "GPU-gone"), WITHOUT)


def test_an_instances_nodes_lie_deeper(tmp_path: Path) -> None:
    caps = tmp_path / "dev/nvidia-caps/nvidia-cap7"
    mig = gpu("MIG-1", 0, str(caps))
    found = Injector(GpuOptions(injection="nodes", device_folder=tmp_path / "dev"), lambda: (mig,))
    (device,) = found.of(("MIG-1",), WITHOUT).host["Devices"]
    assert device["PathInContainer"] == "/dev/nvidia-caps/nvidia-cap7"


@pytest.mark.parametrize(
    ("asked", "info", "why"),
    [
        ("auto", WITHOUT, "install the NVIDIA Container Toolkit, with CDI"),
        ("request", WITHOUT, "install the NVIDIA Container Toolkit, with CDI"),
        ("cdi", WITH_RUNTIME, "too old, or its feature cdi is off"),
    ],
)
def test_where_there_is_no_way_it_is_said_in_one_line(
    tmp_path: Path, asked: str, info: Body, why: str
) -> None:
    with pytest.raises(NotInjectable, match=why) as raised:
        injector(tmp_path, injection=asked).of((ONE,), info)
    assert "\n" not in str(raised.value)


def test_a_job_without_gpus_is_kept_from_the_runtimes_ear(tmp_path: Path) -> None:
    for mode in ("auto", "cdi"):
        way = injector(tmp_path, mode).of((), WITH_RUNTIME)
        assert (way.access, way.host, way.environment) == (None, {}, VOID)
    assert injector(tmp_path).of((), WITHOUT).environment == {}
