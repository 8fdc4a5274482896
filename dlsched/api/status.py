"""Fills the status schema from a CycleReport, and from nothing else: no clock, no files, no engine.
Defines when a target counts as satisfied, and which bounds on a job's GPUs are enforced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from dlsched.api.codec import as_json
from dlsched.api.host_cpu import beside, host_cpu_status, is_missed
from dlsched.api.schema import (
    SCHEMA_VERSION,
    AccuracyTargetStatus,
    BottleneckStatus,
    BoundStatus,
    CpuStatus,
    EngineStatus,
    ForecastStatus,
    GiverStatus,
    GpuHolderStatus,
    GpuStatus,
    GpuUserStatus,
    HostCpuStatus,
    JobGpuStatus,
    JobStatus,
    LatencyTargetStatus,
    LogStatus,
    MemoryStatus,
    NodeStatus,
    SidecarStatus,
    Status,
    ThreadsStatus,
    TiersStatus,
    TierStatus,
)
from dlsched.api.why_schema import (
    EffectStatus,
    Explanation,
    NowStatus,
    OutcomeStatus,
    ShadowStatus,
)
from dlsched.api.wire_status import wire_of
from dlsched.control.gpus.placement import is_alone
from dlsched.control.ledger.tiers import reached_text
from dlsched.estimate.effect import Effect
from dlsched.estimate.measured import (
    Judged,
    bounds_of_latency,
    failing,
    judged,
    lacking_in_full,
    latency_of,
    metric_of,
)
from dlsched.estimate.memory import filling_text
from dlsched.estimate.spinning import spinning_text
from dlsched.model.alarms import AlarmKey
from dlsched.model.cycle import CycleReport
from dlsched.model.forecast import Forecast, as_of, givers, in_full, in_short
from dlsched.model.spec import (
    BAND_RATIO,
    AccuracyTarget,
    LatencyTarget,
    Target,
)
from dlsched.model.state import (
    LACKING_REPORTS,
    GpuHolder,
    GpuView,
    JobView,
    MemoryUse,
    Progress,
    Reached,
    Snapshot,
    ThreadUse,
)
from dlsched.model.units import counted, render_bytes, render_quantile, render_seconds
from dlsched.store.journal.rows import Change, Event


def node_status(report: CycleReport) -> Status:
    """What `ps` shows: the node, the engine, every job, and every rejected file."""
    snapshot = report.snapshot
    return Status(
        schema_version=SCHEMA_VERSION,
        now=report.wall_time,
        cycle=snapshot.cycle,
        policy=report.policy,
        shadow=None if report.shadow is None else report.shadow.policy,
        engine=EngineStatus(
            ok=report.engine_ok,
            trouble=next((a.text for a in report.raised if a.key is AlarmKey.ENGINE_DOWN), None),
        ),
        node=node_of(snapshot),
        alarms=tuple(report.alarms),
        rejected=tuple(report.rejected),
        jobs=tuple(
            job_status(job, snapshot.now_s, report.outlooks.get(job.name, ()))
            for job in snapshot.jobs
        ),
    )


def discreet(report: CycleReport, may_read: Callable[[int | None], bool]) -> CycleReport:
    """The report without quotations of the output of jobs whose owner's logs the caller may not
    read."""
    jobs = [
        job if _quotes_nothing(job.progress) or may_read(job.spec.owner) else _unquoted(job)
        for job in report.snapshot.jobs
    ]
    snapshot = dataclasses.replace(report.snapshot, jobs=tuple(jobs))
    return dataclasses.replace(report, snapshot=snapshot)


def _quotes_nothing(progress: Progress) -> bool:
    log, lacks = progress.log, progress.lacks
    quotes = progress.refused is not None or (lacks is not None and lacks.names)
    return not quotes and (log is None or (log.example is None and not log.named))


def _unquoted(job: JobView) -> JobView:
    log, lacks = job.progress.log, job.progress.lacks
    log = None if log is None else dataclasses.replace(log, example=None, named=())
    lacks = None if lacks is None else dataclasses.replace(lacks, names=())
    progress = dataclasses.replace(job.progress, refused=None, log=log, lacks=lacks)
    return dataclasses.replace(job, progress=progress)


def node_of(snapshot: Snapshot) -> NodeStatus:
    """What the node has, and what of it is given and used."""
    running, node = snapshot.running, snapshot.node
    given = [job.actual.cpu_cores for job in running]
    return NodeStatus.of(
        node,
        host_cpu=host_cpu_status(node.host_cpu, node.cores),
        gpus=gpu_rows(snapshot),
        used_cores=sum(job.usage.cpu_cores or 0.0 for job in running),
        given_cores=sum(cores for cores in given if cores is not None),
        unlimited_jobs=given.count(None),
    )


def job_status(job: JobView, now_s: float, outlooks: Sequence[Forecast] = ()) -> JobStatus:
    """One job's row. `outlooks` are the policy's last forecasts; a job that holds nothing has
    none."""
    progress, usage, bounds, target = job.progress, job.usage, job.spec.bounds, job.spec.target
    recent, lacks = progress.recent, lacking_in_full(target, progress)
    if progress.lacks is not None and progress.lacks.reports < LACKING_REPORTS and not job.blind:
        lacks = None
    latency_s, ratio = latency_of(job)
    found = None if ratio is None else judged(ratio)
    fails = failing(job)
    within = bounds_of_latency(job)
    return JobStatus.of(
        recent,
        usage,
        progress,
        job,
        state=job.state.value,
        source="container" if job.adopted else "file",
        container=None if job.container_id is None else job.container_id[:12],
        target=target_of(target),
        measured_s=latency_s,
        lowest_s=None if within is None else within.lowest_s,
        highest_s=None if within is None else within.most_s,
        requests=recent.count,
        metric=metric_of(job),
        ratio=ratio,
        judged=None if found is None else found.value,
        failing=fails,
        satisfied_band=False if fails else _in_band(latency_s, ratio),
        satisfied_slo=False if fails else None if found is None else found is Judged.ON_TARGET,
        bottleneck=_bottleneck(job, now_s),
        tiers=_tiers(job, now_s),
        diverged=None if job.diverged is None else str(job.diverged),
        outlook=tuple(_forecast(one, now_s) for one in outlooks if job.state.holds),
        cpu=CpuStatus(
            desired_cores=job.desired.cpu_cores,
            actual_cores=job.actual.cpu_cores,
            floor_cores=bounds.floor_cores,
            ceiling_cores=bounds.ceiling_cores,
            usage_cores=usage.cpu_cores,
        ),
        gpu=gpu_of(job),
        memory=_memory(job.memory, job.spec.memory_max_bytes),
        threads=_threads(job.threads),
        sidecar=SidecarStatus.of(
            progress,
            age_s=None if progress.as_of_s is None else max(now_s - progress.as_of_s, 0.0),
            log=None if progress.log is None else LogStatus.of(progress.log),
            lacks=lacks,
            wire=wire_of(progress.wire, target),
        ),
        # One that is blind for that says so with the names, which the container chose.
        blind=job.blind and (lacks or job.blind),
        uncertain=_uncertain(job, bounded=within is not None and latency_s is None and not fails),
        idle=None if job.idle is None else job.idle.text(now_s),
        owner=job.spec.owner,
        weight=job.spec.weight,
        background=job.spec.background,
    )


def _bottleneck(job: JobView, now_s: float) -> BottleneckStatus | None:
    found = job.bottleneck
    if found is None:
        return None
    age_s = max(now_s - found.since_s, 0.0)
    return BottleneckStatus.of(found, cause=found.cause.value, age_s=age_s)


def _memory(use: MemoryUse, max_bytes: int | None) -> MemoryStatus:
    filling, parts = None if use.filling is None else filling_text(use.filling), []
    if use.working_set_bytes is not None:
        limit = ", no limit" if use.limit_bytes is None else f" of {render_bytes(use.limit_bytes)}"
        raised = ""
        if use.before_bytes is not None and use.before_bytes < (use.own_bytes or 0):
            raised = f"raised from {render_bytes(use.before_bytes)}"
        most = "" if max_bytes is None else f"at most {render_bytes(max_bytes)}"
        bounds = ", ".join(part for part in (raised, most) if part)
        limit += f" ({bounds})" if bounds else ""
        parts.append(f"working set {render_bytes(use.working_set_bytes)}{limit}")
    if use.peak_bytes is not None:
        parts.append(f"peak {render_bytes(use.peak_bytes)}")
    if use.oom_kills:
        parts.append(counted(use.oom_kills, "OOM kill"))
    text = "; ".join(part for part in (", ".join(parts), filling) if part)
    return MemoryStatus.of(use, filling=filling, max_bytes=max_bytes, text=text)


def _threads(use: ThreadUse) -> ThreadsStatus:
    sample, spinning = use.sample, use.spinning
    return ThreadsStatus(
        busy=None if sample is None else sample.busy,
        waited_cores=None if sample is None else sample.waited_cores,
        spun_ratio=None if sample is None else sample.spun_ratio,
        spins_in=(None if sample is None else sample.spins_in) or None,
        spinning=None if spinning is None else spinning_text(spinning),
    )


def _uncertain(job: JobView, *, bounded: bool) -> str | None:
    """`bounded`: its latency is known within bounds alone."""
    if job.blind is None:
        return None if job.idle is None else "idle"
    return "unclear" if bounded else "blind"


def _in_band(latency_s: float | None, ratio: float | None) -> bool | None:
    """Whether the latency is within 10 % of its target; None: unknown, as where the bound next to
    the target is, and the other is not known to be."""
    if ratio is None:
        return None
    near = abs(ratio - 1.0) <= BAND_RATIO + 1e-9
    return None if near and latency_s is None else near


def explanation(
    job: JobStatus | None,
    now: NowStatus,
    changes: Sequence[Change],
    events: Sequence[Event],
    effects: Mapping[int, Effect],
    host_cpu: HostCpuStatus | None = None,
) -> Explanation:
    """What `why` shows; changes, events and effects are the journal's, effects by cycle."""
    return Explanation(
        schema_version=SCHEMA_VERSION,
        job=job,
        now=now,
        changes=tuple(changes),
        events=tuple(events),
        effects=tuple(
            effect_status(cycle, effects[cycle]) for cycle in sorted(effects, reverse=True)
        ),
        host_cpu=host_cpu,
    )


