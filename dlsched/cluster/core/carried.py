"""Which jobs can go on on another node: their checkpoint is carried there, or is there already."""

from __future__ import annotations

from dlsched.control.checkpoint_volume import checkpoint_volume, volume_parts
from dlsched.control.gpus.rebalance import unmovable
from dlsched.model.spec import JobSpec

_SAME_EVERYWHERE = (None, "", "default", "bridge", "none")
"""Networks that every engine has, and in which no client finds a job by its address."""


def unmovable_across(spec: JobSpec) -> str | None:
    """Why a job cannot go on on another node, in one line; None: it can. Only its checkpoint goes
    with it, in a volume of its own, or lies in storage that every node has; its address and
    whatever else it wrote stay behind."""
    if (why := unmovable(spec)) is not None:
        return why
    container = spec.container
    if container.ports:
        return f"the job publishes port {container.ports[0]}, whose address would change"
    if container.network not in _SAME_EVERYWHERE:
        return f"the job's network {container.network} belongs to its node"
    kept = checkpoint_volume(spec)
    shared = spec.checkpoint is not None and spec.checkpoint.shared
    for volume in map(volume_parts, container.volumes):
        if volume == kept and shared:
            continue
        if volume.is_bind and volume.writable:
            return f"the job writes to {volume.source}, a folder on its node"
        if not volume.is_bind and volume != kept:
            return f"the job's volume {volume.source} stays on its node, and holds no checkpoint"
    return None
