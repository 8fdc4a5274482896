"""Metrics of each job: the same figures as in `dlsched ps`."""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.api.metrics.metric import Kind, Metric, Scene, Series, by_job, known, within_job
from dlsched.api.schema import AccuracyTargetStatus, JobStatus, LatencyTargetStatus
from dlsched.model.bottleneck import Cause
from dlsched.model.forecast import ForecastKind
from dlsched.model.spec import Tier
from dlsched.model.state import JobState
from dlsched.model.units import render_quantile

_JOB = ("job_name",)


def _kind(job: JobStatus) -> str:
    if isinstance(job.target, LatencyTargetStatus):
        return "service"
    return "training" if isinstance(job.target, AccuracyTargetStatus) else "untargeted"


def _stat(job: JobStatus) -> str:
    """Which statistic of its latencies is measured, such as `p95`."""
    target = job.target
    quantile = target.quantile if isinstance(target, LatencyTargetStatus) else None
    return render_quantile(quantile)


def _latency_target(job: JobStatus) -> Iterable[Series]:
    if isinstance(job.target, LatencyTargetStatus):
        yield (_stat(job),), job.target.seconds


def _latency_bounds(job: JobStatus) -> Iterable[Series]:
    if job.measured_s is not None:
        return ()
    stat = _stat(job)
    return known(((stat, "lowest"), job.lowest_s), ((stat, "highest"), job.highest_s))


def _metric_target(job: JobStatus) -> Iterable[Series]:
    if isinstance(job.target, AccuracyTargetStatus):
        yield (job.target.metric, Tier.DELIVER.value), job.target.deliver
        yield (job.target.metric, Tier.FINISH.value), job.target.finish


def _metric(job: JobStatus) -> Iterable[Series]:
    if isinstance(job.target, AccuracyTargetStatus) and job.metric is not None:
        yield (job.target.metric,), job.metric


def _of_window(job: JobStatus, count: int) -> float | None:
    """A count of requests; None: the job never reported, or is a training."""
    reports = job.sidecar.age_s is not None and not isinstance(job.target, AccuracyTargetStatus)
    return count if reports else None


def _bottleneck(job: JobStatus) -> Iterable[Series]:
    if job.bottleneck is not None:
        for cause in Cause:
            yield (cause.value,), job.bottleneck.cause == cause.value


def _outlook(job: JobStatus) -> Iterable[Series]:
    for one in job.outlook:
        for kind in ForecastKind:
            yield (one.tier, kind.value), one.kind == kind.value


def _runs(job: JobStatus) -> bool:
    """Whether limits apply to it now; its last ones stay known."""
    return job.state == JobState.RUNNING


def _changes(scene: Scene) -> Iterable[Series]:
    shown = {job.name for job in scene.jobs}
    return ((key, n) for key, n in scene.totals.changes.items() if key[0] in shown)


def _gpu_shares(job: JobStatus, share: float | None) -> Iterable[Series]:
    if job.gpu is not None and share is not None:
        yield from (((uuid,), share) for uuid in job.gpu.uuids)


