"""What a DockerRuntime tells of the host's GPUs, and whose their processes are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dlsched.model.facts import GpuFact, NodeFact, Observation
from dlsched.runtime.clock import SystemClock
from dlsched.runtime.docker.gpus.injection import GpuOptions
from dlsched.runtime.docker.options import DockerOptions
from dlsched.runtime.docker.runtime import DockerRuntime
from tests.doubles import texts
from tests.nvml.library import Stub
from tests.nvml.scenario import GIB, GPU_IS_LOST, VERSION_MISMATCH, Failure, Gpu, Scenario
from tests.waiting import until

pytestmark = pytest.mark.timed


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[DockerRuntime]:
    """Without an engine: GPUs are reported all the same."""
    options = DockerOptions(
        state_dir=tmp_path / "state",
        host=f"unix://{tmp_path}/absent.sock",
        call_wait_s=0.01,
        gpus=GpuOptions(device_folder=tmp_path / "dev"),
    )
    with closing(DockerRuntime(options, SystemClock(), lambda _: None)) as made:
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
