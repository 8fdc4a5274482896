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
    text: str,
    metrics: Path | None = None,
    *interpreter: str,
    lib: Path | None = None,
    **variables: str,
) -> list[dict[str, Any]]:
    """Run a program with the reporter on its PYTHONPATH: it ends without an error or a word on
    stderr. Returns what it has reported."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    environment["PYTHONPATH"] = str(lib or Path(dlsched.__file__).parent.parent)
    if metrics is not None:
        environment["DLSCHED_METRICS_FILE"] = str(metrics)
    ended = subprocess.run(
        [*(interpreter or (sys.executable,)), "-c", text],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return told(metrics) if metrics is not None and metrics.is_file() else []


def told(metrics: Path) -> list[dict[str, Any]]:
    """Every line of a metrics file."""
    return [json.loads(line) for line in metrics.read_text().splitlines()]
