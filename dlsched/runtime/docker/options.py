"""How one engine is reached, and what its containers get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dlsched.config.metrics.resolving import Presets
from dlsched.model.spec import JobSpec
from dlsched.runtime.confinement import Confinement
from dlsched.runtime.docker.gpus.injection import GpuOptions
from dlsched.runtime.docker.identity.labels import DEFAULT_INSTANCE

UNHURRIED_S = 120.0
"""For starts and removals, which run in the background: on a busy host a start takes a minute."""


@dataclass(frozen=True, slots=True)
class DockerOptions:
    instance: str = DEFAULT_INSTANCE
    state_dir: Path = Path("/var/lib/dlsched")
    host: str = "unix:///var/run/docker.sock"
    timeout_s: float = 10.0
    """A call that takes longer has failed."""
    config_file: Path | None = None
    """Docker's own config.json with the registries' credentials; None: where Docker has it."""
    group_weight: float | None = None
    """Weight of all jobs together, in multiples of one container's; None: left alone."""
    call_wait_s: float = 0.5
    """The loop waits for the engine at most so long in a cycle."""
    cgroup_under: str = ""
    """Group above the instance's own (cgroupfs alone)."""
    gpus: GpuOptions = field(default_factory=GpuOptions)
    wire: bool = True
    """Whether response times may be measured at containers' sockets."""
    read_only: bool = False
    """Whether nothing in the state directory may be written, as in a dry run."""
    presets: Presets | None = None
    """Those that labels may name; None: those of the package."""
    confine: Callable[[JobSpec], Confinement | None] = lambda _: None
    """What a user's container is held to; None: it is the operator's."""
