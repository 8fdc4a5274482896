"""What a trace says: the node, the jobs with what each of them computes, and what goes wrong.

Owns the types alone. It must not compute, nor know how a trace is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlsched.model.facts import NodeFact
from dlsched.model.spec import JobSpec
from dlsched.simulation.node.curves import Curve, Measured
from dlsched.simulation.node.loops import Loop


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """Requests that wait `overhead_s` and then compute, one at a time."""

    work_core_s: float
    """Mean CPU work of a request."""
    overhead_s: float = 0.0
    threads: float = 1.0
    """Cores that one request can use at once."""
    noise: float = 0.2
    """Standard deviation of a request's work over its mean; the work is log-normal."""
    arrivals_per_s: float | None = None
    """None: the next request comes when the last is answered; else Poisson arrivals, queued."""
    loop: Loop | None = None
    """Who asks, where each request is played (`PlayedService`); `arrivals_per_s` is not used
    then, and the keys below are."""
    workers: int = 1
    """Requests that it answers concurrently; the others queue."""
    heavy_ratio: float = 0.0
    """Part of the requests that cost `heavy_factor` times what the others do."""
    heavy_factor: float = 10.0
    serial_ratio: float = 0.0
    """Part of a request's work that one thread does before all `threads` do the rest."""
    report_s: float = 1.0
    """Seconds between two lines of its reporter."""

    @property
    def open_rate_per_s(self) -> float | None:
        """Requests a second that come by themselves; None: a closed loop."""
        if self.loop is None:
            return self.arrivals_per_s
        return self.loop.rate_per_s if self.loop.is_open else None


@dataclass(frozen=True, slots=True)
class TrainingLoad:
    """Steps of equal work; a metric on a validation set every so many of them."""

    steps: int
    work_core_s: float
    """CPU work of a step."""
    evaluate_every: int
    curve: Curve | Measured
    threads: float = 1.0
    noise: float = 0.0
    """Standard deviation of an evaluation, in the metric's unit."""
    validation_set: int | None = None
    """Examples in the validation set: a rate (0 to 1) is measured in so many steps, with the
    binomial noise of so few."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: a crash loses all."""


Load = ServiceLoad | TrainingLoad


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong with one job at a time of the trace."""

    kind: Literal["crash", "silent", "lying", "frozen", "nan"]
    """`frozen`: its reports repeat the values of the last one before; `nan`: they hold no number,
    so that an agent refuses and counts them."""
    at_s: float
    for_s: float | None = None
    """None: until the end. A crash takes no time."""
    factor: float = 1.0
    """What a lying job multiplies its reports by."""


@dataclass(frozen=True, slots=True)
class Shift:
    """From this time on a service's work and arrivals are so many times what the load says."""

    at_s: float
    work: float = 1.0
    arrivals: float = 1.0


@dataclass(frozen=True, slots=True)
class HostLoad:
    """Work of others on the host: so many busy threads, under one weight in common."""

    at_s: float
    for_s: float
    cores: float
    cpu_shares: int = 1024


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """One job of a trace: its file, when the file comes and goes, and what it computes."""

    spec: JobSpec
    load: Load
    arrives_s: float = 0.0
    leaves_s: float | None = None
    """When its file is removed; None: it stays to the end."""
    start_up_s: float = 1.0
    """From the start of its container to its process."""
    start_up_work_core_s: float = 0.0
    """What its process computes, on one thread, before its first request or step."""
    faults: tuple[Fault, ...] = ()
    shifts: tuple[Shift, ...] = ()

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class Trace:
    """One stretch of work on one node, jobs sorted by name."""

    node: NodeFact
    jobs: tuple[SimulatedJob, ...]
    duration_s: float
    """The run ends here at the latest; earlier when nothing is left to do."""
    cycle_s: float = 1.0
    window_s: float = 30.0
    host: tuple[HostLoad, ...] = ()
    name: str = "trace"
    idle_class: bool = False
    """Whether the node's kernel has the idle class."""
    full_speed: float = 1.0
    """Work that a played service does in a core-second while all cores are busy, as a part of what
    it does beside idle ones: hardware threads and memory are shared, clocks are lower."""
