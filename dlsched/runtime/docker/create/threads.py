"""Threads that fit: the variables by which libraries start as many threads as a job may use CPUs.

A library counts the host's CPUs; it sees no limit. With more threads than it has CPU those that
wait for each other use up the limit by spinning. Pure.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from dlsched.report.fitting import OURS, threads_for

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
