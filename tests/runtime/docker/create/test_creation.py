"""What a container is made with for its GPUs' sake, and what is done once it runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsched.model.actions import Start
from dlsched.model.facts import GpuAccess, GpuFact
from dlsched.model.spec import Bounds, JobSpec, Limits
from dlsched.runtime.allotment import Allotment, job_dir, read_allotment
from dlsched.runtime.confinement import Confinement
from dlsched.runtime.docker.carrying import CHECKS, Arrivals
from dlsched.runtime.docker.create.creation import Creation, StartFailed
from dlsched.runtime.docker.engine import Body, PathStat
from dlsched.runtime.docker.gpus.injection import GpuOptions, Injector
from dlsched.runtime.docker.identity.labels import inspected
from dlsched.runtime.docker.limits.group import ParentGroup
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.originals import Originals
from tests.runtime.docker.fake_engine import FakeEngine
from tests.runtime.docker.fake_host import FakeHost
from tests.runtime.docker.making import instance_of
from tests.runtime.docker.rig import job_spec

GIB = 1 << 30
DEVICES = (
    GpuFact("GPU-a", 0, "Model", 16 * GIB, nodes=("/dev/nvidia0",)),
    GpuFact("GPU-b", 1, "Model", 8 * GIB, nodes=("/dev/nvidia1",)),
)
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


class Bench:
    def __init__(
        self,
        root: Path,
        *,
        runtimes: tuple[str, ...] = ("runc", "nvidia"),
        injection: Any = "auto",
        confined: Confinement | None = None,
        pipes: Path | None = None,
        jobs_cores: float | None = None,
    ) -> None:
        self.root = root
        self.engine = FakeEngine(root)
        self.engine.facts["Runtimes"] = {one: {} for one in runtimes}
        engine: Any = self.engine
        injector = Injector(GpuOptions(injection=injection), lambda: DEVICES, root / "config.toml")
        state = root / "state"
        instance = instance_of(
            engine,
            state,
            originals=Originals(state),
            proc=self.engine.proc,
            options={"confine": lambda _: confined},
        )
        self.hands = LimitWriter(instance)
        start = self.engine.start
        self.ran: list[str] = []

        def begin(container: str) -> None:
            assert container in instance.busy, "an inspection would wait for the start"
            start(container)
            self.ran.append(container)

        self.engine.start = begin  # type: ignore[method-assign]
        self.arrivals = Arrivals(instance)
        self.creation = Creation(
            instance,
            ParentGroup("i", ""),
            self.hands,
            injector,
            self.arrivals,
            lambda: jobs_cores,
            lambda: pipes,
        )

    def start(
        self,
        spec: JobSpec,
        *gpus: str,
        share: float | None = None,
        cores: float = 0.25,
        source: str = "",
        image: Sequence[str] = (),
    ) -> Body:
        """The body that the container is made from; `image`: its own environment."""
        action = Start(spec, Limits(cores, share), 512, gpus=gpus, source=source)
        self.container = self.creation.start(action, {"Config": {"Env": image}})
        return self.body

    @property
    def body(self) -> Body:
        return self.engine.made[-1]

    @property
    def there(self) -> bool:
        return bool(self.engine.containers({}))

    @property
    def host(self) -> FakeHost:
        return self.engine.all[self.container].host

    @property
    def allotment(self) -> Allotment:
        return read_allotment(job_dir(self.root / "state", "job"))

    @property
    def environment(self) -> dict[str, str]:
        return dict(entry.partition("=")[::2] for entry in self.body["Env"])


def job(gpus: int = 0, share: tuple[float, float] = (1.0, 1.0), **container: Any) -> JobSpec:
    bounds = Bounds(ceiling_cores=1.5, floor_share=share[0], ceiling_share=share[1])
    return replace(job_spec("job", gpus=gpus, **container), bounds=bounds)


def test_a_job_gets_the_gpus_that_were_chosen_whatever_its_environment_says(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    body = bench.start(job(2, environment=((VISIBLE, "all"),)), "GPU-a", "GPU-b")
    (request,) = body["HostConfig"]["DeviceRequests"]
    assert request["DeviceIDs"] == ["GPU-a", "GPU-b"]
    assert bench.environment[VISIBLE] == "GPU-a,GPU-b"
    seen = inspected(bench.engine.inspect(bench.container))
    assert (seen.gpus, seen.gpu_access) == (("GPU-a", "GPU-b"), GpuAccess.LEGACY)
    assert seen.risks_gpus
    assert bench.allotment.gpus == ("GPU-a", "GPU-b")
    assert bench.allotment.gpu_memory_bytes is None, "all of it needs no bound"


def test_by_nodes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, injection="nodes")
    body = bench.start(job(1), "GPU-b")
    assert body["HostConfig"]["Devices"][0]["PathOnHost"] == "/dev/nvidia1"
    assert bench.environment[VISIBLE] == "void"
    assert (body["HostConfig"]["CpuQuota"], body["HostConfig"]["CpuShares"]) == (25_000, 512)


def test_a_job_without_gpus_hears_of_none_unless_the_operator_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "a")
    assert not {"DeviceRequests", "Devices", "Runtime"} & bench.start(job())["HostConfig"].keys()
    assert bench.environment[VISIBLE] == "void"
    asks = job(environment=((VISIBLE, "all"),))
    bench = Bench(tmp_path / "b")
    bench.start(asks)
    assert bench.environment[VISIBLE] == "all"
    bench = Bench(tmp_path / "c", confined=Confinement(pids=64))
    bench.start(asks)
    assert bench.environment[VISIBLE] == "void"
    bench = Bench(tmp_path / "d", runtimes=("runc",))
    bench.start(job())
    assert VISIBLE not in bench.environment


@pytest.mark.parametrize(
    ("jobs_cores", "spec", "image", "threads"),
    [
        (None, job(), (), "1"),
        (None, replace(job(), bounds=Bounds(ceiling_cores=6.0)), (), "6"),
        (2.0, replace(job(), bounds=Bounds(ceiling_cores=6.0)), (), "2"),
        (1.0, job(environment=(("OMP_NUM_THREADS", "6"),)), (), "6"),
        (1.0, job(), ("OMP_NUM_THREADS=6",), None),
        (1.0, job(threads="own"), (), None),
        (None, replace(job(), bounds=Bounds()), (), None),
    ],
)
def test_libraries_take_as_many_threads_as_the_job_may_ever_use(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jobs_cores: float | None,
    spec: JobSpec,
    image: Sequence[str],
    threads: str | None,
) -> None:
    """Its limit of a quarter of a core is of this moment; the ceiling is 1.5."""
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    bench = Bench(tmp_path, jobs_cores=jobs_cores)
    bench.start(spec, image=image)
    assert bench.environment.get("OMP_NUM_THREADS") == threads
    assert ("OMP_WAIT_POLICY" in bench.environment) == (spec.container.threads == "fit")


def test_a_user_s_jobs_have_no_more_threads_than_the_user_s_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    bench = Bench(tmp_path, confined=Confinement(pids=64, cpu_cores=3.0))
    bench.start(replace(job(), bounds=Bounds()))
    assert bench.environment["OMP_NUM_THREADS"] == "3"


def test_in_the_legacy_mode_the_engine_is_told_the_ceiling_and_the_kernel_the_limit(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    host = bench.start(job(1), "GPU-a")["HostConfig"]
    assert (host["CpuQuota"], "CpuShares" in host) == (150_000, False)
    files = bench.host.files()
    assert (files["cpu.cfs_quota_us"], files["cpu.shares"]) == ("25000", "512")
    assert bench.host.updates == []


def test_who_shares_a_gpu_is_a_client_of_mps_where_that_runs(tmp_path: Path) -> None:
    pipes = tmp_path / "mps"
    bench = Bench(tmp_path / "a", injection="nodes", pipes=pipes)
    body = bench.start(job(1, (0.25, 0.5)), "GPU-a", share=0.4)
    assert body["HostConfig"]["IpcMode"] == "host"
    assert [one["Source"] for one in body["HostConfig"]["Mounts"]].count(str(pipes)) == 1
    assert bench.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert bench.environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
    seen = inspected(bench.engine.inspect(bench.container))
    assert (seen.mps_threads_percent, seen.mps_memory_bytes) == (50, 4 * GIB)
    assert bench.allotment.gpu_share == 0.8  # of the half that MPS leaves it


def test_who_is_alone_and_who_is_a_user_is_no_client(tmp_path: Path) -> None:
    """To be one is to be in the host's IPC namespace, which is no place for a user's container."""
    pipes = tmp_path / "mps"
    for name, spec, confined in (
        ("a", job(1), None),
        ("b", job(1, (0.25, 0.5)), Confinement(pids=64)),
    ):
        bench = Bench(tmp_path / name, injection="nodes", pipes=pipes, confined=confined)
        assert "IpcMode" not in bench.start(spec, "GPU-a")["HostConfig"]
        assert not [one for one in bench.environment if one.startswith("CUDA_MPS")]


def test_where_there_is_no_way_it_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, runtimes=("runc",))
    with pytest.raises(StartFailed, match="install the NVIDIA Container Toolkit") as raised:
        bench.start(job(1), "GPU-a")
    assert raised.value.retryable
    with pytest.raises(StartFailed, match="GPUs are not chosen yet"):
        bench.start(job(1))
    assert not bench.there


def test_one_that_was_made_for_other_gpus_is_made_anew(tmp_path: Path) -> None:
    bench = Bench(tmp_path, injection="nodes")
    bench.start(job(1), "GPU-a")
    bench.engine.kill(bench.container, "SIGKILL")
    assert bench.body["Labels"]["dlsched.gpus"] == "GPU-a"
    with pytest.raises(StartFailed, match="was made for other GPUs") as raised:
        bench.start(job(1), "GPU-b")
    assert raised.value.retryable
    assert bench.start(job(1), "GPU-b")["Labels"]["dlsched.gpus"] == "GPU-b"


def test_one_that_runs_already_waits_for_the_canary_and_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, injection="nodes")
    bench.start(job(1), "GPU-a")
    bench.hands.canary._trying = "another"
    with pytest.raises(StartFailed, match="the update waits until that of another") as raised:
        bench.start(job(1), "GPU-a", cores=0.5)
    assert raised.value.retryable
    assert bench.there


def test_it_starts_once_its_checkpoint_shows(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.arrivals.expect("job", 2, "/data/7.pt", 700)
    spec = job(volumes=("/mnt/nfs:/data",))
    retryable = []
    for _ in range(CHECKS):
        with pytest.raises(
            StartFailed, match=r"^the job's checkpoint /data/7\.pt does not exist$"
        ) as caught:
            bench.start(spec)
        retryable.append(caught.value.retryable)
        assert not bench.there, "the container that it made is removed"
        assert bench.ran == []
    assert retryable == [True] * (CHECKS - 1) + [False]
    bench.engine.shown["/data/7.pt"] = PathStat(700, 0o644, "")
    mounts = bench.start(spec)["HostConfig"]["Mounts"]
    assert ("/mnt/nfs", "/data") in [(one["Source"], one["Target"]) for one in mounts]
    assert bench.host.pid != 0
    bench.engine.shown.clear()
    bench.engine.discard(bench.container)
    bench.start(spec)  # it is checked once


def test_a_job_of_the_node_s_own_does_not_get_the_volume_of_one_of_its_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.arrivals.expect("job", 2, "/data/7.pt", 700, "/state/cluster/jobs/job.json")
    # Else it would wait for that file.
    bench.start(job(volumes=("mine:/data",)), source="/etc/dlsched/jobs.d/job.yaml")
    assert bench.host.pid != 0
