"""The Runtime port over a simulated world: containers, counters, sidecar lines and faults. It
reveals nothing that a real engine would not."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlsched.model.actions import Action, Memory, Move, Outcome, Remove, Resize, Start
from dlsched.model.facts import (
    Begun,
    ContainerFact,
    ContainerState,
    LatencySketch,
    Observation,
    Report,
    Sample,
    ThreadsFact,
    Usage,
)
from dlsched.model.spec import JobSpec, Limits
from dlsched.report.buckets import GROWTH, LAST_BUCKET
from dlsched.simulation.node.played import PERIOD_S, PlayedService
from dlsched.simulation.node.service import Service
from dlsched.simulation.node.training import Training
from dlsched.simulation.node.workloads import Fault, Pause, ServiceLoad, SimulatedJob, Trace
from dlsched.simulation.node.world import Computation, Process, StartUp, World

SAMPLED_S = 10.0
"""As `runtime.threads.sampler` has it."""


def falsified(line: Report, factor: float) -> Report:
    latency, sample = line.latency, line.sample
    if latency is not None:
        shift = round(math.log(factor) / math.log(GROWTH))
        moved: dict[int, int] = {}
        for bucket, count in latency.buckets:
            there = min(LAST_BUCKET, max(0, bucket + shift))
            moved[there] = moved.get(there, 0) + count
        latency = LatencySketch(
            latency.count,
            latency.sum_s * factor,
            tuple(sorted(moved.items())),
            latency.errors,
            tuple((low * factor, high * factor, count) for low, high, count in latency.spans),
            latency.missed,
            latency.sum_error_s * factor,
        )
    if sample is not None:
        metrics = tuple((name, value * factor) for name, value in sample.metrics)
        sample = Sample(sample.received_s, sample.step, metrics)
    return replace(line, latency=latency, sample=sample)


@dataclass(slots=True)
class _Container:
    """One container, from create to remove."""

    job: SimulatedJob
    spec: JobSpec
    container_id: str
    source: str
    process: Process
    limits: Limits
    burst_cores: float = 0.0
    state: ContainerState = ContainerState.CREATED
    starts: int = 0
    started_at_s: float | None = None
    exit_code: int | None = None
    used_before_core_s: float = 0.0
    """CPU time of its job before this start: the kernel's counter restarts."""
    ran_before_s: float = 0.0
    throttled_before_s: float = 0.0
    begun: bool = True
    """Its first start is in progress: the engine does not list it yet."""
    threads: ThreadsFact | None = None
    """The last sample of its threads."""
    last: ContainerFact | None = None
    """The fact after its exit, which no longer changes."""


