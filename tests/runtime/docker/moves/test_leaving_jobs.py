"""Jobs that leave for another node: on acts that are written down, and a clock of numbers. How they
do it on an engine is in test_leaving_engine."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.model.actions import Outcome, Remove, Start
from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import ContainerState, GpuAccess
from dlsched.model.leaving import Leaving, LeavingPhase
from dlsched.model.spec import Checkpoint, Limits, Restart, Stop
from dlsched.runtime.docker.archives import Unfit
from dlsched.runtime.docker.carrying import Brought, NotShared
from dlsched.runtime.docker.create.containers import NO_RESTART
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.engine_calls import EngineCalls
from dlsched.runtime.docker.instance import BusyContainers
from dlsched.runtime.docker.moves import INSPECTED_S
from dlsched.runtime.machine.calls import SetRestart
from dlsched.runtime.machine.container import Container
from dlsched.runtime.machine.inspected import Inspected, Listing
from dlsched.runtime.machine.move import REST_S
from dlsched.runtime.machine.outcomes import Packed
from tests.runtime.docker.fake_engine import FakeEngine, Faulty
from tests.runtime.docker.making import instance_of
from tests.runtime.docker.moves.test_moves import (
    ACK,
    EXITED,
    GONE,
    NEW,
    OLD,
    SPEC,
    Acts,
    World,
    aside,
)
from tests.runtime.docker.test_archives import TOP, cut, entry, packed

SAVED = replace(ACK, received_s=102.0)
CHECKPOINT = Checkpoint("SIGUSR1", 20.0, "/ckpt")
PACKED = Packed("5e" * 32, 4096)
REFUSED, AWAY = LeavingPhase.REFUSED, LeavingPhase.AWAY


class PackingActs(Acts):
    """Packs, unless it is stopped."""

    def __init__(self, arrivals: Any) -> None:
        super().__init__()
        self.arrivals = arrivals
        self.started: list[str] = []
        self.stopped = False

    def pack(self, old: Inspected, path: str, archive: Path, most_bytes: int, stop: Any) -> Packed:
        self.done.append("pack")
        self.stopped = stop()
        if "pack" in self.raises:
            raise self.raises["pack"]
        archive.write_text(f"{path} of {old.container_id}, at most {most_bytes}")
        return PACKED

    def find(self, old: Inspected, path: str) -> Packed:
        self.done.append("find")
        if "find" in self.raises:
            raise self.raises["find"]
        return Packed("", 700, path)

    def sweep(self, job: str) -> None:
        self.arrivals.sweep(job)

    def start_again(self, container: str) -> None:
        self.started.append(container)


class Arriving:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.brought: Brought | None = None

    def of(self, job: str) -> Brought | None:
        return self.brought

    def bring(self, job: str, epoch: int, archive: Path, source: str = "") -> None:
        self.brought = Brought(job, epoch, str(archive), source=source)
        self.done.append(f"bring {epoch}")

    def expect(self, job: str, epoch: int, file: str, size_bytes: int, source: str = "") -> None:
        self.brought = Brought(job, epoch, "", file=file, size_bytes=size_bytes, source=source)
        self.done.append(f"expect {file} of {size_bytes} in {epoch}")

    def forget(self, job: str) -> None:
        self.done.append("forget")

    def sweep(self, job: str) -> None:
        self.done.append("sweep")


class Node(World):
    """A node with one job, whose agent is asked to let it leave."""

    def __init__(self, folder: Path, *, kept: bool = False) -> None:
        super().__init__()
        self.archive = folder / "job-e1.tar"
        self.hidden: Set[str] = frozenset()
        self.arrivals: Any = Arriving()
        self.acts = PackingActs(self.arrivals)
        self.present: Inspected | None = OLD
        self.checkpoint = CHECKPOINT
        self.reopen(kept=kept)

    def reopen(self, *, kept: bool) -> None:
        """An agent begins."""
        self.open()
        self.jobs = self.moves
        if kept:
            self.jobs.keep_away({"job": self.archive}, lambda *_: None)

    def hide(self, jobs: Set[str]) -> None:
        self.hidden = jobs

    def listing(self, *there: Inspected) -> Listing:
        """As the engine's listing: one that is set aside stands for its job, unless it is hidden or
        another one is there."""
        shown = super().listing(*there)
        away = {key: one for key, one in shown.containers.items() if one in (GONE, aside(OLD))}
        if not (away and "job" in self.hidden):
            return shown
        return replace(shown, containers={}, set_aside={**shown.set_aside, **away})

    def fail_to_start(self) -> None:
        """A start of it fails."""
        self.machine.start(Start(SPEC, Limits(), 1024), self.now_s)
        self.take()
        assert self.start_failed

    @property
    def start_failed(self) -> bool:
        return [one.stage for one in self.machine.begun(None)] == ["failed"]

    def leave(self) -> None:
        self.jobs.leave("job", self.checkpoint, self.archive, 1 << 20)
        self.take()

    def ending(self) -> None:
        """It has saved itself, and is to end."""
        self.leave()
        self.see(OLD, reports=[SAVED])

    def leaves(self) -> None:
        """It has left."""
        self.ending()
        for _ in range(2):
            self.see(GONE)

    @property
    def state(self) -> Leaving | None:
        return self.jobs.leaving("job")

    @property
    def phase(self) -> LeavingPhase | None:
        return None if (state := self.state) is None else state.phase

    @property
    def why(self) -> str:
        return "" if (state := self.state) is None else state.why


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.see(OLD)
    return node


def test_saved_ended_packed_and_kept_aside(node: Node) -> None:
    assert node.state is None
    node.leave()
    assert node.step == "moving to another node: the job saves itself (20 s left)"
    assert node.state == Leaving(LeavingPhase.SAVING)
    assert node.moves.bars_start("job") == "the job is moving to another node, or back"
    node.see(OLD, reports=[SAVED])
    assert node.acts.done == ["ask", "set_aside", "end"]
    node.see(GONE)
    assert node.step == "moving to another node: dlsched packs the checkpoint"
    assert node.state == Leaving(LeavingPhase.SAVING, step=7)
    assert node.hidden == set()
    node.see(GONE)
    assert node.state == Leaving(AWAY, 7, PACKED.sha256, PACKED.size_bytes)
    assert node.acts.done == ["ask", "set_aside", "end", "pack"]
    assert node.archive.read_text() == "/ckpt of old, at most 1048576"
    assert node.hidden == {"job"}
    assert node.step == ""
    assert node.moves.bars_start("job") == "the job moved to another node"
    for _ in range(3):
        node.see(GONE)
    assert len(node.acts.done) == 4
    assert not node.moves.unsettled
    assert not node.moves.moving
    assert node.alarms == ()


@pytest.mark.parametrize("word", ["clear", "give_back"])
def test_gpus_are_kept_until_cleared_or_back(node: Node, word: str) -> None:
    node.leave()
    assert node.moves.gpus_away() == {}, "its container shows them"
    node.see(OLD, reports=[SAVED])
    for _ in range(2):
        node.see(GONE)
    assert node.moves.gpus_away() == {"job": ("a",)}
    node.reopen(kept=True)
    node.see(GONE)
    assert node.moves.gpus_away() == {"job": ("a",)}
    getattr(node.jobs, word)("job")
    node.see(GONE)
    assert node.moves.gpus_away() == {}


def test_in_shared_storage_nothing_is_packed(node: Node) -> None:
    node.checkpoint = replace(CHECKPOINT, shared=True)
    node.leaves()
    assert node.state == Leaving(AWAY, 7, "", 700, "/ckpt/7")
    assert node.acts.done == ["ask", "set_aside", "end", "find"]
    assert not node.archive.exists()
    node.jobs.give_back("job")
    node.see(GONE)
    assert node.acts.done[-1] == "bring_back"


def test_one_that_comes_to_shared_storage(node: Node) -> None:
    node.leaves()
    node.jobs.expect("job", 3, "/ckpt/9", 900)
    node.see(GONE)
    assert node.acts.done[-1] == "remove", "what was set aside here is cleared first"
    assert "expect /ckpt/9 of 900 in 3" in node.arrivals.done
    node.see()
    node.fail_to_start()
    node.jobs.expect("job", 3, "/ckpt/9", 900)
    assert node.start_failed, "a failed start of the same epoch counts"


def test_second_call_changes_nothing(node: Node) -> None:
    node.leave()
    node.ending()
    for _ in range(2):
        node.leave()
        node.see(GONE)
    node.leave()
    assert node.acts.done == ["ask", "set_aside", "end", "pack"]
    assert node.phase is AWAY


def test_one_that_acknowledges_nothing_runs_on(node: Node) -> None:
    node.leave()
    node.see(OLD, at_s=121.0)
    why = "not moved: the job acknowledged no checkpoint within 20 s"
    node.leave()
    assert node.acts.done[0] == "ask", "before it is known, a refusal is not tried again"
    assert node.acts.done.count("ask") == 1
    assert node.state == Leaving(REFUSED, why=why)
    assert "set_aside" not in node.acts.done
    assert node.moves.bars_start("job") is None
    assert node.alarms == ()
    node.leave()
    assert node.phase is LeavingPhase.SAVING, "a refusal that is known may be tried again"
    assert node.acts.done.count("ask") == 2


@pytest.mark.parametrize("there", [None, EXITED, replace(EXITED, state=ContainerState.DEAD)])
def test_one_that_has_ended_does_not_leave(node: Node, there: Inspected | None) -> None:
    node.present = there
    node.leave()
    assert node.state == Leaving(LeavingPhase.ENDED, why="the job ended by itself")
    assert node.acts.done == []


def test_one_that_ends_over_being_asked_has_ended(node: Node) -> None:
    node.leave()
    node.see(EXITED)
    assert node.phase is LeavingPhase.ENDED


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"state": ContainerState.PAUSED}, "the container is paused"),
        ({"adopted": object()}, "another program started the container"),
    ],
)
def test_one_that_cannot_be_asked_is_refused(node: Node, change: Any, why: str) -> None:
    node.present = replace(OLD, **change)
    node.leave()
    assert node.state == Leaving(REFUSED, why=why)
    assert node.acts.done == []


def test_busy_container_is_refused(node: Node) -> None:
    node.machine.busy["old"] = Container("old", (SetRestart("old", Restart()),))
    node.leave()
    assert node.state == Leaving(REFUSED, why="operation under way: updating")


def test_none_leaves_after_everything_was_given_back(node: Node) -> None:
    node.machine.held = "limits were given back"
    node.leave()
    assert node.state == Leaving(REFUSED, why="limits were given back")


def test_container_that_is_moved_is_refused(node: Node) -> None:
    node.begin()
    node.leave()
    assert node.why.startswith("operation under way: moving to b/c: the job saves itself")


@pytest.mark.parametrize(
    ("act", "error"),
    [
        ("pack", Unfit("'pipe' is a named pipe")),
        ("pack", EngineUnavailable("no answer")),
        ("pack", OSError("full")),
        ("find", NotShared("the job's checkpoint /ckpt/7 does not exist")),
    ],
)
def test_job_without_a_handed_over_checkpoint_returns(
    node: Node, act: str, error: Exception
) -> None:
    node.checkpoint = replace(CHECKPOINT, shared=act == "find")
    node.acts.raises[act] = error
    node.leaves()
    assert node.acts.done == ["ask", "set_aside", "end", act, "bring_back"]
    assert node.step.startswith("moving back, since the job's checkpoint cannot be handed over: ")
    node.see(OLD)
    assert node.state == Leaving(
        REFUSED, 7, why=f"moved back: the job's checkpoint cannot be handed over: {error}"
    )
    assert node.hidden == set()
    assert node.alarms == ()


def test_one_that_another_program_starts_while_it_is_packed_returns(node: Node) -> None:
    node.ending()
    node.see(GONE)
    node.see(aside(OLD))
    assert node.acts.done[-1] == "bring_back"
    node.see(OLD)
    assert node.phase is REFUSED


def test_one_that_another_program_starts_after_it_left_is_killed(node: Node) -> None:
    node.leaves()
    node.see(aside(OLD))
    assert node.acts.done[-1] == "kill"
    assert node.phase is AWAY


def test_given_back_after_it_left(node: Node) -> None:
    node.leaves()
    node.jobs.give_back("job")
    assert node.state is None
    assert node.hidden == set()
    assert node.step != ""  # from the same cycle on: its container, which has ended, is shown again
    assert node.moves.bars_start("job") is not None
    node.see(GONE)
    assert node.acts.done[-1] == "bring_back"
    assert (
        node.step
        == "moving back, since the job stays on this node: dlsched starts the old container again"
    )
    assert node.moves.unsettled
    node.see(OLD)
    assert node.step == ""
    assert node.state is None
    assert not node.archive.exists()
    assert node.moves.bars_start("job") is None
    assert node.alarms == ()


def test_one_that_cannot_be_started_again_is_an_alarm(node: Node) -> None:
    node.leaves()
    node.acts.raises["bring_back"] = EngineRefused(500, "its device is gone")
    node.jobs.give_back("job")
    for _ in range(4):
        node.see(GONE, at_s=node.now_s + REST_S)
    node.see(replace(GONE, name=OLD.name))
    assert node.alarms[0].endswith(
        "and the old container cannot be started again: its device is gone"
    )
    assert node.state is None


def test_given_back_while_it_is_asked(node: Node) -> None:
    node.leave()
    node.jobs.give_back("job")
    node.see(OLD, reports=[SAVED])
    assert node.state is None
    assert node.step == ""
    assert "set_aside" not in node.acts.done


def test_given_back_while_it_ends(node: Node) -> None:
    node.ending()
    node.jobs.give_back("job")
    node.see(aside(OLD))
    assert node.acts.done[-1] == "kill", "its checkpoint is safe"
    node.see(GONE)
    assert node.acts.done[-1] == "bring_back"
    node.see(OLD)
    assert node.state is None
    assert "pack" not in node.acts.done


@pytest.mark.parametrize("how", ["give_back", "winding_up", "remove"])
def test_packing_ends_early_where_it_is_not_wanted_any_more(node: Node, how: str) -> None:
    node.ending()
    node.executor.held = True
    node.see(GONE)
    listing = node.listing(GONE)
    if how == "give_back":
        node.jobs.give_back("job")
    elif how == "winding_up":
        node.moves.winding_up = True
        assert node.moves.unsettled
        node.see(GONE)
    else:
        removes = node.moves.forsake(REMOVE, listing, node.now_s)
        assert isinstance(removes, Outcome)
        assert removes.status == "begun"
    node.executor.go_on()
    node.take()
    assert node.acts.stopped
    node.see(GONE)
    assert node.acts.done[-1] == "bring_back"
    node.see(OLD)
    assert node.step == ""
    assert node.phase is (REFUSED if how == "winding_up" else None)
    assert not node.archive.exists()
    assert not node.moves.unsettled


def test_what_left_stays_away_when_the_agent_ends(node: Node) -> None:
    node.leaves()
    node.moves.winding_up = True
    assert not node.moves.unsettled
    node.see(GONE)
    assert node.phase is AWAY
    assert node.acts.done[-1] == "pack"


def test_an_agent_that_ends_lets_no_job_leave(node: Node) -> None:
    node.moves.winding_up = True
    node.leave()
    assert node.state == Leaving(REFUSED, why="dlsched is ending")


REMOVE = Remove("job", "old", Stop(), None, "its file was removed")


def test_a_job_that_is_removed_does_not_leave(node: Node) -> None:
    node.ending()
    listing = replace(node.listing(GONE), at_s=node.now_s + 1.0)
    assert node.moves.forsake(REMOVE, listing, node.now_s) == ()
    node.see(GONE)
    assert node.phase is LeavingPhase.ENDED
    assert node.step == ""


def test_cleared(node: Node) -> None:
    node.leaves()
    node.jobs.clear("job")
    assert node.state is None
    assert node.hidden == {"job"}, "until its container is gone"
    assert node.moves.bars_start("job") is None
    node.see(GONE)
    assert node.acts.done[-1] == "remove"
    assert node.step == ""
    node.see()
    assert node.hidden == set()
    assert not node.archive.exists()
    assert node.arrivals.done == ["forget", "sweep"]
    assert node.machine.job("job").move is None


@pytest.mark.parametrize(("word", "done"), [("clear", ["forget", "sweep"]), ("give_back", [])])
def test_of_one_that_does_not_leave_only_volumes_are_cleared(
    node: Node, word: str, done: list[str]
) -> None:
    getattr(node.jobs, word)("job")
    node.take()
    assert (node.acts.done, node.arrivals.done, node.machine.jobs) == ([], done, {})


def test_cleared_while_it_ends_it_does_not_return(node: Node) -> None:
    node.ending()
    node.jobs.clear("job")
    assert node.moves.bars_start("job") is not None
    node.see(GONE)
    assert node.acts.done == ["ask", "set_aside", "end", "remove"]
    node.see()
    assert node.state is None
    assert node.machine.job("job").move is None


def test_one_that_comes_again_replaces_what_is_set_aside(node: Node) -> None:
    node.leaves()
    node.jobs.bring("job", 3, Path("elsewhere"))
    assert node.moves.bars_start("job") is None
    node.see(GONE, NEW)
    assert node.acts.done[-1] == "remove"
    node.see(NEW)
    assert node.arrivals.done[:2] == ["forget", "bring 3"]
    assert node.state is None


def test_a_container_that_came_meanwhile_is_not_replaced_by_what_is_given_back(node: Node) -> None:
    node.leaves()
    node.jobs.give_back("job")
    node.see(GONE, NEW)
    assert node.acts.done[-1] == "remove"
    node.see(NEW)
    assert "bring_back" not in node.acts.done
    assert node.machine.job("job").move is None


def test_somebody_removes_what_is_set_aside(node: Node) -> None:
    node.leaves()
    node.see()
    assert node.phase is AWAY, "its archive is there"
    assert node.archive.exists()
    node.jobs.give_back("job")
    assert node.state is None
    assert node.hidden == set()
    assert not node.archive.exists()


@pytest.mark.parametrize("steps", range(1, 4))
def test_somebody_removes_it_before_it_has_left(node: Node, steps: int) -> None:
    node.leave()
    for one in [(OLD,), (GONE,), (GONE,)][: steps - 1]:
        node.see(*one, reports=[SAVED])
    node.acts.raises["pack"] = Unfit("no")
    node.see()
    node.see()
    assert node.phase in (LeavingPhase.ENDED, AWAY)
    assert node.machine.job("job").move is None


# ---------------------------------------------------------------------- an agent that died


def test_what_left_while_an_earlier_agent_ran_stays_away(tmp_path: Path) -> None:
    node = Node(tmp_path, kept=True)
    assert node.state == Leaving(AWAY)
    assert node.hidden == {"job"}
    for _ in range(3):
        node.see(GONE)
    assert node.acts.done == []
    assert node.phase is AWAY
    assert not node.moves.unsettled
    assert node.moves.bars_start("job") == "the job moved to another node"
    node.jobs.give_back("job")
    node.see(GONE)
    assert node.acts.done == ["bring_back"]
    node.see(OLD)
    assert node.state is None


@pytest.mark.parametrize("word", ["give_back", "clear"])
def test_a_word_before_the_first_listing_counts(tmp_path: Path, word: str) -> None:
    node = Node(tmp_path, kept=True)
    getattr(node.jobs, word)("job")
    assert node.state is None
    for _ in range(2):
        node.see(GONE)
    assert node.acts.done == ["bring_back" if word == "give_back" else "remove"]


def test_what_had_not_left_when_its_agent_died_returns(node: Node) -> None:
    node.leaves()
    node.reopen(kept=False)
    node.acts.done.clear()
    for _ in range(2):
        node.see(GONE)
    assert node.acts.done == ["bring_back"]
    node.see(OLD)
    assert node.state is None
    assert node.step == ""


def test_one_whose_file_is_lost_stays_away(node: Node, tmp_path: Path) -> None:
    node.leaves()
    node.reopen(kept=False)
    asked: list[tuple[str, str]] = []

    def lost(job: str, source: str) -> Path:
        asked.append((job, source))
        return tmp_path / "job-e0.tar"

    node.jobs.keep_away({}, lost)
    node.acts.done.clear()
    for _ in range(3):
        node.see(GONE)
    assert node.acts.done == []
    assert node.hidden == {"job"} and node.phase is AWAY and node.jobs.is_aside("job")
    assert set(asked) == {("job", GONE.source)}
    assert node.moves.gpus_away() == {}, "it may stay so for ever"
    node.jobs.give_back("job")
    for _ in range(2):
        node.see(GONE)
    assert "bring_back" in node.acts.done
    node.see(OLD)
    assert not node.jobs.is_aside("job")


def test_other_jobs_that_are_found_return_all_the_same(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.jobs.keep_away({"other": tmp_path / "other.tar"}, lambda *_: None)
    for _ in range(2):
        node.see(GONE)
    assert node.acts.done == ["bring_back"]


@pytest.mark.parametrize("word", ["give_back", "clear"])
@pytest.mark.parametrize("seen", [0, 1])
def test_job_whose_container_is_gone_may_start_again(tmp_path: Path, word: str, seen: int) -> None:
    node = Node(tmp_path, kept=True)
    node.archive.touch()
    for _ in range(seen):
        node.see(GONE)
    getattr(node.jobs, word)("job")
    for _ in range(2):
        node.see()
    assert node.moves.bars_start("job") is None
    assert not node.archive.exists()
    assert node.state is None


# ---------------------------------------------------------------------- one act, and the protocol


FOLDER = packed(TOP, entry("ckpt/a", text=b"a" * 3000))


def acts_on(
    engine: Any,
    folder: Path,
    busy: BusyContainers,
    lift: Callable[[str, Limits | None], None] = lambda *_: None,
) -> EngineCalls:
    unused: Any = None
    writer: Any = SimpleNamespace(lift=lift)
    return EngineCalls(instance_of(engine, folder, busy=busy), writer, unused, unused, unused)


@pytest.mark.parametrize("failure", [None, EngineUnavailable("it is away")])
def test_one_that_leaves_saves_itself_without_the_ceiling_that_the_policy_gave(
    tmp_path: Path, failure: EngineUnavailable | None
) -> None:
    lifted: list[tuple[str, Limits | None]] = []

    def lift(container: str, limits: Limits | None) -> None:
        lifted.append((container, limits))
        if failure is not None:
            raise failure

    acts = acts_on(FakeEngine(tmp_path / "host"), tmp_path, BusyContainers(lambda _: None), lift)
    asked = replace(CHECKPOINT, signal=None)
    acts.ask(OLD, asked, Limits(2.0))
    assert lifted == [(OLD.container_id, Limits(2.0))]
    acts.ask(OLD, asked)
    assert len(lifted) == 1
    assert acts.was_asked(OLD.job)


def test_the_engine_starts_no_container_that_is_packed(tmp_path: Path) -> None:
    engine, over = Faulty(FakeEngine(tmp_path / "host")), list[str]()
    engine.put("old", "old", {"Image": "x"})
    engine.engine.packed = cut(FOLDER)
    acts = acts_on(engine, tmp_path, BusyContainers(over.append))
    old = replace(GONE, gpu_access=GpuAccess.LEGACY)
    done = acts.pack(old, "/ckpt", tmp_path / "a.tar", 1 << 20, lambda: False)
    assert done.size_bytes == (tmp_path / "a.tar").stat().st_size
    assert engine.of("update") == [("old", NO_RESTART)]
    assert over == ["old"]


def test_the_engine_is_not_left_waiting_for_a_reader(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "host")
    engine.packed = chunks = cut(FOLDER)
    with pytest.raises(Unfit) as caught:
        acts_on(engine, tmp_path, BusyContainers()).pack(
            GONE, "/ckpt", tmp_path / "a.tar", 100, lambda: False
        )
    assert not list(chunks), f"although {caught.value!r} is still there"


def test_a_start_that_failed_does_not_count_against_the_next_epoch(node: Node) -> None:
    node.fail_to_start()
    node.jobs.bring("job", 2, node.archive)
    assert not node.start_failed
    node.fail_to_start()
    node.jobs.bring("job", 2, node.archive)
    assert node.start_failed, "the same epoch is not tried again and again"
    node.jobs.bring("job", 3, node.archive)
    assert not node.start_failed
    node.fail_to_start()
    node.jobs.clear("job")
    assert not node.start_failed


def test_a_volume_is_kept_if_asked_and_only_once_its_checkpoint_is_in_it(node: Node) -> None:
    assert not node.jobs.has_volume("job")
    filled = Brought("job", 2, "a", filled=True)
    shared = replace(filled, file="/ckpt/9")
    for brought, kept in ((filled, True), (shared, False), (replace(filled, filled=False), False)):
        node.arrivals.brought = brought
        node.arrivals.done.clear()
        node.jobs.clear("job", keeps=True)
        assert ("forget" not in node.arrivals.done) == node.jobs.has_volume("job") == kept
    node.arrivals.brought = filled
    node.jobs.clear("job", keeps=False)
    assert "forget" in node.arrivals.done


def test_a_kept_volume_is_inspected_from_time_to_time(node: Node) -> None:
    """As an operator may remove it by hand, so that the job can come to this host again."""
    assert not node.jobs.has_volume("job")
    assert node.arrivals.done == []
    node.arrivals.brought = Brought("job", 2, "a", filled=True)
    for passed_s, inspected in ((0.0, 1), (1.0, 1), (INSPECTED_S - 1.0, 2), (INSPECTED_S, 3)):
        node.now_s += passed_s
        assert node.jobs.has_volume("job")
        node.take()
        assert node.arrivals.done == ["sweep"] * inspected


def test_what_comes_again_in_its_epoch_keeps_its_volume(node: Node) -> None:
    """As after a start of the host, before the manager has confirmed that it had arrived."""
    node.leaves()
    node.arrivals.brought = Brought("job", 2, "a", filled=True)
    node.jobs.bring("job", 2, node.archive)
    assert "forget" not in node.arrivals.done


def test_a_job_that_ended_with_its_engine_is_started_again_and_not_all_the_time(node: Node) -> None:
    assert not node.jobs.ended_with_engine("job")
    node.present = EXITED
    assert node.jobs.ended_with_engine("job")
    for wait_s in (0.0, 1.0, REST_S):
        node.now_s += wait_s
        node.jobs.start_again("job")
    assert node.acts.started == [EXITED.container_id] * 2


def test_one_that_is_being_moved_is_not_started_again(node: Node) -> None:
    node.leave()
    node.jobs.start_again("job")
    assert node.acts.started == []
