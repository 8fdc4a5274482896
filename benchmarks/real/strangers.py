"""Containers that somebody else started, for the real benches: adopted by labels, or unmanaged.

Owns their start by `docker run`; the session ends them. They lie under another parent control group
than dlsched's own containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.places import ROOT
from tools.session import STRANGER, Session

_TOLD = "/run/dlsched/out/metrics.jsonl"


def run(one: Session, job_file: str, *, adopted: bool) -> None:
    """Start what that job file describes, without dlsched.

    `adopted`: with the labels by which dlsched adopts it.
    """
    spec: dict[str, Any] = yaml.safe_load(job_file)
    labels = {STRANGER: one.instance}
    if adopted:
        labels |= {"dlsched.instance": one.instance, "dlsched.enable": "true"}
        labels |= _targets(spec["target"]) | {"dlsched.metrics.path": _TOLD}
    one.engine.containers.run(
        spec["image"],
        spec["command"],
        name=spec["name"],
        detach=True,
        labels=labels,
        environment={
            "DLSCHED_METRICS_FILE": _TOLD,
            "PYTHONPATH": "/opt/site-packages:/opt/dlsched",
        },
        volumes=[*spec.get("volumes", ()), f"{ROOT}/dlsched/report:/opt/dlsched/dlsched/report:ro"],
        tmpfs={str(Path(_TOLD).parent): "size=1m,mode=1777"},
        network_mode="none",
        init=True,
    )


def _targets(target: Mapping[str, object]) -> dict[str, str]:
    return {f"dlsched.target.{name}": str(value) for name, value in target.items()}
