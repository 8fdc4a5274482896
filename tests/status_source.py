"""A StatusSource without a daemon: jobs in all their conditions, with GPUs and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dlsched.api.cluster_schema import ClusterStatus
from dlsched.api.metrics.totals import JournalTotals, LoopTotals, Totals
from dlsched.api.stream import Stream
from dlsched.estimate.effect import Effect, Verdict
from dlsched.estimate.sketch import from_latencies
from dlsched.model.actions import Outcome, Resize
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.bottleneck import Bottleneck, Cause
from dlsched.model.cycle import CycleReport, RejectedFile, Shadow
from dlsched.model.decision import Decision
from dlsched.model.errors import AdoptionRefused, NotOurs
from dlsched.model.facts import (
    ComputeMode,
    CpuUser,
    CpuUserKind,
    GpuAccess,
    GpuFact,
    HostCpu,
    LatencySketch,
    LogFact,
    Sample,
    ThreadsFact,
    Usage,
    WireFact,
)
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import (
    AccuracyTarget,
    Bounds,
    ContainerSpec,
    JobSpec,
    LatencyTarget,
    Limits,
    Target,
)
from dlsched.model.state import (
    Diverged,
    Filling,
    GpuHolder,
    GpuView,
    HolderKind,
    Idle,
    JobState,
    JobView,
    Lacks,
    MemoryUse,
    NodeView,
    Progress,
    Reached,
    Snapshot,
    Spinning,
    ThreadUse,
    Tiers,
)
from dlsched.store.journal.history import CpuUsage, Curves, Range, read_curves, read_usage
from dlsched.store.journal.rows import Change, Event

NOW_S = 1000.0
P95_50MS = LatencyTarget(seconds=0.05, quantile=0.95)


def job(
    name: str,
    *,
    target: Target | None = P95_50MS,
    latency_s: float | None = 0.05,
    requests: int = 100,
    state: JobState = JobState.RUNNING,
    reason: str | None = None,
    progress: Progress | None = None,
    limit_cores: float | None = 0.6,
) -> JobView:
    """A job whose requests all took `latency_s`."""
    if progress is None:
        latencies = () if latency_s is None else (latency_s,) * requests
        progress = Progress(recent=from_latencies(latencies), as_of_s=NOW_S - 0.5)
    container = ContainerSpec(image="example/inference", environment=(("TOKEN", "hunter2"),))
    started = state is JobState.RUNNING
    return JobView(
        spec=JobSpec(name, container, bounds=Bounds(0.1, 2.0), target=target, digest=f"d-{name}"),
        state=state,
        reason=reason,
        container_id="0123456789abcdef" * 4 if started else None,
        desired=Limits(limit_cores),
        actual=Limits(limit_cores),
        usage=Usage(cpu_cores=0.52, memory_bytes=300 << 20, throttled_ratio=0.2),
        progress=progress,
        starts=1,
    )


def example_report() -> CycleReport:
    """Jobs that are served, slow, fast, silent, training, waiting, failed, and one hostile."""
    training = Progress(samples=(Sample(990.0, 1200, (("accuracy", 0.8731), ("loss", 0.31))),))
    hung = Progress(in_flight=2, oldest_s=12.3, as_of_s=NOW_S - 0.2, bad_lines=4)
    jobs = (
        job("digits-mobilenet", latency_s=0.0513),
        job("digits-resnet", latency_s=0.081, limit_cores=1.25),
        job("digits-vgg", latency_s=0.03, target=LatencyTarget(0.05)),
        job("face-unlock", progress=hung, limit_cores=None),
        job("hostile", latency_s=None, reason="\x1b[31mred\x1b[0m\x07 and \u202ereversed"),
        job("lenet-train", target=AccuracyTarget("accuracy", 0.9, 0.97), progress=training),
        job(
            "queued",
            latency_s=None,
            state=JobState.WAITING,
            reason="floor of 1.5 cores does not fit beside the others: 0.4 of 4 cores left",
        ),
        job(
            "typo",
            latency_s=None,
            state=JobState.FAILED,
            reason="image example/inferense: not found",
        ),
    )
    resize = Resize(
        job="digits-resnet",
        container_id="0" * 64,
        before=Limits(1.1),
        limits=Limits(1.25),
        cpu_shares=1280,
        shares_before=1126,
        why="slow: p95 81 ms of 50 ms",
    )
    return CycleReport(
        snapshot=Snapshot(
            cycle=77,
            now_s=NOW_S,
            node=NodeView(4.0, 4.0, 8 << 30, foreign_cores=0.1),
            jobs=jobs,
        ),
        policy="dqoes",
        decision=Decision(
            limits={"digits-resnet": Limits(1.4)},
            why={"digits-resnet": "slow: p95 81 ms of 50 ms, grows by a tenth"},
        ),
        limits={"digits-resnet": Limits(1.25)},
        guarded={"digits-resnet": "1.4 cores cut to 1.25: the node is full"},
        outcomes=(Outcome(resize, "failed", "engine said: busy"),),
        rejected=(RejectedFile("bad.yaml", None, ("bad.yaml:3:7: cpus.max: 0 is too low",)),),
        alarms=("limits stay as they are: policy dqoes failed",),
        wall_time="2026-11-21T11:02:03Z",
    )


def report_of(*jobs: JobView, **more: object) -> CycleReport:
    """The example's report with these jobs alone."""
    report = example_report()
    return replace(report, snapshot=replace(report.snapshot, jobs=jobs), **more)  # type: ignore[arg-type]


