"""What a container's facts say of its GPUs, and of what is enforced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dlsched.model.facts import ContainerFact, GpuAccess, GpuFact
from dlsched.model.spec import JobSpec, Limits
from dlsched.runtime.allotment import Allotment, job_dir, write_allotment
from dlsched.runtime.docker.gpus.canary import Canary, GpuContainer, Probe
from dlsched.runtime.docker.gpus.enforcement import gpu_alarms, with_gpus
from tests.doubles import texts
from tests.runtime.machine.described import RUNNING

DEVICES = (GpuFact("GPU-a", 0, "Model", 1 << 34), GpuFact("GPU-b", 1, "Model", 1 << 34))
CDI = "CDI: the job can open only its own GPUs"
OWN = replace(RUNNING, job="job", gpus=("GPU-b",), gpu_access=GpuAccess.CDI)
FACT = ContainerFact("job", "c", RUNNING.state, "", "", actual=Limits(0.5))


def blind() -> Canary:
    return Canary(lambda _: Probe(frozenset(), frozenset({"/dev/nvidia0"})))


def test_without_gpus_nothing_is_said(tmp_path: Path) -> None:
    assert with_gpus(FACT, RUNNING, DEVICES, blind(), tmp_path) is FACT


def test_its_share_is_what_its_job_was_last_told(tmp_path: Path) -> None:
    seen = with_gpus(FACT, OWN, DEVICES, blind(), tmp_path)
    assert (seen.gpus, seen.gpu_access) == (("GPU-b",), GpuAccess.CDI)
    assert seen.actual == Limits(0.5, None)
    write_allotment(job_dir(tmp_path, "job"), Allotment(gpu_share=0.25))
    assert with_gpus(FACT, OWN, DEVICES, blind(), tmp_path).actual == Limits(0.5, 0.25)


def test_under_mps_its_job_is_told_how_much_of_that_it_may_use(tmp_path: Path) -> None:
    write_allotment(job_dir(tmp_path, "job"), Allotment(gpu_share=0.5))
    shared = replace(OWN, mps_threads_percent=50)
    assert with_gpus(FACT, shared, DEVICES, blind(), tmp_path).actual == Limits(0.5, 0.25)


def test_of_one_that_somebody_else_made_the_words_are_read(tmp_path: Path) -> None:
    write_allotment(job_dir(tmp_path, "job"), Allotment(gpu_share=0.25))
    spec = JobSpec("job", None)  # type: ignore[arg-type]
    theirs = replace(OWN, gpus=("all",), adopted=spec, gpu_access=GpuAccess.LEGACY)
    seen = with_gpus(FACT, theirs, DEVICES, blind(), tmp_path)
    assert seen.gpus == ("GPU-a", "GPU-b")
    assert seen.actual.gpu_share is None


def test_what_is_enforced_and_by_what(tmp_path: Path) -> None:
    seen = with_gpus(FACT, OWN, DEVICES, blind(), tmp_path)
    assert dict(seen.gpu_enforced) == {"devices": CDI, "cpu": "the engine"}
    shared = replace(OWN, mps_threads_percent=50, mps_memory_bytes=8 << 30)
    seen = with_gpus(FACT, shared, DEVICES, blind(), tmp_path)
    assert dict(seen.gpu_enforced) == {
        "devices": CDI,
        "time": "MPS: 50 % of a GPU's threads, set at the job's start",
        "memory": "MPS: 8 GiB on each GPU, set at the job's start",
        "cpu": "the engine",
    }
    legacy = replace(OWN, gpu_access=GpuAccess.LEGACY)
    seen = with_gpus(FACT, legacy, DEVICES, blind(), tmp_path)
    assert dict(seen.gpu_enforced) == {
        "devices": "NVIDIA hook in legacy mode: the job can open only its own GPUs",
        "cpu": "dlsched, through the container's control group",
    }


def test_a_loss_is_that_of_this_start(tmp_path: Path) -> None:
    canary = blind()
    canary.check(GpuContainer(OWN.container_id, "name", OWN.pid, GpuAccess.CDI, ("/dev/nvidia0",)))
    seen = with_gpus(FACT, OWN, DEVICES, canary, tmp_path)
    assert seen.gpu_lost == "the container may not open /dev/nvidia0 any more"
    again = replace(OWN, pid=OWN.pid + 1)
    assert with_gpus(FACT, again, DEVICES, canary, tmp_path).gpu_lost is None


def test_what_is_wrong_with_gpus_is_an_alarm_each() -> None:
    canary = blind()
    canary.check(GpuContainer(OWN.container_id, "name", OWN.pid, GpuAccess.CDI, ("/dev/nvidia0",)))
    gpus = (DEVICES[0], replace(DEVICES[1], trouble="fell off the bus"))
    driver, lost, taken = texts(gpu_alarms(gpus, "no driver", (RUNNING, OWN), canary))
    assert driver == "gpu: no driver"
    assert lost.startswith("gpu: GPU 1 (GPU-b): fell off the bus")
    assert taken.startswith("gpu: job: the container may not open /dev/nvidia0 any more: set gpus.")
    assert gpu_alarms(DEVICES, None, (RUNNING,), canary) == ()
