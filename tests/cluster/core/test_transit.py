"""Each row of the table of moves, and that no other act follows from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.core.records import (
    Holding,
    Order,
    Phase,
    Record,
    RecordState,
    Saved,
    Verb,
    end_job,
    place_job,
)
from dlsched.cluster.core.transit import (
    ARRIVAL_S,
    LONGEST_S,
    REPORT_S,
    Acts,
    Held,
    begin_move,
    fetch_s,
    next_acts,
)

SAVED = Saved(40, "hash", 1000)
PLACED = Record("job", RecordState.PLACED, "a", 7)
FIRST = replace(PLACED, epoch=1)
LEAVING = replace(PLACED, state=RecordState.LEAVING, target="b")
MOVING = Record("job", RecordState.MOVING, "b", 8, source="a", saved=SAVED)
UNDOING = replace(MOVING, state=RecordState.UNDOING)
RETURNING = Record("job", RecordState.RETURNING, "a", 9, source="b", saved=SAVED)
ENDED = Record("job", RecordState.ENDED, "b", 8, exit_code=0)


def has(phase: Phase, epoch: int, step: int | None = None) -> Holding:
    saved = SAVED if phase is Phase.AWAY else None
    return Holding("job", epoch, phase, step, saved, 0 if phase is Phase.ENDED else None, "reason")


def order(verb: Verb, node: str, epoch: int) -> Order:
    if verb is Verb.ARRIVE and epoch > 1:
        return Order(verb, node, "job", epoch, "a", SAVED)
    return Order(verb, node, "job", epoch)


PREPARED = replace(has(Phase.PREPARED, 7), why="")
PULLING = replace(PREPARED, why="pulling its image")
AWAY = has(Phase.AWAY, 7)
MOVED = replace(PLACED, on="b", epoch=8, moves=1)
BACK = replace(PLACED, epoch=9)
STARTS_AGAIN = replace(PLACED, state=RecordState.RETURNING, source="a", epoch=8)

Told = dict[str, Holding | None]
"""By node that answered: what it holds."""


def held(told: Told) -> Held:
    return Held(told.keys(), {node: one for node, one in told.items() if one is not None})


ROWS: list[tuple[str, Record, Told, Record | None, list[Order]]] = [
    ("start it", FIRST, {"a": None}, None, [order(Verb.ARRIVE, "a", 1)]),
    ("wait for its node", FIRST, {"b": None}, None, []),
    ("it runs", PLACED, {"a": has(Phase.RUNNING, 7), "b": None}, None, []),
    ("its file is lost", PLACED, {"a": None}, STARTS_AGAIN, []),
    ("its file is lost while it leaves", LEAVING, {"a": None, "b": PREPARED}, STARTS_AGAIN, []),
    ("its file is lost while it is away", RETURNING, {"a": None}, None, [
        order(Verb.GIVE_BACK, "a", 9)
    ]),
    ("a late order to leave", PLACED, {"a": AWAY}, STARTS_AGAIN, []),
    (
        "it still saves", PLACED, {"a": has(Phase.SAVING, 7)}, None,
        [order(Verb.GIVE_BACK, "a", 7)],
    ),
    (
        "its node cannot start it", PLACED, {"a": has(Phase.FENCED, 7)},
        replace(PLACED, state=RecordState.ENDED, why="reason"), [],
    ),
    (
        "it is done", PLACED, {"a": has(Phase.ENDED, 7)},
        replace(PLACED, state=RecordState.ENDED, exit_code=0, why="reason"), [],
    ),
    (
        "clear the source", MOVED, {"a": AWAY, "b": has(Phase.RUNNING, 8)}, None,
        [replace(order(Verb.CLEAR, "a", 7), keeps=False)],
    ),
    (
        "a fence is left", MOVED, {"a": has(Phase.FENCED, 7), "b": has(Phase.RUNNING, 8)}, None,
        [],
    ),
    (
        "room is kept", PLACED, {"a": has(Phase.RUNNING, 7), "b": PREPARED}, None, [],
    ),
    (
        "ask it to leave", LEAVING, {"a": has(Phase.RUNNING, 7), "b": PREPARED}, None,
        [replace(order(Verb.LEAVE, "a", 7), target="b")],
    ),
    ("it saves", LEAVING, {"a": has(Phase.SAVING, 7), "b": PREPARED}, None, []),
    ("commit", LEAVING, {"a": AWAY, "b": PREPARED}, MOVING, []),
    ("it refuses", LEAVING, {"a": has(Phase.REFUSED, 7), "b": PREPARED}, PLACED, []),
    ("it ends meanwhile", LEAVING, {"a": has(Phase.ENDED, 7), "b": PREPARED}, PLACED, []),
    (
        "it ended for its lease, without a checkpoint", LEAVING,
        {"a": replace(AWAY, saved=None), "b": PREPARED}, STARTS_AGAIN, [],
    ),
    ("no room any more", LEAVING, {"a": AWAY, "b": None}, PLACED, []),
    ("the target is silent", LEAVING, {"a": AWAY}, PLACED, []),
    ("the source is silent", LEAVING, {"b": PREPARED}, None, []),
    ("fetch it", MOVING, {"a": AWAY, "b": PREPARED}, None, [order(Verb.ARRIVE, "b", 8)]),
    ("fetch it again", MOVING, {"a": AWAY, "b": None}, None, [order(Verb.ARRIVE, "b", 8)]),
    ("it comes", MOVING, {"a": AWAY, "b": has(Phase.ARRIVING, 8)}, None, []),
    ("it has not reported", MOVING, {"a": AWAY, "b": has(Phase.RUNNING, 8)}, None, []),
    ("too early a step", MOVING, {"a": AWAY, "b": has(Phase.RUNNING, 8, 39)}, None, []),
    ("it has arrived", MOVING, {"a": AWAY, "b": has(Phase.RUNNING, 8, 40)}, MOVED, []),
    ("it ended there", MOVING, {"a": AWAY, "b": has(Phase.ENDED, 8)}, MOVED, []),
    ("it failed there", MOVING, {"a": AWAY, "b": has(Phase.FAILED, 8)}, UNDOING, []),
    ("its lease ran out", MOVING, {"a": AWAY, "b": has(Phase.AWAY, 8)}, UNDOING, []),
    (
        "fence it first", UNDOING, {"a": AWAY, "b": has(Phase.RUNNING, 8, 50)}, None,
        [replace(order(Verb.CLEAR, "b", 8), keeps=False)],
    ),
    ("it is fenced", UNDOING, {"a": AWAY, "b": has(Phase.FENCED, 8)}, RETURNING, []),
    (
        "an older fence is none", UNDOING, {"a": AWAY, "b": has(Phase.FENCED, 7)}, None,
        [replace(order(Verb.CLEAR, "b", 8), keeps=False)],
    ),
    ("start it again", RETURNING, {"a": AWAY}, None, [order(Verb.GIVE_BACK, "a", 9)]),
    ("its node is silent", RETURNING, {"b": None}, None, []),
    ("it is back", RETURNING, {"a": has(Phase.RUNNING, 9)}, BACK, []),
    (
        "keep an ended one's output", ENDED, {"a": AWAY, "b": has(Phase.ENDED, 8)}, None,
        [order(Verb.CLEAR, "a", 7)],
    ),
    (
        "clear a withdrawn one", replace(ENDED, exit_code=None),
        {"a": AWAY, "b": has(Phase.ENDED, 8)}, None,
        [order(Verb.CLEAR, "a", 7), order(Verb.CLEAR, "b", 8)],
    ),
    (
        "fence its node, where an order may be under way", replace(ENDED, exit_code=None),
        {"b": None}, None, [order(Verb.CLEAR, "b", 8)],
    ),
    (
        "by its own epoch", replace(ENDED, exit_code=None),
        {"b": has(Phase.FENCED, 7)}, None, [order(Verb.CLEAR, "b", 8)],
    ),
    (
        "its node is fenced", replace(ENDED, exit_code=None), {"b": has(Phase.FENCED, 8)},
        replace(ENDED, exit_code=None, off=True), [],
    ),
    (
        "that is known", replace(ENDED, exit_code=None, off=True), {"b": has(Phase.FENCED, 8)},
        None, [],
    ),
    (
        "an earlier placement's results stay", replace(MOVED, first=8),
        {"a": has(Phase.ENDED, 7), "b": has(Phase.RUNNING, 8)}, None, [order(Verb.CLEAR, "a", 7)],
    ),
    (
        "its node has a higher fence", FIRST, {"a": has(Phase.FENCED, 5)},
        replace(FIRST, epoch=6, first=6), [],
    ),
    (
        "its node runs it by a higher epoch", FIRST, {"a": has(Phase.RUNNING, 5)},
        replace(FIRST, epoch=5, first=5), [],
    ),
    ("its node claims the last epoch", FIRST, {"a": has(Phase.FENCED, 1 << 53)}, None, []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "told", "write", "orders"),
    [row[1:] for row in ROWS],
    ids=[row[0] for row in ROWS],
)
def test_a_row_of_the_table(
    record: Record, told: Told, write: Record | None, orders: list[Order]
) -> None:
    acts = next_acts(record, held(told))
    assert (acts.write, list(acts.orders)) == (write, orders)


@pytest.mark.parametrize(
    ("told", "late_s"),
    [
        ({}, ARRIVAL_S),
        ({"b": None}, ARRIVAL_S),
        ({"b": has(Phase.ARRIVING, 8)}, ARRIVAL_S),
        ({"b": has(Phase.RUNNING, 8)}, REPORT_S),
    ],
)
def test_an_arrival_that_takes_too_long_is_undone(told: Told, late_s: float) -> None:
    assert next_acts(MOVING, held(told), late_s - 1.0).write is None
    acts = next_acts(MOVING, held(told), late_s + 1.0)
    assert acts.write == UNDOING
    assert acts.failed


def test_no_checkpoint_comes_for_ever() -> None:
    assert fetch_s(Saved(1, size_bytes=20 << 20)) == ARRIVAL_S + 20.0
    assert fetch_s(Saved(1, size_bytes=1 << 53)) == LONGEST_S


def test_a_silent_target_is_undone_only_once_it_is_gone() -> None:
    assert next_acts(UNDOING, held({}), 1e6).write is None
    assert next_acts(UNDOING, held({}), gone={"b"}).write == RETURNING


@pytest.mark.parametrize("record", [PLACED, LEAVING, RETURNING])
def test_a_job_whose_node_is_off_ends_so_that_it_is_placed_again(record: Record) -> None:
    acts = next_acts(record, held({"b": None}), off={"a": "why"})
    assert acts.write == end_job(record, "why", off=True)
    assert acts.write.wants_place(record.digest)
    assert next_acts(record, held({"b": None}), off={"b": "why"}).write is None


@pytest.mark.parametrize("record", [MOVING, UNDOING])
def test_a_job_that_is_not_its_target_s_yet_does_not_end_with_it(record: Record) -> None:
    acts = next_acts(record, held({"a": AWAY}), 1e6, gone={"b"}, off={"b": "why"})
    assert acts.write is not None
    assert acts.write.state is not RecordState.ENDED


def test_a_move_begins_with_room_on_the_target() -> None:
    assert begin_move(PLACED, "b", held({"b": None})) == Acts(orders=(order(Verb.PREPARE, "b", 7),))
    assert begin_move(PLACED, "b", held({"b": PREPARED})).write == LEAVING
    assert begin_move(PLACED, "b", held({"b": PULLING})).write is None


@pytest.mark.parametrize("record", [PLACED, LEAVING, MOVING, UNDOING, RETURNING])
def test_a_job_that_is_no_longer_desired_ends_in_any_state(record: Record) -> None:
    ended = end_job(record, "removed")
    assert (ended.state, ended.epoch) == (RecordState.ENDED, record.epoch)
    told: Told = {"a": AWAY, "b": has(Phase.ARRIVING, 8)}
    assert [one.verb for one in next_acts(ended, held(told)).orders] == [Verb.CLEAR, Verb.CLEAR]


def test_the_node_of_a_job_that_ended_by_itself_is_not_waited_for() -> None:
    assert end_job(ENDED, "removed").off
    assert not end_job(PLACED, "removed").off


def test_a_job_that_comes_again_is_placed_in_a_new_epoch_and_starts_afresh() -> None:
    again = place_job("job", "a", "other", end_job(MOVED, "removed"))
    assert (again.epoch, again.first, again.digest, again.moves) == (9, 9, "other", 0)
    fenced: Told = {"a": has(Phase.FENCED, 8), "b": has(Phase.FENCED, 8)}
    assert next_acts(again, held(fenced)).orders == (Order(Verb.ARRIVE, "a", "job", 9),)


@pytest.mark.parametrize(
    ("state", "exit_code", "digest", "waits"),
    [
        (RecordState.PLACED, None, "one", False),
        (RecordState.PLACED, None, "other", False),
        (RecordState.ENDED, 0, "one", False),
        (RecordState.ENDED, 0, "other", True),
        (RecordState.ENDED, None, "one", True),
    ],
)
def test_an_ended_job_waits_for_a_node_again_only_once_it_changed_or_was_removed(
    state: RecordState, exit_code: int | None, digest: str, waits: bool
) -> None:
    record = Record("job", state, "a", digest="one", exit_code=exit_code)
    assert record.wants_place(digest) is waits
