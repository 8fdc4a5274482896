"""One part's process: `python -m benchmarks.gpu.truth.part NAME`. Prints its figures as JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu.truth.asked import Asked, NotRun
from benchmarks.gpu.truth.running import NOT_RUN_KEY

MODULES = {
    "machine": "machine",
    "inventory": "driver",
    "processes": "driver",
    "pacing": "sharing",
    "inference": "sharing",
    "memory": "sharing",
    "mps": "mps",
    "container": "container",
    "suspend": "suspending",
}
"""Where the function of each part's name is."""


def main() -> None:
    """Measure one part, in full or until it raises."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=MODULES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--debs", type=Path)
    chosen = parser.parse_args()
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no answer

    def tell(**figures: Any) -> None:
        print(json.dumps(figures), file=answer, flush=True)

    measure = getattr(import_module(f"benchmarks.gpu.truth.{MODULES[chosen.name]}"), chosen.name)
    try:
        measure(Asked(chosen.device, chosen.scale, chosen.debs), tell)
    except NotRun as error:
        tell(**{NOT_RUN_KEY: str(error)})


if __name__ == "__main__":
    sys.exit(main())
