"""What is said to have come of moves, by what records and reports say round after round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dlsched.api.cluster_schema import MoveRow
from dlsched.cluster.core.decider import ClusterAnswer
from dlsched.cluster.core.guards import Approved
from dlsched.cluster.core.ledger import ClusterFacts
from dlsched.cluster.core.records import Record, RecordState
from dlsched.cluster.core.reports import JobReport, NodeReport
from dlsched.cluster.core.snapshot import ClusterDecision, ClusterSnapshot, Left, Move, Transit
from dlsched.cluster.judging import CHANGES_MIN, MEASURED_S, MOVES_MAX, MoveJudge, StepRate
from dlsched.cluster.round_report import RoundReport

JOB = "resnet"
STEPS = 1000
ROUND_S = 10.0
PLACED = Record(JOB, RecordState.PLACED, "a", 1)


class Rounds:
    """A controller's rounds over one job that has 1,000 steps, of which it does `per_s` a
    second."""

    def __init__(self) -> None:
        self.judge = MoveJudge()
        self.now_s, self.done, self.per_s = 500.0, 0.0, 1.0
        self.present: Record | None = PLACED
        self.total: int | None = STEPS
        self.moving: tuple[Transit, ...] = ()

    def round(
        self, *written: Record, failed: str = "", answer: ClusterAnswer | None = None
    ) -> None:
        """One round later. It writes these records."""
        self.now_s += ROUND_S
        runs = self.present is not None and self.present.state is RecordState.PLACED
        if runs:
            self.done += ROUND_S * self.per_s
        records = {JOB: self.present} if self.present else {}
        step = int(self.done)
        left = None if self.total is None else Left(*[2.0 * (self.total - step)] * 3)
        # One core: a step takes two core-seconds, and 1 / per_s seconds.
        job = JobReport(JOB, step=step, left=left, steps_per_core_s=0.5, reports=9)
        on = self.present.on if self.present else ""
        reports = {on: NodeReport(on, 8.0, jobs=(job,))} if runs else {}
        if written:
            self.present = written[-1]
        report = RoundReport(
            answer=answer or ClusterAnswer(),
            snapshot=ClusterSnapshot(1, self.now_s, moving=self.moving),
            facts=ClusterFacts(self.now_s, {}, records, reports, {}),
            records={JOB: self.present} if self.present else {"other": PLACED},
            written=list(written),
            failed={JOB: failed} if failed else {},
        )
        self.judge.take(report, f"at {self.now_s:.0f}")

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.round()

    def decide(self, move: Move, forecast_s: float | None = None, why: str = "gains") -> None:
        """The policy wants it, and the target keeps room."""
        forecasts = {} if forecast_s is None else {JOB: forecast_s}
        answer = ClusterAnswer(
            ClusterDecision(why={JOB: why}, forecasts_s=forecasts),
            approved=Approved(moves=(move,)),
            asked=True,
        )
        self.round(answer=answer)
        self.moving = (Transit(JOB, self.record.on, move.target, self.now_s),)
        self.round()

    def leave(self, target: str) -> None:
        self.write(state=RecordState.LEAVING, target=target)

    def arrive(self, per_s: float) -> None:
        record = self.record
        assert record.target is not None
        state, epoch = RecordState.MOVING, record.epoch + 1
        moving = Record(JOB, state, record.target, epoch, source=record.on)
        self.round(moving)
        self.moving, self.per_s = (), per_s
        self.round(replace(moving, state=RecordState.PLACED, source=None, moves=1))

    def move(self, target: str, per_s: float, forecast_s: float | None = None) -> None:
        self.decide(Move(JOB, target), forecast_s)
        self.leave(target)
        self.arrive(per_s)

    @property
    def record(self) -> Record:
        assert self.present is not None
        return self.present

    def write(self, failed: str = "", **changes: Any) -> None:
        """A round that changes the job's record so."""
        self.round(replace(self.record, **changes), failed=failed)

    def finish(self, exit_code: int = 0) -> None:
        self.write(state=RecordState.ENDED, exit_code=exit_code)

    @property
    def last(self) -> MoveRow:
        return self.judge.rows(JOB)[-1]


@pytest.fixture
def one() -> Rounds:
    """A job whose speed is known."""
    made = Rounds()
    made.rounds(20)
    return made


