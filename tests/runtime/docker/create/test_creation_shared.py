"""Containers of jobs whose checkpoint is in storage that other nodes have, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlsched.runtime.docker.carrying import CHECKS, Arrivals
from dlsched.runtime.docker.create.creation import StartFailed
from dlsched.runtime.docker.engine import EngineRefused, PathStat
from dlsched.runtime.docker.listing import Transfers
from tests.runtime.docker.create.test_creation_gpus import Bench, job


class Storage:
    """An engine that shows files, and nothing else."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def stat(self, container: str, path: str) -> PathStat:
        if path not in self.sizes:
            raise EngineRefused(404, "no such file")
        return PathStat(self.sizes[path], 0o644, "")


def test_it_starts_once_its_checkpoint_shows(tmp_path: Path) -> None:
    storage: Any = Storage()
    arrivals = Arrivals(storage, "i", tmp_path, Transfers())
    arrivals.expect("job", 2, "/data/7.pt", 700)
    bench = Bench(tmp_path, arrivals=arrivals)
    spec = job(volumes=("/mnt/nfs:/data",))
    retryable = []
    for _ in range(CHECKS):
        with pytest.raises(
            StartFailed, match=r"^its checkpoint /data/7\.pt is not there$"
        ) as caught:
            bench.start(spec)
        retryable.append(caught.value.retryable)
        assert not bench.host.there, "the container that it made is removed"
        assert bench.host.pid == 0, "it never ran"
    assert retryable == [True] * (CHECKS - 1) + [False]
    storage.sizes["/data/7.pt"] = 700
    mounts = bench.start(spec)["HostConfig"]["Mounts"]
    assert ("/mnt/nfs", "/data") in [(one["Source"], one["Target"]) for one in mounts]
    assert bench.host.pid != 0
    storage.sizes.clear()
    bench.host.there = False
    bench.start(spec)  # it is checked once


def test_a_job_of_the_node_s_own_does_not_get_the_volume_of_one_of_its_name(tmp_path: Path) -> None:
    storage: Any = Storage()
    arrivals = Arrivals(storage, "i", tmp_path, Transfers())
    arrivals.expect("job", 2, "/data/7.pt", 700, "/state/cluster/jobs/job.json")
    bench = Bench(tmp_path, arrivals=arrivals)
    # Else it would wait for that file.
    bench.start(job(volumes=("mine:/data",)), source="/etc/dlsched/jobs.d/job.yaml")
    assert bench.host.pid != 0
