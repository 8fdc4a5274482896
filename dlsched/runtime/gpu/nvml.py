"""Finds `pynvml`, and explains its errors. On a host without the driver's library nothing is
imported."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any, cast

from dlsched.model.facts import GpuFact

LIBRARY = "libnvidia-ml.so.1"

# NVML's return codes.
SUCCESS = 0
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
NO_DATA = 21

ABSENT = frozenset({DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND})
"""Errors of a host without GPUs or driver: not a problem."""

UNAVAILABLE = frozenset({NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND, NO_DATA})
"""Errors of one figure that this device or driver does not provide."""

Nvml = ModuleType
"""`pynvml`, which has no types of its own."""

_LOST = "the GPU fell off the bus (GPU is lost)"
_RESET = "the GPU needs a reset"
NO_MEMORY = "the driver does not report the GPU's memory"
NO_INSTANCE = "MIG is on, and the GPU has no instance"
_REMEDIES = {
    _LOST: "look for Xid in `dmesg`; run `nvidia-smi --gpu-reset`, or reboot",
    _RESET: "run `nvidia-smi --gpu-reset`, or reboot",
    NO_INSTANCE: "run `nvidia-smi mig -cgi`, or switch MIG off",
}


def remedy(gpu: GpuFact) -> str:
    """What to do about a GPU's failure; empty where unknown."""
    return _REMEDIES.get(gpu.trouble or "", "")


def load() -> Nvml | None:
    """The `pynvml` module; None: this host has no driver library."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    # Imported late, since it takes 5 MiB and 40 ms.
    import pynvml

    return cast(Nvml, pynvml)


def code(error: Any) -> int:
    return int(error.value)


def describe(error: Exception) -> str:
    number = code(error)
    if number == GPU_IS_LOST:
        return _LOST
    if number == RESET_REQUIRED:
        return _RESET
    if number == VERSION_MISMATCH:
        return (
            "the driver in the kernel and its library have different versions, as after an upgrade:"
            " reload the kernel modules or reboot, then restart dlsched"
        )
    return f"{error} (NVML code {number})"