def test_a_move_is_judged_by_the_steps_a_second_before_and_since(one: Rounds) -> None:
    one.decide(Move(JOB, "b"), -190.0)
    one.leave("b")
    # 230 of 1,000 steps are done, at one a second: it would end in 770 s.
    assert (one.done, one.last.outcome, one.last.measured_s) == (230, "under way", None)
    stays_until_s = one.now_s + 770
    one.arrive(2.0)
    assert (one.last.outcome, one.last.source, one.last.target) == ("completed", "a", "b")
    assert (one.last.why, one.last.forecast_s, one.last.at) == ("gains", -190.0, "at 730")
    one.rounds(6)
    assert (one.last.measured_s, one.last.pending) == (None, True), "not measured for a minute yet"
    one.rounds(1)
    ends_s = one.now_s + (STEPS - one.done) / 2.0
    assert one.last.measured_s == pytest.approx(ends_s - stays_until_s)
    assert one.last.measured_s == pytest.approx(-365)
    assert one.last.pending
    # At first it was slow.
    one.per_s = 4.0
    one.rounds(20)
    one.finish()
    measured_s = one.now_s - stays_until_s
    assert (one.last.measured_s, one.last.pending) == (measured_s, False)
    totals = one.judge.totals()
    assert (totals.completed, totals.failed, totals.undone) == (1, 0, 0)
    # Its next run says nothing of this one.
    one.write(state=RecordState.PLACED, exit_code=None, epoch=9)
    one.leave("a")
    assert one.judge.rows(JOB)[0].measured_s == measured_s


def test_what_happened_long_before_does_not_count() -> None:
    one = Rounds()
    one.per_s = 10.0
    one.rounds(20)
    one.per_s = 0.5
    one.rounds(20)
    one.move("b", 0.5, 0.0)
    one.rounds(8)
    assert one.last.pending
    # As slow as before: only the 20 s of the move are lost.
    assert one.last.measured_s == pytest.approx(20, abs=1)


def test_a_job_that_crashes_after_its_move_measures_nothing(one: Rounds) -> None:
    one.move("b", 20.0, -600.0)
    one.finish(exit_code=1)
    assert (one.last.measured_s, one.last.pending) == (None, False)


@pytest.mark.parametrize("unknown", ["steps", "speed before", "file", "a lie"])
def test_without_a_measurement_nothing_is_said(unknown: str) -> None:
    one = Rounds()
    if unknown == "steps":
        one.total = None
    if unknown == "a lie":
        one.total = 10**15
    one.rounds(1 if unknown == "speed before" else 20)
    one.move("b", 2.0, -190.0)
    if unknown == "file":
        one.rounds(8)
        assert one.last.measured_s is not None
        one.write(epoch=one.record.epoch + 1, first=3)
    one.rounds(20)
    assert (one.last.outcome, one.last.measured_s, one.last.pending) == ("completed", None, False)


def test_an_undone_move_says_why(one: Rounds) -> None:
    one.move("b", 0.5, -190.0)
    one.rounds(8)
    one.decide(Move(JOB, "a", undo=True), why="0.50 of its speed on a")
    one.leave("a")
    assert one.judge.rows(JOB)[0].outcome == "completed", "not before it is back"
    one.arrive(1.0)
    undone, back = one.judge.rows(JOB)
    assert (undone.outcome, undone.problem) == ("undone", "0.50 of its speed on a")
    assert undone.measured_s is not None
    assert undone.measured_s > 700
    assert not undone.pending
    assert (back.outcome, back.why) == ("completed", "0.50 of its speed on a")
    totals = one.judge.totals()
    assert (totals.completed, totals.undone) == (2, 1)


def test_a_person_who_moves_a_job_back_undoes_nothing(one: Rounds) -> None:
    one.move("b", 0.5)
    one.leave("a")
    one.arrive(1.0)
    assert [row.outcome for row in one.judge.rows(JOB)] == ["completed", "completed"]


def test_a_failed_move_says_why_and_a_withdrawn_one_is_none(one: Rounds) -> None:
    one.leave("b")
    moving = Record(JOB, RecordState.MOVING, "b", 2, source="a")
    one.round(moving)
    one.round(replace(moving, state=RecordState.UNDOING), failed="b is silent")
    returning = Record(JOB, RecordState.RETURNING, "a", 3, source="b")
    one.round(returning)
    assert one.last.outcome == "under way"
    one.round(replace(returning, state=RecordState.PLACED, source=None))
    assert (one.last.outcome, one.last.problem) == ("failed", "b is silent")
    assert not one.last.pending
    one.leave("b")
    one.round(Record(JOB, RecordState.ENDED, "a", 3, why="the job was withdrawn"))
    assert one.last.outcome == "withdrawn"
    totals = one.judge.totals()
    assert (totals.completed, totals.failed) == (0, 1)


