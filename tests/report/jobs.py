"""Small jobs that report, run by an interpreter of their own as a container would run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dlsched


def run_job(
    text: str, metrics: Path | None, *interpreter: str, lib: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with the reporter on its PYTHONPATH; the caller looks at how it ended."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    environment["PYTHONPATH"] = str(lib or Path(dlsched.__file__).parent.parent)
    if metrics is not None:
        environment["DLSCHED_METRICS_FILE"] = str(metrics)
    return subprocess.run(
        [*(interpreter or (sys.executable,)), "-c", text],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def told(metrics: Path) -> list[dict[str, Any]]:
    """Every line of a metrics file."""
    return [json.loads(line) for line in metrics.read_text().splitlines()]
