"""Calls one policy for the node's cores and again for the time of each GPU that jobs share.

The registry wraps every policy in this, unless it divides cores alone. Trials
measure how much CPU a job with a GPU can use (`estimate.response`); ceilings follow from them,
which the policy sees and is held to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar, cast

from dlsched.estimate.response import Phase, Response, followed
from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.facts import LatencySketch
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.gpu_time import (
    as_node,
    foreign_share,
    gpu_name,
    of_gpu,
    shared_gpus,
    shares_gpus,
)
from dlsched.model.spec import Limits
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.protocol import Policy

MEASURED_EVERY_S = 5.0
"""Longest time between two measurements of how the speed of GPU jobs responds to CPU."""

_SHORT_RATIO = 0.8
"""Fraction of the node given out, from which trials with fewer cores pay off."""
_FULL_RATIO, _GETS_RATIO = 0.96, 0.9
"""Utilisation of the host from which limits cannot all be used, and fraction of its limit that a
job then uses if it really has it."""


@dataclass(frozen=True, slots=True)
class CpuTrials:
    """The responses of all jobs with a GPU."""

    responses: tuple[Response, ...] = ()
    wanted: tuple[tuple[str, float | None], ...] = ()
    """Cores that the policy last wanted for jobs with a ceiling, by job."""

    @property
    def ceilings(self) -> dict[str, float]:
        return {
            one.name: one.ceiling_cores for one in self.responses if one.ceiling_cores is not None
        }

    @property
    def reasons(self) -> dict[str, str]:
        return {one.name: one.reason for one in self.responses}

    def after(self, snapshot: Snapshot) -> CpuTrials:
        """The state after one more measurement; a job that does not run keeps its response."""
        known = {one.name: one for one in self.responses}
        node, running = snapshot.node, snapshot.running
        limits = (job.actual.cpu_cores for job in running)
        given = math.fsum(node.capacity_cores if cores is None else cores for cores in limits)
        contended = len(running) > 1 and given > _SHORT_RATIO * node.capacity_cores
        used = math.fsum(job.usage.cpu_cores or 0.0 for job in running)
        full = used + (node.foreign_cores or 0.0) > _FULL_RATIO * node.cores
        found = (
            followed(
                known.get(job.name), _as_had(job) if full else job, snapshot, contended=contended
            )
            if job.runs and job.unheard is None
            else known.get(job.name)
            for job in snapshot.jobs
            if job.gpus
        )
        return replace(self, responses=tuple(one for one in found if one is not None))

    def shown(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot for the policy: the cores that a job can use are its ceiling, so that the
        policy gives the rest to others, and the policy's own last decision is the desired state.

        During a trial with fewer cores the job's reports are hidden: the policy would take the
        effect of the trial for one of its own limits.
        """
        known = {
            one.name: one
            for one in self.responses
            if one.useful_cores is not None or one.phase is Phase.FEWER
        }
        wanted = dict(self.wanted)
        if not known and not wanted:
            return snapshot
        jobs = [
            replace(job, desired=replace(job.desired, cpu_cores=wanted[job.name]))
            if job.name in wanted
            else job
            for job in snapshot.jobs
        ]
        jobs = [_shown(job, known[job.name]) if job.name in known else job for job in jobs]
        return replace(snapshot, jobs=tuple(jobs))

    def held(
        self, limits: Mapping[str, Limits], shown: Snapshot
    ) -> tuple[dict[str, Limits], CpuTrials]:
        """The limits cut to the ceilings, and the state with what the policy wanted."""
        ceilings, held = self.ceilings, dict(limits)
        for job in shown.running:
            if job.name in ceilings:
                own, most = limits.get(job.name, job.desired), ceilings[job.name]
                cores = most if own.cpu_cores is None else min(own.cpu_cores, most)
                held[job.name] = replace(own, cpu_cores=cores)
        wanted = tuple(
            (job.name, limits.get(job.name, job.desired).cpu_cores)
            for job in shown.jobs
            if job.name in ceilings
        )
        return held, replace(self, wanted=wanted)


NO_TRIALS = CpuTrials()


def _as_had(job: JobView) -> JobView:
    """The job with its use as its limit, if on a full host it does not get its limit."""
    limit, used = job.actual.cpu_cores, job.usage.window_cores
    if limit is None or used is None or used >= _GETS_RATIO * limit:
        return job
    return replace(job, actual=replace(job.actual, cpu_cores=used))


