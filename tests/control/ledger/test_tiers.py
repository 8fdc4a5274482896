"""What counts as reaching a tier, and what of it becomes a durable word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.control.ledger.tiers import TierProgress, TierTracker, advanced, observed, settled
from dlsched.model.facts import CheckpointAck, ContainerFact, ContainerState, Report, Sample
from dlsched.model.spec import AccuracyTarget, JobSpec, LatencyTarget
from dlsched.model.state import Delivered, Reached, Tiers
from tests.doubles import job_spec, running

RISES = AccuracyTarget("accuracy", 0.9, 0.97)
FALLS = AccuracyTarget("loss", 0.3, 0.1)


def sample(at_s: float, value: float, step: int | None = None, metric: str = "accuracy") -> Sample:
    return Sample(at_s, step, (("lr", 5.0), (metric, value)))


def after(*samples: Sample, target: AccuracyTarget = RISES, in_a_row: int = 3) -> Tiers:
    progress = TierProgress("c1", target)
    for one in samples:
        progress = advanced(progress, one, in_a_row)
    return settled(progress).tiers


# --------------------------------------------------------------------- rows


def test_a_tier_takes_so_many_evaluations_in_a_row_and_keeps_the_last_of_them() -> None:
    values = [0.91, 0.95, 0.89, 0.9, 0.92, 0.93, 0.99]
    seen = [sample(10.0 + i, value, 100 * i) for i, value in enumerate(values)]
    assert after(*seen[:5]) == Tiers()
    assert after(*seen) == Tiers(delivered=Reached(15.0, 0.93, 500))
    assert after(*seen, in_a_row=1) == Tiers(Reached(10.0, 0.91, 0), Reached(16.0, 0.99, 600))


def test_a_finish_below_deliver_means_lower_is_better() -> None:
    seen = [sample(float(i), value, metric="loss") for i, value in enumerate((0.9, 0.3, 0.2, 0.09))]
    assert after(*seen, target=FALLS, in_a_row=1) == Tiers(Reached(1.0, 0.3), Reached(3.0, 0.09))
    assert after(*seen, target=FALLS) == Tiers(Reached(3.0, 0.09))


@pytest.mark.parametrize(
    "between",
    [sample(1.5, 0.1, metric="loss"), Sample(1.5, 150, ()), sample(1.5, -1e300)],
    ids=["another metric", "a step alone", "no metric's value"],
)
def test_only_an_evaluation_with_the_targets_metric_counts(between: Sample) -> None:
    seen = [sample(1.0, 0.95, 100), between, sample(2.0, 0.95, 200)]
    assert after(*seen, in_a_row=2).delivered == Reached(2.0, 0.95, 200)
    assert after(seen[0], between, in_a_row=2) == Tiers()


def test_a_step_that_goes_back_begins_a_new_row_but_a_delivery_stands() -> None:
    seen = [sample(1.0, 0.95, 10), sample(2.0, 0.95, 20), sample(3.0, 0.95, 5)]
    assert after(*seen) == Tiers()
    assert after(*seen, sample(4.0, 0.95, 6), sample(5.0, 0.95, 7)).delivered is not None
    assert after(*seen, Sample(6.0, 1, ()), in_a_row=2).delivered == Reached(2.0, 0.95, 20)


def test_a_new_start_begins_a_new_row_but_a_delivery_stands() -> None:
    def fact(starts: int, *values: float) -> ContainerFact:
        reports = tuple(Report(1.0, sample=sample(1.0, value)) for value in values)
        return running("a", starts=starts, reports=reports)

    progress = observed(TierProgress("c1", RISES), fact(1, 0.95, 0.95), 3, 1.0)
    assert observed(progress, fact(1, 0.95), 3, 1.0).tiers.delivered is not None
    assert observed(progress, fact(2, 0.95), 3, 1.0).tiers == Tiers()
    done = observed(progress, fact(1, 0.95), 3, 1.0)
    assert observed(done, fact(2, 0.1), 3, 1.0).tiers == done.tiers


def test_values_at_one_step_are_one_evaluation_which_the_worst_of_them_decides() -> None:
    ranks = [sample(1.0, 0.95, 10), sample(1.1, 0.951, 10), sample(1.2, 0.952, 10)]
    assert after(*ranks) == Tiers()
    last = [sample(2.0, 0.95, 20), sample(3.0, 0.95, 30), sample(3.1, 0.7, 30)]
    assert after(*ranks, *last) == Tiers(), "also where the worst comes last"
    more = [sample(2.0, 0.95, 20), sample(2.1, 0.89, 20), sample(2.2, 0.95, 20)]
    assert after(*ranks, *more, sample(3.0, 0.95, 30)) == Tiers()
    rows = [sample(float(step), 0.95, step) for step in (30, 40, 50)]
    assert after(*ranks, *more, *rows).delivered == Reached(50.0, 0.95, 50)


def test_values_of_several_ranks_without_a_step_are_one_evaluation() -> None:
    first, again = sample(1.0, 0.95), replace(sample(1.0, 0.96), again=True)
    assert after(first, again, again) == Tiers()
    assert after(first, again, first, again, first).delivered is not None
    worse = replace(sample(1.0, 0.7), again=True)
    assert after(first, first, worse, first) == Tiers()


@pytest.mark.parametrize("metric", ["accuracy", "train_loss"])
def test_a_diverged_training_reaches_nothing_until_that_metric_is_finite(metric: str) -> None:
    bad = Sample(1.0, 10, (), ((metric, "nan"),))
    good = [sample(float(step), 0.95, step) for step in (20, 30, 40)]
    finite = Sample(15.0, 15, ((metric, 0.5),))
    if metric == "train_loss":
        assert after(bad, *good) == Tiers()
    assert after(bad, finite, *good).delivered == Reached(40.0, 0.95, 40)
    early = [sample(float(step), 0.95, step) for step in (1, 2)]
    assert after(*early, bad, *good[:1]) == Tiers(), "the row begins again"
    done = [sample(float(step), 0.95, step) for step in (1, 2, 3)]
    assert after(*done, bad).delivered == Reached(3.0, 0.95, 3), "what was delivered stays"


def test_a_rate_of_nothing_is_no_divergence() -> None:
    samples = [
        Sample(float(step), step, (("accuracy", 0.95),), (("precision", "nan"),))
        for step in (1, 2, 3)
    ]
    assert after(*samples).delivered == Reached(3.0, 0.95, 3)


# --------------------------------------------------------------------- durable words

SPEC = job_spec("a", target=RISES)
WORD = Delivered("a", "id-a", "accuracy", 0.9, 0.97, Tiers(Reached(5.0, 0.93, 500)))


def told(
    tracker: TierTracker, spec: JobSpec, *values: float, **fact: object
) -> tuple[Delivered, ...]:
    reports = tuple(Report(9.0, sample=sample(9.0, value)) for value in values)
    tracker.observe(spec, running("a", reports=reports, **fact), 3, 9.0)
    return tracker.deliveries()


def voided(tracker: TierTracker, *, read: bool = True, there: bool = True, settled: bool = True):
    return tracker.voided(["a"] if read else [], ["a"] if there else [], settled=settled)


def test_a_delivery_is_told_once_with_the_checkpoint_of_that_time() -> None:
    tracker = TierTracker({})
    ack = Report(8.0, checkpoint=CheckpointAck(400, "/ckpt/400"))
    tracker.observe(SPEC, running("a", reports=(ack,)), 3, 8.0)
    assert told(tracker, SPEC, 0.95, 0.95) == ()
    (word,) = told(tracker, SPEC, 0.95)
    assert word == replace(
        WORD, tiers=Tiers(Reached(9.0, 0.95)), checkpoint=CheckpointAck(400, "/ckpt/400")
    )
    assert told(tracker, SPEC, 0.5, 0.5, 0.5) == ()
    assert tracker.tiers("a") == word.tiers
    (more,) = told(tracker, SPEC, 0.98, 0.98, 0.98)
    assert more == replace(word, tiers=Tiers(word.tiers.delivered, Reached(9.0, 0.98)))
    assert voided(tracker) == ()


def test_where_ranks_report_a_tier_waits_for_the_last_of_them() -> None:
    tracker = TierTracker({})

    def seen(now_s: float, step: int, *values: float, **fact: object) -> Reached | None:
        reports = tuple(Report(now_s, sample=sample(now_s, value, step)) for value in values)
        tracker.observe(SPEC, running("a", reports=reports, **fact), 3, now_s)
        return tracker.tiers("a").delivered

    for step in (1, 2):
        assert seen(10.0 * step, step, 0.95, 0.96) is None
    assert seen(30.0, 3, 0.95) is None, "the other rank's value may come with the next cycle"
    assert seen(31.0, 3, 0.7) is None
    assert seen(39.0, 3) is None
    for step in (4, 5, 6):
        assert seen(10.0 * step, step, 0.95, 0.96) is None
    assert seen(61.0, 6) is None
    assert seen(62.0, 6) == Reached(60.0, 0.95, 6), "no more of it is expected"
    assert len(tracker.deliveries()) == 1


@pytest.mark.parametrize("then", ["the step moves on", "it ends", "it is gone", "it starts again"])
def test_ranks_reach_a_tier_without_a_wait_where_no_more_values_come(then: str) -> None:
    tracker = TierTracker({})
    reports = tuple(
        Report(1.0, sample=sample(1.0, value, step)) for step in (1, 2, 3) for value in (0.95, 0.96)
    )
    tracker.observe(SPEC, running("a", reports=reports), 3, 1.0)
    assert tracker.tiers("a") == Tiers()
    after_it = {
        "the step moves on": running("a", reports=(Report(1.5, sample=Sample(1.5, 4, ())),)),
        "it ends": running("a", state=ContainerState.EXITED),
        "it is gone": None,
        "it starts again": running("a", starts=2),
    }
    tracker.observe(SPEC, after_it[then], 3, 1.5)
    assert tracker.tiers("a").delivered == Reached(1.0, 0.95, 3)


def test_what_an_earlier_agent_recorded_is_known_and_not_told_again() -> None:
    tracker = TierTracker({"a": WORD})
    assert told(tracker, SPEC, 0.95, 0.95, 0.95) == ()
    assert tracker.tiers("a") == WORD.tiers
    assert voided(tracker) == ()
    (more,) = told(tracker, SPEC, 0.98, 0.98, 0.98)
    assert more.tiers.delivered == WORD.tiers.delivered


def test_a_delivery_holds_while_there_is_no_container() -> None:
    tracker = TierTracker({"a": WORD})
    for _ in range(2):
        tracker.observe(SPEC, None, 3, 9.0)
        assert tracker.tiers("a") == WORD.tiers
        assert voided(tracker) == ()
    assert told(tracker, SPEC) == ()
    tracker.observe(SPEC, None, 3, 9.0)
    assert tracker.tiers("a") == WORD.tiers


def test_a_new_deadline_takes_nothing_back() -> None:
    tracker = TierTracker({"a": WORD})
    told(tracker, SPEC)
    told(tracker, job_spec("a", target=replace(RISES, deadline_s=60.0)))
    assert (tracker.tiers("a"), voided(tracker)) == (WORD.tiers, ())


@pytest.mark.parametrize(
    ("target", "fact"),
    [
        (replace(RISES, deliver=0.95), {}),
        (replace(RISES, finish=0.99), {}),
        (replace(RISES, metric="f1"), {}),
        (LatencyTarget(0.05), {}),
        (None, {}),
        (RISES, {"container_id": "id-new"}),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_another_target_or_container_voids_it(
    target: AccuracyTarget | None, fact: dict[str, object], restarted: bool
) -> None:
    tracker = TierTracker({"a": WORD})
    if not restarted:
        told(tracker, SPEC)
    assert told(tracker, job_spec("a", target=target), **fact) == ()
    assert tracker.tiers("a") == Tiers()
    assert voided(tracker) == ("a",)
    assert voided(tracker) == ()


def test_a_new_container_that_delivers_is_told_anew() -> None:
    tracker = TierTracker({"a": WORD})
    told(tracker, SPEC)
    assert told(tracker, SPEC, container_id="id-new") == ()
    assert voided(tracker) == ("a",)
    (word,) = told(tracker, SPEC, 0.95, 0.95, 0.95, container_id="id-new")
    assert word.container_id == "id-new"
    assert voided(tracker) == ()


def test_a_move_takes_nothing_back_also_where_it_is_undone() -> None:
    tracker = TierTracker({"a": WORD})
    assert told(tracker, SPEC, 0.98, 0.98) == ()
    (more,) = told(tracker, SPEC, 0.98, container_id="id-new", origin="id-a")
    assert more.container_id == "id-a"
    assert more.tiers == Tiers(WORD.tiers.delivered, Reached(9.0, 0.98))
    assert told(tracker, SPEC, container_id="id-a") == ()
    assert told(TierTracker({"a": more}), SPEC, container_id="id-third", origin="id-a") == ()
    assert (tracker.tiers("a"), voided(tracker)) == (more.tiers, ())
