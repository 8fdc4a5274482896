"""A node of inference services, small enough to read: what a policy's decisions do to latency.

One request at a time and service; CPU is shared in proportion to ceilings where they do not all
fit. Windows, usage and throttling have the meaning that `dlsched.model` gives them.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dlsched.estimate.sketch import from_latencies
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import Bounds, ContainerSpec, JobSpec, LatencyTarget, Limits
from dlsched.model.state import JobState, JobView, NodeView, Progress, Snapshot, Usage
from dlsched.policies.fair_share import Claim, water_fill
from dlsched.policies.protocol import Policy
from dlsched.report.buckets import bucket_index

WINDOW_S = 30.0
CAPACITY_CORES = 2.0
DEAD_BAND = 0.02
UNBOUNDED = Bounds()


def job(
    name: str,
    target_s: float | None = 0.05,
    latencies_s: list[float] | None = None,
    *,
    cores: float | None = 0.25,
    used: float | None = None,
    throttled: float | None = 1.0,
    quantile: float | None = None,
    oldest_s: float = 0.0,
    changed_at_s: float | None = 0.0,
    bounds: Bounds = UNBOUNDED,
    weight: float = 1.0,
    in_flight: int = 1,
) -> JobView:
    """A running job as a policy sees it; it uses all of its quota unless told otherwise."""
    window = from_latencies(latencies_s or [])
    return JobView(
        spec=JobSpec(
            name,
            ContainerSpec(image="model"),
            bounds=bounds,
            weight=weight,
            target=None if target_s is None else LatencyTarget(target_s, quantile),
        ),
        state=JobState.RUNNING,
        desired=Limits(cores),
        actual=Limits(cores),
        usage=Usage(
            cpu_cores=cores if used is None else used,
            window_cores=cores if used is None else used,
            throttled_ratio=throttled,
        ),
        progress=Progress(window=window, recent=window, in_flight=in_flight, oldest_s=oldest_s),
        started_at_s=0.0,
        changed_at_s=changed_at_s,
    )


def snapshot(
    *jobs: JobView,
    now_s: float = 10.0,
    capacity: float = CAPACITY_CORES,
    foreign: float | None = 0.0,
    wakes: tuple[str, ...] = (),
) -> Snapshot:
    """These jobs on a node of that capacity."""
    node = NodeView(capacity, max(capacity, CAPACITY_CORES), 1 << 30, foreign_cores=foreign)
    return Snapshot(0, now_s, node, jobs, WINDOW_S, wakes)


class Answer(NamedTuple):
    """An answered request; its bucket is kept, since it is counted in each of 30 views."""

    begun_s: float
    end_s: float
    bucket: int


def sketch_of(answers: Sequence[Answer]) -> LatencySketch:
    """The sketch of their latencies."""
    return LatencySketch(
        count=len(answers),
        sum_s=math.fsum([one.end_s - one.begun_s for one in answers]),
        buckets=tuple(sorted(Counter([one.bucket for one in answers]).items())),
    )


@dataclass
class Service:
    """One container: `overhead_s` waiting and `work_core_s` computing a request."""

    name: str
    target_s: float
    work_core_s: float = 0.016
    overhead_s: float = 0.0
    parallelism: float = 1.0
    noise: float = 0.2
    arrivals_per_s: float | None = None
    """None: the next request comes when the last is answered; else Poisson arrivals, queued."""
    cap: float | None = None
    rate: float = 1.0
    changed_at_s: float = 0.0
    changes: int = 0
    begun_s: float | None = None
    work_left: float = 0.0
    wait_left: float = 0.0
    next_arrival_s: float = 0.0
    queue: list[float] = field(default_factory=list)
    answered: list[Answer] = field(default_factory=list)
    used: list[tuple[float, float]] = field(default_factory=list)

    def true_latency_s(self) -> float:
        """Mean latency of a closed loop at the present rate."""
        return self.overhead_s + self.work_core_s / self.rate

    def held_back(self) -> bool:
        """Whether its quota, not its threads or its neighbours, sets its pace."""
        return self.cap is not None and self.cap < self.parallelism and self.rate > 0.99 * self.cap

    def advance(self, now_s: float, until_s: float, chance: random.Random) -> None:
        """Answer requests until then; the rate holds all along."""
        used, start_s = 0.0, now_s
        while now_s < until_s:
            if self.begun_s is None:
                arrival_s = self._arrival(now_s, until_s, chance)
                if arrival_s is None:
                    break
                self.begun_s, now_s = arrival_s, max(now_s, arrival_s)
                sigma = math.sqrt(math.log(1 + self.noise**2))
                factor = chance.lognormvariate(-(sigma**2) / 2, sigma)
                self.work_left = self.work_core_s * factor
                self.wait_left = self.overhead_s
            waited = min(self.wait_left, until_s - now_s)
            self.wait_left -= waited
            now_s += waited
            worked_s = min(self.work_left / self.rate, until_s - now_s)
            self.work_left -= worked_s * self.rate
            used += worked_s * self.rate
            now_s += worked_s
            if self.wait_left <= 0 and self.work_left <= 1e-12:
                bucket = bucket_index(now_s - self.begun_s)
                self.answered.append(Answer(self.begun_s, now_s, bucket))
                self.begun_s = None
        self.used.append((until_s, used / (until_s - start_s)))

    def _arrival(self, now_s: float, until_s: float, chance: random.Random) -> float | None:
        if self.arrivals_per_s is None:
            return now_s
        if self.next_arrival_s >= until_s:
            return None
        arrived_s = self.next_arrival_s
        self.next_arrival_s += chance.expovariate(self.arrivals_per_s)
        return arrived_s

    def in_flight(self, now_s: float) -> int:
        """Requests in service then; of a queue the first."""
        if self.arrivals_per_s is None:
            return 1
        return (self.begun_s is not None) + (self.next_arrival_s < now_s)

    def view(self, now_s: float) -> JobView:
        """What the agent would know now."""
        since_s = max(self.changed_at_s, now_s - WINDOW_S)
        self.answered = [one for one in self.answered if one.end_s > now_s - WINDOW_S]
        self.used = [one for one in self.used if one[0] > now_s - WINDOW_S]
        fresh = [one for one in self.answered if one.begun_s >= since_s]
        used = [cores for end, cores in self.used if end > since_s]
        last = self.used[-1][1] if self.used else 0.0
        view = job(self.name, self.target_s, cores=self.cap, changed_at_s=self.changed_at_s)
        return replace(
            view,
            usage=Usage(
                cpu_cores=last,
                window_cores=math.fsum(used) / len(used) if used else None,
                throttled_ratio=float(last > 0 and self.held_back()),
            ),
            progress=Progress(
                window=sketch_of(fresh),
                recent=sketch_of(self.answered),
                in_flight=self.in_flight(now_s),
                oldest_s=0.0 if self.begun_s is None else now_s - self.begun_s,
            ),
        )


@dataclass
class Plant:
    """Services on one node under one policy, a cycle a second."""

    services: list[Service]
    policy: Policy
    seed: int = 0
    capacity: float = CAPACITY_CORES
    foreign_cores: float = 0.0
    """What others on the host win for good; above 0 they also take all that the services leave."""
    now_s: float = 0.0
    memory: object = None
    asked_at_s: float = -math.inf
    next_s: float = 0.0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def run(self, seconds: int) -> None:
        """Cycle after cycle: decide, apply, let a second pass."""
        for _ in range(seconds):
            self._decide()
            self._share()
            for service in self.services:
                service.advance(self.now_s, self.now_s + 1, self.chance)
            self.now_s += 1

    def _decide(self) -> None:
        wakes = ("arrival",) if self.memory is None else ()
        if not wakes and self.now_s < self.asked_at_s + self.next_s:
            return
        foreign = self.capacity - math.fsum(one.used[-1][1] for one in self.services if one.used)
        seen = snapshot(
            *sorted((one.view(self.now_s) for one in self.services), key=lambda view: view.name),
            now_s=self.now_s,
            capacity=self.capacity,
            foreign=max(foreign, 0.0) if self.foreign_cores else 0.0,
            wakes=wakes,
        )
        decision = self.policy.decide(seen, self.memory)
        self.memory, self.next_s, self.asked_at_s = decision.memory, decision.next_s, self.now_s
        for one in self.services:
            wanted = decision.limits.get(one.name, Limits(one.cap)).cpu_cores
            same = wanted is None or (
                one.cap is not None and abs(wanted - one.cap) <= DEAD_BAND * one.cap
            )
            if not same:
                one.cap, one.changed_at_s = wanted, self.now_s
                one.changes += 1

    def _share(self) -> None:
        claims = {
            one.name: Claim(
                one.cap or 1.0, 0.0, min(one.parallelism, one.cap or math.inf, self.capacity)
            )
            for one in self.services
        }
        shared = water_fill(self.capacity - self.foreign_cores, claims)
        for one in self.services:
            one.rate = shared[one.name]

    def satisfied(self) -> int:
        """How many services answer within 10 % of their target, either side, in the true mean."""
        return sum(
            abs(one.true_latency_s() - one.target_s) <= 0.1 * one.target_s for one in self.services
        )


def demo_set(
    seed: int, jobs: int = 8, demand: float = 0.7, overhead_s: float = 0.0
) -> list[Service]:
    """Services whose targets are their latencies at log-uniform shares of the node."""
    chance = random.Random(seed)
    drawn = [10 ** chance.random() for _ in range(jobs)]
    scale = demand * CAPACITY_CORES / math.fsum(drawn)
    services = []
    for index, one in enumerate(drawn):
        share = min(one * scale, 1.0)
        services.append(Service(f"job-{index}", overhead_s + 0.016 / share, overhead_s=overhead_s))
    return services


def packable(services: list[Service]) -> int:
    """How many a clairvoyant satisfies by taking the cheapest first."""
    left, count = CAPACITY_CORES, 0
    for cost in sorted(one.work_core_s / (1.1 * one.target_s - one.overhead_s) for one in services):
        left -= cost
        count += left >= 0
    return count
