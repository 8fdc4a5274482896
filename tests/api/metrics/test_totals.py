"""What the loop counts: every cycle once, never less than before, and nothing of jobs that left."""

from __future__ import annotations

from dataclasses import replace

from dlsched.api.metrics.totals import BOUNDS_S, Histogram, JournalTotals, LoopTotals, Totals
from dlsched.model.actions import Outcome, Remove
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import Stop
from tests.status_source import example_report

JOURNAL = JournalTotals()


def counted(*reports: CycleReport) -> Totals:
    loop = LoopTotals()
    for report in reports:
        loop.count(report, 0.02, JOURNAL)
    assert loop.last is not None
    return loop.last


def test_cycles_decisions_guards_and_phases_add_up() -> None:
    timed = replace(example_report(), phase_s={"observe": 0.25, "decide": 0.5})
    unasked = replace(timed, decision=None)
    totals = counted(timed, timed, unasked, replace(timed, policy="fair"))
    assert totals.cycles == 4
    assert totals.guarded == 3, "no decision: what a guard says is of the decision before"
    assert totals.phase_s == {"observe": 1.0, "decide": 2.0}
    assert totals.cycle_s.sum_s == 0.08


def test_outcomes_are_counted_by_job_kind_and_status() -> None:
    totals = counted(example_report(), example_report())
    assert totals.changes == {("digits-resnet", "resize", "failed"): 2}
    assert totals.engine_errors["resize"] == 2


def test_an_engine_that_does_not_answer_is_counted_by_cycle() -> None:
    totals = counted(example_report(), replace(example_report(), engine_ok=False))
    assert totals.engine_errors["list"] == 1


def test_what_was_counted_of_a_job_goes_with_it() -> None:
    here = example_report()
    snapshot = here.snapshot
    others = tuple(job for job in snapshot.jobs if job.name != "digits-resnet")
    gone = Outcome(Remove("digits-resnet", "c", Stop(), None, "file removed"), "begun")
    left = replace(here, snapshot=replace(snapshot, jobs=others), outcomes=(gone,))
    assert counted(here, left).changes == {}
    assert counted(here, left).engine_errors["resize"] == 1, "counters of the node never fall"


def test_what_another_thread_reads_never_changes() -> None:
    loop = LoopTotals()
    loop.count(example_report(), 0.02, JOURNAL)
    first = loop.last
    assert first is not None
    kept = replace(first, changes=dict(first.changes))
    later = example_report()
    later = replace(later, snapshot=replace(later.snapshot, now_s=later.snapshot.now_s + 1.0))
    loop.count(replace(later, phase_s={"observe": 1.0}), 3.0, JOURNAL)
    assert first == kept
    assert loop.last is not first


def test_a_duration_is_in_the_first_bucket_that_holds_it() -> None:
    one = Histogram().with_one(BOUNDS_S[2]).with_one(BOUNDS_S[-1] + 1).with_one(-0.5)
    assert one.counts[2] == one.counts[-1] == one.counts[0] == 1
    assert one.sum_s == BOUNDS_S[2] + BOUNDS_S[-1] + 1
