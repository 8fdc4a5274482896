"""Each check of a simulated cluster finds a history that violates it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlsched.cluster.core.records import Order, Phase, Record, RecordState, Saved, Verb
from dlsched.cluster.store import Stored
from dlsched.simulation.cluster.invariants import STARTS_S, BrokenInvariant, Invariants, Moment

A = Record("job", RecordState.PLACED, "a", 7)
LEAVING = replace(A, state=RecordState.LEAVING, target="b")
SAVED = Saved(40, "hash", 100)
MOVING = Record("job", RecordState.MOVING, "b", 8, source="a", saved=SAVED)
ENDED = replace(A, state=RecordState.ENDED, why="it is no longer desired")
GIVEN = Order(Verb.ARRIVE, "a", "job", 7)


def after(*records: Record, wanted: bool = True) -> Invariants:
    """A controller has written these, one after the other, since time 0."""
    found = Invariants()
    for at_s, record in enumerate(records):
        version = at_s or None
        found.committed(at_s, Stored(record, at_s + 1), version, wanted=wanted or at_s == 0)
    return found


def moment(
    now_s: float, record: Record | None = A, running: tuple[str, ...] = (), **more: object
) -> Moment:
    records = {"job": record} if record else {}
    return Moment(now_s, records, {"job": running} if running else {}, **more)  # type: ignore[arg-type]


def held(phase: Phase, epoch: int = 7, *, node: str = "a") -> dict[str, object]:
    return {"held": {node: {"job": (epoch, phase)}}}


def cut(phase: Phase, epoch: int = 7) -> dict[str, object]:
    return {**held(phase, epoch), "cut_off": ["a"]}


def checks(before: Invariants, *moments: Moment) -> str:
    """What the last of these moments violates; the others violate nothing."""
    for one in moments[:-1]:
        before.check(one)
    return violation(before.check, moments[-1])


def violation(act: Callable[..., object], *given: object, **also: object) -> str:
    with pytest.raises(BrokenInvariant) as caught:
        act(*given, **also)
    return str(caught.value)


def test_i1_one_container_of_a_job_runs() -> None:
    assert checks(after(A), moment(1.0, running=("a",)), moment(2.0, running=("a", "b"))) == (
        "I1 at 2 s: job on a runs on b, too"
    )


def test_i2_the_source_keeps_what_moves() -> None:
    def keeps(saved: Saved | None) -> Moment:
        return moment(3.0, MOVING, keeps=lambda *asked: saved if asked == ("a", "job", 8) else None)

    found = after(A, LEAVING, MOVING)
    assert checks(found, keeps(SAVED), keeps(None)) == "I2 at 3 s: job on a is no longer kept"
    assert checks(found, keeps(replace(SAVED, sha256="")))[:2] == "I2"


def test_i2_a_saved_step_is_not_lost() -> None:
    kept = moment(3.0, MOVING, keeps=lambda *_: SAVED)
    for step in (40, 39):
        found = after(A, LEAVING, MOVING)
        found.check(kept)
        goes_on = replace(kept, now_s=4.0, running={"job": ("b",)}, steps={"job": step})
        if step == 40:
            found.check(goes_on)
        else:
            assert (
                checks(found, goes_on) == "I2 at 4 s: job on b goes on from step 39, 40 was saved"
            )
    shared = moment(5.0, running=("a",), stored={"job": SAVED}, steps={"job": 39})
    assert checks(after(A), shared) == "I2 at 5 s: job on a goes on from step 39, 40 was saved"


def test_i3_what_runs_has_its_owner_in_the_store() -> None:
    assert (
        checks(Invariants(), moment(1.0, None, ("a",)))
        == "I3 at 1 s: job on a runs without a record"
    )
    assert checks(after(A), moment(1.0, running=("b",))).startswith(
        "I3 at 1 s: job on b runs, its record is"
    )
    # It may run on for a while where it has ended.
    after(A, ENDED).check(moment(1.0, ENDED, ("a",)))


def test_i3_every_job_has_an_owner_or_waits() -> None:
    found = Invariants()
    found.decided(1.0, {"job": "d"}, {"job"}, {})
    found.decided(1.0, {"job": ""}, (), {"job": A})
    found.decided(1.0, {"job": ""}, (), {"job": replace(ENDED, exit_code=0)})
    for records in ({}, {"job": ENDED}, {"job": replace(ENDED, exit_code=0, digest="other")}):
        assert violation(found.decided, 2.0, {"job": ""}, (), records) == (
            "I3 at 2 s: job has no owner and does not wait for one"
        )


def test_i3_a_record_is_removed_only_of_a_job_that_has_ended() -> None:
    after(A, ENDED).removed(3.0, ENDED)
    assert violation(after(A).removed, 3.0, A) == "I3 at 3 s: job on a loses its record, placed"


SENT: dict[Verb, tuple[Record, Order, Order]] = {
    Verb.PREPARE: (A, Order(Verb.PREPARE, "b", "job", 7), Order(Verb.PREPARE, "b", "job", 8)),
    Verb.ARRIVE: (
        MOVING,
        Order(Verb.ARRIVE, "b", "job", 8, "a", SAVED),
        Order(Verb.ARRIVE, "b", "job", 8),
    ),
    Verb.LEAVE: (LEAVING, Order(Verb.LEAVE, "a", "job", 7), Order(Verb.LEAVE, "b", "job", 7)),
    Verb.GIVE_BACK: (
        replace(A, state=RecordState.RETURNING, epoch=9),
        Order(Verb.GIVE_BACK, "a", "job", 9),
        Order(Verb.GIVE_BACK, "a", "job", 8),
    ),
    Verb.CLEAR: (MOVING, Order(Verb.CLEAR, "a", "job", 7), Order(Verb.CLEAR, "b", "job", 8)),
}
"""A record, an order that it calls for, and one that it does not, by verb."""


@pytest.mark.parametrize("verb", Verb)
def test_i3_an_order_comes_after_the_record_that_calls_for_it(verb: Verb) -> None:
    record, right, wrong = SENT[verb]
    found = Invariants()
    found.sent(1.0, right, record)
    for order, known in ((wrong, record), (right, None), (right, replace(record, epoch=6))):
        told = violation(found.sent, 2.0, order, known)
        assert told.startswith(f"I3 at 2 s: job on {order.node} has {verb} ")


def test_i3_what_may_be_cleared_follows_from_the_state() -> None:
    found, clear = Invariants(), Order(Verb.CLEAR, "b", "job", 8)
    found.sent(1.0, clear, replace(MOVING, state=RecordState.UNDOING))
    found.sent(1.0, clear, replace(ENDED, epoch=8))
    # One that ended by itself stays where it did.
    for record in (A, replace(MOVING, state=RecordState.ENDED, exit_code=0)):
        assert violation(found.sent, 1.0, clear, record)[:2] == "I3"


def test_i4_of_the_writes_that_know_one_version_one_is_committed() -> None:
    found = after(A, LEAVING)
    told = violation(found.committed, 2.0, Stored(A, 3), 1, wanted=True)
    assert told == "I4 at 2 s: job on a was written over version 2 by one who knew 1"
    found.committed(2.0, Stored(A, 3), 2, wanted=True)
    assert violation(found.committed, 3.0, Stored(A, 3), 3, wanted=True)[:2] == "I4"


def test_i4_epochs_do_not_go_back_and_have_one_owner() -> None:
    assert violation(after, MOVING, A) == "I4 at 1 s: job on a goes back from epoch 8 to 7"
    assert violation(after, A, replace(MOVING, epoch=7)) == (
        "I4 at 1 s: job on b has epoch 7, which was a's"
    )


def test_i4_an_agent_does_not_follow_what_was_overtaken() -> None:
    found, late = Invariants(), replace(GIVEN, epoch=6)
    found.followed(1.0, late, (7, Phase.RUNNING), (7, Phase.RUNNING))
    found.followed(1.0, late, None, (6, Phase.ARRIVING))
    found.followed(1.0, GIVEN, (7, Phase.PREPARED), (7, Phase.ARRIVING))
    told = violation(found.followed, 2.0, late, (7, Phase.RUNNING), (6, Phase.ARRIVING))
    assert told == "I4 at 2 s: job on a follows arrive 6, knows epoch 7"


def test_i4_an_agent_does_not_go_back_to_an_earlier_epoch() -> None:
    moments = [moment(at_s, **held(Phase.RUNNING, epoch)) for at_s, epoch in ((1.0, 7), (2.0, 6))]
    assert checks(after(A), *moments) == "I4 at 2 s: job on a goes back from epoch 7 to 6"


def test_i5_only_a_controller_changes_a_record() -> None:
    assert checks(after(A), moment(1.0), moment(2.0, replace(A, on="b"))).startswith(
        "I5 at 2 s: job on b has a record of no controller"
    )
    assert checks(after(A), moment(1.0), moment(2.0, None)).startswith(
        "I5 at 2 s: job has a record"
    )


@pytest.mark.parametrize(
    ("was", "epoch", "now"),
    [
        (Phase.AWAY, 7, Phase.RUNNING),
        (Phase.AWAY, 7, Phase.SAVING),
        (Phase.PREPARED, 7, Phase.ARRIVING),
        (Phase.FENCED, 7, Phase.RUNNING),
        (Phase.RUNNING, 8, Phase.RUNNING),
    ],
)
def test_i5_an_agent_that_is_cut_off_takes_no_job(was: Phase, epoch: int, now: Phase) -> None:
    moments = moment(1.0, **cut(was)), moment(2.0, **cut(now, epoch))
    assert checks(after(A), *moments).startswith("I5 at 2 s: job on a is ")
    # With the network there an order may have come.
    there = [replace(one, cut_off=()) for one in moments]
    for pair in ((there[0], moments[1]), (moments[0], there[1])):
        found = after(A)
        for one in pair:
            found.check(one)


def test_i5_what_was_ordered_before_goes_on() -> None:
    found = after(A)
    for at_s, phase in enumerate([Phase.ARRIVING, Phase.RUNNING, Phase.SAVING, Phase.AWAY]):
        runs = ("a",) if phase in (Phase.RUNNING, Phase.SAVING) else ()
        found.check(moment(float(at_s), running=runs, **cut(phase)))


def test_i5_no_container_starts_without_an_order() -> None:
    away = cut(Phase.AWAY)
    moments = moment(1.0, **away), moment(2.0, running=("a",), **away)
    assert checks(after(A), *moments).startswith("I5 at 2 s: job on a starts without an order")


def test_i6_a_withdrawal_wins_over_a_move() -> None:
    found = Invariants()
    found.decided(1.0, {}, (), {"job": ENDED})
    told = violation(found.decided, 2.0, {}, (), {"job": MOVING})
    assert told == "I6 at 2 s: job on b is withdrawn and is moving"
    told = violation(after, A, ENDED, replace(A, epoch=8), wanted=False)
    assert told == "I6 at 2 s: job on a was withdrawn and is placed again"
    after(A, ENDED, replace(A, epoch=8))  # it has come back


def test_i6_a_late_order_does_not_start_what_was_removed() -> None:
    found, fenced = Invariants(), (7, Phase.FENCED)
    found.followed(1.0, GIVEN, fenced, fenced)
    told = violation(found.followed, 2.0, GIVEN, fenced, (7, Phase.ARRIVING))
    assert told == "I6 at 2 s: job on a follows arrive 7 after it was removed"


@pytest.mark.parametrize("late_s", [-1.0, 1.0])
def test_i6_no_container_of_a_withdrawn_job_starts_later_than_the_bound(late_s: float) -> None:
    found = after(A, ENDED, wanted=False)  # at 1 s
    found.check(moment(2.0, ENDED, heard_s={"a": 0.5}))
    # The bound counts from the first answer of the node, which has not heard of it before.
    found.check(moment(500.0, ENDED, running=("a",), heard_s={"a": 0.5}))
    found.check(moment(510.0, ENDED, heard_s={"a": 505.0}))
    starts = moment(505.0 + STARTS_S + late_s, ENDED, ("a",), heard_s={"a": 560.0})
    if late_s < 0:
        found.check(starts)
    else:
        assert checks(found, starts) == "I6 at 566 s: job on a starts, was withdrawn at 1 s"