JOB_METRICS: tuple[Metric, ...] = (
    Metric(
        "job_info",
        Kind.INFO,
        ("job_name", "source", "kind"),
        "Always 1; as labels whether a job is of a `file` or an adopted `container`, and whether "
        "it is a `service`, a `training`, or `untargeted`.",
        within_job(lambda job: (((job.source, _kind(job)), 1.0),)),
    ),
    Metric(
        "job_latency_target_seconds",
        Kind.GAUGE,
        ("job_name", "stat"),
        "Target latency: the `mean`, or a quantile such as `p95`.",
        within_job(_latency_target),
    ),
    Metric(
        "job_latency_seconds",
        Kind.GAUGE,
        ("job_name", "stat"),
        "Measured latency of the requests in the setting `window`.",
        within_job(lambda job: known(((_stat(job),), job.measured_s))),
    ),
    Metric(
        "job_latency_bound_seconds",
        Kind.GAUGE,
        ("job_name", "stat", "bound"),
        "Bounds of the measured latency, `lowest` and `highest`, where the source's buckets "
        "are too coarse for one value.",
        within_job(_latency_bounds),
    ),
    Metric(
        "job_metric_target",
        Kind.GAUGE,
        ("job_name", "metric", "tier"),
        "Values of a training's metric at which it can be delivered and is finished.",
        within_job(_metric_target),
    ),
    Metric(
        "job_metric",
        Kind.GAUGE,
        ("job_name", "metric"),
        "Last value of a training's metric.",
        within_job(_metric),
    ),
    Metric(
        "job_target_ratio",
        Kind.GAUGE,
        _JOB,
        "Measured latency over target: above 1 the target is missed. Absent below 5 requests in "
        "the window, and while too many fail.",
        by_job(lambda job: job.ratio),
    ),
    Metric(
        "job_satisfied",
        Kind.GAUGE,
        ("job_name", "reading"),
        "Whether the target is kept, 1 or 0: `slo` not above it, `band` within 10 % of it. 0 "
        "while more of the requests fail than may.",
        within_job(
            lambda job: known((("slo",), job.satisfied_slo), (("band",), job.satisfied_band))
        ),
    ),
    Metric(
        "job_bottleneck",
        Kind.GAUGE,
        ("job_name", "cause"),
        "Why a service misses its latency target, or a training hardly computes: 1 for one "
        "`cause`, 0 for the others. Absent while neither is so, and for the first seconds of it.",
        within_job(_bottleneck),
    ),
    Metric(
        "job_window_requests",
        Kind.GAUGE,
        _JOB,
        "Answered requests in the setting `window`. Old ones leave the window, so this is not "
        "a counter.",
        by_job(lambda job: _of_window(job, job.requests)),
    ),
    Metric(
        "job_window_errors",
        Kind.GAUGE,
        _JOB,
        "Failed requests in the setting `window`, as the job's source counts them; they are "
        "not among the answered ones.",
        by_job(lambda job: _of_window(job, job.errors)),
    ),
    Metric(
        "job_cpu_limit_cores",
        Kind.GAUGE,
        _JOB,
        "CPU limit of a running job as the kernel has it; absent: no limit.",
        by_job(lambda job: job.cpu.actual_cores if _runs(job) else None),
    ),
    Metric(
        "job_cpu_floor_cores",
        Kind.GAUGE,
        _JOB,
        "Guaranteed CPU (`cpus.min`).",
        by_job(lambda job: job.cpu.floor_cores),
    ),
    Metric(
        "job_cpu_ceiling_cores",
        Kind.GAUGE,
        _JOB,
        "Most cores that the job may get (`cpus.max`); absent: no bound.",
        by_job(lambda job: job.cpu.ceiling_cores),
    ),
    Metric(
        "job_cpu_desired_cores",
        Kind.GAUGE,
        _JOB,
        "CPU limit that the policy last decided for a running job; absent: no limit.",
        by_job(lambda job: job.cpu.desired_cores if _runs(job) else None),
    ),
    Metric(
        "job_cpu_usage_cores",
        Kind.GAUGE,
        _JOB,
        "CPU used in the last cycle.",
        by_job(lambda job: job.cpu.usage_cores),
    ),
    Metric(
        "job_cpu_throttled_ratio",
        Kind.GAUGE,
        _JOB,
        "Fraction of the last cycle's scheduling periods in which the job hit its CPU limit.",
        by_job(lambda job: job.throttled_ratio),
    ),
    Metric(
        "job_cpu_attained_seconds_total",
        Kind.COUNTER,
        _JOB,
        "CPU time that the job has used, over all its starts.",
        by_job(lambda job: job.attained_core_s),
    ),
    Metric(
        "job_memory_bytes",
        Kind.GAUGE,
        _JOB,
        "Memory used by the job's container.",
        by_job(lambda job: job.memory_bytes),
    ),
    Metric(
        "job_memory_working_set_bytes",
        Kind.GAUGE,
        _JOB,
        "Memory used by the job's container, without file pages that were not used lately.",
        by_job(lambda job: job.memory.working_set_bytes),
    ),
    Metric(
        "job_memory_limit_bytes",
        Kind.GAUGE,
        _JOB,
        "The smallest memory limit around the job's container; absent: no limit.",
        by_job(lambda job: job.memory.limit_bytes),
    ),
    Metric(
        "job_memory_limit_max_bytes",
        Kind.GAUGE,
        _JOB,
        "Bound up to which dlsched may raise the job's memory limit; absent: it does not.",
        by_job(lambda job: job.memory.max_bytes),
    ),
    Metric(
        "job_memory_peak_bytes",
        Kind.GAUGE,
        _JOB,
        "The most memory that was in use since the container's start, page cache included.",
        by_job(lambda job: job.memory.peak_bytes),
    ),
    Metric(
        "job_memory_fills",
        Kind.GAUGE,
        _JOB,
        "Whether the job's memory grows steadily and will soon reach its limit: 1 or 0.",
        by_job(lambda job: None if job.container is None else job.memory.filling is not None),
    ),
    Metric(
        "job_oom_kills_total",
        Kind.COUNTER,
        _JOB,
        "Processes of the job that the kernel killed for want of memory; absent: unknown.",
        by_job(lambda job: job.memory.oom_kills),
    ),
    Metric(
        "job_threads_spin",
        Kind.GAUGE,
        _JOB,
        "Whether the job's threads spin to its harm, as there are more of them than CPU: 1 or 0; "
        "absent: not sampled lately, as where the job does not lack CPU.",
        by_job(lambda job: None if job.threads.busy is None else job.threads.spinning is not None),
    ),
    Metric(
        "job_weight",
        Kind.GAUGE,
        _JOB,
        "The weight that the job's owner set, by which policies divide; not its CPU weight.",
        by_job(lambda job: job.weight),
    ),
    Metric(
        "job_outlook",
        Kind.GAUGE,
        ("job_name", "tier", "kind"),
        "What the policy expects of a target: 1 for one `kind`, 0 for the others. `impossible`: "
        "this node cannot meet it, whatever else runs; `crowded`: others have the CPU.",
        within_job(_outlook),
    ),
    Metric(
        "job_outlook_seconds",
        Kind.GAUGE,
        ("job_name", "tier"),
        "Time until the target is expected to be reached; absent: unknown.",
        within_job(lambda job: known(*(((one.tier,), one.in_s) for one in job.outlook))),
    ),
    Metric(
        "job_outlook_needed_cores",
        Kind.GAUGE,
        ("job_name", "tier"),
        "CPU that the policy takes the target to need; absent: unknown.",
        within_job(lambda job: known(*(((one.tier,), one.needs_cores) for one in job.outlook))),
    ),
    Metric(
        "job_blind",
        Kind.GAUGE,
        _JOB,
        "Whether the job has a target and its progress is unknown: 1 or 0.",
        by_job(lambda job: job.blind is not None),
    ),
    Metric(
        "job_diverged",
        Kind.GAUGE,
        _JOB,
        "Whether a training reports nan or inf: 1 or 0. Trainings only.",
        by_job(lambda job: job.diverged is not None if _kind(job) == "training" else None),
    ),
    Metric(
        "job_report_age_seconds",
        Kind.GAUGE,
        _JOB,
        "Time since the job's last valid report; absent: it never reported.",
        by_job(lambda job: job.sidecar.age_s),
    ),
    Metric(
        "job_bad_lines",
        Kind.GAUGE,
        _JOB,
        "Lines of the job's reports that were refused since its container started.",
        by_job(lambda job: job.sidecar.bad_lines),
    ),
    Metric(
        "job_starts_total",
        Kind.COUNTER,
        _JOB,
        "Starts of the job's container, those by Docker included.",
        by_job(lambda job: job.starts),
    ),
    Metric(
        "job_changes_total",
        Kind.COUNTER,
        ("job_name", "kind", "status"),
        "Actions on the job's container: `start`, `resize`, `move`, `remove`; `done`, `begun`, "
        "`failed` or `withheld`.",
        _changes,
    ),
    Metric(
        "job_gpu_share_promised_ratio",
        Kind.GAUGE,
        ("job_name", "uuid"),
        "Guaranteed fraction of the time of a GPU that the job is on.",
        within_job(lambda job: _gpu_shares(job, job.gpu.floor_share if job.gpu else None)),
    ),
    Metric(
        "job_gpu_share_actual_ratio",
        Kind.GAUGE,
        ("job_name", "uuid"),
        "Share of a GPU's time that was last sent to a running job; absent: the GPU is not shared.",
        within_job(
            lambda job: _gpu_shares(job, job.gpu.actual_share if job.gpu and _runs(job) else None)
        ),
    ),
    Metric(
        "job_gpu_usage_ratio",
        Kind.GAUGE,
        _JOB,
        "Used fraction of the time of the job's GPUs in the last cycle, as a mean over them.",
        by_job(lambda job: job.gpu.used_ratio if job.gpu and _runs(job) else None),
    ),
    Metric(
        "job_gpu_memory_bytes",
        Kind.GAUGE,
        _JOB,
        "GPU memory that the job uses, over all its GPUs.",
        by_job(lambda job: job.gpu.memory_bytes if job.gpu else None),
    ),
)
