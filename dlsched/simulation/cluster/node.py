"""One node of a simulated cluster: its world, and the daemon's own controller that divides it."""

from __future__ import annotations

import math
from dataclasses import replace

from dlsched.cluster.core.snapshot import Sharing
from dlsched.control.decider import NamedPolicy
from dlsched.control.ledger.desired import Desired
from dlsched.control.ports import Ports
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import JobSpec
from dlsched.model.state import JobView
from dlsched.policies.registry import load as load_policy
from dlsched.simulation.clock import VirtualClock
from dlsched.simulation.node import SimulatedRuntime
from dlsched.simulation.node.workloads import SimulatedJob, Trace, TraceNode
from dlsched.simulation.node.world import Computation
from dlsched.simulation.run import LEAST_GAP_S, EndedInMemory, controller_of

_IDLE_S = 10.0
"""Between the cycles of a node without jobs, which only measure foreign load."""


class SimulatedNode:
    """Runs the cycles of one node. It has the jobs that it is given, until they are taken away."""

    def __init__(self, trace: Trace, own: TraceNode, policy: str, seed: int) -> None:
        self.name = own.name
        self.own = own
        self.jobs = {job.name: _at_speed(job, own.speed) for job in trace.jobs}
        self.images = frozenset(job.spec.container.image for job in trace.jobs)
        """Nothing is pulled in a simulation."""
        self.runtime = SimulatedRuntime(
            replace(trace, node=own.node, host=own.host, jobs=tuple(self.jobs.values())), seed
        )
        self.sharing = Sharing.of(policy)
        self.last: CycleReport | None = None
        self._trace = trace
        self._policy = policy
        self._clock = VirtualClock()
        self._assigned = _Assigned()
        self._records = EndedInMemory()
        self._due_s = math.inf
        self.restart()

    def restart(self) -> None:
        """Start its agent again: what only its memory held is lost."""
        ports = Ports(self.runtime, self._clock, self._assigned, self._records)
        policy = NamedPolicy(self._policy, load_policy(self._policy))
        self._controller = controller_of(self._trace, ports, policy)
        self._due_s = self._clock.now_s()

    def run_until(self, until_s: float, *, agent_runs: bool = True) -> None:
        """Let its world go on to that time, with a cycle whenever one is due."""
        clock, runtime, cycle_s = self._clock, self.runtime, self._trace.cycle_s
        while True:
            now_s = clock.now_s()
            if agent_runs and self._due_s <= now_s:
                self.last = self._controller.run_once()
                busy = self._assigned.specs or runtime.present()
                self._due_s = now_s + (cycle_s if busy else max(cycle_s, _IDLE_S))
            if now_s >= until_s:
                return
            due_s = min(self._due_s, until_s) if agent_runs else until_s
            woken_s = runtime.pass_until(due_s)
            clock.sleep_until(woken_s)
            if woken_s < due_s:
                self._due_s = min(self._due_s, max(woken_s, now_s + LEAST_GAP_S))

    def assign(self, spec: JobSpec) -> None:
        self._assigned.set({**self._assigned.specs, spec.name: spec})
        self._due_s = self._clock.now_s()

    def withdraw(self, job: str) -> None:
        """Take the job away: its container is removed in the next cycle."""
        specs = dict(self._assigned.specs)
        specs.pop(job, None)
        self._assigned.set(specs)
        self._due_s = self._clock.now_s()

    def view(self, job: str) -> JobView | None:
        """The job as its controller last observed it."""
        jobs = self.last.snapshot.jobs if self.last else ()
        return next((one for one in jobs if one.name == job), None)

    @property
    def assigned(self) -> frozenset[str]:
        return frozenset(self._assigned.specs)

    @property
    def loads(self) -> dict[str, Computation]:
        return self.runtime.loads


class _Assigned:
    """The jobs that the cluster has given to this node."""

    def __init__(self) -> None:
        self.specs: dict[str, JobSpec] = {}
        self._desired = Desired()

    def set(self, specs: dict[str, JobSpec]) -> None:
        self.specs = specs
        self._desired = Desired(specs)

    def scan(self, _now_s: float) -> Desired:
        return self._desired


def _at_speed(job: SimulatedJob, speed: float) -> SimulatedJob:
    """The job on a node that does so much work in a core-second."""
    return replace(
        job,
        load=replace(job.load, work_core_s=job.load.work_core_s / speed),
        start_up_work_core_s=job.start_up_work_core_s / speed,
    )
