"""What a job file says for several hosts, where it contradicts the rest of it."""

from __future__ import annotations

from collections.abc import Iterator

from dlsched.config.yaml import Path as Place
from dlsched.control.checkpoint_volume import checkpoint_volume
from dlsched.model.spec import JobSpec
from dlsched.model.units import shown


def cluster_problems(spec: JobSpec) -> Iterator[tuple[Place, str]]:
    """Each problem with its key."""
    checkpoint = spec.checkpoint
    shared = checkpoint is not None and checkpoint.shared
    if checkpoint is not None and shared and checkpoint_volume(spec) is None:
        path = shown(checkpoint.path)
        what = f"the path {path} is in none of the writable volumes, so no other node has it"
        yield ("checkpoint", "shared"), what
    if spec.failover != "restart":
        return
    if not shared:
        what = "restart needs a checkpoint with shared: true, as no other node has it otherwise"
        yield ("failover",), what
    if spec.container.restart.name != "no":
        what = "restart needs restart: no, as Docker could start it while another node has it"
        yield ("failover",), what
