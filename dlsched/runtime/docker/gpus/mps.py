"""CUDA MPS: whether its control daemon runs here, and what makes a container its client.

From a client's start MPS enforces a percentage of a GPU's threads and a limit of pinned device
memory. Both are fixed then, so they are the job's maximum.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dlsched.control.gpus.placement import is_alone, memory_on
from dlsched.model.facts import GpuFact
from dlsched.model.spec import JobSpec
from dlsched.runtime.cgroup.read import PROC

DEFAULT_PIPES = Path("/tmp/nvidia-mps")
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_PID_FILE = "nvidia-cuda-mps-control.pid"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MpsClient:
    """Container settings of an MPS client, and what is enforced."""

    pipes: Path
    """Bound to the same path; client and server also share the host's IPC namespace."""
    threads_percent: int | None
    """Of each of its GPUs; None: not bounded."""
    memory_bytes: int | None
    """On each of its GPUs; None: not bounded."""
    devices: int = 1

    @property
    def environment(self) -> dict[str, str]:
        """Variables that CUDA in the container reads at its start."""
        variables = {_PIPES: str(self.pipes)}
        if self.threads_percent is not None:
            variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(self.threads_percent)
        if self.memory_bytes is not None:
            # By the GPU's index in the container.
            each = (f"{index}={self.memory_bytes // _MIB}M" for index in range(self.devices))
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(each)
        return variables


def paced(share: float | None, threads_percent: int | None) -> float | None:
    """The fraction of time in which a job may use its GPUs, so as to have that share of them. A job
    that never pauses has the share that MPS leaves it of their threads."""
    if share is None or threads_percent is None:
        return share
    return min(1.0, 100 * share / threads_percent)


def share_of(paced: float | None, threads_percent: int | None) -> float | None:
    """The share of its GPUs that a job has with that fraction of time."""
    if paced is None or threads_percent is None:
        return paced
    return paced * threads_percent / 100


def running_pipes(environment: Mapping[str, str], proc: Path = PROC) -> Path | None:
    """The pipe directory of the control daemon that runs here, or None. Another user's daemon
    serves that user only, and any user may create such a folder in /tmp."""
    pipes = Path(environment.get(_PIPES) or DEFAULT_PIPES)
    try:
        folder, control = pipes.lstat(), (pipes / "control").lstat()
    except OSError:
        return None
    if not {folder.st_uid, control.st_uid} <= {0, os.geteuid()}:
        return None
    is_pipe = stat.S_ISFIFO(control.st_mode) or stat.S_ISSOCK(control.st_mode)
    if not (stat.S_ISDIR(folder.st_mode) and is_pipe):
        return None
    try:
        pid = int((pipes / _PID_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return pipes
    # The remains of a killed daemon would keep a job from starting.
    return pipes if (proc / str(pid)).exists() else None


def client_of(spec: JobSpec, pipes: Path, gpus: Iterable[GpuFact]) -> MpsClient | None:
    """How that job becomes a client on those GPUs; None: they are not shared, or are instances."""
    gpus = tuple(gpus)
    if is_alone(spec) or not gpus or any(gpu.part_of is not None for gpu in gpus):
        return None
    # Rounded up: a percentage below the share would read back as less than decided.
    percent = math.ceil(100 * spec.bounds.ceiling_share - 1e-9)
    return MpsClient(
        pipes,
        percent if percent < 100 else None,
        min(memory_on(spec, gpu.memory_bytes) for gpu in gpus),
        len(gpus),
    )