class SimulatedRuntime:
    """A node that runs the jobs of a trace; the same seed gives the same noise to each job."""

    held: str | None = None
    """Nothing ever keeps it from acting."""

    def __init__(self, trace: Trace, seed: int = 0) -> None:
        self.world = World(trace.node.cores, trace.host, trace.full_speed)
        self.loads: dict[str, Computation] = {}
        """Each job's computation, also before and after it has a container."""
        self._trace = trace
        self._jobs = {job.name: job for job in trace.jobs}
        self._containers: dict[str, _Container] = {}
        self._made = 0
        for job in trace.jobs:
            self.loads[job.name] = _loaded(job, seed)
        for job in trace.jobs:
            self._plan(job)

    def resume(self, now_s: float) -> None:
        """No agent was there before."""

    def observe(self, now_s: float) -> Observation:
        """Advance the world exactly to `now_s`, and return what an agent would observe."""
        self.world.advance(now_s)
        present = self._containers.values()
        return Observation(
            now_s=now_s,
            engine_ok=True,
            containers=tuple(self._fact(one, now_s) for one in present if not one.begun),
            begun=tuple(
                Begun(one.job.name, "starting", "the job's container starts", one.spec.digest)
                for one in present
                if one.begun
            ),
            host_busy_core_s=self.world.busy_core_s,
            node=self._trace.node,
        )

    def advance(self, now_s: float) -> None:
        """Everything that was begun goes on by itself."""

    def apply(self, action: Action, now_s: float) -> Outcome:
        """Apply it immediately; a start takes the job's start-up time."""
        self.world.advance(now_s)
        container = self._containers.get(action.job)
        if isinstance(action, Start):
            return self._start(action, container)
        if container is None or container.container_id != action.container_id:
            if isinstance(action, Remove):
                return Outcome(action, "done", "the container does not exist")
            return Outcome(action, "failed", "no such container")
        if isinstance(action, Resize):
            container.process.idle = action.cpu_idle
            container.burst_cores = action.burst_cores or 0.0
            self._limit(container, action.limits, action.cpu_shares)
            return Outcome(action, "done")
        if isinstance(action, Memory):
            return Outcome(action, "failed", "memory is not simulated", retryable=False)
        if isinstance(action, Move):
            return Outcome(action, "failed", "there are no GPUs in the simulation", retryable=False)
        self._halt(container)
        del self._containers[action.job]
        return Outcome(action, "done")

    def apply_all(self, actions: Sequence[Resize | Memory], now_s: float) -> tuple[Outcome, ...]:
        """Apply one after the other, without taking time."""
        return tuple(self.apply(action, now_s) for action in actions)

    def pass_until(self, until_s: float) -> float:
        """Advance the world to then, or to the first event that wakes an agent; returns when."""
        self.world.advance(until_s, until_news=True)
        return self.world.now_s

    def unfinished(self) -> bool:
        """Whether some container still has work to do."""
        return any(one.state is not ContainerState.EXITED for one in self._containers.values())

    def present(self) -> dict[str, bool]:
        """Every job that has a container, and whether its process runs."""
        running = ContainerState.RUNNING
        return {
            name: one.state is running and not one.begun for name, one in self._containers.items()
        }

    def carry(self, job: str, load: Computation) -> None:
        """Let the job go on with this computation, which comes from elsewhere."""
        assert job not in self._containers, f"{job} has a container"
        self.loads[job] = load

    def power_off(self) -> None:
        """End all containers immediately, as when the host fails."""
        for container in self._containers.values():
            self._halt(container)
        self._containers.clear()

    # ------------------------------------------------------------------ containers

    def _start(self, action: Start, container: _Container | None) -> Outcome:
        if container is not None:
            return Outcome(action, "done", "the container exists already")
        job = self._jobs.get(action.job)
        if job is None:
            return Outcome(action, "failed", "the trace has no such job", retryable=False)
        self._made += 1
        container = _Container(
            job=job,
            spec=action.spec,
            container_id=f"{self._made:012x}",
            source=action.source,
            process=Process(job.name, self.loads[job.name], lambda: self._ended(job.name)),
            limits=action.limits,
        )
        self._containers[job.name] = container
        self._limit(container, action.limits, action.cpu_shares)
        self._run_later(container)
        return Outcome(action, "begun")

    def _run_later(self, container: _Container) -> None:
        def run() -> None:
            if self._containers.get(container.job.name) is container:
                self._run(container)

        self.world.at(self.world.now_s + container.job.start_up_s, run)

    def _run(self, container: _Container) -> None:
        process = container.process
        container.begun = False
        container.state = ContainerState.RUNNING
        container.starts += 1
        container.started_at_s = self.world.now_s
        container.exit_code = container.threads = None
        container.used_before_core_s = process.load.usage_core_s
        container.ran_before_s = process.ran_s
        container.throttled_before_s = process.throttled_s
        work_core_s = container.job.start_up_work_core_s
        if work_core_s:
            process.load = StartUp(work_core_s, self.loads[container.job.name])
        self.world.begin(process)
        self.world.announce()

    def _limit(self, container: _Container, limits: Limits, cpu_shares: int) -> None:
        cores, grain = limits.cpu_cores, self._trace.node.grain_cores
        if cores is not None:
            limits = replace(limits, cpu_cores=max(1, round(cores / grain)) * grain)
        container.limits, container.last = limits, None
        container.process.quota_cores = math.inf if cores is None else limits.cpu_cores or grain
        container.process.cpu_shares = cpu_shares
        load = self.loads[container.job.name]
        if isinstance(load, PlayedService):
            load.set_burst(container.burst_cores)
        self.world.changed()

    def _ended(self, name: str) -> None:
        process = self._containers[name].process
        if isinstance(process.load, StartUp):
            process.load = process.load.load
            self.world.begin(process)
        else:
            self._exit(name, 0)

    def _exit(self, name: str, exit_code: int) -> None:
        container = self._containers[name]
        container.state = ContainerState.EXITED
        container.exit_code = exit_code
        container.last = None
        self.world.announce()

    def _halt(self, container: _Container) -> None:
        if container.state is ContainerState.RUNNING:
            self.world.end(container.job.name)
            container.process.load.crash()

    # ------------------------------------------------------------------ planned events

    def _plan(self, job: SimulatedJob) -> None:
        load = self.loads[job.name]
        if isinstance(load, PlayedService) and load.load.calls is not None:
            callee = self.loads[load.load.calls]
            assert isinstance(callee, PlayedService)
            load.callee = callee
        if isinstance(load, Training):
            for pause in load.load.pauses:
                self.world.at(pause.first_s, lambda pause=pause: self._pause(load, pause))  # type: ignore[misc]
        for fault in job.faults:
            if fault.kind == "crash":
                self.world.at(fault.at_s, lambda: self._crash(job))
        if isinstance(load, Service | PlayedService):
            for shift in job.shifts:
                self.world.at(
                    shift.at_s,
                    lambda shift=shift: self._shift(load, shift.work, shift.arrivals),  # type: ignore[misc]
                )

    def _shift(self, service: Service | PlayedService, work: float, arrivals: float) -> None:
        service.shift(work, arrivals)
        self.world.changed()

    def _pause(self, training: Training, pause: Pause) -> None:
        """Let it compute less for a while, and again the next time."""

        def go_on() -> None:
            training.compute_on(training.load.threads)
            self.world.changed()

        training.compute_on(pause.threads)
        self.world.changed()
        now_s = self.world.now_s
        self.world.at(now_s + pause.for_s, go_on)
        self.world.at(now_s + pause.every_s, lambda: self._pause(training, pause))

    def _crash(self, job: SimulatedJob) -> None:
        container = self._containers.get(job.name)
        if container is None or container.state is not ContainerState.RUNNING:
            return
        self._halt(container)
        self._exit(job.name, 1)
        restart = job.spec.container.restart
        tries = restart.max_retries or math.inf
        if restart.name != "no" and container.starts <= tries:
            container.state = ContainerState.RESTARTING
            self._run_later(container)

    # ------------------------------------------------------------------ observation

    def _fact(self, one: _Container, now_s: float) -> ContainerFact:
        if one.state is not ContainerState.EXITED:
            return self._observed(one, now_s)
        if one.last is None or one.last.reports:
            one.last = self._observed(one, now_s)
        return one.last

    def _observed(self, one: _Container, now_s: float) -> ContainerFact:
        process, wait_ratio = one.process, None
        if isinstance(process.load, PlayedService):
            process.load.sample(now_s)
            wait_ratio = process.load.wait_ratio
        return ContainerFact(
            job=one.job.name,
            container_id=one.container_id,
            state=one.state,
            container_digest=one.spec.container_digest,
            digest=one.spec.digest,
            source=one.source,
            stop=one.spec.stop,
            started_at_s=one.started_at_s,
            starts=one.starts,
            exit_code=one.exit_code,
            actual=one.limits,
            cpu_shares=process.cpu_shares,
            cpu_idle=process.idle if self._trace.idle_class else None,
            burst_cores=one.burst_cores if self._trace.cpu_burst else None,
            usage_core_s=process.load.usage_core_s - one.used_before_core_s,
            periods=int((process.ran_s - one.ran_before_s) / PERIOD_S),
            throttled_periods=int((process.throttled_s - one.throttled_before_s) / PERIOD_S),
            reports=self._reports(one, now_s),
            usage=Usage(cpu_wait_ratio=wait_ratio),
            threads=self._sampled(one, now_s),
        )

    def _sampled(self, one: _Container, now_s: float) -> ThreadsFact | None:
        """Its threads, where they spin, as they are sampled on a host."""
        load, last = one.process.load, one.threads
        is_due = last is None or now_s - last.at_s >= SAMPLED_S
        if is_due and isinstance(load, PlayedService | Training) and load.spins:
            threads, spun = load.load.threads, 1.0 - load.load.spin_ratio
            waited = max(threads - load.cores, 0.0)
            one.threads = ThreadsFact(now_s, round(threads), load.cores, waited, spun)
        return one.threads

    def _reports(self, one: _Container, now_s: float) -> tuple[Report, ...]:
        load = one.process.load
        if isinstance(load, Service | PlayedService) and one.state is not ContainerState.RUNNING:
            return ()
        lines = load.lines(now_s)
        if not one.job.faults:
            return tuple(lines)
        passed: list[Report] = []
        for line in lines:
            active = [fault for fault in one.job.faults if _holds(fault, line.received_s)]
            if any(fault.kind == "silent" for fault in active):
                continue
            factor = math.prod(fault.factor for fault in active if fault.kind == "lying")
            passed.append(line if factor == 1.0 else falsified(line, factor))
        return tuple(passed)


def _loaded(job: SimulatedJob, seed: int) -> Computation:
    # Seeded by name, so that draws are independent of other jobs and their order.
    own = f"{seed}/{job.name}"
    if isinstance(job.load, ServiceLoad) and job.load.loop is not None:
        return PlayedService(job.load, job.spec.target, own)
    chance = random.Random(own)
    if isinstance(job.load, ServiceLoad):
        return Service(job.load, job.spec.target, chance)
    return Training(job.load, job.spec.target, chance)


def _holds(fault: Fault, at_s: float) -> bool:
    return fault.at_s <= at_s and (fault.for_s is None or at_s < fault.at_s + fault.for_s)
