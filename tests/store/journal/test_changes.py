"""What a cycle leaves for quick questions: each change once, each turn in a job's life."""

from __future__ import annotations

from dataclasses import replace

from dlsched.model.actions import Move, Outcome, Remove, Resize, Start
from dlsched.model.cycle import CycleReport, HookRun
from dlsched.model.decision import Decision
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import AccuracyTarget, Checkpoint, Limits, Stop
from dlsched.model.state import Delivered, Diverged, JobState, JobView, Reached, Tiers
from dlsched.store.journal.changes import Reported, changes, events, last_reported
from tests.store.journal.reports import GPU, job, report, resized


def test_a_resize_is_told_with_its_reason_and_guard() -> None:
    [change], tries = changes(resized(report(7)), {})

    assert (change.cycle, change.now_s, change.wall_time) == (7, 1007.0, "cycle 7")
    assert (change.kind, change.before_cores, change.after_cores) == ("resize", 0.5, 0.75)
    assert (change.why, change.guard) == ("late: 60 ms of 50 ms", "step cut to 0.25")
    assert (change.status, change.detail) == ("done", "")
    assert tries == {}


def test_a_resize_has_the_latency_that_the_policy_expected() -> None:
    decision = Decision({"alpha": Limits(0.75)}, expected_s={"alpha": 0.045, "beta": 1.0})
    decided = replace(resized(report(7, decision=decision)), guarded={})
    [outcome] = decided.outcomes
    assert isinstance(outcome.action, Resize)
    start = Start(job().spec, Limits(0.75), 768)
    given_back = replace(outcome.action, gives_back=True)

    def expected(told: CycleReport) -> list[float | None]:
        return [one.expected_s for one in changes(told, {})[0]]

    assert expected(decided) == [0.045]
    # What was applied is not what the policy expected it of, or was not applied.
    assert expected(replace(decided, guarded={"alpha": "step cut to 0.25"})) == [None]
    assert expected(replace(decided, outcomes=(replace(outcome, status="failed"),))) == [None]
    assert expected(replace(decided, outcomes=(replace(outcome, action=start),))) == [None]
    assert expected(replace(decided, outcomes=(replace(outcome, action=given_back),))) == [None]
    assert expected(replace(decided, decision=None)) == [None]
    assert expected(replace(decided, decision=replace(decision, expected_s={}))) == [None]


def test_a_start_has_its_reason_from_the_decision() -> None:
    decision = Decision({"alpha": Limits(1.5)}, {"alpha": "a fair share"})
    start = Start(job().spec, Limits(1.5), 1536)
    told = replace(report(1, decision=decision), outcomes=(Outcome(start, "begun"),))

    [change], _ = changes(told, {})

    assert (change.kind, change.before_cores, change.after_cores) == ("start", None, 1.5)
    assert change.why == "a fair share"


def test_gpus_and_shares_of_their_time_are_told() -> None:
    spec = job().spec
    start = Start(spec, Limits(1.5, 0.5), 1536, gpus=("GPU-a", "GPU-b"))
    move = Move("id", replace(start, gpus=("GPU-c",)), Checkpoint("SIGUSR1", 9.0, "/c"), "room")
    paced = Resize("alpha", "id", Limits(1.5, 0.5), Limits(1.5, 0.75), 1536, "late")
    outcomes = tuple(Outcome(action, "begun") for action in (start, move, paced))

    told, _ = changes(replace(report(1), outcomes=outcomes), {})

    assert [(one.kind, one.before_share, one.after_share, one.gpus) for one in told] == [
        ("start", None, 0.5, "GPU-a,GPU-b"),
        ("move", None, None, "GPU-c"),
        ("resize", 0.5, 0.75, ""),
    ]


def test_a_vain_try_at_another_share_is_told_again() -> None:
    def tried(cycle: int, share: float) -> CycleReport:
        paced = Resize("alpha", "id", Limits(1.5, 0.5), Limits(1.5, share), 1536, "late")
        return replace(report(cycle), outcomes=(Outcome(paced, "failed", "engine: timeout"),))

    first, tries = changes(tried(1, 0.75), {})
    again, tries = changes(tried(2, 0.75), tries)
    other, tries = changes(tried(3, 0.8), tries)
    assert [len(told) for told in (first, again, other)] == [1, 0, 1]