def foretold(report: CycleReport) -> CycleReport:
    """The example's report with outlooks of every kind."""
    crowded = Forecast(
        ForecastKind.CROWDED,
        "latency",
        needs_cores=2.45,
        lacks=(("digits-vgg", 0.8), ("lenet-train", 0.4)),
        why="p95 81 ms of 50 ms with 1.25 cores",
    )
    ahead = (NOW_S + 250, NOW_S + 180, NOW_S + 362)
    outlooks = {
        "digits-mobilenet": (Forecast(ForecastKind.MET, "latency"),),
        "digits-resnet": (crowded,),
        "digits-vgg": (Forecast(ForecastKind.IMPOSSIBLE, "latency", best=0.064),),
        "face-unlock": (Forecast(ForecastKind.UNKNOWN, "latency"),),
        "lenet-train": (
            Forecast(ForecastKind.EXPECTED, "deliver", *ahead, why="0.9 at step 1800"),
            Forecast(ForecastKind.IMPOSSIBLE, "finish", best=0.952),
        ),
        "typo": (crowded,),
    }
    return replace(report, outlooks=outlooks)


def gpu_report() -> CycleReport:
    """Two GPUs, one MIG instance and one that is lost; two jobs share, one is alone, one waits."""
    whole = GpuFact("GPU-11111111-aaaa", 0, "NVIDIA A100-SXM4-40GB", 40 << 30, 21 << 30, 0.83)
    part = replace(
        whole,
        uuid="MIG-22222222-bbbb",
        index=1,
        model="NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        memory_bytes=5 << 30,
        memory_used_bytes=1 << 29,
        busy_ratio=None,
        part_of="GPU-22222222-cccc",
    )
    lost = replace(
        whole,
        uuid="GPU-33333333-dddd",
        index=2,
        memory_used_bytes=None,
        busy_ratio=None,
        trouble="fell off the bus (GPU is lost)",
    )
    kept = replace(whole, uuid="GPU-44444444-eeee", index=3, busy_ratio=0.0, memory_used_bytes=0)
    cdi = (("devices", "CDI: the job can open only its own GPUs"), ("cpu", "the engine"))
    hook = (
        ("devices", "NVIDIA hook in legacy mode: the job can open only its own GPUs"),
        ("memory", "MPS: 8 GiB on each GPU, set at the job's start"),
        ("cpu", "dlsched, through the container's control group"),
    )
    jobs = (
        gpu_job("shared-one", 0.5, (whole.uuid,), GpuAccess.CDI, cdi, told=0.6, paces=0.58),
        gpu_job("shared-two", 0.25, (whole.uuid,), GpuAccess.LEGACY, hook, told=0.4),
        gpu_job("solitary", 1.0, (part.uuid, lost.uuid), GpuAccess.CDI, cdi),
        replace(
            gpu_job("waits", 1.0, (), None, ()),
            state=JobState.WAITING,
            container_id=None,
            reason="needs 1 GPU: GPU 0 is shared",
            gpus_kept=(kept.uuid,),
        ),
        job("without"),
    )
    notebook = GpuHolder(
        HolderKind.FOREIGN,
        "f" * 64,
        "notebook-ada",
        memory_bytes=2 << 30,
        computes=False,
        idle_since_s=NOW_S - 7300,
        idle_over_s=7200.0,
    )
    process = GpuHolder(
        HolderKind.FOREIGN, pid=4242, uid=1001, user="ada", memory_bytes=1 << 30, computes=True
    )
    own = GpuHolder(
        HolderKind.OWN,
        "a" * 64,
        "dlsched-default-shared-one",
        "shared-one",
        uid=1000,
        memory_bytes=12 << 30,
        computes=True,
    )
    adopted = replace(
        own,
        kind=HolderKind.ADOPTED,
        name="shared-two",
        job="shared-two",
        uid=None,
        memory_bytes=6 << 30,
        computes=False,
        idle_since_s=NOW_S - 95,
    )
    unknown = replace(own, name="solitary", job="solitary", memory_bytes=None, computes=None)
    unseen = GpuHolder(HolderKind.UNSEEN, pid=77, memory_bytes=1 << 29)
    views = (
        GpuView(
            whole,
            foreign_processes=2,
            foreign_memory_bytes=3 << 30,
            holders=(own, adopted, notebook, process),
        ),
        GpuView(part, holders=(unknown, unseen), holders_left_out=2),
        GpuView(lost),
        GpuView(replace(kept, compute_mode=ComputeMode.EXCLUSIVE), reserved=True),
    )
    report = example_report()
    node = replace(report.snapshot.node, gpus=views)
    return replace(report, snapshot=replace(report.snapshot, jobs=jobs, node=node))