def cpu_beside(job: JobStatus, report: CycleReport) -> HostCpuStatus | None:
    """Who uses the host's CPU beside that job, while it misses its target."""
    node, missed = report.snapshot.node, is_missed(job)
    host = host_cpu_status(node.host_cpu, node.cores)
    used = ((view.name, view.usage.cpu_cores) for view in report.snapshot.running)
    return beside(host, used, [job.name] if missed else [])


def effect_status(cycle: int, effect: Effect) -> EffectStatus:
    """The effect of the change in that cycle."""
    return EffectStatus.of(effect, cycle=cycle, verdict=effect.verdict.value, text=str(effect))


def job_now(name: str, report: CycleReport) -> NowStatus:
    """The last cycle's decision, guard note and outcomes for a job, and its shadow's result."""
    decision, shadow = report.decision, report.shadow
    return NowStatus(
        why=None if decision is None else decision.why.get(name),
        guard=report.guarded.get(name),
        limits=report.limits.get(name),
        outcomes=tuple(
            OutcomeStatus.of(out, action=as_json(out.action))
            for out in report.outcomes
            if out.action.job == name
        ),
        shadow=None
        if shadow is None
        else ShadowStatus(
            policy=shadow.policy,
            why=shadow.why.get(name),
            guard=shadow.guarded.get(name),
            limits=shadow.limits.get(name),
            trouble=shadow.trouble,
        ),
    )


