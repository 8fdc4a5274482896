"""`fit_to_allotment()`: torch, OpenMP and BLAS get as many threads as granted cores, and torch the
granted GPU memory. It never imports torch or raises, and reads the allotment only when the file has
changed."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from typing import Any, Dict, NamedTuple, Optional

from dlsched.report.granted import Grant

OURS = "DLSCHED_THREADS"
"""Variable with the OMP_NUM_THREADS that dlsched set, which is no choice of the program's."""

_NEARLY_CORES = 0.1
"""A thread may lack so much of its core, as where a reserve leaves 1.95 of two."""


class Fit(NamedTuple):
    """What suits the cores that the job may use now."""

    threads: int
    """Threads to compute with; torch, OpenMP and BLAS are set to it."""
    cores: float
    """The granted cores; the usable CPUs where fewer, or where nothing is granted."""
    workers: int
    """For `DataLoader(num_workers=...)`: one for each whole core beyond the first."""
    gpu_memory_bytes: Optional[int] = None
    """Memory of each GPU that torch may use; None: all, or it cannot be set."""


def fit_to_allotment(at_most: Optional[int] = None) -> Fit:
    """Set the threads of torch, OpenMP and BLAS to what the granted cores allow; cheap enough for
    every step.

    Those of OpenMP and BLAS need `threadpoolctl`, which scikit-learn brings along; an OpenMP's are
    those of the calling thread. Libraries see the CPUs of a process, not its quota
    (pytorch#64864): with more threads than cores the quota is spent early in each period, and then
    all of them stop. The number is that of whole granted cores, at least 1 (see `threads_for`), and
    at most `at_most`, the CPUs of the process's affinity, and each library's number at the first
    call, unless dlsched had set that. It grows again with the allotment. Without an allotment all
    stay as they are.

    If the job is granted a part of its GPUs' memory, torch raises its `OutOfMemoryError` beyond
    that. Each process bounds itself, which initialises CUDA: call it where the work is done, and
    not before that process is forked.
    """
    with contextlib.suppress(Exception):
        return _fitter.fit(at_most)
    return Fit(1, 1.0, 0)


def threads_for(cores: float) -> int:
    """Threads that suit that many cores: a whole core for each, at least one.

    Measured on two cores at a quota of 1.5, steps a second with one and with two threads. A quiet
    host, torch 2.13: wide CNN 5.5 and 7.3, small CNN 133 and 111, MLP 20.2 and 19.2. A host that
    others use, too: small CNN 53 and 9 (37 if they wait without spinning), MLP 187 and 12 (160),
    OpenBLAS 844 and 106, ONNX Runtime 135 and 68 (117). So a thread with half a core brings a third
    at best, and costs up to nine tenths.
    """
    return max(1, math.floor(cores + _NEARLY_CORES))


class _Fitter:
    """The last allotment, and what was set in torch."""

    def __init__(self) -> None:
        self._grant = Grant()
        self._torch: Any = None
        self._torch_had = 0
        self._set = 0
        self._pools_set = 0
        self._pools_had: Dict[str, int] = {}
        """Most threads of each library, by its path."""
        self._memory_bytes: Optional[int] = None

    def fit(self, at_most: Optional[int]) -> Fit:
        allotment = self._grant.poll()
        self._see_torch()
        usable = _usable_cpus()
        most = usable if at_most is None else min(usable, max(1, int(at_most)))
        if self._torch is not None:
            most = min(most, self._torch_had)
        granted = None if allotment is None else allotment.cpu_cores
        cores = float(usable if granted is None else min(granted, usable))
        threads = min(most, threads_for(cores))
        if allotment is not None and threads != self._pools_set:
            self._pools_set = threads
            with contextlib.suppress(Exception):
                self._set_pools(threads)
        # Last: its OpenMP is one of the pools, and may have been loaded since.
        if self._torch is not None and allotment is not None and threads != self._set:
            self._torch.set_num_threads(threads)
            self._set = threads
        memory_bytes = None if allotment is None else allotment.gpu_memory_bytes
        if self._torch is not None and memory_bytes != self._memory_bytes:
            with contextlib.suppress(Exception):
                _cap_memory(self._torch.cuda, memory_bytes)
                self._memory_bytes = memory_bytes
        return Fit(threads, cores, max(0, int(cores) - 1), self._memory_bytes)

    def _see_torch(self) -> None:
        torch = sys.modules.get("torch")
        # torch lacks these while it is being imported.
        if self._torch is None and hasattr(torch, "set_num_threads"):
            self._set = int(torch.get_num_threads())  # type: ignore[union-attr]
            self._torch_had = _most(self._set)
            self._torch = torch

    def _set_pools(self, threads: int) -> None:
        """Set every OpenMP and BLAS that is loaded, if threadpoolctl is there to find them."""
        from threadpoolctl import ThreadpoolController  # type: ignore[import-not-found]

        for pool in ThreadpoolController().lib_controllers:
            most = self._pools_had.setdefault(pool.filepath, _most(pool.num_threads))
            pool.set_num_threads(min(threads, most))


def _most(threads: int) -> int:
    """The most threads of a library that has so many: no more, if the program chose them."""
    return _usable_cpus() if os.environ.get(OURS) == str(threads) else threads


def _cap_memory(cuda: Any, most_bytes: Optional[int]) -> None:
    """Limit torch to that much of each visible GPU; None: no limit."""
    if not cuda.is_available():
        raise LookupError("no GPU")
    for device in range(cuda.device_count()):
        fraction = 1.0
        if most_bytes is not None:
            total_bytes = cuda.get_device_properties(device).total_memory
            fraction = min(1.0, max(0, most_bytes) / total_bytes)
        cuda.set_per_process_memory_fraction(fraction, device)


def _usable_cpus() -> int:
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


_fitter = _Fitter()
