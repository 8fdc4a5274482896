"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from contextlib import suppress

from benchmarks.gpu.truth.asked import Asked, NotRun, Tell, opened_nvml


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