def test_a_move_is_measured_until_its_job_has_left_again(one: Rounds) -> None:
    one.move("b", 2.0, -190.0)
    one.rounds(8)
    one.leave("a")
    first = one.judge.rows(JOB)[0]
    assert (first.outcome, first.pending) == ("completed", True)
    back = replace(one.record, state=RecordState.RETURNING, target=None)
    one.round(back, failed="the job did not save a checkpoint in time")
    one.round(replace(back, state=RecordState.PLACED, epoch=3))
    assert one.last.outcome == "failed"
    one.per_s = 4.0
    one.rounds(20)
    later = one.judge.rows(JOB)[0]
    assert later.pending
    assert later.measured_s != first.measured_s
    one.move("a", 1.0)
    assert not one.judge.rows(JOB)[0].pending


def test_a_round_that_the_store_has_cut_short_forgets_nothing(one: Rounds) -> None:
    one.decide(Move(JOB, "b"), -190.0)
    for records in ({JOB: PLACED}, {}):
        report = RoundReport(facts=ClusterFacts(one.now_s, {}, records, {}, {}))
        one.judge.take(report, "cut short")
    one.leave("b")
    one.judge.take(report, "cut short")
    assert (one.last.why, one.last.forecast_s) == ("gains", -190.0)


def test_the_time_of_a_failed_move_does_not_count_as_slowness(one: Rounds) -> None:
    one.leave("b")
    away = Record(JOB, RecordState.RETURNING, "a", 2, source="a")
    one.round(away, failed="the job did not save a checkpoint in time")
    one.rounds(30)
    one.round(replace(away, state=RecordState.PLACED, source=None))
    one.rounds(2)
    one.move("b", 1.0, 0.0)
    one.rounds(8)
    assert (one.last.measured_s, one.last.pending) == (None, False), "no minute since it was back"


def test_a_record_that_only_learns_something_interrupts_no_measurement(one: Rounds) -> None:
    one.move("b", 2.0)
    one.rounds(5)
    one.write(failover=True)
    one.rounds(1)
    assert one.last.measured_s is not None


def test_a_move_that_was_dropped_lends_its_reason_to_no_other(one: Rounds) -> None:
    one.decide(Move(JOB, "b"), -190.0)
    one.moving = ()
    one.rounds(1)
    one.leave("b")
    assert (one.last.why, one.last.forecast_s) == ("", None)


def test_after_another_controller_a_speed_elsewhere_is_not_the_one_before(one: Rounds) -> None:
    one.present = replace(PLACED, on="c", epoch=5, state=RecordState.LEAVING, target="b")
    one.round(one.record)
    assert (one.last.source, one.last.pending) == ("c", False)
    # And it may leave again, once that has ended unseen.
    one.leave("a")
    assert [row.target for row in one.judge.rows(JOB)] == ["a"]


def test_a_move_that_another_controller_has_ended_is_forgotten(one: Rounds) -> None:
    one.leave("b")
    one.present = replace(PLACED, on="b", epoch=2)
    one.rounds(1)
    assert one.judge.rows(JOB) == ()
    assert one.judge.totals().completed == 0


def test_only_the_last_moves_of_jobs_that_are_there_are_remembered() -> None:
    one = Rounds()
    for index in range(MOVES_MAX + 3):
        one.leave("ab"[index % 2 == 0])
        one.arrive(1.0)
    assert len(one.judge.rows(JOB)) == MOVES_MAX
    one.rounds(1)
    one.present = None
    one.rounds(1)
    assert one.judge.rows(JOB) == ()
    assert one.judge._paces == {}


def steps(every_s: float, count: int) -> StepRate:
    """So many steps, each so long after the one before."""
    rate = StepRate()
    for index in range(count):
        rate.take(every_s * index, index)
    return rate


def test_a_rate_needs_time_and_changes() -> None:
    assert steps(10.0, 6).per_s() is None, "not a minute"
    assert steps(10.0, 7).per_s() == 0.1
    assert steps(100.0, CHANGES_MIN).per_s() is None, "too few steps"
    assert steps(100.0, CHANGES_MIN + 1).per_s() == 0.01


def test_a_rate_begins_again_with_a_lower_step() -> None:
    rate = steps(10.0, 7)
    rate.take(70.0, 3)
    assert rate.per_s() is None
    for at_s in range(80, 131, 10):
        rate.take(float(at_s), at_s)
    assert rate.per_s() == pytest.approx(127 / 60)


@pytest.mark.parametrize(
    ("every_s", "count", "for_s"),
    [(10.0, 11, MEASURED_S), (100.0, CHANGES_MIN + 1, 300.0)],
    ids=["often", "rarely"],
)
def test_a_job_that_stands_still_has_no_rate(every_s: float, count: int, for_s: float) -> None:
    rate, last = steps(every_s, count), count - 1
    rate.take(every_s * last + for_s, last)
    assert rate.per_s() == 1 / every_s
    rate.take(every_s * last + for_s + 1.0, last)
    assert rate.per_s() is None
