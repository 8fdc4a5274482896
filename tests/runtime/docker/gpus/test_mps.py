"""CUDA MPS: found by its control daemon's pipe directory, and what its clients are made with."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dlsched.model.facts import GpuFact
from dlsched.model.spec import Bounds, ContainerSpec, JobSpec
from dlsched.runtime.docker.gpus.injection import client_of, paced, running_pipes, share_of

GIB = 1 << 30


@pytest.fixture
def pipes(tmp_path: Path) -> Path:
    """What a control daemon makes."""
    folder = tmp_path / "nvidia-mps"
    folder.mkdir()
    os.mkfifo(folder / "control")
    (folder / "nvidia-cuda-mps-control.pid").write_text("77\n")
    (tmp_path / "proc/77").mkdir(parents=True)
    return folder


def found(pipes: Path) -> Path | None:
    return running_pipes({"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}, pipes.parent / "proc")


def job(share: tuple[float, float], memory_bytes: int | None = None, gpus: int = 1) -> JobSpec:
    container = ContainerSpec("image", gpus=gpus, gpu_memory_bytes=memory_bytes)
    return JobSpec("job", container, Bounds(floor_share=share[0], ceiling_share=share[1]))


def gpu(uuid: str, memory_bytes: int = 16 * GIB, part_of: str | None = None) -> GpuFact:
    return GpuFact(uuid, 0, "Model", memory_bytes, part_of=part_of)


def test_it_runs_where_its_control_node_is_and_its_daemon_lives(pipes: Path) -> None:
    assert found(pipes) == pipes
    (pipes / "nvidia-cuda-mps-control.pid").unlink()
    assert found(pipes) == pipes


def test_a_folder_that_anybody_can_make_is_no_daemons(pipes: Path) -> None:
    """The jobs' own CUDA would speak to whoever made it, and be in the host's IPC namespace."""
    link = pipes.parent / "link"
    link.symlink_to(pipes)
    assert running_pipes({"CUDA_MPS_PIPE_DIRECTORY": str(link)}, pipes.parent / "proc") is None
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(pipes / "control", 65534, 65534)
    assert found(pipes) is None
    os.chown(pipes / "control", 0, 0)
    assert found(pipes) == pipes
    os.chown(pipes, 65534, 65534)
    assert found(pipes) is None


def test_a_socket_will_do_as_well(pipes: Path) -> None:
    (pipes / "control").unlink()
    os.mknod(pipes / "control", 0o600 | stat.S_IFSOCK)
    assert found(pipes) == pipes


def test_what_a_killed_daemon_leaves_behind_is_none(pipes: Path) -> None:
    (pipes.parent / "proc/77").rmdir()
    assert found(pipes) is None


def test_other_folders_are_none(pipes: Path) -> None:
    assert found(pipes / "none") is None
    (pipes / "control").unlink()
    assert found(pipes) is None
    (pipes / "control").write_text("")
    assert found(pipes) is None


def test_a_job_that_shares_is_held_to_its_ceiling_and_its_memory(pipes: Path) -> None:
    client = client_of(job((0.25, 0.5), 8 * GIB), pipes, [gpu("a")])
    assert (client.threads_percent, client.memory_bytes) == (50, 8 * GIB)
    assert client.environment == {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
    }


def test_memory_that_is_not_asked_for_is_its_part_of_the_smallest_gpu(pipes: Path) -> None:
    client = client_of(job((0.25, 1.0), gpus=2), pipes, [gpu("a"), gpu("b", 8 * GIB)])
    assert client.threads_percent is None  # it may have all of the time: nothing to enforce
    assert client.environment == {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2048M,1=2048M",
    }


def test_what_mps_enforces_is_not_rested_away_as_well() -> None:
    """At its ceiling it never rests; below, it rests for the part that it has to give up."""
    cases = ((0.5, 50, 1.0), (0.25, 50, 0.5), (0.5, None, 0.5), (None, 50, None), (0.6, 50, 1.0))
    for share, percent, part in cases:
        assert paced(share, percent) == part
    for share, percent in ((0.5, 50), (0.25, 50), (0.07, 33), (0.4, None), (None, 50)):
        back = share_of(paced(share, percent), percent)
        assert back == (None if share is None else pytest.approx(share))


def test_who_is_alone_or_on_an_instance_is_no_client(pipes: Path) -> None:
    assert client_of(job((1.0, 1.0)), pipes, [gpu("a")]) is None
    assert client_of(job((0.5, 0.5)), pipes, [gpu("MIG-a", part_of="GPU-a")]) is None
    assert client_of(job((0.5, 0.5)), pipes, []) is None


def test_the_percentage_of_threads_is_never_below_the_share(pipes: Path) -> None:
    client = client_of(job((0.125, 0.125)), pipes, [gpu("a")])
    assert client.threads_percent == 13
    assert paced(0.125, client.threads_percent) == 0.125 * 100 / 13