def on_gpus(cycle: int, trouble: str | None, lost: str | None = None) -> CycleReport:
    holder = replace(job(), gpus=("GPU-a",), gpu_lost=lost)
    told = report(cycle, holder, job("beta"))
    gpu = replace(GPU, fact=replace(GPU.fact, trouble=trouble))
    node = replace(told.snapshot.node, gpus=(gpu,))
    return replace(told, snapshot=replace(told.snapshot, node=node))


def test_trouble_with_a_jobs_gpu_and_its_end_are_told_once_each() -> None:
    told = []
    known: dict[str, Reported] = {}
    cycles = [(None, None), ("off the bus", None), ("off the bus", None), (None, None)]
    for cycle, (trouble, lost) in enumerate([*cycles, (None, "taken away"), (None, None)], 1):
        happened, known = events(on_gpus(cycle, trouble, lost), known)
        told += [(one.cycle, one.job, one.kind, one.reason) for one in happened]

    assert told[2:] == [
        (2, "alpha", "gpu-trouble", "GPU 1: off the bus"),
        (4, "alpha", "gpu-well", ""),
        (5, "alpha", "gpu-trouble", "taken away"),
        (6, "alpha", "gpu-well", ""),
    ]


def test_a_divergence_and_its_end_are_told_once_each() -> None:
    told = []
    known: dict[str, Reported] = {}
    bad = Diverged("loss", "nan", 990.0, 300)
    for cycle, diverged in enumerate([None, bad, replace(bad, step=400), None, None, bad], 1):
        happened, known = events(report(cycle, replace(job(), diverged=diverged)), known)
        told += [(one.cycle, one.kind, one.reason) for one in happened]
    assert told[1:] == [
        (2, "diverged", "loss nan at step 300"),
        (4, "finite", ""),
        (6, "diverged", "loss nan at step 300"),
    ]


def test_a_removal_is_told() -> None:
    remove = Remove("alpha", "id", Stop(), 2.0, "its file was removed")

    [change], _ = changes(replace(report(1), outcomes=(Outcome(remove, "begun"),)), {})

    assert (change.kind, change.why, change.after_cores) == ("remove", "its file was removed", None)


def test_a_vain_try_is_told_once_until_it_is_another_one() -> None:
    first, tries = changes(resized(report(1), "failed", "engine: timeout"), {})
    again, tries = changes(resized(report(2), "failed", "engine: timeout"), tries)
    other, tries = changes(resized(report(3), "failed", "engine: gone"), tries)
    _, tries = changes(report(4), tries)
    anew, _ = changes(resized(report(5), "failed", "engine: gone"), tries)

    assert [len(told) for told in (first, again, other, anew)] == [1, 0, 1, 1]


def test_events_tell_a_jobs_life() -> None:
    arrived, states = events(report(1, job(state=JobState.PULLING, reason="12 %")), {})
    nothing, states = events(report(2, job(state=JobState.PULLING, reason="80 %")), states)
    turned, states = events(report(3, job(state=JobState.FAILED, reason="exit 1")), states)
    left, states = events(report(4, job("beta")), states)

    assert [(e.kind, e.before, e.after, e.reason) for e in (*arrived, *turned)] == [
        ("arrived", None, "pulling", "12 %"),
        ("state", "pulling", "failed", "exit 1"),
    ]
    assert nothing == []
    assert [(e.job, e.kind, e.before, e.after) for e in left] == [
        ("beta", "arrived", None, "running"),
        ("alpha", "left", "failed", None),
    ]
    assert states == {"beta": Reported(JobState.RUNNING, Tiers())}


def test_nobody_leaves_while_the_engine_does_not_answer() -> None:
    _, states = events(report(1, job("alpha"), job("beta")), {})
    away, states = events(replace(report(2, job("beta")), engine_ok=False), states)
    back, states = events(report(3, job("alpha"), job("beta")), states)
    left, _ = events(report(4, job("beta")), states)

    assert (away, back) == ([], [])
    assert [(e.job, e.kind) for e in left] == [("alpha", "left")]


