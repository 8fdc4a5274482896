"""The types of a trace's content: node, jobs with their computations, faults."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from dlsched.model.facts import NodeFact
from dlsched.model.spec import JobSpec
from dlsched.simulation.node.learning_curves import Curve, Measured
from dlsched.simulation.node.loops import Loop


@dataclass(frozen=True, slots=True)
class ReportNoise:
    """What goes wrong between a service and the agent."""

    lost_ratio: float = 0.0
    """Fraction of the lines that never arrive."""
    outlier_ratio: float = 0.0
    """Fraction of the latencies that are reported `outlier_factor` times as long."""
    outlier_factor: float = 100.0
    late_s: float = 0.0
    """Time from a line to its arrival."""


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """Requests that wait `overhead_s` and then compute, one at a time."""

    work_core_s: float
    """Mean CPU work of a request."""
    overhead_s: float = 0.0
    threads: float = 1.0
    """Cores that one request can use concurrently."""
    noise: float = 0.2
    """Standard deviation of a request's work over its mean; the work is log-normal."""
    arrivals_per_s: float | None = None
    """Rate of Poisson arrivals, queued; None: one client, which waits for each answer."""
    loop: Loop | None = None
    """The clients, where each request is simulated (`PlayedService`): then the keys below apply,
    and `arrivals_per_s` does not."""
    workers: int = 1
    """Requests that it answers concurrently; the others queue."""
    heavy_ratio: float = 0.0
    """Fraction of the requests that cost `heavy_factor` times as much."""
    heavy_factor: float = 10.0
    serial_ratio: float = 0.0
    """Fraction of a request's work that one thread does before all `threads` do the rest."""
    peak_cores: float = math.inf
    """Cores at which its throughput is highest: beyond, its threads wait for each other's locks."""
    calls: str | None = None
    """The service that each request asks after half of its work, and whose answer it awaits."""
    report_s: float = 1.0
    """Seconds between two lines of its reporter; infinite: it has none."""
    report_noise: ReportNoise | None = None

    @property
    def open_rate_per_s(self) -> float | None:
        if self.loop is None:
            return self.arrivals_per_s
        return self.loop.rate_per_s if self.loop.is_open else None

    def efficiency(self, cores: float) -> float:
        """Work done in a core-second while it uses that many cores."""
        return 1.0 / (1.0 + max(cores * (cores - 1.0), 0.0) / self.peak_cores**2)


@dataclass(frozen=True, slots=True)
class Pause:
    """A regular time in which a training computes less: its loader stalls, it writes a checkpoint,
    or it evaluates."""

    every_s: float
    for_s: float
    threads: float = 0.0
    first_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainingLoad:
    """Steps of equal work, with an evaluation every so many steps."""

    steps: int
    work_core_s: float
    evaluate_every: int
    curve: Curve | Measured
    threads: float = 1.0
    noise: float = 0.0
    """Standard deviation of an evaluation, in the metric's unit."""
    validation_set: int | None = None
    """Examples in the validation set: a rate (0 to 1) gets its resolution and binomial noise."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: a crash loses all."""
    pauses: tuple[Pause, ...] = ()


Load = ServiceLoad | TrainingLoad


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong with one job at a time of the trace."""

    kind: Literal["crash", "silent", "lying"]
    at_s: float
    for_s: float | None = None
    """None: until the end. A crash takes no time."""
    factor: float = 1.0
    """Factor of a lying job's reports."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Factors of a service's work and arrivals from this time on."""

    at_s: float
    work: float = 1.0
    arrivals: float = 1.0


@dataclass(frozen=True, slots=True)
class HostLoad:
    """Other work on the host: busy threads under one weight."""

    at_s: float
    for_s: float
    cores: float
    cpu_shares: int = 1024


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a move to another node carries."""

    size_bytes: int = 50 << 20
    save_s: float = 2.0
    """Time from the request of a checkpoint until it is saved."""


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """One job of a trace: its file, when the file comes and goes, and what it computes."""

    spec: JobSpec
    load: Load
    arrives_s: float = 0.0
    leaves_s: float | None = None
    """When its file is removed; None: it stays to the end."""
    start_up_s: float = 1.0
    """Time from the start of its container to its process."""
    start_up_work_core_s: float = 0.0
    """Work of its process, on one thread, before its first request or step."""
    faults: tuple[Fault, ...] = ()
    shifts: tuple[Shift, ...] = ()
    checkpoint: SavedState = field(default_factory=SavedState)

    @property
    def name(self) -> str:
        return self.spec.name

    def is_there(self, now_s: float) -> bool:
        """Whether its file is in the folder."""
        return self.arrives_s <= now_s and (self.leaves_s is None or now_s < self.leaves_s)


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node of a cluster."""

    name: str
    node: NodeFact
    speed: float = 1.0
    """Work done per core-second."""
    host: tuple[HostLoad, ...] = ()
    joins_s: float = 0.0
    leaves_s: float | None = None
    """When it is drained; None: it stays to the end."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Some time of work on one node or on a cluster, jobs sorted by name."""

    node: NodeFact
    jobs: tuple[SimulatedJob, ...]
    duration_s: float
    """Latest end of the run; it ends earlier when nothing is left to do."""
    cycle_s: float = 1.0
    window_s: float = 30.0
    host: tuple[HostLoad, ...] = ()
    name: str = "trace"
    idle_class: bool = False
    """Whether the node's kernel has the idle class."""
    cpu_burst: bool = False
    """Whether it has CPU bursts."""
    full_speed: float = 1.0
    """Speed of a played service while all cores are busy, relative to idle ones beside it: hardware
    threads and memory are shared, clocks are lower."""
    nodes: tuple[TraceNode, ...] = ()
    """The cluster's nodes, sorted by name; none: the trace is of one node."""
    network_bytes_per_s: int = 100 << 20
    """Rate at which a checkpoint goes from node to node."""
