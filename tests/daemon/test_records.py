"""Durable records of deliveries and ends: a delivery is announced once, also over
restarts; what a full disk refuses; what a dry run keeps."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsched.config.settings import DeliverHook
from dlsched.control.ledger.updated import State
from dlsched.daemon.records import Deliveries, JobRecords, ReadOnlyRecords
from dlsched.model.cycle import HookRun
from dlsched.model.facts import CheckpointAck
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import (
    Delivered,
    Ended,
    JobState,
    JobView,
    NodeView,
    Reached,
    Snapshot,
    Tiers,
)
from dlsched.store.jobs import delivered_records, ended_records
from tests.doubles import job_spec, texts

WORD = Delivered(
    "ab", "id-a", "accuracy", 0.9, 0.97, Tiers(Reached(5.0, 0.93, 500)), CheckpointAck(480, "/c")
)
LATER = replace(WORD, name="bc", container_id="id-b", tiers=Tiers(Reached(6.0, 0.95)))
NOW = "2026-01-01T00:00:00Z"
COMMAND = DeliverHook(("/bin/true",))
NOTHING = State(Snapshot(1, 100.0, NodeView(4.0, 4.0, 1 << 30)))


class FakeHook:
    """A queue without a process: a test says what became of each."""

    def __init__(self, wanted: bool = True, room: int = 9) -> None:
        self.wanted = wanted
        self.room = room
        self.offered: list[Delivered] = []
        self.done: list[HookRun] = []

    def use(self, options: DeliverHook) -> None:
        self.wanted = options.command is not None

    def offer(self, word: Delivered) -> bool:
        if len(self.offered) >= self.room:
            return False
        self.offered.append(word)
        return True

    def ended(self) -> tuple[HookRun, ...]:
        runs = tuple(self.done)
        self.done.clear()
        return runs

    def close(self) -> None:
        self.closed = True


class World:
    def __init__(self, state_dir: Path, hook: FakeHook | None = None) -> None:
        self.hook = hook or FakeHook()
        self.allotted: list[tuple[str, bool]] = []
        self.refuses: Exception | None = None
        self.records = delivered_records(state_dir)
        self.deliveries = Deliveries(self.records, self.hook, self._allot)  # type: ignore[arg-type]

    def _allot(self, job: str, deliverable: bool) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.allotted.append((job, deliverable))

    def keep(self, *words: Delivered, **more: object) -> tuple[HookRun, ...]:
        state = replace(NOTHING, delivered=words, **more)  # type: ignore[arg-type]
        return self.deliveries.keep(state, NOW)

    def offered(self) -> list[str]:
        return [word.name for word in self.hook.offered]

    def ends(self, number: int, status: Any, detail: str = "") -> None:
        """That run of the command ends so."""
        self.hook.done.append(HookRun(self.hook.offered[number], status, detail))

    def alarms(self) -> list[str]:
        return list(texts(self.deliveries.alarms()))

    def told(self) -> dict[str, bool]:
        return {name: word.told for name, word in self.records.all().items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_word_is_durable_before_the_hook_has_run_and_told_after(
    world: World, tmp_path: Path
) -> None:
    world.keep(WORD)
    kept = delivered_records(tmp_path).of("ab")
    assert kept == replace(WORD, wall_time=NOW)
    assert world.offered() == ["ab"]
    world.keep()
    assert len(world.hook.offered) == 1
    world.ends(0, "done", "exit code 0")
    assert world.keep() == (HookRun(world.hook.offered[0], "done", "exit code 0"),)
    assert delivered_records(tmp_path).of("ab") == replace(kept, told=True)
    assert world.alarms() == []


def test_the_next_agent_runs_the_hook_for_what_was_not_told_and_for_nothing_else(
    world: World, tmp_path: Path
) -> None:
    world.keep(WORD, LATER)
    world.ends(0, "done")
    world.ends(1, "aborted")
    world.deliveries.close()
    again = World(tmp_path)
    again.keep()
    assert again.offered() == ["bc"]


def test_a_finish_adds_to_the_word_and_is_not_a_second_delivery(world: World) -> None:
    world.keep(WORD)
    world.ends(0, "done")
    world.keep()
    more = replace(WORD, tiers=Tiers(WORD.tiers.delivered, Reached(9.0, 0.98)), checkpoint=None)
    world.keep(more)
    kept = world.records.of("ab")
    assert kept is not None
    assert (kept.tiers, kept.told, kept.checkpoint) == (more.tiers, True, WORD.checkpoint)
    assert len(world.hook.offered) == 1


def test_without_a_command_nothing_is_owed_also_not_later(tmp_path: Path) -> None:
    world = World(tmp_path, FakeHook(wanted=False))
    world.keep(WORD)
    assert world.told() == {"ab": True}
    world.deliveries.use(COMMAND)
    world.keep()
    assert world.hook.offered == []


def test_what_an_agent_with_a_command_left_owed_lapses_without_one(tmp_path: Path) -> None:
    World(tmp_path).keep(WORD)
    world = World(tmp_path, FakeHook(wanted=False))
    world.keep()
    assert world.told() == {"ab": True}


def test_they_are_offered_in_order_of_delivery_and_a_full_queue_is_asked_again(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, FakeHook(room=1))
    earliest = replace(WORD, name="zz", tiers=Tiers(Reached(1.0, 0.9)))
    world.keep(LATER, WORD, earliest)
    assert world.offered() == ["zz"]
    world.hook.room = 9
    world.keep()
    assert world.offered() == ["zz", "ab", "bc"]


def test_a_failed_hook_is_an_alarm_and_not_run_again(world: World) -> None:
    world.keep(WORD)
    world.ends(0, "failed", "exit code 3")
    world.keep()
    assert world.alarms() == ["deliver_hook failed for ab: exit code 3"]
    assert world.told() == {"ab": True}
    world.deliveries.use(COMMAND)
    assert world.alarms() == []
    world.keep()
    assert len(world.hook.offered) == 1


def test_a_hook_that_could_not_start_is_an_alarm_and_tried_again_after_a_reload(
    world: World,
) -> None:
    world.keep(WORD, LATER)
    world.ends(0, "unstarted", "no such file")
    world.keep()
    world.keep()
    assert world.alarms() == ["deliver_hook failed for ab: no such file"]
    assert len(world.hook.offered) == 2
    world.deliveries.use(COMMAND)
    world.keep()
    assert world.offered() == ["ab", "bc", "ab"]


def test_what_no_longer_holds_is_forgotten_with_its_alarm(world: World, tmp_path: Path) -> None:
    world.keep(WORD)
    world.ends(0, "failed", "exit code 3")
    world.keep()
    world.keep(undelivered=("ab",))
    assert delivered_records(tmp_path).all() == {}
    assert world.alarms() == []


def test_a_run_for_a_word_that_was_voided_meanwhile_settles_nothing(world: World) -> None:
    world.keep(WORD)
    anew = replace(WORD, container_id="id-new")
    world.keep(anew, undelivered=("ab",))
    assert [word.container_id for word in world.hook.offered] == ["id-a", "id-new"]
    world.ends(0, "failed", "exit code 3")
    world.keep()
    assert world.told() == {"ab": False}
    assert world.alarms() == []


def test_a_full_disk_is_an_alarm_and_the_word_holds(world: World, tmp_path: Path) -> None:
    (tmp_path / "delivered").rmdir()
    world.keep(WORD, LATER)
    (alarm,) = world.alarms()
    assert alarm.startswith(
        "that a job was delivered (reached its deliver value) cannot be recorded: "
    )
    assert world.offered() == ["ab", "bc"]
    world.keep()
    assert world.alarms() == [alarm]
    (tmp_path / "delivered").mkdir()
    world.ends(0, "done")
    world.keep()
    assert world.alarms() == []
    assert delivered_records(tmp_path).all().keys() == {"ab", "bc"}
    assert len(world.hook.offered) == 2


def test_a_word_that_the_disk_does_not_let_go_of_is_told_to_nobody_and_tried_again(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, FakeHook(room=1))
    world.keep(WORD, LATER)
    (tmp_path / "delivered").rename(tmp_path / "away")
    world.keep(undelivered=("ab", "bc"))
    world.hook.room = 9
    world.ends(0, "failed", "exit code 3")
    world.keep()
    assert world.offered() == ["ab"]
    (alarm,) = world.alarms()
    assert alarm.startswith("the record that a job was delivered cannot be removed: ")
    (tmp_path / "away").rename(tmp_path / "delivered")
    world.keep()
    assert world.alarms() == []
    assert delivered_records(tmp_path).all() == {}


def test_each_tier_is_one_line_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world.keep(WORD)
    world.keep(replace(WORD, tiers=Tiers(WORD.tiers.delivered, Reached(9.0, 0.98))))
    world.keep()
    assert caplog.messages == [
        (
            "job ab reached its deliver value: accuracy 0.93 at step 500 (deliver 0.9); "
            "saved step 480 at /c"
        ),
        "job ab reached its finish value: accuracy 0.98 (finish 0.97)",
    ]


# ---------------------------------------------------------------------- the job itself


def view(delivered: bool = False, **changes: object) -> JobView:
    spec = job_spec("ab", target=AccuracyTarget("accuracy", 0.9, 0.97))
    seen = JobView(spec, JobState.RUNNING, container_id="id-a")
    tiers = WORD.tiers if delivered else Tiers()
    return replace(seen, tiers=tiers, **changes)  # type: ignore[arg-type]


def shown(world: World, *jobs: JobView) -> None:
    world.keep(snapshot=replace(NOTHING.snapshot, jobs=jobs))


def test_the_job_is_told_when_it_changes_and_each_container_once(world: World) -> None:
    for seen in (view(), view(), view(True), view(True), view(container_id="id-new")):
        shown(world, seen)
    assert world.allotted == [("ab", False), ("ab", True), ("ab", False)]
    shown(world)
    shown(world, view(container_id="id-new"))
    assert world.allotted[3:] == [("ab", False)]


@pytest.mark.parametrize(
    "left",
    [{"container_id": None}, {"state": JobState.UNMANAGED}, {"state": JobState.STOPPED}],
    ids=["no container", "alone", "over"],
)
def test_a_job_without_container_or_left_alone_is_told_nothing(
    world: World, left: dict[str, object]
) -> None:
    shown(world, view(True, **left))
    assert world.allotted == []


def test_an_allotment_that_cannot_be_written_is_an_alarm_and_tried_again(world: World) -> None:
    world.refuses = OSError(28, "No space left on device")
    shown(world, view(True))
    (alarm,) = world.alarms()
    assert alarm.startswith("ab cannot be notified that it was delivered: [Errno 28]")
    shown(world)
    assert world.alarms() == [], "it is gone"
    shown(world, view(True))
    world.refuses = None
    shown(world, view(True))
    assert world.allotted == [("ab", True)]
    assert world.alarms() == []


# ---------------------------------------------------------------------- ends


A_ENDED = replace(NOTHING, ended=(Ended("aa", "d1", "finished", "exit code 0"),))


@pytest.fixture
def records(tmp_path: Path) -> JobRecords:
    return JobRecords(ended_records(tmp_path), World(tmp_path).deliveries, lambda: NOW)


def test_an_end_is_on_the_disk_with_its_time_until_it_is_lifted(
    records: JobRecords, tmp_path: Path
) -> None:
    assert records.keep(A_ENDED) == ()
    assert ended_records(tmp_path).all()["aa"].wall_time == NOW
    assert set(records.ended()) == {"aa"}
    records.keep(replace(NOTHING, lifts=("aa",)))
    assert (records.ended(), ended_records(tmp_path).all()) == ({}, {})


@pytest.mark.parametrize("cycle", [A_ENDED, replace(NOTHING, lifts=("aa",))])
def test_a_stop_during_a_cycle_outlives_what_the_cycle_found(cycle: State, tmp_path: Path) -> None:
    ended = ended_records(tmp_path)
    records = JobRecords(ended, World(tmp_path).deliveries, lambda: NOW)
    ended.record(Ended("aa", "d0", "failed"))
    records.ended()
    stop = Ended("aa", "d1", "stopped")
    ended.secure(stop)
    records.keep(cycle)
    assert (ended.of("aa"), ended_records(tmp_path).of("aa")) == (stop, stop)


def test_an_end_that_a_full_disk_refuses_counts_and_is_told_until_it_is_written(
    records: JobRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("dlsched.store.records.write_whole", full)
        for state in (A_ENDED, NOTHING, NOTHING):
            records.keep(state)
            told = "that a job has ended cannot be recorded: No space left on device"
            assert texts(records.alarms()) == (told,)
        assert records.ended()["aa"].kind == "finished"
        assert ended_records(tmp_path).all() == {}
    records.keep(NOTHING)
    assert texts(records.alarms()) == ()
    assert ended_records(tmp_path).all()["aa"].kind == "finished"


def test_a_dry_run_reads_records_and_keeps_none(records: JobRecords, tmp_path: Path) -> None:
    records.keep(A_ENDED)
    dry = ReadOnlyRecords(records)
    assert set(dry.ended()) == {"aa"}
    assert dry.keep(replace(NOTHING, lifts=("aa",), ended=(Ended("bb", "d2", "failed"),))) == ()
    assert set(ended_records(tmp_path).all()) == {"aa"}