def target_of(target: Target | None) -> LatencyTargetStatus | AccuracyTargetStatus | None:
    """What a job asks; None: nothing."""
    if isinstance(target, LatencyTarget):
        quantile = target.quantile
        text = f"{render_quantile(quantile)} {render_seconds(target.seconds)}"
        if target.of != "answer":
            text = f"{target.of.replace('-', ' ')} {text}"
        return LatencyTargetStatus("latency", text, target.seconds, quantile, target.of)
    if isinstance(target, AccuracyTarget):
        text = f"{target.metric} {target.deliver:g}, {target.finish:g}"
        return AccuracyTargetStatus(
            "accuracy", text, target.metric, target.deliver, target.finish, target.deadline_s
        )
    return None


def _tiers(job: JobView, now_s: float) -> TiersStatus | None:
    """The reached tiers of the job's accuracy target; None: it has no such target."""
    target = job.spec.target
    if not isinstance(target, AccuracyTarget):
        return None

    def status_of(reached: Reached | None, tier: str, asked: float) -> TierStatus | None:
        if reached is None:
            return None
        age_s = max(now_s - reached.at_s, 0.0)
        text = reached_text(target.metric, reached, tier, asked)
        return TierStatus(reached.value, reached.step, age_s, text)

    return TiersStatus(
        delivered=status_of(job.tiers.delivered, "deliver", target.deliver),
        finished=status_of(job.tiers.finished, "finish", target.finish),
    )


