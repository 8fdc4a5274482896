"""The machine; and NVML, as dlsched reads it, against nvidia-smi and what was started."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

from benchmarks.gpu.truth.asked import Asked, NotRun, Tell, opened_nvml, output, program, table
from benchmarks.gpu.truth.sharing import jobs_of

MIB = 1 << 20
USED_BYTES, BUSY_RATIO = 64 * MIB, 0.2
"""Smaller differences come from the time between two readings."""
_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
_COLUMNS = {
    "name": "name",
    "uuid": "uuid",
    "driver": "driver_version",
    "memory_bytes": "memory.total",
    "memory_used_bytes": "memory.used",
    "compute_mode": "compute_mode",
    "mig": "mig.mode.current",
    "busy_ratio": "utilization.gpu",
}
"""Names of figures, and what nvidia-smi calls them."""
_NUMBERS = ("memory_bytes", "memory_used_bytes", "busy_ratio")
HELD_BYTES = 1 << 30
"""Allocated by the training whose memory is compared."""


def value(nvml: ModuleType, call: Callable[..., Any], *args: Any) -> Any:
    """NVML's answer; None: it has none."""
    try:
        return call(*args)
    except nvml.NVMLError:
        return None


def gpus_by_nvml(nvml: ModuleType) -> list[dict[str, Any]]:
    """All GPUs, by the calls that dlsched makes."""
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = value(nvml, nvml.nvmlDeviceGetMemoryInfo, gpu)
        rates = value(nvml, nvml.nvmlDeviceGetUtilizationRates, gpu)
        mode = value(nvml, nvml.nvmlDeviceGetComputeMode, gpu)
        mig = value(nvml, nvml.nvmlDeviceGetMigMode, gpu)
        found.append(
            {
                "name": value(nvml, nvml.nvmlDeviceGetName, gpu),
                "uuid": value(nvml, nvml.nvmlDeviceGetUUID, gpu),
                "driver": value(nvml, nvml.nvmlSystemGetDriverVersion),
                "memory_bytes": memory and memory.total,
                "memory_used_bytes": memory and memory.used,
                "compute_mode": None if mode is None else _MODES[mode],
                "mig": None if mig is None else ("Disabled", "Enabled")[mig[0]],
                "busy_ratio": rates and rates.gpu / 100,
            }
        )
    return found


def gpus_by_smi(smi: str) -> list[dict[str, Any]]:
    """All GPUs, by nvidia-smi."""
    query = ",".join(_COLUMNS.values())
    text = output(smi, f"--query-gpu={query}", "--format=csv,noheader,nounits")
    return [
        {name: _figure(name, cell) for name, cell in row.items()}
        for row in table(text, tuple(_COLUMNS))
    ]


def _figure(name: str, cell: str) -> Any:
    if cell.startswith("["):  # [N/A]
        return None
    if name not in _NUMBERS:
        return cell
    with suppress(ValueError):
        return float(cell) / 100 if name == "busy_ratio" else round(float(cell) * MIB)
    return None


def differences(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[str]:
    """What NVML and nvidia-smi say differently, a line each."""
    lines = [] if len(ours) == len(theirs) else [f"GPUs: {len(ours)}, nvidia-smi {len(theirs)}"]
    for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        near = {"memory_bytes": MIB, "memory_used_bytes": USED_BYTES, "busy_ratio": BUSY_RATIO}
        lines += [
            f"GPU {index}: {name} {one.get(name)}, nvidia-smi {other.get(name)}"
            for name in _COLUMNS
            if not _same(one.get(name), other.get(name), near.get(name))
        ]
    return lines


def _same(mine: Any, its: Any, most: float | None) -> bool:
    """Whether both are equal or, where numbers may differ by so much, near."""
    return mine == its or (None not in (mine, its, most) and abs(mine - its) <= most)


def machine(_: Asked, tell: Tell) -> None:
    """Each fact by itself: None where it cannot be had."""
    tell(
        cpus=len(os.sched_getaffinity(0)),
        kernel=platform.release(),
        python=platform.python_version(),
    )
    gpu = driver = None
    with suppress(NotRun):
        nvml = opened_nvml()
        driver = nvml.nvmlSystemGetDriverVersion()
        gpu = nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0))
    tell(gpu=gpu, driver=driver)
    version = cuda = None
    with suppress(ImportError):
        import torch

        version, cuda = torch.__version__, torch.version.cuda
    tell(torch=version, cuda=cuda)


