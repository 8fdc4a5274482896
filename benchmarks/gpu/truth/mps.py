"""Compute mode, and a private MPS daemon: nothing of the machine's settings is changed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.gpu.truth.asked import Asked, NotRun, Tell, opened_nvml, output
from benchmarks.gpu.truth.driver import gpus_by_nvml
from benchmarks.gpu.truth.jobs import SEED
from benchmarks.gpu.truth.keeper import die_with_parent
from benchmarks.gpu.truth.sharing import of_exclusive, rates

CONTROL = "nvidia-cuda-mps-control"
PERCENTAGES = (100, 50, 25)
MPS_S = 4.0
"""Of each measurement."""
START_S = 5.0


@contextlib.contextmanager
def daemon(control: str) -> Iterator[dict[str, str]]:
    """A daemon of this script's own, and the environment of its clients."""
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **places}
        log = Path(folder) / "foreground.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [control, "-f"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - there is one thread
            )
        try:
            until_s = time.monotonic() + START_S
            while not (Path(folder) / "control").exists():
                if process.poll() is not None or time.monotonic() > until_s:
                    last = log.read_text(errors="replace").strip().splitlines()[-1:]
                    raise NotRun(f"{CONTROL} does not start: {' '.join(last) or 'it says nothing'}")
                time.sleep(0.05)
            yield places
        finally:
            with suppress(RuntimeError, OSError):
                output(control, input="quit -t 1\n", env=environment, timeout_s=5)
            process.kill()
            process.wait()


def mps(asked: Asked, tell: Tell) -> None:
    """The mode; and under MPS a training's rate by its percentage of threads, and two at half."""
    mode = None
    with suppress(NotRun):
        mode = gpus_by_nvml(opened_nvml())[0]["compute_mode"]
    tell(seed=SEED, compute_mode=mode)
    control = shutil.which(CONTROL)
    tell(control_binary=control, measured_s=MPS_S * asked.scale)
    if control is None:
        raise NotRun(f"{CONTROL} is missing")
    asked.torch_or_not_run()
    (alone,) = rates(asked, MPS_S, (None,))
    with daemon(control) as places:
        by_percentage = {}
        for percentage in PERCENTAGES:
            threads = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percentage)}
            (rate,) = rates(asked, MPS_S, (None,), **places, **threads)
            by_percentage[str(percentage)] = rate / alone
            tell(of_exclusive_ratio_by_percentage=by_percentage)
        servers = output(control, input="get_server_list\n", env={**os.environ, **places})
        halves = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
        two = rates(asked, MPS_S, (None, None), **places, **halves)
    tell(servers=servers.split(), two_at_half=of_exclusive(two, alone), alone_steps_per_s=alone)
