"""What was found of one running container."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.estimate.tuning import ROOM_RATIO

NO_REQUEST = "the metrics page counts no request yet"
"""A metrics page is there, and nothing has been counted."""


@dataclass(frozen=True, slots=True)
class ProbeReading:
    """What was read of a container's progress just now."""

    kind: str
    """`latency` or `training`."""
    seconds: float | None = None
    """The latency: its mean (`quantile` None), or that quantile; where it is known within the
    bounds of a histogram's bucket only, the upper one."""
    above_s: float | None = None
    """The bucket's lower bound; None: `seconds` is the latency itself."""
    quantile: float | None = None
    requests: int = 0
    over_s: float | None = None
    """The time in which these requests ended; None: since the server started, or the lines read."""
    lines: int | None = None
    """How many of the log's last lines matched; None: it was read elsewhere."""
    of_lines: int | None = None
    """The log's last lines."""
    step: int | None = None
    metrics: tuple[tuple[str, float], ...] = ()
    """The last value of each metric that a training printed."""


@dataclass(frozen=True, slots=True)
class PortTimes:
    """Response times at one port's socket while it was sampled; None: of too few requests."""

    requests: int
    """That came."""
    over_s: float
    answers: int
    """Of which the time is known."""
    failed: int
    p50_s: float | None = None
    """Until the whole answer."""
    p95_s: float | None = None
    first_p50_s: float | None = None
    """Until the first byte of the answer's body."""
    first_p95_s: float | None = None
    gaps: int = 0
    """Between the parts of answers."""
    unmeasured: tuple[str, ...] = ()
    """Why the times of some connections are not known."""
    lost: int = 0
    """Requests of which nothing more is known."""

    @property
    def open(self) -> int:
        """Requests that have not been answered yet."""
        return max(0, self.requests - self.lost - self.failed - self.answers)


@dataclass(frozen=True, slots=True)
class ProbedPort:
    """A TCP port on which the container's own processes listen."""

    port: int
    addresses: tuple[str, ...]
    """The addresses to which they are bound, such as `0.0.0.0` or `::`."""
    times: PortTimes | None = None
    """None: nothing was measured at its socket."""


@dataclass(frozen=True, slots=True)
class HostUse:
    """The CPU of the host, while containers were sampled."""

    busy_cores: float
    cores: float

    @property
    def is_short(self) -> bool:
        """Whether requests wait for a CPU, so that times measured now are those of a busy host."""
        return self.busy_cores > ROOM_RATIO * self.cores


@dataclass(frozen=True, slots=True)
class Probed:
    name: str
    container_id: str
    image: str
    managed: str | None
    """How dlsched manages it already, as text; None: it does not."""
    preset: str | None = None
    """The preset that reads it; None: none does."""
    where: str | None = None
    """Where it was read: `port 8000`, `its log`; None: nowhere."""
    sources: tuple[str, ...] = ()
    """Options of `adopt --metrics` that read it there."""
    reading: ProbeReading | None = None
    """None: nothing was read."""
    timed: int | None = None
    """The port at whose socket `reading` was measured; None: it was read elsewhere."""
    unread: str | None = None
    """Why nothing was read, with the remedy where one is known."""
    cpu_cores: float | None = None
    """Its mean use while it was sampled."""
    limit_cores: float | None = None
    host: HostUse | None = None
    """None: not known, as of an engine on another host."""
    memory_bytes: int | None = None
    """What its control group holds, with the cache of files."""
    gpu_memory_bytes: int | None = None
    """What its processes hold on all GPUs together; None: nothing, or the driver does not say."""
    ports: tuple[ProbedPort, ...] | None = None
    """Where it listens, by port; None: the kernel does not say (an engine on another host, or
    without the right to read the processes of others)."""
    histograms: tuple[str, ...] = ()
    """Latency metrics of a page that no preset knows."""
