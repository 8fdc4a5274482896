"""Metrics of the node, its GPUs and MIG instances, the engine and the daemon itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from dlsched import __version__
from dlsched.api.metrics.metric import JOBS_MAX, Kind, Metric, Read, Scene, Series, alone, known
from dlsched.api.schema import GpuHolderStatus, GpuStatus
from dlsched.model.state import HolderKind, JobState
from dlsched.store.journal.minutes import wall_s


def _build(scene: Scene) -> Iterable[Series]:
    yield (__version__, scene.status.policy, scene.status.shadow or ""), 1.0


def _states(scene: Scene) -> Iterable[Series]:
    found = Counter(job.state for job in scene.status.jobs)
    return (((state.value,), float(found[state.value])) for state in JobState)


NODE_METRICS: tuple[Metric, ...] = (
    Metric(
        "build_info",
        Kind.INFO,
        ("version", "policy", "shadow"),
        "Version of the daemon, its policy, and its shadow policy (empty: none).",
        _build,
    ),
    Metric(
        "node_capacity_cores",
        Kind.GAUGE,
        (),
        "CPU that jobs may use: the host's, less what is reserved for it.",
        alone(lambda scene: scene.status.node.capacity_cores),
    ),
    Metric(
        "node_cores",
        Kind.GAUGE,
        (),
        "All CPU of the host, in cores, as the setting `capacity` counts it.",
        alone(lambda scene: scene.status.node.cores),
    ),
    Metric(
        "node_given_cores",
        Kind.GAUGE,
        (),
        "Sum of the running jobs' CPU limits; jobs without a limit are left out.",
        alone(lambda scene: scene.status.node.given_cores),
    ),
    Metric(
        "node_used_cores",
        Kind.GAUGE,
        (),
        "CPU used by the running jobs in the last cycle.",
        alone(lambda scene: scene.status.node.used_cores),
    ),
    Metric(
        "node_foreign_cores",
        Kind.GAUGE,
        (),
        "CPU used on the host by everything but jobs.",
        alone(lambda scene: scene.status.node.foreign_cores),
    ),
    Metric(
        "node_memory_bytes",
        Kind.GAUGE,
        (),
        "Memory of the host that is divided among jobs by their memory limits.",
        alone(lambda scene: scene.status.node.memory_bytes),
    ),
    Metric(
        "engine_up",
        Kind.GAUGE,
        (),
        "Whether the Docker Engine answers: 1 or 0.",
        alone(lambda scene: scene.status.engine.ok),
    ),
    Metric(
        "engine_errors_total",
        Kind.COUNTER,
        ("call",),
        "Cycles in which the engine did not answer (`list`), and actions on containers that failed "
        "(`start`, `resize`, `move`, `remove`).",
        lambda scene: (((call,), n) for call, n in scene.totals.engine_errors.items()),
    ),
    Metric(
        "alarms",
        Kind.GAUGE,
        (),
        "Alarms that `dlsched ps` shows now.",
        alone(lambda scene: len(scene.status.alarms)),
    ),
    Metric(
        "rejected_files",
        Kind.GAUGE,
        (),
        "Job files that are rejected now.",
        alone(lambda scene: len(scene.status.rejected)),
    ),
    Metric(
        "blind_jobs",
        Kind.GAUGE,
        (),
        "Jobs with a target whose progress is unknown.",
        alone(lambda scene: sum(job.blind is not None for job in scene.status.jobs)),
    ),
    Metric(
        "cycles_total",
        Kind.COUNTER,
        (),
        "Complete cycles of the control loop.",
        alone(lambda scene: scene.totals.cycles),
    ),
    Metric(
        "last_cycle_timestamp_seconds",
        Kind.GAUGE,
        (),
        "Unix time at the end of the last complete cycle.",
        alone(lambda scene: wall_s(scene.status.now)),
    ),
    Metric(
        "cycle_cpu_seconds_total",
        Kind.COUNTER,
        ("phase",),
        "CPU time of the control loop's thread, by phase of the cycle.",
        lambda scene: (((phase,), used_s) for phase, used_s in scene.totals.phase_s.items()),
    ),
    Metric(
        "cycle_duration_seconds",
        Kind.HISTOGRAM,
        (),
        "Duration of the control loop's cycles.",
        alone(lambda scene: scene.totals.cycle_s),
    ),
    Metric(
        "guarded_total",
        Kind.COUNTER,
        (),
        "Decisions of the policy for one job that a guard changed.",
        alone(lambda scene: scene.totals.guarded),
    ),
    Metric(
        "journal_bytes",
        Kind.GAUGE,
        (),
        "Size of the journal's file and its write-ahead log.",
        alone(lambda scene: scene.totals.journal.size_bytes),
    ),
    Metric(
        "journal_write_errors_total",
        Kind.COUNTER,
        (),
        "Cycles that could not be written to the journal.",
        alone(lambda scene: scene.totals.journal.lost_cycles),
    ),
    Metric(
        "jobs",
        Kind.GAUGE,
        ("state",),
        "Jobs in each state.",
        _states,
    ),
    Metric(
        "jobs_without_series",
        Kind.GAUGE,
        (),
        f"Jobs beyond the first {JOBS_MAX}, which have no series of their own.",
        alone(lambda scene: len(scene.status.jobs) - len(scene.jobs)),
    ),
)


def _by_gpu(value: Callable[[GpuStatus], float | None]) -> Read:
    return lambda scene: known(*(((gpu.uuid,), value(gpu)) for gpu in scene.status.node.gpus))


def _holders(value: Callable[[GpuHolderStatus], float]) -> Read:
    """Sums over the holders of each GPU by kind. Names and PIDs, which are not bounded, are no
    labels."""

    def read(scene: Scene) -> Iterable[Series]:
        for gpu in scene.status.node.gpus:
            for kind in HolderKind:
                found = [value(one) for one in gpu.holders if one.kind == kind.value]
                if found:
                    yield (gpu.uuid, kind.value), sum(found)

    return read


GPU_METRICS: tuple[Metric, ...] = (
    Metric(
        "gpu_info",
        Kind.INFO,
        ("gpu", "uuid", "model"),
        "Always 1; as labels a GPU's or MIG instance's number, UUID and product name.",
        lambda scene: (
            ((str(gpu.index), gpu.uuid, gpu.model), 1.0) for gpu in scene.status.node.gpus
        ),
    ),
    Metric(
        "gpu_up",
        Kind.GAUGE,
        ("uuid",),
        "Whether the GPU can be used, 1 or 0; 0 for one that is lost.",
        _by_gpu(lambda gpu: gpu.trouble is None),
    ),
    Metric(
        "gpu_busy_ratio",
        Kind.GAUGE,
        ("uuid",),
        "Fraction of the driver's last sampling period in which the GPU computed; absent on MIG.",
        _by_gpu(lambda gpu: gpu.busy_ratio),
    ),
    Metric(
        "gpu_memory_used_bytes",
        Kind.GAUGE,
        ("uuid",),
        "Used memory of the GPU.",
        _by_gpu(lambda gpu: gpu.memory_used_bytes),
    ),
    Metric(
        "gpu_memory_bytes",
        Kind.GAUGE,
        ("uuid",),
        "Total memory of the GPU.",
        _by_gpu(lambda gpu: gpu.memory_bytes),
    ),
    Metric(
        "gpu_holders",
        Kind.GAUGE,
        ("uuid", "kind"),
        "Containers and processes that hold memory of the GPU, at most 32: `own` and `adopted` are "
        "jobs' containers, `foreign` are of no job, `unseen` are not visible to dlsched. Absent: "
        "none.",
        _holders(lambda _: 1.0),
    ),
    Metric(
        "gpu_held_bytes",
        Kind.GAUGE,
        ("uuid", "kind"),
        "GPU memory that containers and processes hold, by kind as in dlsched_gpu_holders, as far "
        "as the driver reports it.",
        _holders(lambda one: one.memory_bytes or 0),
    ),
    Metric(
        "gpu_idle_held_bytes",
        Kind.GAUGE,
        ("uuid", "kind"),
        "GPU memory held by containers and processes that have not used the GPU for longer "
        "than `gpus.idle_after`.",
        _holders(lambda one: (one.memory_bytes or 0) if one.idle_too_long else 0),
    ),
)