def gpu_job(
    name: str,
    floor_share: float,
    gpus: tuple[str, ...],
    access: GpuAccess | None,
    enforced: tuple[tuple[str, str], ...],
    *,
    told: float | None = None,
    paces: float | None = None,
) -> JobView:
    """A job that is on these GPUs; `paces`: what it says of its own use."""
    one = job(name)
    container = replace(one.spec.container, gpus=max(1, len(gpus)))
    bounds = replace(one.spec.bounds, floor_share=floor_share, ceiling_share=1.0)
    return replace(
        one,
        spec=replace(one.spec, container=container, bounds=bounds),
        gpus=gpus,
        gpu_access=access,
        gpu_enforced=enforced,
        actual=replace(one.actual, gpu_share=told),
        usage=replace(one.usage, gpu_ratio=paces, gpu_memory_bytes=7 << 30 if gpus else None),
        progress=replace(one.progress, gpu_ratio=paces),
    )


def everything_report() -> CycleReport:
    """A report that leaves no field of the status schema empty."""
    gpus, plain = gpu_report(), foretold(example_report())
    first, *others = gpus.snapshot.jobs
    spec = first.spec
    full = replace(
        first,
        spec=replace(
            spec,
            container=replace(spec.container, gpu_model="A100", gpu_memory_bytes=8 << 30),
            owner=1000,
            memory_max_bytes=24 << 30,
        ),
        reason="moves",
        gpus_kept=("GPU-44444444-eeee",),
        gpu_lost="GPU 2 fell off the bus",
        blind="no report for 1 min",
        desired=Limits(0.6, 0.6),
        memory=MemoryUse(
            6_550_000_000,
            8 << 30,
            6_900_000_000,
            2,
            filling=Filling(1_290_000_000, 2400.0, 8 << 30, 1490.0, NOW_S - 30.0),
            own_bytes=8 << 30,
            before_bytes=6 << 30,
        ),
        threads=ThreadUse(
            ThreadsFact(NOW_S - 3.0, 8, 1.0, 5.8, 0.71, "libgomp.so.1"),
            Spinning(8, 1.0, limited=True, spun_ratio=0.71, library="libgomp.so.1"),
            spun=True,
        ),
        progress=replace(
            first.progress,
            recent=from_latencies((0.05,) * 9, errors=1),
            in_flight=1,
            oldest_s=0.1,
            bad_lines=2,
            refused="latency_ms: 'fast': not a finite number",
            log=LogFact(lines=512, matched=0, example="'loading'"),
            trouble="its line is too long",
            wire=WireFact(
                (8000,),
                requests_per_s=18.0,
                connections=(("http", 3),),
                unmeasured=(("HTTP/2", 1),),
                callers=(("gateway", 18.0),),
                measured_s=0.0113,
                reported_s=(0.0978, 0.0978),
            ),
        ),
        idle=Idle(NOW_S - 240.0),
        bottleneck=Bottleneck(
            Cause.DISK,
            "On average 6.0 of its 8 threads waited for the disk, and 0.10 ran.",
            "More CPU does not help; use a faster disk, or read and write less.",
            NOW_S - 70.0,
        ),
        attained_core_s=12.0,
    )
    training = replace(
        job(
            "trained",
            target=AccuracyTarget("accuracy", 0.9, 0.97, 3600.0),
            progress=Progress(
                samples=(Sample(990.0, 1200, (("accuracy", 0.98),)),),
                lacks=Lacks(900.0, 3, ("val_acc",)),
            ),
        ),
        tiers=Tiers(Reached(910.0, 0.93, 500), Reached(990.0, 0.98, 900)),
        diverged=Diverged("loss", "nan", 991.0, 1300),
    )
    second, *others = others
    in_a_bucket = LatencySketch(9, 0.36, spans=((0.025, 0.05, 9),))
    bounded = replace(second, progress=replace(second.progress, recent=in_a_bucket))
    views = tuple(
        replace(view, fact=replace(view.fact, numa_node=1)) for view in gpus.snapshot.node.gpus
    )
    node = replace(gpus.snapshot.node, gpus=views, gpu_trouble="NVML: one GPU is lost")
    burner = CpuUser(CpuUserKind.CONTAINER, "burner", 1.2, "burner")
    node = replace(node, host_cpu=HostCpu(3.9, (burner,)))
    node = replace(node, bound_by="quota of 4 cores of control group /lxc", throttled_ratio=0.2)
    jobs = (full, bounded, *others, *plain.snapshot.jobs, training)
    outlooks = {
        **plain.outlooks,
        "digits-resnet": tuple(replace(one, best=0.06) for one in plain.outlooks["digits-resnet"]),
    }
    return replace(
        plain,
        snapshot=replace(plain.snapshot, jobs=jobs, node=node),
        outlooks=outlooks,
        limits={"digits-resnet": Limits(1.25, 0.5)},
        outcomes=tuple(replace(one, engine_s=0.2) for one in plain.outcomes),
        shadow=Shadow(
            "fair",
            limits={"digits-resnet": Limits(0.8, 0.5)},
            why={"digits-resnet": "weight 1 of 5"},
            guarded={"digits-resnet": "bounds"},
            trouble="no longer used: boom",
        ),
        rejected=(RejectedFile("bad.yaml", "bad", ("bad.yaml:3:7: cpus.max: 0 is too low",)),),
        alarms=("engine: no answer",),
        raised=(Alarm("engine", AlarmKey.ENGINE_DOWN, "engine: no answer"),),
    )


