"""The pages of `ps` and `why`: one text for each report, at the widths that terminals have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from dlsched.api.status import node_status
from dlsched.cli.pages.ps import node_line
from dlsched.control.ledger.bottleneck import bottleneck_alarms
from dlsched.estimate.sketch import from_latencies
from dlsched.model.actions import Move, Outcome, Start
from dlsched.model.bottleneck import Bottleneck, Cause
from dlsched.model.cycle import CycleReport, Shadow
from dlsched.model.decision import Decision
from dlsched.model.facts import (
    CpuUser,
    CpuUserKind,
    HostCpu,
    LatencySketch,
    LogFact,
    Sample,
    ThreadsFact,
)
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import (
    AccuracyTarget,
    Checkpoint,
    ContainerSpec,
    JobSpec,
    LatencyTarget,
    Limits,
)
from dlsched.model.state import (
    Diverged,
    Filling,
    Idle,
    JobState,
    JobView,
    Lacks,
    MemoryUse,
    Progress,
    Reached,
    Spinning,
    ThreadUse,
    Tiers,
)
from tests.cli.conftest import Program
from tests.status_source import (
    CHANGE,
    NOW_S,
    FakeSource,
    example_report,
    foretold,
    gpu_report,
    job,
    report_of,
)
from tests.texts import same_text

pytestmark = pytest.mark.timed

ESCAPES = {"\x1b", "\x07", "\u202e"}
DELIVERED = Tiers(Reached(910.0, 0.93, 500))
DIVERGED = Diverged("loss", "nan", 990.0, 1300)
BLIND = "no report for 1 min"
WIDE = LatencySketch(600, 4.2, spans=((0.0, 0.1, 600),))
SLOW = LatencySketch(600, 420.0, spans=((0.1, 1.0, 600),))
UNCLEAR = "p95 is between 0 s and 100 ms: the buckets are too coarse for 50 ms"
LATENCIES_S = (0.02, 0.049, 0.0504, 0.0545, 0.098, 0.16, 0.85, 900.0)


def training(name: str, **more: object) -> JobView:
    learned = Progress(samples=(Sample(990.0, 1200, (("accuracy", 0.94),)),))
    made = job(name, target=AccuracyTarget("accuracy", 0.9, 0.97), progress=learned)
    return replace(made, **more)  # type: ignore[arg-type]


def failing(answers: int, errors: int) -> Progress:
    """Answers in 20 ms beside so many failures."""
    return Progress(recent=from_latencies([0.02] * answers, errors), as_of_s=999.5)


def conditions() -> CycleReport:
    """A job in each condition, named by it."""
    log = LogFact(lines=512, example=r"'step 1 \x1b[31mloss'")
    refused = Progress(log=log, bad_lines=2, refused="latency_ms: 'fast': not a finite number")
    matched = Progress(log=replace(log, matched=1, example=None))
    jobs = (
        training("learns"),
        training("delivered", tiers=DELIVERED),
        training("finished", tiers=replace(DELIVERED, finished=Reached(990.0, 0.98))),
        training("diverged", diverged=DIVERGED),
        training("diverged-later", tiers=DELIVERED, diverged=DIVERGED),
        training("blind", blind=BLIND),
        replace(job("adopted", latency_s=None), adopted=True, blind=BLIND),
        replace(job("guarded", latency_s=None), blind=BLIND),
        replace(
            job("last", target=None, latency_s=None, limit_cores=None),
            spec=JobSpec("last", ContainerSpec("cruncher"), background=True),
            adopted=True,
        ),
        job("unread-log", progress=refused),
        job("read-log", progress=matched),
        job("stopped", latency_s=None, state=JobState.STOPPED),
        replace(job("unclear", progress=Progress(recent=WIDE)), blind=UNCLEAR),
        job("fast-bucket", target=LatencyTarget(0.2, 0.95), progress=Progress(recent=WIDE)),
        job("slow-bucket", progress=Progress(recent=SLOW)),
        job("fails", progress=failing(20, 30)),
        replace(job("fails-blind", progress=failing(20, 30)), blind="1 % of requests fail"),
        job("fails-little", progress=failing(99, 1)),
        job("hides-failures", progress=replace(failing(20, 0), hides_failures=True)),
        *(job(f"late-{number}", latency_s=one) for number, one in enumerate(LATENCIES_S)),
    )
    met, finish = Forecast(ForecastKind.MET, "deliver"), Forecast(ForecastKind.MET, "finish")
    never = replace(finish, kind=ForecastKind.IMPOSSIBLE, best=0.952)
    told = "p95 is 20.1 ms, target 50 ms: its limit is 0.6 cores, it needs 0.52 cores"
    hostile = Forecast(
        ForecastKind.CROWDED, "latency", lacks=(("\x1b[31mred", 1.0),), why="\x07\u202eback"
    )
    return replace(
        example_report(),
        snapshot=replace(example_report().snapshot, jobs=jobs),
        engine_ok=False,
        outlooks={
            "learns": (met, never),
            "finished": (met, finish),
            "blind": (met, never),
            "late-0": (Forecast(ForecastKind.MET, "latency", why=told),),
            "late-1": (hostile,),
        },
        decision=Decision(
            {"blind": Limits(0.6)}, {"blind": "nothing heard: holds 0.6 cores", "late-0": told}
        ),
        guarded={"blind": "dead-band: 0.600 cores", "guarded": f"blind, {BLIND}: an even share"},
        shadow=Shadow(
            "fair",
            limits={"late-0": Limits(0.8)},
            why={"late-0": "weight 1 of 5: 0.9 cores"},
            guarded={"late-0": "bounds: 0.900 cores becomes 0.800 cores"},
        ),
    )


def moving() -> CycleReport:
    """Jobs on GPUs, one of which is about to move, beside a policy that failed."""
    report = gpu_report()
    start = Start(report.snapshot.jobs[0].spec, Limits(1.0), 1024, gpus=("GPU-44444444-eeee",))
    move = Move("0" * 64, start, Checkpoint("SIGUSR1", 30.0, "/ckpt"), "makes room for waits")
    outcome = Outcome(move, "begun", "waits for its checkpoint")
    shadow = Shadow("fair", trouble="no longer used: boom")
    return replace(report, outcomes=(outcome,), shadow=shadow)


def short() -> CycleReport:
    """One service with a short outlook, whose column then has room in a narrow terminal."""
    jobs = (job("digits-vgg"),)
    met = {"digits-vgg": (Forecast(ForecastKind.MET, "latency"),)}
    return replace(
        example_report(), snapshot=replace(example_report().snapshot, jobs=jobs), outlooks=met
    )


def unheard() -> CycleReport:
    """Services without requests, and trainings without the metric of their target."""
    seen = Lacks(900.0, 3, ("loss", "val_acc", "x" * 64, *(f"m{number}" for number in range(9))))
    steps = (Sample(990.0, 1200, (("loss", 0.3),)),)
    other = Progress(samples=steps, lacks=seen, as_of_s=999.5)
    printed = LogFact(lines=9, matched=2, named=("acc", "val_acc", "loss"))
    logged = Progress(samples=(Sample(990.0, 2, ()),), lacks=Lacks(900.0, 3), log=printed)
    never = "the job reports steps, but never `accuracy`"
    nothing = replace(job("idle", latency_s=None), idle=Idle(700.0))
    jobs = (
        nothing,
        replace(nothing, spec=job("idle-since-start").spec, idle=Idle(940.0, began=True)),
        replace(nothing, spec=job("idle-by-silence").spec, idle=Idle(700.0, certain=False)),
        training("lacks", progress=other, blind=never),
        training("lacks-early", progress=other),
        training("lacks-in-log", progress=logged, blind=never),
        replace(
            job("unread", progress=Progress(trouble="http://10.0.0.2:80/metrics: refused")),
            blind="no report for 1 min: http://10.0.0.2:80/metrics: refused",
        ),
    )
    report = example_report()
    return replace(
        report,
        snapshot=replace(report.snapshot, jobs=jobs),
        guarded={"idle-by-silence": "idle: so the job gets an even share by weight"},
        outlooks={"idle": (Forecast(ForecastKind.UNKNOWN, "latency", why="too few requests yet"),)},
    )


def late() -> CycleReport:
    """One late service beside a quick one and two users of the CPU that are no job."""
    report = report_of(job("late", latency_s=0.08), job("quick", latency_s=0.04))
    busy = (
        CpuUser(CpuUserKind.CONTAINER, "burner", 1.8, "burner"),
        CpuUser(CpuUserKind.PROCESS, "cc1plus (pid 4711)", 1.0),
    )
    node = replace(report.snapshot.node, foreign_cores=2.81, host_cpu=HostCpu(3.85, busy))
    return replace(report, snapshot=replace(report.snapshot, node=node))


def filling() -> CycleReport:
    """One whose memory fills up beside one without a limit, and one of which nothing is known."""
    growth = Filling(1_290_000_000, 1800.0, 8 << 30, 540.0, NOW_S)
    use = MemoryUse(7_550_000_000, 8 << 30, 7_600_000_000, 2, filling=growth)
    fills = replace(job("fills", target=None), memory=use)
    free = replace(job("free", target=None), memory=MemoryUse(300 << 20, None, 310 << 20, 0))
    return report_of(fills, free, job("unread", target=None))


def blocked() -> CycleReport:
    """One that waits for the disk, one for its CPU limit, and one for what nobody knows."""
    found = (
        (Cause.DISK, "On average 6.0 of its 8 threads waited for the disk, and 0.10 ran."),
        (Cause.CPU, "Its threads waited 3.00 s for a CPU in each second, and ran 0.60 s."),
        (Cause.NOT_KNOWN, "Of 8.0 open requests none of these explains most."),
    )
    jobs = [
        replace(
            job(cause.name.lower(), latency_s=0.2),
            bottleneck=Bottleneck(cause, evidence, "This is what to do.", NOW_S - 70.0),
        )
        for cause, evidence in found
    ]
    alarms = tuple(one.text for one in bottleneck_alarms(jobs))
    return replace(report_of(*jobs), alarms=alarms)


def spinning() -> CycleReport:
    """One whose threads spin under its limit, and one that busy neighbours leave too little."""
    sample = ThreadsFact(NOW_S, 8, 0.97, 5.8, 0.71, "libgomp.so.1")
    limited = Spinning(8, 1.0, limited=True, spun_ratio=0.71, library="libgomp.so.1")
    squeezed = Spinning(2, 0.93, limited=False, spun_ratio=0.52, library="libopenblas.so.0")
    return report_of(
        replace(job("limited", target=None), threads=ThreadUse(sample, limited, spun=True)),
        replace(job("squeezed", target=None), threads=ThreadUse(sample, squeezed, spun=True)),
    )


def empty() -> CycleReport:
    return replace(example_report(), snapshot=replace(example_report().snapshot, jobs=()))


SCENES: Mapping[str, Callable[[], CycleReport]] = {
    "example": example_report,
    "foretold": lambda: foretold(example_report()),
    "conditions": conditions,
    "gpus": moving,
    "short": short,
    "late": late,
    "filling": filling,
    "blocked": blocked,
    "spinning": spinning,
    "unheard": unheard,
    "empty": empty,
}


@pytest.mark.parametrize("scene", SCENES)
def test_ps_shows_every_job_within_the_width(
    program: Program, daemon: FakeSource, scene: str
) -> None:
    daemon.report = SCENES[scene]()
    pages = []
    for columns in (60, 80, 120, 200):
        pages.append(program("ps", color=True, env={"COLUMNS": str(columns)}).stdout)
        assert max(map(len, pages[-1].splitlines())) <= columns
    assert not ESCAPES & set("".join(pages))
    same_text(f"ps-{scene}", "\n".join(pages))


@pytest.mark.parametrize("scene", SCENES)
def test_why_explains_every_job(program: Program, daemon: FakeSource, scene: str) -> None:
    daemon.report = SCENES[scene]()
    names = [*(one.name for one in daemon.report.snapshot.jobs), "gone"]
    told = "\n".join(program("why", name, color=True).stdout for name in names)
    assert not ESCAPES & set(told)
    same_text(f"why-{scene}", told)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {
                "kind": "start",
                "changed": "limit 1.100 cores",
                "gpus": "GPU-11111111-aaaa,GPU-33333333-dddd",
            },
            "start  limit 1.100 cores  GPU-11111111, GPU-33333333  done",
        ),
        ({"kind": "move", "changed": "", "gpus": "GPU-3-d"}, "move  GPU-3-d  done"),
        ({"changed": "CPU weight 1024 -> 205"}, "CPU weight 1024 -> 205  done"),
        ({"changed": ""}, "resize  done"),
        ({"kind": "remove", "changed": ""}, "remove  done"),
    ],
)
def test_why_says_what_a_change_changed(
    program: Program,
    daemon: FakeSource,
    monkeypatch: pytest.MonkeyPatch,
    change: Mapping[str, object],
    line: str,
) -> None:
    monkeypatch.setattr(daemon, "changes", lambda *_: [replace(CHANGE, **change)])
    lines = program("why", "digits-vgg").stdout.splitlines()
    assert f"  2026-11-21T11:01:56Z  {line}" in map(str.rstrip, lines)


def test_the_foot_says_what_bounds_the_capacity() -> None:
    def capacity(**node: object) -> str:
        report = example_report()
        changed = replace(report.snapshot.node, capacity_cores=0.25, **node)  # type: ignore[arg-type]
        line = node_line(
            node_status(replace(report, snapshot=replace(report.snapshot, node=changed)))
        )
        return next(part for part in line.split(" | ") if part.startswith("capacity"))

    bound = "quota of 0.5 cores of control group /lxc"
    assert capacity().startswith("capacity 0.25 cores, ")
    assert capacity(bound_by=bound).startswith(f"capacity 0.25 cores ({bound}), ")
    assert capacity(throttled_ratio=0.1).startswith(
        "capacity unknown: throttled from outside, at most 0.25 cores, "
    )
