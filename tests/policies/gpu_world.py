"""A node with a GPU that jobs share, small enough to read, behind the Runtime port.

Work of the CPU and of the GPU overlaps: a request or step takes as long as the slower of the two.
A job that waits for its GPU spins, so it uses its whole CPU quota whatever it needs. Each is held
to its share of the GPU's time as a job that paces itself.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from dlsched.control.controller import Controller
from dlsched.control.decider import Decider, NamedPolicy
from dlsched.control.guards import GuardOptions
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.ledger_options import LedgerOptions
from dlsched.control.ports import Ports
from dlsched.estimate.sketch import from_latencies
from dlsched.model.actions import Action, Outcome, Start
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import ContainerFact, GpuProcess, Observation, Report
from dlsched.model.spec import Bounds, ContainerSpec, JobSpec, LatencyTarget
from dlsched.policies.registry import load
from dlsched.simulation.clock import VirtualClock
from tests.doubles import FakeInbox, FakeRecords, FakeRuntime, gpu_fact

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


class GpuWorld(FakeRuntime):
    """Jobs on a node of four cores and a GPU; `run` lets the daemon's own controller act."""

    def __init__(self, policy: str, jobs: dict[str, tuple[JobSpec, Work]], seed: int = 0) -> None:
        super().__init__(cores=4.0)
        self.node = replace(self.node, gpus=(gpu_fact(0),))
        self.works = {name: work for name, (_, work) in jobs.items()}
        self.done = dict.fromkeys(jobs, 0.0)
        """Requests answered so far, by job."""
        self.chance = random.Random(seed)
        self.clock = VirtualClock()
        self.inbox = FakeInbox(*(spec for spec, _ in jobs.values()))
        self.reports: list[CycleReport] = []
        self.policy = policy
        self.controller = self.agent()
        self.most_given = 0.0
        """The most that was ever given of the GPU's time, also between two actions."""

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
            for name in self.containers:
                self._work(name)

    def apply(self, action: Action, now_s: float) -> Outcome:
        outcome = super().apply(action, now_s)
        if isinstance(action, Start):
            fact = replace(self.containers[action.job], gpus=action.gpus, usage_core_s=0.0)
            self.containers[action.job] = replace(fact, periods=0, throttled_periods=0)
        given = sum(fact.actual.gpu_share or 0.0 for fact in self.containers.values())
        self.most_given = max(self.most_given, given)
        return outcome

    def observe(self, now_s: float) -> Observation:
        own = [
            GpuProcess(number, fact.container_id, 2**30, self._gpu_ratio(name))
            for number, (name, fact) in enumerate(self.containers.items())
            if fact.gpus
        ]
        busy = min(1.0, sum(one.busy_ratio or 0.0 for one in own))
        gpu = replace(self.node.gpus[0], busy_ratio=busy, processes=tuple(own))
        self.node = replace(self.node, gpus=(gpu,))
        return super().observe(now_s)

    # ------------------------------------------------------------------ what happens

    def cores_of(self, name: str) -> float:
        """What the kernel gives it."""
        wants = {key: self._wants(key, fact) for key, fact in self.containers.items()}
        return wants[name] * min(1.0, self.node.cores / max(math.fsum(wants.values()), 1e-9))

    def latency_s(self, name: str) -> float:
        """What a request of it takes now, without noise."""
        work, share = self.works[name], self.containers[name].actual.gpu_share
        cpu_s = work.cpu_core_s / min(self.cores_of(name), work.threads)
        return max(cpu_s, work.gpu_s / (1.0 if share is None else share))

    def why(self, name: str) -> str:
        """What was last said of it."""
        told = next(one.decision for one in reversed(self.reports) if one.decision is not None)
        return told.why[name]

    def _gpu_ratio(self, name: str) -> float:
        return self.works[name].gpu_s / self.latency_s(name)

    def _wants(self, name: str, fact: ContainerFact) -> float:
        quota, work = fact.actual.cpu_cores or math.inf, self.works[name]
        return min(quota, max(SPUN_CORES, work.threads) if work.gpu_s else work.threads)

    def _work(self, name: str) -> None:
        """A cycle's requests of a job, with the CPU time that they take."""
        fact, cores, pace_s = self.containers[name], self.cores_of(name), self.latency_s(name)
        before, self.done[name] = self.done[name], self.done[name] + CYCLE_S / pace_s
        held = fact.actual.cpu_cores is not None and cores > 0.99 * fact.actual.cpu_cores
        noise = self.works[name].noise
        drawn = [
            pace_s * max(0.1, self.chance.gauss(1.0, noise))
            for _ in range(min(int(self.done[name]) - int(before), 200))
        ]
        report = Report(self.clock.now_s(), latency=from_latencies(drawn), in_flight=0)
        self.containers[name] = replace(
            fact,
            usage_core_s=(fact.usage_core_s or 0.0) + cores * CYCLE_S,
            periods=(fact.periods or 0) + PERIODS_PER_S,
            throttled_periods=(fact.throttled_periods or 0) + held * PERIODS_PER_S,
            reports=(report,) if drawn else (),
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
