"""A node with GPUs that jobs share, small enough to read, behind the Runtime port.

Work of the CPU and of the GPU overlaps: a request or step takes as long as the slower of the two.
A job that waits for its GPU spins, so it uses its whole CPU quota whatever it needs. Each is held
to its share of the GPU's time as a job that paces itself.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dlsched.control.controller import Controller
from dlsched.control.decider import Decider, NamedPolicy
from dlsched.control.guards import GuardOptions
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.options import LedgerOptions
from dlsched.control.ports import Ports
from dlsched.estimate.sketch import from_latencies
from dlsched.model.actions import Action, Outcome, Remove, Resize, Start
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import (
    ContainerFact,
    ContainerState,
    GpuFact,
    GpuProcess,
    NodeFact,
    Observation,
    Report,
)
from dlsched.model.spec import (
    Bounds,
    ContainerSpec,
    JobSpec,
    LatencyTarget,
    Limits,
)
from dlsched.policies.registry import load
from dlsched.simulation.clock import VirtualClock
from tests.doubles import FakeInbox, FakeRecords, gpu_fact

CYCLE_S, PERIODS_PER_S = 1.0, 10
SPUN_CORES = 2.0
"""So many threads wait for the GPU."""


@dataclass(frozen=True)
class Work:
    """What one request takes; the next comes when it is answered."""

    cpu_core_s: float = 0.0
    gpu_s: float = 0.0
    threads: float = 4.0
    noise: float = 0.1


@dataclass
class Box:
    """One container."""

    spec: JobSpec
    work: Work
    limits: Limits
    gpus: tuple[str, ...]
    used_core_s: float = 0.0
    periods: int = 0
    throttled: int = 0
    done: float = 0.0
    gpu_busy: float = 0.0
    reports: list[Report] = field(default_factory=list)

    def pace_s(self, cores: float) -> float:
        """Seconds a request or step takes with so many cores."""
        share = 1.0 if self.limits.gpu_share is None else self.limits.gpu_share
        cpu_s = self.work.cpu_core_s / min(cores, self.work.threads)
        return max(cpu_s, self.work.gpu_s / share)


class GpuWorld:
    """Jobs on a node of so many cores and GPUs; `run` lets the daemon's own controller act."""

    def __init__(
        self,
        policy: str,
        jobs: dict[str, tuple[JobSpec, Work]],
        seed: int = 0,
    ) -> None:
        self.node = NodeFact(4.0, 2**36, gpus=(gpu_fact(0),))
        self.works = {name: work for name, (_, work) in jobs.items()}
        self.boxes: dict[str, Box] = {}
        self.chance = random.Random(seed)
        self.clock = VirtualClock()
        self.inbox = FakeInbox(*(spec for spec, _ in jobs.values()))
        self.reports: list[CycleReport] = []
        self.policy = policy
        self.controller = self.agent()
        self.most_given = 0.0
        """The most that was ever given of one GPU's time, also between two actions."""
        self._now_s = 0.0

    def agent(self) -> Controller:
        """An agent that has just started, and remembers nothing."""
        return Controller(
            Ports(self, self.clock, self.inbox, FakeRecords(), self.reports.append),
            Ledger(LedgerOptions()),
            Decider(NamedPolicy(self.policy, load(self.policy))),
            GuardOptions(),
        )

    def run(self, seconds: float) -> None:
        """Cycle after cycle."""
        until_s = self.clock.now_s() + seconds
        while self.clock.now_s() < until_s:
            self.controller.run_once()
            self.clock.advance(CYCLE_S)

    # ------------------------------------------------------------------ the Runtime port

    held: str | None = None

    def resume(self, now_s: float) -> None:
        pass

    def advance(self, now_s: float) -> None:
        pass

    def observe(self, now_s: float) -> Observation:
        self._pass(now_s - self._now_s)
        self._now_s = now_s
        node = replace(
            self.node, gpus=tuple(self._with_processes(gpu.uuid) for gpu in self.node.gpus)
        )
        facts = tuple(self._fact(box) for box in self.boxes.values())
        return Observation(now_s=now_s, engine_ok=True, containers=facts, node=node)

    def apply(self, action: Action, now_s: float) -> Outcome:
        if isinstance(action, Start):
            name = action.job
            self.boxes[name] = Box(action.spec, self.works[name], action.limits, action.gpus)
        elif isinstance(action, Resize):
            self.boxes[action.job].limits = action.limits
        elif isinstance(action, Remove):
            del self.boxes[action.job]
        for gpu in self.node.gpus:
            given = sum(
                box.limits.gpu_share or 0.0 for box in self.boxes.values() if gpu.uuid in box.gpus
            )
            self.most_given = max(self.most_given, given)
        return Outcome(action, "done")

    def apply_all(self, actions: Sequence[Resize], now_s: float) -> tuple[Outcome, ...]:
        return tuple(self.apply(action, now_s) for action in actions)

    # ------------------------------------------------------------------ what happens

    def cores_of(self, name: str) -> float:
        """What the kernel gives it."""
        wants = {key: self._wants(box) for key, box in self.boxes.items()}
        return wants[name] * min(1.0, self.node.cores / max(math.fsum(wants.values()), 1e-9))

    def why(self, name: str) -> str:
        """What was last said of it."""
        told = next(one.decision for one in reversed(self.reports) if one.decision is not None)
        return told.why[name]

    def latency_s(self, name: str) -> float:
        """What a request of it takes now, without noise."""
        return self.boxes[name].pace_s(self.cores_of(name))

    def _wants(self, box: Box) -> float:
        quota = math.inf if box.limits.cpu_cores is None else box.limits.cpu_cores
        if box.work.gpu_s:
            return min(quota, max(SPUN_CORES, min(box.work.threads, quota)))
        return min(quota, box.work.threads)

    def _pass(self, elapsed_s: float) -> None:
        if elapsed_s <= 0:
            return
        for name, box in self.boxes.items():
            cores = self.cores_of(name)
            pace_s = box.pace_s(cores)
            count = elapsed_s / pace_s
            box.used_core_s += cores * elapsed_s
            box.gpu_busy = count * box.work.gpu_s / elapsed_s
            box.periods += round(PERIODS_PER_S * elapsed_s)
            if box.limits.cpu_cores is not None and cores > 0.99 * box.limits.cpu_cores:
                box.throttled += round(PERIODS_PER_S * elapsed_s)
            before, box.done = box.done, box.done + count
            if (answered := int(box.done) - int(before)) > 0:
                drawn = [
                    pace_s * max(0.1, self.chance.gauss(1.0, box.work.noise))
                    for _ in range(min(answered, 200))
                ]
                report = Report(self._now_s + elapsed_s, latency=from_latencies(drawn), in_flight=0)
                box.reports.append(report)

    def _with_processes(self, uuid: str) -> GpuFact:
        gpu = next(one for one in self.node.gpus if one.uuid == uuid)
        own = [
            GpuProcess(100 + index, f"id-{name}", 2**30, box.gpu_busy)
            for index, (name, box) in enumerate(self.boxes.items())
            if uuid in box.gpus
        ]
        busy = min(1.0, sum(one.busy_ratio or 0.0 for one in own))
        return replace(gpu, busy_ratio=busy, processes=tuple(own))

    def _fact(self, box: Box) -> ContainerFact:
        told, box.reports = tuple(box.reports), []
        spec = box.spec
        return ContainerFact(
            job=spec.name,
            container_id=f"id-{spec.name}",
            state=ContainerState.RUNNING,
            container_digest=spec.container_digest,
            digest=spec.digest,
            started_at_s=0.0,
            actual=box.limits,
            gpus=box.gpus,
            usage_core_s=box.used_core_s,
            periods=box.periods,
            throttled_periods=box.throttled,
            reports=told,
        )


def service(name: str, target_s: float, *, gpus: int = 1, share: float = 0.1) -> JobSpec:
    """A job with that latency target on so many GPUs, with so much of them promised."""
    return JobSpec(
        name,
        ContainerSpec("model", gpus=gpus),
        bounds=Bounds(0.1, floor_share=share if gpus else 1.0),
        target=LatencyTarget(target_s),
        digest=f"d:{name}",
        container_digest=f"c:{name}",
    )