def inventory(_: Asked, tell: Tell) -> None:
    """Each GPU's facts from both, and where they differ."""
    nvml = opened_nvml()
    ours = gpus_by_nvml(nvml)
    tell(gpus=ours)
    theirs = gpus_by_smi(program("nvidia-smi"))
    tell(nvidia_smi=theirs, differences=differences(ours, theirs))


def processes_by_nvml(nvml: ModuleType) -> dict[int, dict[str, Any]]:
    """Processes on the first GPU, by PID, by the calls that dlsched makes."""
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    running = value(nvml, nvml.nvmlDeviceGetComputeRunningProcesses_v3, gpu) or ()
    since_us = int((time.time() - 2.0) * 1e6)
    samples = value(nvml, nvml.nvmlDeviceGetProcessUtilization, gpu, since_us)
    busy = {one.pid: one.smUtil / 100 for one in samples or ()}
    return {
        one.pid: {
            "memory_bytes": one.usedGpuMemory,
            "busy_ratio": None if samples is None else busy.get(one.pid, 0.0),
        }
        for one in running
    }


def processes_by_smi(smi: str) -> dict[int, dict[str, Any]]:
    """Processes by nvidia-smi, by PID."""
    query = "--query-compute-apps=pid,used_memory"
    text = output(smi, query, "--format=csv,noheader,nounits")
    return {
        int(row["pid"]): {"memory_bytes": _figure("memory_bytes", row["memory"])}
        for row in table(text, ("pid", "memory"))
    }


def processes(asked: Asked, tell: Tell) -> None:
    """A training with a known PID and memory: whether NVML and nvidia-smi know it, and its end."""
    nvml = opened_nvml()
    asked.torch_or_not_run()
    smi = shutil.which("nvidia-smi")
    with jobs_of(asked) as start:
        training = start("training", f"--hold={HELD_BYTES}", f"--seconds={6 * asked.scale}")
        reserved_bytes = training.ready["reserved_bytes"]
        tell(started_pid=training.pid, started_reserved_bytes=reserved_bytes)
        training.go()
        time.sleep(3 * asked.scale)  # the driver samples use once a second
        ours = processes_by_nvml(nvml)
        tell(by_nvml=_listed(ours), device_busy_ratio=gpus_by_nvml(nvml)[0]["busy_ratio"])
        theirs = None if smi is None else processes_by_smi(smi)
        training.answer()
    ended_s = time.monotonic()
    while training.pid in processes_by_nvml(nvml) and time.monotonic() < ended_s + 5:
        time.sleep(0.02)
    tell(
        listed_after_end_s=time.monotonic() - ended_s,
        by_nvidia_smi=None if theirs is None else _listed(theirs),
        differences=process_differences(training.pid, reserved_bytes, ours, theirs),
    )


def process_differences(
    started: int,
    reserved_bytes: int,
    ours: Mapping[int, Mapping[str, Any]],
    theirs: Mapping[int, Mapping[str, Any]] | None,
) -> list[str]:
    """What NVML says of the process that was started, and nvidia-smi of all, that is not so."""
    lines = [f"NVML lists {pid}, which was not started here" for pid in ours if pid != started]
    if started not in ours:
        lines.append(f"NVML does not list {started}, which was started here")
    elif (held := ours[started]["memory_bytes"]) is None or held < reserved_bytes:
        lines.append(f"NVML: {held} bytes, of which torch alone has reserved {reserved_bytes}")
    elif not ours[started]["busy_ratio"]:
        lines.append(f"NVML: use of {started}, which computes: {ours[started]['busy_ratio']}")
    if theirs is None:
        return [*lines, "nvidia-smi is missing: nothing to compare with"]
    lines += [f"{pid}: listed by one of both alone" for pid in sorted(set(ours) ^ set(theirs))]
    for pid in sorted(set(ours) & set(theirs)):
        mine, its = ours[pid]["memory_bytes"], theirs[pid]["memory_bytes"]
        if not _same(mine, its, USED_BYTES):
            lines.append(f"{pid}: NVML {mine} bytes, nvidia-smi {its}")
    return lines


def _listed(found: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"pid": pid, **facts} for pid, facts in sorted(found.items())]
