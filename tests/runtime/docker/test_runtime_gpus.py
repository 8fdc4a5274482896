"""What a DockerRuntime tells of the host's GPUs, and whose their processes are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dlsched.model.facts import GpuFact, NodeFact, Observation
from dlsched.runtime.clock import SystemClock
from dlsched.runtime.docker import DockerOptions, DockerRuntime
from dlsched.runtime.docker.gpus.options import GpuOptions
from dlsched.runtime.gpu.inventory import Inventory
from tests.doubles import texts
from tests.nvml.library import Stub
from tests.nvml.scenario import GIB, GPU_IS_LOST, VERSION_MISMATCH, Failure, Gpu, Process, Scenario
from tests.runtime.docker.rig import Rig, fact, job_spec
from tests.waiting import until

pytestmark = pytest.mark.timed


def runtime_of(tmp_path: Path, inventory: Inventory | None = None) -> DockerRuntime:
    """Without an engine: GPUs can be told all the same."""
    options = DockerOptions(
        state_dir=tmp_path / "state",
        host=f"unix://{tmp_path}/absent.sock",
        call_wait_s=0.01,
        gpus=GpuOptions(device_folder=tmp_path / "dev"),
    )
    return DockerRuntime(options, SystemClock(), lambda _: None, inventory)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[DockerRuntime]:
    with closing(runtime_of(tmp_path)) as made:
        yield made


class Loop:
    """Observes a second later each time, until that is so."""

    def __init__(self, runtime: DockerRuntime) -> None:
        self._runtime = runtime
        self._now_s = 0.0

    def until(self, good: Callable[[Observation], object]) -> NodeFact:
        def observed() -> Observation:
            self._now_s += 1.0
            self._runtime.resume(self._now_s)
            return self._runtime.observe(self._now_s)

        node = until(
            observed, "the node", so=good, shown=lambda: texts(self._runtime.alarms())
        ).node
        assert node is not None
        return node

    def alarmed(self, words: str) -> NodeFact:
        return self.until(lambda _: words in " ".join(texts(self._runtime.alarms())))


def gpus_of(seen: Observation) -> tuple[GpuFact, ...]:
    return seen.node.gpus if seen.node else ()


def test_gpus_are_in_the_nodes_facts(runtime: DockerRuntime, nvml: Stub, tmp_path: Path) -> None:
    nvml.show(Scenario((Gpu("GPU-a", used_bytes=GIB, busy_percent=12, minor=3),)))
    node = Loop(runtime).until(gpus_of)
    (gpu,) = node.gpus
    assert (gpu.uuid, gpu.memory_used_bytes, gpu.busy_ratio) == ("GPU-a", GIB, 0.12)
    assert gpu.nodes == (f"{tmp_path}/dev/nvidia3",)
    assert (node.gpu_trouble, texts(runtime.alarms())) == (None, ())


def test_a_driver_that_cannot_be_asked_is_an_alarm_as_long_as_that_is_so(
    runtime: DockerRuntime, nvml: Stub
) -> None:
    nvml.show(Scenario((Gpu("GPU-a"),), (Failure("nvmlInitWithFlags", VERSION_MISMATCH),)))
    loop = Loop(runtime)
    node = loop.alarmed("gpu: the driver in the kernel and its library have different")
    assert node.gpus == ()
    assert node.gpu_trouble is not None
    nvml.show(Scenario((Gpu("GPU-a"),)))
    assert loop.until(gpus_of).gpu_trouble is None
    assert texts(runtime.alarms()) == ()


def test_a_lost_gpu_is_an_alarm_of_its_own(runtime: DockerRuntime, nvml: Stub) -> None:
    two = (Gpu("GPU-a"), Gpu("GPU-b", minor=1))
    nvml.show(Scenario(two))
    loop = Loop(runtime)
    loop.until(gpus_of)
    nvml.show(Scenario(two, (Failure("*", GPU_IS_LOST, "GPU-b"),)))
    node = loop.alarmed("gpu: GPU 1 (GPU-b): fell off the bus (GPU is lost) (look for Xid")
    assert [one.trouble is None for one in node.gpus] == [True, False]
    assert len(texts(runtime.alarms())) == 1


def test_a_driver_that_hangs_holds_up_no_observation(tmp_path: Path, nvml: Stub) -> None:
    nvml.show(Scenario((Gpu("GPU-a"),), hangs=("*",)))
    inventory = Inventory(tmp_path / "dev", wait_s=0.5, first_wait_s=0.5)
    with closing(runtime_of(tmp_path, inventory)) as runtime:
        began_s = time.monotonic()
        for now_s in range(50):
            seen = runtime.observe(float(now_s))
        assert time.monotonic() - began_s < 12  # and not fifty waits of 0.5 s
    assert seen.node.gpu_trouble == "the GPU driver has not answered yet"


def test_the_gpus_of_a_job_that_is_away_are_observed(
    runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime._moves, "gpus_away", lambda: {"train": ("GPU-0",)})
    assert runtime.observe(1.0).gpus_away == {"train": ("GPU-0",)}


@pytest.mark.engine
def test_a_process_on_a_gpu_is_told_with_its_container(rig: Rig, nvml: Stub) -> None:
    found = rig.start(job_spec("on-gpu"))
    pid = rig.client.inspect_container(found.container_id)["State"]["Pid"]
    nvml.show(Scenario((Gpu("GPU-a", processes=(Process(pid, GIB, 40), Process(1, GIB))),)))
    rig.reopen()  # an agent that did not look for a driver yet

    def seen_on_gpu(seen: Observation) -> bool:
        return bool(gpus_of(seen)) and fact(seen, "on-gpu") is not None

    init, ours = gpus_of(rig.until(seen_on_gpu))[0].processes
    assert (init.pid, init.container_id) == (1, None)
    assert (ours.pid, ours.container_id, ours.busy_ratio) == (pid, found.container_id, 0.4)
