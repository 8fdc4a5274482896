"""One look at a container: engine, kernel and GPUs together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlsched.model.facts import GpuAccess
from dlsched.runtime.docker.gpus.canary import Canary
from dlsched.runtime.docker.gpus.injection import GpuOptions, Injector
from dlsched.runtime.docker.limits.reading import ContainerLimits, read_limits
from tests.runtime.docker.fake_host import CONTAINER, PID, FakeHost

BY_HOOK = {"DeviceRequests": [{"Driver": "nvidia", "Count": -1}]}
BY_NODES = {"Devices": [{"PathOnHost": "/dev/nvidia0"}]}


def seen(host: FakeHost) -> ContainerLimits:
    engine: Any = host
    return read_limits(CONTAINER, engine, Injector(GpuOptions(), tuple), Canary(), host.proc)


@pytest.mark.parametrize("v2", [False, True])
def test_words_and_files_of_one_moment(tmp_path: Path, v2: bool) -> None:
    found = seen(FakeHost(tmp_path, v2=v2).run(CpuQuota=30_000, CpuShares=77))
    assert (found.engine.quota_us, found.engine.shares) == (30_000, 77)
    assert (found.limits.quota_us, found.pid, found.name) == (30_000, PID, "theirs")
    assert found.alive
    assert (found.access, found.held, found.by_file) == (None, None, False)


def test_its_gpus_and_why_the_engine_is_not_asked(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.words.update(BY_NODES)
    found = seen(host)
    assert found.held is not None and found.held.nodes == ("/dev/nvidia0",)
    assert (found.access, found.by_file) == (GpuAccess.NODES, False)
    host.words.update(BY_HOOK)
    found = seen(host)
    assert (found.access, found.by_file) == (GpuAccess.LEGACY, True)


def test_one_that_does_not_run_holds_none_but_will(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.words.update(BY_HOOK)
    host.stop()
    found = seen(host)
    assert (found.alive, found.files, dict(found.limits.files)) == (False, None, {})
    assert (found.access, found.held, found.by_file) == (GpuAccess.LEGACY, None, False)
