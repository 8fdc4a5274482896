"""A training suspended and resumed from outside, by the driver's checkpoint functions.

cuCheckpointProcessLock, Checkpoint, Restore and Unlock of libcuda (driver 570 and later) take a
PID and arguments that may be NULL.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.truth.asked import Asked, NotRun, Tell, opened_nvml
from benchmarks.gpu.truth.driver import gpus_by_nvml
from benchmarks.gpu.truth.sharing import SEED, jobs_of

LIBRARY = "libcuda.so.1"
STEPS, SUSPENDED_AT, EVERY = 400, 100, 5
PAUSE_S = 2.0
HELD_BYTES = 4 << 30
LOCK, CHECKPOINT, RESTORE, UNLOCK = FUNCTIONS = tuple(
    f"cuCheckpointProcess{act}" for act in ("Lock", "Checkpoint", "Restore", "Unlock")
)
LOCK_MS = 10_000
SUCCESS = "CUDA_SUCCESS"


class LockArguments(ctypes.Structure):
    """CUcheckpointLockArgs."""

    _fields_ = (
        ("timeoutMs", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class Checkpoints:
    """The driver's functions."""

    def __init__(self) -> None:
        """Raises `NotRun` where the driver is missing, or has no such functions."""
        try:
            self._cuda = ctypes.CDLL(LIBRARY)
        except OSError:
            raise NotRun(f"{LIBRARY} is missing") from None
        for name in FUNCTIONS:
            if not hasattr(self._cuda, name):
                raise NotRun(f"{LIBRARY} has no {name}: it came with driver 570")
        if code := self._cuda.cuInit(0):
            raise NotRun(f"cuInit: {self._name(code)}")

    def call(self, function: str, pid: int) -> tuple[float, str]:
        """Seconds, and the result's name: `SUCCESS`, or an error."""
        arguments = None
        if function == LOCK:  # without a bound it could wait for ever
            arguments = ctypes.byref(LockArguments(timeoutMs=LOCK_MS))
        began_s = time.monotonic()
        code = getattr(self._cuda, function)(ctypes.c_int(pid), arguments)
        return time.monotonic() - began_s, self._name(code)

    def _name(self, code: int) -> str:
        text = ctypes.c_char_p()
        if self._cuda.cuGetErrorName(code, ctypes.byref(text)) or text.value is None:
            return f"CUDA error {code}"
        return text.value.decode()


def cycle(
    checkpoints: Checkpoints, pid: int, used_bytes: Callable[[], int], pause_s: float
) -> dict[str, Any]:
    """Suspend that process, wait, and resume it; what each call took, and the memory between.

    A call that fails ends it, but what was locked is unlocked.
    """
    seconds: dict[str, float] = {}
    results: dict[str, str] = {}
    memory_bytes = {"before": used_bytes()}
    for function in FUNCTIONS:
        if function == RESTORE:
            memory_bytes["suspended"] = used_bytes()
            time.sleep(pause_s)
        seconds[function], results[function] = checkpoints.call(function, pid)
        if results[function] != SUCCESS:
            if function == CHECKPOINT:
                seconds[UNLOCK], results[UNLOCK] = checkpoints.call(UNLOCK, pid)
            break
    memory_bytes["after"] = used_bytes()
    return {"call_s": seconds, "results": results, "used_bytes": memory_bytes}


def suspend(asked: Asked, tell: Tell) -> None:
    """Two trainings undisturbed and one suspended, all of one seed: times, memory, weights."""
    checkpoints = Checkpoints()
    nvml = opened_nvml()
    asked.torch_or_not_run()
    tell(seed=SEED, steps=STEPS, suspended_at_step=SUSPENDED_AT, pause_s=PAUSE_S * asked.scale)

    def used_bytes() -> int:
        return int(gpus_by_nvml(nvml)[0]["memory_used_bytes"])

    plain = [_trained(asked)[0] for _ in range(2)]
    tell(idle_used_bytes=used_bytes(), plain_runs_equal=plain[0] == plain[1])

    def suspended(pid: int) -> None:
        found = cycle(checkpoints, pid, used_bytes, PAUSE_S * asked.scale)
        tell(**found)
        for function, result in found["results"].items():
            if result != SUCCESS:
                raise RuntimeError(f"{function}: {result}")

    checksum, first_s = _trained(asked, suspended)
    tell(first_step_after_s=first_s, state_equal=checksum == plain[0])


def _trained(asked: Asked, middle: Callable[[int], None] | None = None) -> tuple[str, float | None]:
    """The checksum of a training's state at its end, and how soon after `middle` it made a step."""
    after_s = first_s = None
    with jobs_of(asked) as start:
        held = f"--hold={HELD_BYTES}"
        job = start("training", f"--steps={STEPS}", f"--every={EVERY}", held)
        job.go()
        while "checksum" not in (told := job.line()):
            if middle is not None and told["step"] == SUSPENDED_AT:
                middle(job.pid)
                after_s = time.monotonic()
            elif after_s is not None and first_s is None and told["at_s"] > after_s:
                first_s = told["at_s"] - after_s
        return str(told["checksum"]), first_s
