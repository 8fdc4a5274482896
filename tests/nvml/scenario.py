"""What the stand-in for NVML tells: GPUs, their processes, and what fails, written for stub.c.

Owns the scenario file's text. It must not know dlsched: codes and figures are NVML's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

SCENARIO = "DLSCHED_NVML_SCENARIO"
"""Environment variable with the path of the scenario file."""

GIB = 1 << 30
RESERVED_BYTES = 640 << 20
"""What the stand-in's driver keeps of each device for itself, beside what is said of it here."""

# NVML's return codes, of which its own words are longer.
NOT_SUPPORTED = 3
NO_PERMISSION = 4
GPU_IS_LOST = 15
VERSION_MISMATCH = 18
UNKNOWN = 999

DEFAULT, PROHIBITED, EXCLUSIVE_PROCESS = 0, 2, 3
"""NVML's compute modes."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a GPU; None: NVML cannot tell."""

    pid: int
    memory_bytes: int | None = None
    sm_percent: int | None = None
    graphics: bool = False


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance of a GPU."""

    uuid: str
    gpu_instance: int
    compute_instance: int = 0
    name: str = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    memory_bytes: int = 5 * GIB
    used_bytes: int = 0
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; None: NVML says that it is not supported."""

    uuid: str
    name: str = "NVIDIA A100-SXM4-40GB"
    minor: int = 0
    memory_bytes: int = 40 * GIB
    used_bytes: int | None = 0
    busy_percent: int | None = 0
    compute_mode: int = DEFAULT
    numa_node: int | None = 0
    instances: tuple[Instance, ...] | None = None
    """None: MIG is off."""
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A function of NVML, or all that begin like `name*`, that returns `code`; for one device, or
    every one."""

    function: str
    code: int
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that the driver would tell."""

    gpus: tuple[Gpu, ...] = ()
    failures: tuple[Failure, ...] = ()
    hangs: tuple[str, ...] = ()
    """Functions that do not return as long as they stand here."""
    driver: str = "550.54.15"
    life: int = 1
    """Another number: the driver was loaded anew, and nothing that was opened is valid."""


@dataclass(slots=True)
class _Lines:
    lines: list[str] = field(default_factory=list)

    def add(self, *values: str | int | None) -> None:
        self.lines.append("\t".join("-1" if value is None else str(value) for value in values))


def render(scenario: Scenario) -> str:
    """The scenario file's text; its format is told in stub.c."""
    out = _Lines()
    out.add("driver", scenario.driver)
    out.add("life", scenario.life)
    for failure in scenario.failures:
        only = () if failure.uuid is None else (failure.uuid,)
        out.add("fail", failure.function, failure.code, *only)
    for function in scenario.hangs:
        out.add("hang", function)
    for gpu in scenario.gpus:
        used, busy, mig = gpu.used_bytes, gpu.busy_percent, int(gpu.instances is not None)
        figures = (gpu.memory_bytes, used, busy, gpu.compute_mode, gpu.numa_node, mig)
        out.add("gpu", gpu.uuid, gpu.name, gpu.minor, *figures)
        _add_processes(out, gpu.uuid, gpu.processes)
        for one in gpu.instances or ():
            ids = (one.gpu_instance, one.compute_instance)
            out.add("mig", gpu.uuid, one.uuid, one.name, *ids, one.memory_bytes, one.used_bytes)
            _add_processes(out, one.uuid, one.processes)
    return "\n".join(out.lines) + "\n"


def _add_processes(out: _Lines, uuid: str, processes: tuple[Process, ...]) -> None:
    for one in processes:
        kind = "graphics" if one.graphics else "compute"
        out.add("process", uuid, one.pid, one.memory_bytes, one.sm_percent, kind)


def write(path: Path, scenario: Scenario) -> None:
    """Put it in force from the next call on, whole: a call finds the old file or the new one."""
    fresh = path.with_suffix(".fresh")
    fresh.write_text(render(scenario), encoding="utf-8")
    fresh.replace(path)