CHANGE = Change(
    cycle=70,
    now_s=993.0,
    wall_time="2026-11-21T11:01:56Z",
    job="digits-resnet",
    kind="resize",
    before_cores=1.0,
    after_cores=1.1,
    why="slow: p95 90 ms of 50 ms, grows by a tenth",
    guard="",
    status="done",
    detail="",
    expected_s=0.084,
    changed="limit 1.000 -> 1.100 cores",
)
EVENT = Event(
    cycle=3,
    now_s=926.0,
    wall_time="2026-11-21T11:00:49Z",
    job="digits-resnet",
    kind="state",
    before="starting",
    after="running",
    reason="",
)
EFFECT = Effect(Verdict.HELPED, 0.09, 0.0817, 110, 102, others=2)


class FakeSource:
    """Answers from `report`, and notes what was asked of it."""

    def __init__(self, report: CycleReport | None = None) -> None:
        self.report = report
        self.loop = LoopTotals()
        self.stream = Stream("run1")
        self.asked: list[tuple[object, ...]] = []
        self.labels: dict[str, Mapping[str, str]] = {}
        """What `adopt` was given."""
        self.journal = Path("no-journal.db")
        self.log: Iterator[bytes] = iter((b"one\n", b"two\n"))
        self.watch = "/etc/dlsched/jobs.d"
        self.instance = "default"
        self.failed: str | None = None
        self.refuses: str | None = None
        """Why no container is adopted, and no job stopped."""
        self.given_back: list[Mapping[str, object]] = []
        self.adopted: list[Mapping[str, object]] = []
        self.others: list[Mapping[str, object]] = []
        """Containers, with the fields of `Found`."""
        self.unrestored: dict[str, str] = {}
        """Why a dropped container did not get all limits back."""
        self.cluster_status: ClusterStatus | None = None

    def cluster(self) -> ClusterStatus | None:
        return self.cluster_status

    def last_report(self) -> CycleReport | None:
        return self.report

    def failure(self) -> str | None:
        return self.failed

    def totals(self) -> Totals | None:
        last = self.loop.last
        if self.report is not None and (last is None or last.report is not self.report):
            self.loop.count(self.report, 0.02, JournalTotals(4096))
        return None if self.report is None else self.loop.last

    def changes(self, job: str, limit: int) -> Sequence[Change]:
        self.asked.append(("changes", job, limit))
        return [CHANGE] if job in ("digits-resnet", "gone") else []

    def events(self, job: str, limit: int) -> Sequence[Event]:
        return [EVENT] if job == "digits-resnet" else []

    def effects(self, job: str, limit: int) -> Mapping[int, Effect]:
        return {70: EFFECT} if job == "digits-resnet" else {}

    def curves(self, asked: Range, stopped: Callable[[], bool]) -> Curves:
        return read_curves(self.journal, asked, stopped)

    def usage(self, from_s: float, to_s: float, stopped: Callable[[], bool]) -> CpuUsage:
        return read_usage(self.journal, from_s, to_s, stopped)

    def some_effects(
        self, changes: Sequence[Change], stopped: Callable[[], bool]
    ) -> Mapping[tuple[str, int], Effect]:
        return {(one.job, one.cycle): EFFECT for one in changes if one.job == "digits-resnet"}

    def stop(self, job: str) -> None:
        self._wish("stop", job)
        if self.refuses is not None:
            raise NotOurs(self.refuses)

    def start(self, job: str) -> None:
        self._wish("start", job)

    def release(self) -> Sequence[Mapping[str, object]]:
        self.asked.append(("release",))
        return list(self.given_back)

    def resume(self) -> None:
        self.asked.append(("resume",))

    def adopt(self, container: str, labels: Mapping[str, str]) -> Mapping[str, object]:
        self._wish("adopt", container)
        if self.refuses is not None:
            raise AdoptionRefused(self.refuses)
        self.labels[container] = dict(labels)
        return {
            "job": container,
            "container_id": "c" * 64,
            "limit_cores": None,
            "successors": None,
        }

    def drop(self, container: str) -> Mapping[str, object]:
        self._wish("drop", container)
        failure = self.unrestored.get(container)
        return {"job": container, "adopted": True, "now": "no limit", "failure": failure}

    def found(self) -> Mapping[str, object]:
        return {"adopted": self.adopted, "others": self.others}

    def adopted_labels(self, container: str) -> Mapping[str, str]:
        return self.labels[container]

    def logs(self, job: str, tail: int, follow: bool) -> Iterator[bytes]:
        self.asked.append(("logs", job, tail, follow))
        return self.log

    def about(self) -> Mapping[str, object]:
        return {
            "version": "0.1.0",
            "instance": self.instance,
            "policy": "dqoes",
            "shadow": None,
            "dry_run": False,
            "watch": self.watch,
            "pid": 4711,
        }

    def _wish(self, what: str, name: str) -> None:
        if self.report is None or all(view.name != name for view in self.report.snapshot.jobs):
            raise KeyError(name)
        self.asked.append((what, name))