def _shown(job: JobView, response: Response) -> JobView:
    bounds, useful, progress = job.spec.bounds, response.useful_cores, job.progress
    if useful is not None:
        known = math.inf if bounds.ceiling_cores is None else bounds.ceiling_cores
        bounds = replace(bounds, ceiling_cores=max(bounds.floor_cores, min(known, useful)))
    if response.phase is Phase.FEWER:
        nothing = LatencySketch()
        progress = replace(progress, fresh=nothing, window=nothing, recent=nothing)
    return replace(job, spec=replace(job.spec, bounds=bounds), progress=progress)


_CPU = ""
_FORM: Literal["per device"] = "per device"
_DUE_S = 1e-6
"""Tolerance for due times: rounding must not cost a cycle."""

Inner = TypeVar("Inner")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Part(Generic[Inner]):
    """The state of one resource: the policy's memory and last answer, valid until it is due."""

    device: str
    """UUID of a GPU, or empty for the node's cores."""
    memory: Inner | None = None
    due_s: float = 0.0
    why: tuple[tuple[str, str], ...] = ()
    weights: tuple[tuple[str, float], ...] = ()
    outlooks: tuple[tuple[str, tuple[Forecast, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class PerDeviceMemory(Generic[Inner]):
    """The policy's memory of cores and of each shared GPU, and the state of the CPU trials."""

    cores: Part[Inner]
    gpus: tuple[Part[Inner], ...] = ()
    trials: CpuTrials = NO_TRIALS
    form: Literal["per device"] = _FORM
    """Distinguishes it from the policy's own memory, which is kept where no job has a GPU."""


def memory_kind(policy: Policy, plain: object) -> Any:
    """The type of that memory: the policy's own, or `PerDeviceMemory` of it."""
    kind: Any = policy.Memory
    wrapped = isinstance(plain, Mapping) and plain.get("form") == _FORM
    return PerDeviceMemory[kind] if wrapped else kind


def per_device(policy: Policy) -> Policy:
    """The policy, wrapped for shared GPUs unless it divides cores only."""
    # mypy takes class variables of a protocol from classes only; the wrapper has its policy's.
    return cast("Policy", PerDevice(policy)) if policy.traits.divides_gpus else policy


def places(snapshot: Snapshot) -> int:
    """Number of job records in memory: one for each job, and one for each GPU that it shares."""
    return len(snapshot.jobs) + sum(len(job.gpus) for job in snapshot.jobs if shares_gpus(job))


class PerDevice:
    """A policy that also divides the time of shared GPUs; without GPU jobs it is the policy alone.

    A job on several shared GPUs gets the least of its shares. The policy is called for a resource
    when its own interval for it has passed; until then its last answer and reasons hold.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.Parameters, self.Memory = policy.Parameters, policy.Memory
        self.traits = policy.traits

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """Cores and shares of every running job; without GPU jobs, the policy's own decision."""
        before = memory if isinstance(memory, PerDeviceMemory) else None
        before = before or PerDeviceMemory(Part(_CPU, memory))
        if not any(job.gpus for job in snapshot.jobs):
            return self.policy.decide(snapshot, before.cores.memory)
        trials = before.trials.after(snapshot)
        shown = trials.shown(snapshot)
        changed = trials.ceilings != before.trials.ceilings
        cores, decided = self._ask(shown, before.cores, anyway=changed)
        known = {part.device: part for part in before.gpus}
        nodes = _gpu_nodes(shown)
        asked = [self._ask(node, known.get(uuid, Part(uuid))) for uuid, node in nodes.items()]
        unseen = [known[uuid] for uuid in shared_gpus(snapshot) if uuid in known.keys() - nodes]
        parts = [*(part for part, _ in asked), *unseen]
        shares = [one for _, one in asked if one is not None]
        limits = _limits(shown, decided, shares, dict(before.trials.wanted))
        limits, trials = trials.held(limits, shown)
        dues_s = [cores.due_s, *(part.due_s for part, _ in asked)]
        return Decision(
            limits=limits,
            why=_why(snapshot, cores, parts, trials),
            memory=PerDeviceMemory(cores, tuple(parts), trials),
            next_s=_least([MEASURED_EVERY_S, *(due_s - snapshot.now_s for due_s in dues_s)]),
            gpus=decided.gpus if decided is not None else {},
            weights=_of_present(cores.weights, snapshot),
            outlooks=_outlooks(snapshot, cores, parts),
            expected_s=_expected_s(snapshot, decided, limits),
        )

    def _ask(
        self, snapshot: Snapshot, part: Part[Any], *, anyway: bool = False
    ) -> tuple[Part[Any], Decision | None]:
        """The policy's decision for one resource; None if it is not due."""
        if not anyway and not snapshot.wakes and snapshot.now_s < part.due_s - _DUE_S:
            return part, None
        decision = self.policy.decide(snapshot, part.memory)
        asked = Part(
            part.device,
            decision.memory,
            snapshot.now_s + decision.next_s,
            tuple(sorted(decision.why.items())),
            tuple(sorted(decision.weights.items())),
            tuple(sorted(decision.outlooks.items())),
        )
        return asked, decision


def _of_present(values: Iterable[tuple[str, Value]], snapshot: Snapshot) -> dict[str, Value]:
    names = {job.name for job in snapshot.jobs}
    return {name: value for name, value in values if name in names}


def _outlooks(
    snapshot: Snapshot, cores: Part[Any], gpus: Sequence[Part[Any]]
) -> dict[str, tuple[Forecast, ...]]:
    """The forecasts by job, from the division of cores. For a service on shared GPUs it is that of
    the first GPU on which its target is not met, without numbers of cores."""
    by_cores = _of_present(cores.outlooks, snapshot)
    by_gpu: dict[str, tuple[Forecast, ...]] = {}
    for part in gpus:
        for name, outlooks in _of_present(part.outlooks, snapshot).items():
            of_latency = [one for one in outlooks if one.tier == "latency"]
            if of_latency and all(one.kind is ForecastKind.MET for one in by_gpu.get(name, ())):
                by_gpu[name] = tuple(
                    replace(
                        one,
                        needs_cores=None,
                        lacks=(),
                        why=of_gpu(one.why, gpu_name(snapshot, part.device)),
                    )
                    for one in of_latency
                )
    return {**by_cores, **by_gpu}


def _expected_s(
    snapshot: Snapshot, cores: Decision | None, limits: Mapping[str, Limits]
) -> dict[str, float]:
    """The expected latencies by cores, of jobs whose latency depends on no share of a GPU, and
    whose ceiling is not that of a CPU trial."""
    if cores is None:
        return {}
    others = {job.name for job in snapshot.jobs if shares_gpus(job)}
    others |= {
        name
        for name, own in cores.limits.items()
        if name in limits and limits[name].cpu_cores != own.cpu_cores
    }
    return {name: one_s for name, one_s in cores.expected_s.items() if name not in others}


def _gpu_nodes(snapshot: Snapshot) -> dict[str, Snapshot]:
    """Each usable shared GPU as a node, whose capacity is what foreign processes leave."""
    nodes: dict[str, Snapshot] = {}
    shared = shared_gpus(snapshot)
    for gpu in snapshot.node.gpus:
        if gpu.uuid in shared and gpu.fact.trouble is None:
            foreign = foreign_share(gpu, snapshot.jobs)
            nodes[gpu.uuid] = as_node(snapshot, gpu.uuid, 1.0 - (foreign or 0.0), foreign)
    return nodes


def _limits(
    snapshot: Snapshot, cores: Decision | None, shares: Sequence[Decision], wanted: Iterable[str]
) -> dict[str, Limits]:
    """Limits of every job with a new answer for cores or share; the other is its desired one."""
    given = cores.limits if cores is not None else {}
    jobs = {job.name: job for job in snapshot.running}
    limits: dict[str, Limits] = {}
    names = {*given, *(name for one in shares for name in one.limits)}
    for name in sorted(names.union(jobs.keys() & wanted)):
        desired = jobs[name].desired if name in jobs else Limits()
        asked = [one.limits[name].cpu_cores for one in shares if name in one.limits]
        found = [share for share in asked if share is not None]
        share = _least(found) if found else None if asked else desired.gpu_share
        limits[name] = Limits(given.get(name, desired).cpu_cores, share)
    return limits


def _least(values: Sequence[float]) -> float:
    """The minimum; an invalid number is returned instead, so that it is refused."""
    wrong = [value for value in values if not 0 <= value < math.inf]
    return wrong[0] if wrong else min(values)


def _why(
    snapshot: Snapshot, cores: Part[Any], gpus: Sequence[Part[Any]], trials: CpuTrials
) -> dict[str, str]:
    """The reasons of each job in one sentence: for its cores, its CPU trials, its GPU shares."""
    of_trials = trials.reasons
    reasons = {part.device: dict(part.why) for part in (cores, *gpus)}
    why: dict[str, str] = {}
    for job in snapshot.jobs:
        parts = [reasons[_CPU].get(job.name, ""), of_trials.get(job.name, "")]
        for uuid in job.gpus:
            reason = reasons.get(uuid, {}).get(job.name, "")
            parts.append(of_gpu(reason, gpu_name(snapshot, uuid)))
        if any(parts):
            why[job.name] = _sentence([part for part in parts if part])
    return why


def _sentence(parts: Sequence[str]) -> str:
    """The reasons in one sentence, a common beginning only once."""
    head, _, _ = parts[0].partition(": ")
    return "; ".join([parts[0], *(part.removeprefix(f"{head}: ") for part in parts[1:])])
