"""What CFS burst does to the tail of a latency service under a quota: with and without, in one run.

Services of short tasks under fixed quotas. Requests arrive at seeded random times whether or not
the one before is answered (an open loop), and a latency counts from the arrival, so that waiting
counts. The same containers serve all the while; the daemon is started again and again with another
`burst`, in the order given and then in its reverse, so that a drift of the host falls on each
alike. The burst is read back from the kernel before a phase begins, and once more at its end.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.cost.reaction import IMAGE
from benchmarks.real.session import Session, wait_for
from dlsched.runtime.cgroup.group_limits import LimitFiles

BURSTS = (0.0, 0.3, 1.0)
"""Without, with what is set by default, and with the most that the kernel takes."""
QUANTILES = (0.5, 0.95, 0.99)
SETTLE_S = 5.0

SERVICE = """
import random, sys, time
from dlsched.report import latency
seed, every_s, low_s, high_s = int(sys.argv[1]), *map(float, sys.argv[2:])
draw = random.Random(seed)
arrives = time.monotonic()
while True:
    arrives += draw.expovariate(1 / every_s)
    time.sleep(max(0.0, arrives - time.monotonic()))
    until = time.thread_time() + draw.uniform(low_s, high_s)
    while time.thread_time() < until:
        pass
    took = time.monotonic() - arrives
    latency.observe(took)
    print(f"{arrives:.6f} {took:.6f}", flush=True)
"""


@dataclass(frozen=True)
class Service:
    """One service: its quota, its tasks' CPU time, and how much of the quota they use."""

    name: str
    quota_cores: float
    low_s: float
    high_s: float
    load_ratio: float

    @property
    def every_s(self) -> float:
        """The mean time from one arrival to the next."""
        return (self.low_s + self.high_s) / 2 / (self.load_ratio * self.quota_cores)

    def spec(self, seed: int) -> str:
        """Its job file; JSON is YAML."""
        numbers = [str(seed), *map(str, (self.every_s, self.low_s, self.high_s))]
        return json.dumps(
            {
                "name": self.name,
                "image": IMAGE,
                "command": ["python", "-c", SERVICE, *numbers],
                "network": "none",
                "cpus": {"min": self.quota_cores, "max": self.quota_cores},
                "target": {"latency": "50ms", "quantile": "p95"},
                "stop": {"grace": "1s"},
            }
        )


SERVICES = (
    Service("tail-5ms", 0.3, 0.005, 0.005, 0.5),
    Service("tail-20ms", 0.3, 0.020, 0.020, 0.5),
    Service("tail-mixed", 0.4, 0.005, 0.020, 0.5),
)


@dataclass(frozen=True)
class Phase:
    """One stretch of time under one burst, on the boot clock."""

    burst_ratio: float
    order: str
    begin_s: float
    end_s: float


def measure(session: Session, seed: int, phase_s: float) -> list[dict[str, object]]:
    """One row for each service, burst and order."""
    for index, service in enumerate(SERVICES):
        session.drop(service.name, service.spec(1000 * seed + index))
    phases = []
    for order, bursts in (("forward", BURSTS), ("backward", BURSTS[::-1])):
        for burst in bursts:
            session.start("fair", more={"burst": burst})
            wait_for(lambda: session.running() == len(SERVICES), 60, "the services to run")
            session.confine()
            wait_for(lambda burst=burst: _has(session, burst), 30, f"a burst of {burst:g}")
            time.sleep(SETTLE_S)
            begin_s = time.monotonic()
            time.sleep(phase_s)
            if not _has(session, burst):
                raise RuntimeError(f"the burst of {burst:g} was lost meanwhile")
            phases.append(Phase(burst, order, begin_s, time.monotonic()))
            session.stop()
    return [
        row
        for service in SERVICES
        for row in rows(service, seed, phases, _told(session, service.name))
    ]


def rows(
    service: Service, seed: int, phases: Sequence[Phase], told: Sequence[tuple[float, float]]
) -> list[dict[str, object]]:
    """One row a phase, and one for both orders of a burst together; times in ms."""
    parts: list[tuple[float, str, list[float]]] = [
        (
            phase.burst_ratio,
            phase.order,
            [took for at, took in told if phase.begin_s <= at and at + took < phase.end_s],
        )
        for phase in phases
    ]
    for burst in dict.fromkeys(phase.burst_ratio for phase in phases):
        both = [took for ratio, _, each in parts if ratio == burst for took in each]
        parts.append((burst, "both", both))
    return [
        {
            "service": service.name,
            "seed": seed,
            "quota_cores": service.quota_cores,
            "task_ms": _task(service),
            "burst_ratio": burst,
            "order": order,
            "requests": len(each),
            **{f"p{100 * q:g}_ms": round(1000 * quantile(each, q), 2) for q in QUANTILES},
        }
        for burst, order, each in parts
    ]


def table(told: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """The rows of both orders together, as README shows them."""
    return [
        {
            "quota, cores": row["quota_cores"],
            "task, ms of CPU": row["task_ms"],
            "burst, of the quota": row["burst_ratio"] or "none",
            "requests": row["requests"],
            **{f"p{100 * q:g}, ms": row[f"p{100 * q:g}_ms"] for q in QUANTILES},
        }
        for row in told
        if row["order"] == "both"
    ]


def _task(service: Service) -> str:
    low, high = 1000 * service.low_s, 1000 * service.high_s
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def quantile(values: Sequence[float], part: float) -> float:
    """The least value that this part of them do not exceed. Raises RuntimeError where none is."""
    ordered = sorted(values)
    if not ordered:
        raise RuntimeError("nothing was answered in a phase")
    return ordered[math.ceil(part * len(ordered)) - 1]


def _has(session: Session, burst_ratio: float) -> bool:
    """Whether every service has its quota and that burst, as the kernel says."""
    for service in SERVICES:
        container = session.engine.containers.get(f"dlsched-{session.instance}-{service.name}")
        seen = LimitFiles(container.attrs["State"]["Pid"], str(container.id)).read()
        wanted_us = round(100_000 * service.quota_cores)
        if (seen.quota_us, seen.burst_us) != (wanted_us, round(burst_ratio * wanted_us)):
            return False
    return True


def _told(session: Session, name: str) -> list[tuple[float, float]]:
    """When each request arrived, and how long it took."""
    container = session.engine.containers.get(f"dlsched-{session.instance}-{name}")
    lines = [line.split() for line in container.logs(stderr=False).decode().splitlines()]
    return [(float(arrived), float(took)) for arrived, took in lines]