def _forecast(outlook: Forecast, now_s: float) -> ForecastStatus:
    """Times are seconds from now; 0: at any moment, or already met."""

    def ahead_s(at_s: float | None) -> float | None:
        return None if at_s is None else max(at_s - now_s, 0.0)

    outlook = as_of(outlook, now_s)
    return ForecastStatus.of(
        outlook,
        kind=outlook.kind.value,
        in_s=ahead_s(outlook.at_s),
        earliest_in_s=ahead_s(outlook.earliest_s),
        latest_in_s=ahead_s(outlook.latest_s),
        lacks=tuple(GiverStatus(name, cores) for name, cores in outlook.lacks),
        givers=givers(outlook),
        text=in_short(outlook, now_s),
        sentence=in_full(outlook, now_s),
    )


BOUNDED = ("devices", "time", "memory", "cpu")
"""Kinds of bounds on a job with GPUs."""

_ALONE = "not limited: no other job is on the job's GPUs"
_ADVISORY = {
    "devices": "it is not known how the job got its GPUs",
    "time": "the GPU share is sent to the job, which does not report whether it keeps to it",
    "memory": "the memory limit is sent to the job; fit_to_allotment() applies it in its framework",
    "cpu": "the kernel does not enforce the job's CPU limit",
}
_PACED = "the GPU share is sent to the job, which paces itself"


def gpu_rows(snapshot: Snapshot) -> tuple[GpuStatus, ...]:
    """Every GPU of the node in the driver's order, with the jobs on it."""
    holders = [job for job in snapshot.jobs if job.state.holds]
    return tuple(
        _row(gpu, [job for job in holders if gpu.uuid in job.gpus], holders, snapshot.now_s)
        for gpu in snapshot.node.gpus
    )


def gpu_of(job: JobView) -> JobGpuStatus | None:
    """A job's requested and assigned GPUs; None: it has neither."""
    container, bounds = job.spec.container, job.spec.bounds
    if not container.gpus and not job.gpus:
        return None
    return JobGpuStatus(
        count=container.gpus,
        uuids=tuple(job.gpus),
        kept=tuple(job.gpus_kept),
        model=container.gpu_model,
        floor_share=bounds.floor_share,
        ceiling_share=bounds.ceiling_share,
        desired_share=job.desired.gpu_share,
        actual_share=job.actual.gpu_share,
        asked_bytes=container.gpu_memory_bytes,
        used_ratio=job.usage.gpu_ratio,
        told_ratio=job.progress.gpu_ratio,
        memory_bytes=job.usage.gpu_memory_bytes,
        access=None if job.gpu_access is None else job.gpu_access.value,
        lost=job.gpu_lost,
        bounds={} if job.gpu_access is None else {what: _bound(job, what) for what in BOUNDED},
    )


def _bound(job: JobView, what: str) -> BoundStatus:
    by = dict(job.gpu_enforced).get(what)
    if by is not None:
        return BoundStatus(enforced=True, by=by)
    by_job = _ADVISORY[what]
    alone = is_alone(job.spec) and job.actual.gpu_share is None
    if what == "time" and alone:
        by_job = _ALONE
    elif what == "time" and job.progress.gpu_ratio is not None:
        by_job = _PACED
    elif what == "memory" and alone and job.spec.container.gpu_memory_bytes is None:
        by_job = _ALONE
    return BoundStatus(enforced=False, by=by_job)


def _row(gpu: GpuView, on_it: list[JobView], holders: list[JobView], now_s: float) -> GpuStatus:
    fact = gpu.fact
    return GpuStatus.of(
        fact,
        gpu,
        compute_mode=fact.compute_mode.value,
        jobs=tuple(GpuUserStatus(job.name, _share(job)) for job in on_it),
        kept_for=(*(one.name for one in holders if gpu.uuid in one.gpus_kept), *gpu.kept_for),
        promised_share=sum(job.spec.bounds.floor_share for job in on_it),
        holders=tuple(_holder(one, now_s) for one in gpu.holders),
    )


def _holder(one: GpuHolder, now_s: float) -> GpuHolderStatus:
    since_s = one.idle_since_s
    return GpuHolderStatus.of(
        one,
        kind=one.kind.value,
        text=str(one),
        container=None if one.container_id is None else one.container_id[:12],
        idle_s=None if since_s is None else max(now_s - since_s, 0.0),
        idle_too_long=one.idle_over_s is not None,
    )


def _share(job: JobView) -> float:
    """The last share set, else the guaranteed one."""
    given = job.actual.gpu_share
    return job.spec.bounds.floor_share if given is None else given
