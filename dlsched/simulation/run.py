"""Runs a trace under a policy, with the daemon's own controller, ledger, guards and policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from dlsched.control.controller import Controller
from dlsched.control.decider import Decider, NamedPolicy
from dlsched.control.guards import GuardOptions
from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.ledger_options import LedgerOptions
from dlsched.control.ledger.updated import State
from dlsched.control.ports import Ports
from dlsched.model.actions import Resize
from dlsched.model.cycle import CycleReport, HookRun
from dlsched.model.state import Ended
from dlsched.policies.registry import load as load_policy
from dlsched.simulation.clock import VirtualClock
from dlsched.simulation.node import SimulatedRuntime
from dlsched.simulation.node.workloads import SimulatedJob, Trace
from dlsched.simulation.node.world import Computation
from dlsched.simulation.scoring import PLAIN, RunResult, job_result
from dlsched.store.policy_memory import memory_size_check

LEAST_GAP_S = 0.02
"""Minimum time between two cycles, as in the daemon."""


def simulate(
    trace: Trace,
    policy: NamedPolicy | str,
    seed: int = 0,
    *,
    guards: GuardOptions | None = None,
    publish: Callable[[CycleReport], None] = lambda _: None,
    inspect: Callable[[float, Mapping[str, Computation]], None] = lambda *_: None,
) -> RunResult:
    """Run the trace under the policy to its end; the same arguments give the same result. Of a
    policy's name a new policy object is used. Raises PolicyError when it cannot be loaded.

    After each cycle `publish` gets the report, `inspect` the time and what each job truly does.
    """
    clock = VirtualClock()
    runtime = SimulatedRuntime(trace, seed)
    inbox = TraceInbox(trace.jobs)
    ports = Ports(runtime, clock, inbox, EndedInMemory(), publish)
    named = NamedPolicy(policy, load_policy(policy)) if isinstance(policy, str) else policy
    controller = controller_of(trace, ports, named, guards)
    cycles = updates = 0
    alarms: dict[str, None] = {}
    while True:
        began_s = clock.now_s()
        report = controller.run_once()
        inspect(began_s, runtime.loads)
        cycles += 1
        updates += sum(
            isinstance(one.action, Resize) and one.status == "done" for one in report.outcomes
        )
        alarms.update(dict.fromkeys(report.alarms))
        if began_s >= trace.duration_s or not (inbox.pending(began_s) or runtime.unfinished()):
            break
        due_s = min(began_s + trace.cycle_s, trace.duration_s, inbox.next_change_s(began_s))
        woken_s = runtime.pass_until(due_s)
        clock.sleep_until(min(trace.duration_s, max(woken_s, began_s + LEAST_GAP_S)))
    ended_s = clock.now_s()
    jobs = tuple(job_result(job, runtime.loads[job.name], trace.duration_s) for job in trace.jobs)
    return RunResult(named.name, seed, ended_s, cycles, updates, jobs, tuple(alarms))


def controller_of(
    trace: Trace, ports: Ports, policy: NamedPolicy, guards: GuardOptions | None = None
) -> Controller:
    """The daemon's own controller, for the jobs of the trace on one node."""
    options = LedgerOptions(
        max_jobs=max(1, len(trace.jobs)), window_s=trace.window_s, idle_class=trace.idle_class
    )
    decider = Decider(policy, check_memory=memory_size_check)
    return Controller(ports, Ledger(options), decider, guards or GuardOptions())


def compare(trace: Trace, policies: Sequence[str], seeds: Iterable[int]) -> tuple[RunResult, ...]:
    """A run of each policy under each seed, plain Docker first. Raises PolicyError before the first
    run when a policy cannot be loaded."""
    names = {name: load_policy(name) for name in dict.fromkeys((PLAIN, *policies))}
    return tuple(simulate(trace, name, seed) for seed in seeds for name in names)


# ---------------------------------------------------------------------- job files and records


def changes_s(jobs: Iterable[SimulatedJob]) -> list[float]:
    """The times at which files come or go, sorted."""
    return sorted(
        {at_s for job in jobs for at_s in (job.arrives_s, job.leaves_s) if at_s is not None}
    )


class TraceInbox:
    """The trace's job files, which come and go."""

    def __init__(self, jobs: Sequence[SimulatedJob]) -> None:
        self._jobs = jobs
        self._changes_s = changes_s(jobs)
        self._next = 0
        self._desired = Desired()

    def scan(self, now_s: float) -> Desired:
        if self._next < len(self._changes_s) and self._changes_s[self._next] <= now_s:
            while self._next < len(self._changes_s) and self._changes_s[self._next] <= now_s:
                self._next += 1
            # In order of arrival, which is the queue's order.
            there = [
                job
                for job in sorted(self._jobs, key=lambda job: (job.arrives_s, job.name))
                if job.is_there(now_s)
            ]
            self._desired = Desired({job.name: job.spec for job in there})
        return self._desired

    def next_change_s(self, now_s: float) -> float:
        """Time of the next file that comes or goes; infinite without one."""
        coming = self._changes_s[self._next :]
        return next((at_s for at_s in coming if at_s > now_s), math.inf)

    def pending(self, now_s: float) -> bool:
        """Whether a file is still to come."""
        return any(job.arrives_s > now_s for job in self._jobs)


class EndedInMemory:
    def __init__(self) -> None:
        self._ended: dict[str, Ended] = {}

    def ended(self) -> Mapping[str, Ended]:
        return self._ended

    def keep(self, state: State) -> tuple[HookRun, ...]:
        """Keep what ended, forget what was lifted."""
        for name in state.lifts:
            self._ended.pop(name, None)
        self._ended.update((one.name, one) for one in state.ended)
        return ()
