"""What a container is created with: a job's spec as the engine's create call, and threads that fit.
Pure. Volumes and ports were checked with the job's file.

A library counts the host's CPUs; it sees no limit. With more threads than it has CPU those that
wait for each other use up the limit by spinning. So variables have libraries start as many threads
as a job may use CPUs."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from docker.utils import convert_port_bindings
from docker.utils.ports import build_port_bindings

from dlsched.control.checkpoint_volume import volume_parts
from dlsched.model.spec import ContainerSpec, Healthcheck, JobSpec, Limits, Restart
from dlsched.report.fitting import OURS, threads_for
from dlsched.runtime.cgroup.cpu_units import PERIOD_US, quota_us
from dlsched.runtime.confinement import Confinement
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.injection import NO_GPUS, Injection, MpsClient

Count = Literal["cpus", "cores"]
"""Threads for the CPUs that the job may use; of "cores" at most one for each physical core."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable that a container gets, unless its owner has set it."""

    name: str
    value: Count | str
    read_by: str
    evidence: str
    same: tuple[str, ...] = ()
    """Variables that say the same to a library: where the owner set one, this one is not set."""


VARIABLES = (
    Variable(
        "OMP_NUM_THREADS",
        "cpus",
        "OpenMP (libgomp, libomp), and with it PyTorch; OpenBLAS, MKL, BLIS and numexpr where "
        "their own variable is missing",
        "measured: benchmarks/results/threads.json",
    ),
    Variable(
        "OMP_WAIT_POLICY",
        "passive",
        "OpenMP (libgomp, libomp)",
        "measured with libgomp: benchmarks/results/threads.json; in libomp it implies "
        "KMP_BLOCKTIME=0 (LLVM D18577)",
        ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"),
    ),
    Variable(
        "ORT_INTRA_OP_NUM_THREADS",
        "cores",
        "ONNX Runtime since July 2026, where the program sets no number",
        "measured with 1.32; microsoft/onnxruntime#29688",
    ),
    Variable(
        "LLAMA_ARG_THREADS",
        "cores",
        "llama.cpp's server and tools, where no --threads is given",
        "llama-server(1), not measured",
    ),
)
"""What is set; without a limit only how threads wait.

OPENBLAS_NUM_THREADS and MKL_NUM_THREADS are not: they would take precedence over an OMP_NUM_THREADS
that the program sets itself. Ollama reads none (ollama/ollama#10476), and no variable ends the
spinning of OpenBLAS or ONNX Runtime.
"""


def fitting_threads(
    may_use_cores: float, host_cpus: int, host_cores: int, owned: Container[str]
) -> dict[str, str]:
    """The variables of a job that may use that much CPU on such a host, besides the `owned` ones.

    Where it may use the whole host, libraries choose the number of threads as ever.
    """
    threads = threads_for(may_use_cores)
    chosen = {}
    for one in VARIABLES:
        if one.name in owned or any(name in owned for name in one.same):
            continue
        if one.value not in ("cpus", "cores"):
            chosen[one.name] = one.value
        elif threads < host_cpus:
            chosen[one.name] = str(threads if one.value == "cpus" else min(threads, host_cores))
    if "OMP_NUM_THREADS" in chosen:
        chosen[OURS] = chosen["OMP_NUM_THREADS"]
    return chosen