def test_an_adopted_one_arrives_as_such_and_who_becomes_blind_or_sees_again_is_told_once() -> None:
    blind = replace(job(), blind="no report for 1 min")
    over = replace(job(state=JobState.STOPPED))
    arrived, known = events(report(1, replace(job(), adopted=True)), {})
    began, known = events(report(2, blind), known)
    goes_on, known = events(report(3, blind), known)
    seen_again, known = events(report(4, job()), known)
    _, known = events(report(5, blind), known)
    stopped, _ = events(report(6, over), known)

    assert [(e.kind, e.reason) for e in arrived] == [("arrived", "adopted")]
    told = [(e.cycle, e.kind, e.reason) for e in (*began, *goes_on, *seen_again)]
    assert told == [(2, "blind", "no report for 1 min"), (4, "sighted", "")]
    assert [e.kind for e in stopped] == ["state"], "what does not run sees nothing"


def trainer(tiers: Tiers, target: bool = True) -> JobView:
    spec = replace(job().spec, target=AccuracyTarget("accuracy", 0.9, 0.97) if target else None)
    return replace(job(), spec=spec, tiers=tiers)


def test_a_reached_tier_is_told_once_with_its_evaluation() -> None:
    delivered, finished = Reached(5.0, 0.9312345, 500), Reached(9.0, 0.98)
    _, known = events(report(1, trainer(Tiers())), {})
    first, known = events(report(2, trainer(Tiers(delivered))), known)
    again, known = events(report(3, trainer(Tiers(delivered))), known)
    more, known = events(report(4, trainer(Tiers(delivered, finished))), known)

    assert [(e.cycle, e.job, e.kind, e.reason) for e in (*first, *again, *more)] == [
        (2, "alpha", "deliverable", "accuracy 0.9312 at step 500 (deliver 0.9)"),
        (4, "alpha", "finish", "accuracy 0.98 (finish 0.97)"),
    ]


def test_a_tier_is_not_told_again_when_its_target_can_be_read_again() -> None:
    delivered = Tiers(Reached(5.0, 0.93))
    _, known = events(report(1, trainer(delivered)), {})
    unread, known = events(report(2, trainer(Tiers(), target=False)), known)
    back, known = events(report(3, trainer(delivered)), known)
    anew, _ = events(report(4, trainer(Tiers(Reached(9.0, 0.94)))), known)

    assert unread == back == []
    assert [e.kind for e in anew] == ["deliverable"]


def test_what_became_of_the_operators_command_is_told() -> None:
    word = Delivered("alpha", "id", "accuracy", 0.9, 0.97, Tiers())
    run = HookRun(word, "failed", "exit code 3")
    _, known = events(report(1), {})
    [event], _ = events(replace(report(2), hooks=(run,)), known)
    assert (event.job, event.kind, event.reason) == ("alpha", "hook", "failed: exit code 3")


def foretold(cycle: int, kind: ForecastKind, view: JobView | None = None) -> CycleReport:
    """What is expected of `alpha` in that second."""
    outlook = Forecast(kind, "latency", best=0.064, lacks=(("beta", 0.5),))
    return replace(report(cycle, view or job()), outlooks={"alpha": (outlook,)})


def test_a_target_that_goes_out_of_reach_and_comes_back_is_told_once_each() -> None:
    known: dict[str, Reported] = {}
    told = []
    kinds = [ForecastKind.EXPECTED] * 10 + [ForecastKind.CROWDED] * 100
    kinds += [ForecastKind.IMPOSSIBLE] * 100 + [ForecastKind.MET] * 100
    for cycle, kind in enumerate(kinds, 1):
        happened, known = events(foretold(cycle, kind), known)
        told += [(one.cycle, one.job, one.kind, one.reason) for one in happened]

    assert told[1:] == [
        (
            71,
            "alpha",
            "crowded",
            "latency: not beside these others, would be met with 0.5 cores from beta",
        ),
        (171, "alpha", "impossible", "latency: not on this node, at best 64 ms"),
        (271, "alpha", "possible", "latency: met"),
    ]


def test_how_targets_stand_is_not_told_again_by_the_next_run() -> None:
    known = last_reported(foretold(1, ForecastKind.CROWDED))
    again, known = events(foretold(100, ForecastKind.CROWDED), known)
    _, known = events(foretold(200, ForecastKind.MET), known)
    back, _ = events(foretold(300, ForecastKind.MET), known)
    assert (again, [one.kind for one in back]) == ([], ["possible"])


def test_a_job_that_has_stopped_has_no_target_to_tell_of() -> None:
    stopped = job(state=JobState.STOPPED)
    _, known = events(foretold(1, ForecastKind.CROWDED, stopped), {})
    later, _ = events(foretold(200, ForecastKind.CROWDED, stopped), known)
    assert later == []
