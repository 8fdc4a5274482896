"""One policy, asked for the node's cores and for the time of each GPU that jobs share.

Owns how a policy that knows cores alone comes to divide GPUs' time by the same rules, and that a
job is not given CPU that its speed does not answer to. It must not prefer one job to another: the
policy does. A policy with a class variable `per_device` that is False is asked once, as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

from dlsched.estimate.response import Phase, Response, followed
from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.facts import LatencySketch
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import Limits
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.gpu_time import (
    as_node,
    foreign_share,
    gpu_name,
    of_gpu,
    shared_gpus,
    shares_gpus,
)
from dlsched.policies.protocol import Policy

LOOK_S = 5.0
"""Longest time between two looks at how jobs with GPUs answer to CPU."""

_CPU = ""
_SHORT_RATIO = 0.8
"""Part of the node that is given out, from which it is worth asking who could do with less."""
_FULL_RATIO, _GETS_RATIO = 0.96, 0.9
"""Part of the host's cores in use from which limits cannot all be had, and part of its limit that
a job then uses if it has it."""
_DUE_S = 1e-6
"""What is due within so little is due now: rounding must not cost a cycle."""

Inner = TypeVar("Inner")
Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class Part(Generic[Inner]):
    """What is remembered of one thing that is divided."""

    device: str
    """UUID of a GPU, or empty for the node's cores."""
    memory: Inner | None = None
    """The policy's own."""
    due_s: float = 0.0
    """When the policy wants to be asked about it again."""
    why: tuple[tuple[str, str], ...] = ()
    """Its last reasons, by job: they hold until it is asked again, as what follows does."""
    weights: tuple[tuple[str, float], ...] = ()
    outlooks: tuple[tuple[str, tuple[Forecast, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class PerDeviceMemory(Generic[Inner]):
    """The policy's memory of cores and of each shared GPU, and how jobs answer to CPU."""

    cores: Part[Inner]
    gpus: tuple[Part[Inner], ...]
    responses: tuple[Response, ...]
    wanted: tuple[tuple[str, float | None], ...] = ()
    """Cores that the policy last wanted for jobs that are held to less, by job."""


def memory_kind(policy: Policy, plain: object) -> Any:
    """The type of what was remembered under that policy, as its plain values tell."""
    kind = type(policy).Memory
    names = {field.name for field in fields(PerDeviceMemory)}
    wrapped = isinstance(plain, Mapping) and plain.keys() == names
    return PerDeviceMemory[kind] if wrapped else kind  # type: ignore[valid-type]


def places(snapshot: Snapshot) -> int:
    """How many times jobs are remembered: each once, and once more for each GPU that it shares."""
    return len(snapshot.jobs) + sum(len(job.gpus) for job in snapshot.jobs if shares_gpus(job))


class PerDevice:
    """A policy that is asked as ever where no job has a GPU, and else for each shared GPU too.

    A job on several shared GPUs gets the least of its shares. Asked again is what is due by the
    policy's own interval; the rest stays, and so does its reason.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """Cores and shares of every running job; the memory is the policy's own without GPUs."""
        before = memory if isinstance(memory, PerDeviceMemory) else None
        if not _divides_gpus(self.policy) or not any(job.gpus for job in snapshot.jobs):
            return self.policy.decide(snapshot, memory if before is None else before.cores.memory)
        if before is None:
            before = PerDeviceMemory(Part(_CPU, memory), (), ())
        responses = _followed(before.responses, snapshot)
        most = _ceilings(responses)
        changed = most != _ceilings(before.responses)
        wanted = dict(before.wanted)
        shown = _shown(snapshot, responses, wanted)
        cores, decided = self._ask(shown, before.cores, anyway=changed)
        known = {part.device: part for part in before.gpus}
        nodes = _gpu_nodes(shown)
        asked = [self._ask(seen, known.get(uuid, Part(uuid))) for uuid, seen in nodes.items()]
        unseen = [known[uuid] for uuid in shared_gpus(snapshot) if uuid in known.keys() - nodes]
        parts = [*(part for part, _ in asked), *unseen]
        shares = [one for _, one in asked if one is not None]
        limits = _limits(shown, decided, shares, wanted)
        dues_s = [cores.due_s, *(part.due_s for part, _ in asked)]
        return Decision(
            limits=_held(limits, most, shown),
            why=_why(snapshot, cores, parts, responses),
            memory=PerDeviceMemory(cores, tuple(parts), responses, _wanted(limits, most, shown)),
            next_s=_least([LOOK_S, *(due_s - snapshot.now_s for due_s in dues_s)]),
            gpus=decided.gpus if decided is not None else {},
            weights=_of_present(cores.weights, snapshot),
            outlooks=_outlooks(snapshot, cores, parts),
        )

    def _ask(
        self, seen: Snapshot, part: Part[Any], *, anyway: bool = False
    ) -> tuple[Part[Any], Decision | None]:
        """The policy about one thing that is divided; None where that is not due."""
        if not anyway and not seen.wakes and seen.now_s < part.due_s - _DUE_S:
            return part, None
        decision = self.policy.decide(seen, part.memory)
        asked = Part(
            part.device,
            decision.memory,
            seen.now_s + decision.next_s,
            tuple(sorted(decision.why.items())),
            tuple(sorted(decision.weights.items())),
            tuple(sorted(decision.outlooks.items())),
        )
        return asked, decision


def _of_present(told: Iterable[tuple[str, Told]], snapshot: Snapshot) -> dict[str, Told]:
    """Of jobs that are still there: what was told of others holds no more."""
    names = {job.name for job in snapshot.jobs}
    return {name: one for name, one in told if name in names}


def _outlooks(
    snapshot: Snapshot, cores: Part[Any], gpus: Sequence[Part[Any]]
) -> dict[str, tuple[Forecast, ...]]:
    """As the policy sees them by cores; of a latency, by the GPU that makes the most of it.

    Where a service shares a GPU, that is what it waits for: cores alone could not tell. What it
    takes is no number of cores then.
    """
    told = _of_present(cores.outlooks, snapshot)
    by_gpu: dict[str, tuple[Forecast, ...]] = {}
    for part in gpus:
        for name, outlooks in _of_present(part.outlooks, snapshot).items():
            seen = [one for one in outlooks if one.tier == "latency"]
            if seen and all(one.kind is ForecastKind.MET for one in by_gpu.get(name, ())):
                by_gpu[name] = tuple(
                    replace(
                        one,
                        needs_cores=None,
                        lacks=(),
                        why=of_gpu(one.why, gpu_name(snapshot, part.device)),
                    )
                    for one in seen
                )
    return {**told, **by_gpu}


def _divides_gpus(policy: Policy) -> bool:
    return bool(getattr(policy, "per_device", True))


def _followed(before: Sequence[Response], snapshot: Snapshot) -> tuple[Response, ...]:
    """Another look at every job with a GPU; what does not run is remembered as it was."""
    known = {one.name: one for one in before}
    node, running = snapshot.node, snapshot.running
    limits = (job.actual.cpu_cores for job in running)
    given = math.fsum(node.capacity_cores if cores is None else cores for cores in limits)
    contended = len(running) > 1 and given > _SHORT_RATIO * node.capacity_cores
    used = math.fsum(job.usage.cpu_cores or 0.0 for job in running) + (node.foreign_cores or 0.0)
    full = used > _FULL_RATIO * node.cores
    found = (
        followed(known.get(job.name), _as_had(job) if full else job, snapshot, contended=contended)
        if job.runs and job.blind is None
        else known.get(job.name)
        for job in snapshot.jobs
        if job.gpus
    )
    return tuple(one for one in found if one is not None)


def _as_had(job: JobView) -> JobView:
    """On a full host a job that does not get its limit has what it uses: its speed is of that."""
    limit, used = job.actual.cpu_cores, job.usage.window_cores
    if limit is None or used is None or used >= _GETS_RATIO * limit:
        return job
    return replace(job, actual=replace(job.actual, cpu_cores=used))


def _ceilings(responses: Sequence[Response]) -> dict[str, float]:
    """By job, what it is held to."""
    return {one.name: one.ceiling_cores for one in responses if one.ceiling_cores is not None}


def _shown(
    snapshot: Snapshot, responses: Sequence[Response], wanted: Mapping[str, float | None]
) -> Snapshot:
    """What the policy is told of jobs that do not answer to CPU, or that are tried with less.

    Their ceiling is what they can use, so that it gives others what they cannot; what it wanted
    for them itself is what it finds desired. What is measured while fewer cores are tried is
    nobody's doing: nothing of it is judged.
    """
    known = {
        one.name: one
        for one in responses
        if one.useful_cores is not None or one.phase is Phase.FEWER
    }
    if not known and not wanted:
        return snapshot
    jobs = [
        replace(job, desired=replace(job.desired, cpu_cores=wanted[job.name]))
        if job.name in wanted
        else job
        for job in snapshot.jobs
    ]
    jobs = [_seen(job, known[job.name]) if job.name in known else job for job in jobs]
    return replace(snapshot, jobs=tuple(jobs))


def _seen(job: JobView, response: Response) -> JobView:
    bounds, useful, progress = job.spec.bounds, response.useful_cores, job.progress
    if useful is not None:
        known = math.inf if bounds.ceiling_cores is None else bounds.ceiling_cores
        bounds = replace(bounds, ceiling_cores=max(bounds.floor_cores, min(known, useful)))
    if response.phase is Phase.FEWER:
        nothing = LatencySketch()
        progress = replace(progress, fresh=nothing, window=nothing, recent=nothing)
    return replace(job, spec=replace(job.spec, bounds=bounds), progress=progress)


def _gpu_nodes(snapshot: Snapshot) -> dict[str, Snapshot]:
    """Each GPU that is shared and can be used, as a node of what others on it leave."""
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
    """Both parts of every job that anything was decided for; what was not asked stays."""
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


def _held(
    limits: Mapping[str, Limits], most: Mapping[str, float], snapshot: Snapshot
) -> dict[str, Limits]:
    """No more cores than a job can use, whether the policy heeds its ceiling or not."""
    held = dict(limits)
    for job in snapshot.running:
        if job.name in most:
            own = limits.get(job.name, job.desired)
            cores, ceiling = own.cpu_cores, most[job.name]
            held[job.name] = replace(
                own, cpu_cores=ceiling if cores is None else min(cores, ceiling)
            )
    return held


def _wanted(
    limits: Mapping[str, Limits], most: Mapping[str, float], snapshot: Snapshot
) -> tuple[tuple[str, float | None], ...]:
    """What the policy wanted for the jobs that are held, to be found desired by it later."""
    jobs = [job for job in snapshot.jobs if job.name in most]
    return tuple((job.name, limits.get(job.name, job.desired).cpu_cores) for job in jobs)


def _least(values: Sequence[float]) -> float:
    """The least; what is no number that can be decided comes through, to be refused."""
    wrong = [value for value in values if not 0 <= value < math.inf]
    return wrong[0] if wrong else min(values)


def _why(
    snapshot: Snapshot, cores: Part[Any], gpus: Sequence[Part[Any]], responses: Sequence[Response]
) -> dict[str, str]:
    """One sentence a job: of its cores, of what more of them would do, and of its shares."""
    told = {one.name: one.told for one in responses}
    reasons = {part.device: dict(part.why) for part in (cores, *gpus)}
    why: dict[str, str] = {}
    for job in snapshot.jobs:
        parts = [reasons[_CPU].get(job.name, ""), told.get(job.name, "")]
        for uuid in job.gpus:
            words = reasons.get(uuid, {}).get(job.name, "")
            parts.append(of_gpu(words, gpu_name(snapshot, uuid)))
        if any(parts):
            why[job.name] = _sentence([part for part in parts if part])
    return why


def _sentence(parts: Sequence[str]) -> str:
    """All of them as one; how it stands is said once where it is the same."""
    head, _, _ = parts[0].partition(": ")
    return "; ".join([parts[0], *(part.removeprefix(f"{head}: ") for part in parts[1:])])