_PROPAGATION = frozenset({"private", "rprivate", "shared", "rshared", "slave", "rslave"})
_RELABEL = frozenset({"z", "Z"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a container gets beside its spec."""

    environment: Mapping[str, str]
    """The whole environment: the spec's and the sidecar's."""
    labels: Mapping[str, str]
    cgroup_parent: str
    tmpfs: Mapping[str, str]
    """Options by path; the job writes its progress there."""
    read_only: Mapping[str, Path]
    """Host directories bound read-only, by their path in the container."""
    confined: Confinement | None = None
    """Restrictions of a user's container; None: it is the operator's."""
    gpus: Injection = NO_GPUS
    mps: MpsClient | None = None
    """How it shares its GPUs by MPS; None: without MPS."""


def create_body(spec: JobSpec, limits: Limits, shares: int | None, around: Surroundings) -> Body:
    """The body of the engine's create call; `shares` None: the engine's default."""
    container = spec.container
    ports = _ports(container.ports)
    return _without_none(
        {
            "Image": container.image,
            "Cmd": _list(container.command),
            "Entrypoint": _list(container.entrypoint),
            "Env": [f"{name}={value}" for name, value in around.environment.items()],
            "User": container.user,
            "WorkingDir": container.working_dir,
            "Labels": dict(around.labels),
            "ExposedPorts": {port: {} for port in ports} or None,
            "Healthcheck": _healthcheck(container.healthcheck),
            "StopSignal": spec.stop.signal,
            "HostConfig": _host_config(container, limits, shares, around, ports),
        }
    )


def restart_policy(restart: Restart) -> Body:
    retries = restart.max_retries if restart.name == "on-failure" else 0
    return {"Name": restart.name, "MaximumRetryCount": retries}


def restart_update(restart: Restart) -> Body:
    return {"RestartPolicy": restart_policy(restart)}


NO_RESTART = restart_update(Restart("no"))
"""For a container that is being stopped."""


def _host_config(
    container: ContainerSpec,
    limits: Limits,
    shares: int | None,
    around: Surroundings,
    ports: Mapping[str, Any],
) -> Body:
    mounts, binds = _mounts(container.volumes, shallow=around.confined is not None)
    for target, source in around.read_only.items():
        mounts.append(_bind(str(source), target, read_only=True))
    if around.mps is not None:
        pipes = str(around.mps.pipes)
        mounts.append(_bind(pipes, pipes, read_only=False))
    return _without_none(
        {
            "CpuPeriod": PERIOD_US,
            "CpuQuota": quota_us(limits.cpu_cores),
            "CpuShares": shares,
            "CgroupParent": around.cgroup_parent,
            "Memory": container.memory_bytes,
            "MemorySwap": container.memory_bytes,
            "Mounts": mounts,
            "Binds": binds or None,
            "Tmpfs": {**dict(one.partition(":")[::2] for one in container.tmpfs), **around.tmpfs},
            "RestartPolicy": restart_policy(container.restart),
            "PortBindings": ports or None,
            "NetworkMode": container.network,
            "ShmSize": container.shm_size_bytes,
            "Ulimits": [
                {"Name": limit.name, "Soft": limit.soft, "Hard": limit.hard}
                for limit in container.ulimits
            ]
            or None,
            "ExtraHosts": _list(container.extra_hosts) or None,
            "ReadonlyRootfs": container.read_only,
            "CapDrop": _list(container.cap_drop) or None,
            "LogConfig": {
                "Type": container.logging.driver,
                "Config": dict(container.logging.options),
            },
            "IpcMode": None if around.mps is None else "host",
            **around.gpus.host,
            **_confined(around.confined),
        }
    )


def _confined(bounds: Confinement | None) -> Body:
    """Limit the number of processes, and forbid gaining privileges."""
    if bounds is None:
        return {}
    return {"PidsLimit": bounds.pids, "SecurityOpt": ["no-new-privileges:true"]}


def _mounts(volumes: tuple[str, ...], *, shallow: bool) -> tuple[list[Body], list[str]]:
    """Mounts, whose missing sources the engine refuses, and binds for what mounts cannot express.

    `shallow`: a read-only bind leaves out file systems mounted below its source, which stay
    writable with older engines and kernels.
    """
    mounts: list[Body] = []
    binds: list[str] = []
    for volume in volumes:
        one = volume_parts(volume)
        if _RELABEL.intersection(one.mode):
            binds.append(volume)
        elif one.is_bind:
            mount = _bind(one.source, one.target, read_only=not one.writable)
            if propagation := _PROPAGATION.intersection(one.mode):
                mount["BindOptions"] = {"Propagation": min(propagation)}
            elif shallow and not one.writable:
                mount["BindOptions"] = {"NonRecursive": True}
            mounts.append(mount)
        else:
            mounts.append(
                {
                    "Type": "volume",
                    "Source": one.source,
                    "Target": one.target,
                    "ReadOnly": not one.writable,
                    "VolumeOptions": {"NoCopy": "nocopy" in one.mode},
                }
            )
    return mounts, binds


def _bind(source: str, target: str, *, read_only: bool) -> Body:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}


def _ports(ports: tuple[str, ...]) -> dict[str, Any]:
    return dict(convert_port_bindings(build_port_bindings(list(ports))))


def _healthcheck(check: Healthcheck | None) -> Body | None:
    if check is None:
        return None
    return _without_none(
        {
            "Test": list(check.test),
            "Interval": _nanoseconds(check.interval_s),
            "Timeout": _nanoseconds(check.timeout_s),
            "StartPeriod": _nanoseconds(check.start_period_s),
            "Retries": check.retries,
        }
    )


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


def _list(values: tuple[str, ...] | None) -> list[str] | None:
    return None if values is None else list(values)


def _without_none(body: Body) -> Body:
    return {name: value for name, value in body.items() if value is not None}
