"""What a cycle leaves for quick questions: each change once, each turn in a job's life."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.estimate.measured import unclear
from dlsched.model.actions import Action, Memory, Move, Outcome, Remove, Resize, Start
from dlsched.model.cycle import CycleReport, HookRun
from dlsched.model.decision import Decision
from dlsched.model.facts import LatencySketch
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import AccuracyTarget, Checkpoint, LatencyTarget, Limits, Stop
from dlsched.model.state import (
    Delivered,
    Diverged,
    Idle,
    JobState,
    JobView,
    MemoryUse,
    Progress,
    Reached,
    Tiers,
)
from dlsched.store.journal.changes import Reported, changes, events, last_reported
from dlsched.store.journal.rows import Change, Event
from tests.store.journal.reports import GPU, job, report, resized


def changed(*reports: CycleReport) -> list[list[Change]]:
    """The changes of each cycle of a run."""
    found: list[list[Change]] = []
    tries: dict[str, tuple[object, ...]] = {}
    for one in reports:
        told, tries = changes(one, tries)
        found.append(told)
    return found


def happened(*reports: CycleReport, known: dict[str, Reported] | None = None) -> list[Event]:
    """The events of a run; `known`: what was recorded before it."""
    found: list[Event] = []
    known = known or {}
    for one in reports:
        told, known = events(one, known)
        found += told
    return found


def acted(*actions: Action, decision: Decision | None = None) -> CycleReport:
    outcomes = tuple(Outcome(action, "begun") for action in actions)
    return replace(report(1, decision=decision), outcomes=outcomes)


def test_a_resize_is_recorded_with_its_reason_and_guard() -> None:
    [[change]] = changed(resized(report(7)))
    assert change == Change(
        cycle=7,
        now_s=1007.0,
        wall_time="cycle 7",
        job="alpha",
        kind="resize",
        before_cores=0.5,
        after_cores=0.75,
        why="late: 60 ms of 50 ms",
        guard="step cut to 0.25",
        status="done",
        detail="",
        changed="limit 0.500 -> 0.750 cores",
    )


HAD = Resize("alpha", "id", Limits(2.0), Limits(2.0), 1024, "late", shares_before=1024)


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (replace(HAD, limits=Limits(1.5)), "limit 2.000 -> 1.500 cores"),
        (replace(HAD, limits=Limits(2.0004)), "limit 2.00000 -> 2.00040 cores"),
        (replace(HAD, limits=Limits(None)), "limit of 2.000 cores removed"),
        (replace(HAD, before=Limits(None)), "limit set to 2.000 cores"),
        (replace(HAD, cpu_shares=205), "CPU weight 1024 -> 205"),
        (replace(HAD, before=Limits(), limits=Limits(), cpu_shares=205), "CPU weight 1024 -> 205"),
        (
            replace(HAD, limits=Limits(1.5), cpu_shares=205),
            "limit 2.000 -> 1.500 cores, CPU weight 1024 -> 205",
        ),
        (replace(HAD, cpu_shares=205, shares_before=None), ""),
        (Memory("alpha", "id", 8 << 30, 12 << 30, "full"), "limit of memory 8 GiB -> 12 GiB"),
        # In the idle class a weight has no effect.
        (replace(HAD, cpu_shares=2, cpu_idle=True), "idle class on"),
        (replace(HAD, cpu_shares=2, cpu_idle=True, idle_before=True), ""),
        (replace(HAD, shares_before=None, idle_before=True), "idle class off"),
        (replace(HAD, burst_before=0.0, burst_cores=0.6), "CPU burst 0.000 -> 0.600 cores"),
        (
            replace(HAD, limits=Limits(1.0), burst_before=0.6, burst_cores=0.3),
            "limit 2.000 -> 1.000 cores",
        ),
        # The job reads its share; nothing is written to the container's group.
        (
            replace(HAD, before=Limits(2.0, 0.25), limits=Limits(2.0, 0.5), cpu_shares=205),
            "GPU share 0.25 -> 0.5",
        ),
        (
            replace(HAD, before=Limits(2.0, 0.25), limits=Limits(1.0, 0.2)),
            "limit 2.000 -> 1.000 cores, GPU share 0.25 -> 0.2",
        ),
        (
            replace(HAD, limits=Limits(3.0), cpu_shares=9, gives_back=True),
            "limit 2.000 -> 3.000 cores, all limits given back as the container's owner set them",
        ),
        (Start(job().spec, Limits(1.5), 1536), "limit 1.500 cores"),
        (Start(job().spec, Limits(None, 0.5), 1536), "no limit, GPU share 0.5"),
        (Remove("alpha", "id", Stop(), Limits(), "gone"), ""),
    ],
)
def test_a_change_is_named_by_what_changed_alone(action: Action, said: str) -> None:
    [[change]] = changed(acted(action))
    assert change.changed == said


def test_a_resize_has_the_latency_that_the_policy_expected() -> None:
    decision = Decision({"alpha": Limits(0.75)}, expected_s={"alpha": 0.045, "beta": 1.0})
    decided = replace(resized(report(7, decision=decision)), guarded={})
    [outcome] = decided.outcomes
    assert isinstance(outcome.action, Resize)
    start = Start(job().spec, Limits(0.75), 768)
    given_back = replace(outcome.action, gives_back=True)
    others = (
        # What was applied is not what the policy expected it of, or was not applied.
        replace(decided, guarded={"alpha": "step cut to 0.25"}),
        replace(decided, outcomes=(replace(outcome, status="failed"),)),
        replace(decided, outcomes=(replace(outcome, action=start),)),
        replace(decided, outcomes=(replace(outcome, action=given_back),)),
        replace(decided, decision=None),
        replace(decided, decision=replace(decision, expected_s={})),
    )
    [[first], *more] = changed(decided, *others)
    assert first.expected_s == 0.045
    assert [change.expected_s for [change] in more] == [None] * 6


def test_starts_and_removals_are_recorded_with_their_reasons() -> None:
    decision = Decision({"alpha": Limits(1.5)}, {"alpha": "a fair share"})
    start = Start(job().spec, Limits(1.5), 1536)
    remove = Remove("alpha", "id", Stop(), 2.0, "its file was removed")
    [told] = changed(acted(start, remove, decision=decision))
    assert [(one.kind, one.before_cores, one.after_cores, one.why) for one in told] == [
        ("start", None, 1.5, "a fair share"),
        ("remove", None, None, "its file was removed"),
    ]


def test_gpus_and_shares_of_their_time_are_recorded() -> None:
    start = Start(job().spec, Limits(1.5, 0.5), 1536, gpus=("GPU-a", "GPU-b"))
    move = Move("id", replace(start, gpus=("GPU-c",)), Checkpoint("SIGUSR1", 9.0, "/c"), "room")
    paced = Resize("alpha", "id", Limits(1.5, 0.5), Limits(1.5, 0.75), 1536, "late")
    [told] = changed(acted(start, move, paced))
    assert [(one.kind, one.before_share, one.after_share, one.gpus) for one in told] == [
        ("start", None, 0.5, "GPU-a,GPU-b"),
        ("move", None, None, "GPU-c"),
        ("resize", 0.5, 0.75, ""),
    ]


def tried(cycle: int, share: float) -> CycleReport:
    paced = Resize("alpha", "id", Limits(1.5, 0.5), Limits(1.5, share), 1536, "late")
    return replace(report(cycle), outcomes=(Outcome(paced, "failed", "engine: timeout"),))


@pytest.mark.parametrize(
    ("reports", "counts"),
    [
        (
            (
                resized(report(1), "failed", "engine: timeout"),
                resized(report(2), "failed", "engine: timeout"),
                resized(report(3), "failed", "engine: gone"),
                report(4),
                resized(report(5), "failed", "engine: gone"),
            ),
            [1, 0, 1, 0, 1],
        ),
        ((tried(1, 0.75), tried(2, 0.75), tried(3, 0.8)), [1, 0, 1]),
        ((resized(report(1), "withheld", "busy"), resized(report(2), "withheld", "busy")), [1, 0]),
    ],
    ids=["limits", "GPU time", "withheld"],
)
def test_a_vain_try_is_recorded_once_until_it_is_another(
    reports: tuple[CycleReport, ...], counts: list[int]
) -> None:
    assert [len(one) for one in changed(*reports)] == counts


def test_events_tell_a_jobs_life() -> None:
    adopted = replace(job("gamma"), adopted=True)
    told = happened(
        report(1, job(state=JobState.PULLING, reason="12 %")),
        report(2, job(state=JobState.PULLING, reason="80 %")),
        report(3, job(state=JobState.FAILED, reason="exit 1")),
        report(4, adopted),
    )
    assert [(one.cycle, one.job, one.kind, one.before, one.after, one.reason) for one in told] == [
        (1, "alpha", "arrived", None, "pulling", "12 %"),
        (3, "alpha", "state", "pulling", "failed", "exit 1"),
        (4, "gamma", "arrived", None, "running", "adopted"),
        (4, "alpha", "left", "failed", None, ""),
    ]


def test_nobody_leaves_while_the_engine_does_not_answer() -> None:
    told = happened(
        report(1, job("alpha"), job("beta")),
        replace(report(2, job("beta")), engine_ok=False),
        report(3, job("alpha"), job("beta")),
        report(4, job("beta")),
        report(5, job("beta")),
    )
    assert [(one.cycle, one.job, one.kind) for one in told[2:]] == [(4, "alpha", "left")]


def on_gpus(cycle: int, trouble: str | None, lost: str | None = None) -> CycleReport:
    holder = replace(job(), gpus=("GPU-a",), gpu_lost=lost)
    told = report(cycle, holder, job("beta"))
    gpu = replace(GPU, fact=replace(GPU.fact, trouble=trouble))
    node = replace(told.snapshot.node, gpus=(gpu,))
    return replace(told, snapshot=replace(told.snapshot, node=node))


def trainer(cycle: int, tiers: Tiers, target: bool = True) -> CycleReport:
    spec = replace(job().spec, target=AccuracyTarget("accuracy", 0.9, 0.97) if target else None)
    return report(cycle, replace(job(), spec=spec, tiers=tiers))


BLIND = replace(job(), blind="no report for 1 min")


def unclear_report(cycle: int) -> CycleReport:
    one = report(cycle)
    return replace(one, snapshot=replace(one.snapshot, jobs=(UNCLEAR,)))


UNCLEAR = replace(
    BLIND,
    spec=replace(job().spec, target=LatencyTarget(0.05, 0.95)),
    blind="unclear",
    progress=Progress(recent=LatencySketch(600, 4.2, spans=((0.0, 0.1, 600),))),
)
IDLE = replace(job(), idle=Idle(0.0))
BAD = Diverged("loss", "nan", 990.0, 300)
DELIVERED = Reached(5.0, 0.9312345, 500)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        (
            (
                on_gpus(1, None),
                on_gpus(2, "off the bus"),
                on_gpus(3, "off the bus"),
                on_gpus(4, None),
                on_gpus(5, None, "taken away"),
                on_gpus(6, None),
            ),
            [
                (2, "gpu-trouble", "GPU 1: off the bus"),
                (4, "gpu-well", ""),
                (5, "gpu-trouble", "taken away"),
                (6, "gpu-well", ""),
            ],
        ),
        (
            tuple(
                report(cycle, replace(job(), diverged=diverged))
                for cycle, diverged in enumerate(
                    [None, BAD, replace(BAD, step=400), None, None, BAD], 1
                )
            ),
            [
                (2, "diverged", "loss nan at step 300"),
                (4, "finite", ""),
                (6, "diverged", "loss nan at step 300"),
            ],
        ),
        (
            (
                report(1),
                report(2, BLIND),
                report(3, BLIND),
                report(4),
                report(5, BLIND),
                report(6, job(state=JobState.STOPPED)),
            ),
            [
                (2, "blind", "no report for 1 min"),
                (4, "sighted", ""),
                (5, "blind", "no report for 1 min"),
                (6, "state", ""),  # what does not run sees nothing
            ],
        ),
        (
            (
                report(1),
                unclear_report(2),
                report(3),
                unclear_report(4),  # recorded already
                report(5, BLIND),
            ),
            [
                (2, "unclear", unclear(UNCLEAR.spec.target, UNCLEAR.progress.recent)),
                (5, "blind", "no report for 1 min"),
            ],
        ),
        (
            (
                report(1),
                report(2, IDLE),
                report(3, replace(IDLE, idle=Idle(0.0, certain=False))),
                report(4),
                report(5, IDLE),
                report(6, BLIND),
                report(7, IDLE),
            ),
            [
                (2, "idle", "no request for 16 min"),
                (4, "busy", ""),
                (5, "idle", "no request for 16 min"),
                (6, "blind", "no report for 1 min"),
                (7, "idle", "no request for 16 min"),
            ],
        ),
        (
            (
                trainer(1, Tiers()),
                trainer(2, Tiers(DELIVERED)),
                trainer(3, Tiers(DELIVERED)),
                trainer(4, Tiers(DELIVERED, Reached(9.0, 0.98))),
            ),
            [
                (2, "deliverable", "accuracy 0.9312 at step 500 (deliver 0.9)"),
                (4, "finish", "accuracy 0.98 (finish 0.97)"),
            ],
        ),
        (
            (
                report(1),
                trainer(2, Tiers(DELIVERED)),
                trainer(3, Tiers(), target=False),
                trainer(4, Tiers(DELIVERED)),
                trainer(5, Tiers(Reached(9.0, 0.94))),
            ),
            [
                (2, "deliverable", "accuracy 0.9312 at step 500 (deliver 0.9)"),
                (5, "deliverable", "accuracy 0.94 (deliver 0.9)"),
            ],
        ),
        (
            (
                report(1),
                replace(
                    report(2),
                    hooks=(
                        HookRun(
                            Delivered("alpha", "id", "accuracy", 0.9, 0.97, Tiers()),
                            "failed",
                            "exit code 3",
                        ),
                    ),
                ),
            ),
            [(2, "hook", "failed: exit code 3")],
        ),
    ],
    ids=[
        "GPU",
        "divergence",
        "blindness",
        "unclear",
        "idleness",
        "tiers",
        "target that is read again",
        "hook",
    ],
)
def test_each_turn_is_recorded_once(
    reports: tuple[CycleReport, ...], expected: list[tuple[int, str, str]]
) -> None:
    told = [one for one in happened(*reports) if one.kind != "arrived"]
    assert [(one.cycle, one.kind, one.reason) for one in told] == expected
    assert {one.job for one in told} == {"alpha"}


def foretold(cycle: int, kind: ForecastKind, view: JobView | None = None) -> CycleReport:
    """What is expected of `alpha` in that second."""
    outlook = Forecast(kind, "latency", best=0.064, lacks=(("beta", 0.5),))
    return replace(report(cycle, view or job()), outlooks={"alpha": (outlook,)})


def test_a_target_out_of_reach_and_back_is_recorded_once_each() -> None:
    kinds = [ForecastKind.EXPECTED] * 10 + [ForecastKind.CROWDED] * 100
    kinds += [ForecastKind.IMPOSSIBLE] * 100 + [ForecastKind.MET] * 100
    told = happened(*(foretold(cycle, kind) for cycle, kind in enumerate(kinds, 1)))
    crowded = "latency: cannot be met beside the other jobs, would be met with 0.5 cores from beta"
    assert [(one.cycle, one.job, one.kind, one.reason) for one in told[1:]] == [
        (71, "alpha", "crowded", crowded),
        (171, "alpha", "impossible", "latency: cannot be met on this node, at best 64 ms"),
        (271, "alpha", "possible", "latency: met"),
    ]


def test_forecasts_are_not_recorded_again_by_the_next_run() -> None:
    told = happened(
        foretold(100, ForecastKind.CROWDED),
        foretold(200, ForecastKind.MET),
        foretold(300, ForecastKind.MET),
        known=last_reported(foretold(1, ForecastKind.CROWDED)),
    )
    assert [(one.cycle, one.kind) for one in told] == [(300, "possible")]


def test_a_stopped_job_has_no_forecast() -> None:
    stopped = job(state=JobState.STOPPED)
    told = happened(*(foretold(cycle, ForecastKind.CROWDED, stopped) for cycle in (1, 200)))
    assert [one.kind for one in told] == ["arrived"]


def _held(
    cycle: int, kills: int | None, *, limit: int | None = 8 << 30, reached: bool = True
) -> CycleReport:
    use = MemoryUse(limit_bytes=limit, oom_kills=kills, limit_reached=reached)
    return report(cycle, replace(job(), memory=use))


def test_kills_by_the_kernel_are_recorded_once_each() -> None:
    run = [_held(1, None), _held(2, 0), _held(3, 1), _held(4, 1), _held(5, 3), _held(6, 0)]
    kills = [(one.cycle, one.reason) for one in happened(*run) if one.kind == "oom-kill"]
    because = "because its memory limit of 8 GiB was reached."
    assert kills == [
        (3, f"The kernel killed a process of alpha {because}"),
        (5, f"The kernel killed 2 processes of alpha {because}"),
    ]


def test_kills_before_a_job_was_known_are_none_and_those_while_the_agent_was_away_are() -> None:
    assert [one.kind for one in happened(_held(1, 4))] == ["arrived"]
    assert happened(_held(2, 4), known=last_reported(report(1, job()))) == [], "of an older version"
    known = last_reported(_held(1, 4))
    (event,) = happened(_held(2, 5), known=known)
    assert event.kind == "oom-kill"


@pytest.mark.parametrize(("limit", "why"), [
    (8 << 30, "memory ran out; its limit is 8 GiB"), (None, "the host ran out of memory"),
])  # fmt: skip
def test_a_kill_below_the_limit_is_not_blamed_on_it(limit: int | None, why: str) -> None:
    run = [_held(1, 0, limit=limit, reached=False), _held(2, 1, limit=limit, reached=False)]
    *_, event = happened(*run)
    assert event.reason == f"The kernel killed a process of alpha because {why}."
