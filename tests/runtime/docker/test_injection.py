"""Which containers' GPUs a CPU update could take away."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.injection import loses_gpus

BY_FLAG: Body = {"HostConfig": {"DeviceRequests": [{"Driver": "", "Count": -1}]}}
BY_CDI: Body = {"HostConfig": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["a/b=0"]}]}}
BY_DEVICE: Body = {"HostConfig": {"Devices": [{"PathOnHost": "/dev/nvidia0"}]}}


def by_runtime(*environment: str) -> Body:
    return {"HostConfig": {"Runtime": "nvidia"}, "Config": {"Env": list(environment)}}


@pytest.mark.parametrize(
    ("body", "loses"),
    [
        ({}, False),
        (BY_FLAG, True),
        (BY_CDI, False),
        (BY_DEVICE, False),
        (by_runtime(), False),
        (by_runtime("NVIDIA_VISIBLE_DEVICES=void"), False),
        (by_runtime("NVIDIA_VISIBLE_DEVICES=all", "PATH=/bin"), True),
    ],
)
def test_only_what_the_hook_brought_can_be_lost(tmp_path: Path, body: Body, loses: bool) -> None:
    file = tmp_path / "config.toml"
    assert loses_gpus(body, file) is loses
    file.write_text('[nvidia-container-runtime]\nmode = "legacy"\n')
    assert loses_gpus(body, file) is loses
    file.write_text('[nvidia-container-runtime]\nmode = "cdi"\n')
    assert not loses_gpus(body, file)
