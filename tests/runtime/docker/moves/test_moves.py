"""What the engine cannot be made to show of a move: on acts that are written down, and a clock of
numbers. The moves themselves are in test_moves_engine."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.model.actions import Move, Outcome, Remove, Start
from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import CheckpointAck, ContainerFact, ContainerState, Report
from dlsched.model.spec import Checkpoint, JobSpec, Limits, Stop
from dlsched.runtime.allotment import Allotment
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.identity.labels import container_name, set_aside_name
from dlsched.runtime.docker.moves import Moves
from dlsched.runtime.machine.container import Machine
from dlsched.runtime.machine.inspected import Inspected, Listing
from dlsched.runtime.machine.move import AGAIN_S, REPORT_WITHIN_S, REST_S, STAYS_UP_S
from tests.doubles import job_spec, texts
from tests.runtime.docker.making import instance_of, making
from tests.runtime.machine.described import RUNNING as STOPS_RUNNING

OLD = replace(
    STOPS_RUNNING, container_id="old", name=container_name("i", "job"), instance="i", gpus=("a",)
)
NEW = replace(OLD, container_id="new", origin="old", gpus=("b",))
ENDED = {"state": ContainerState.EXITED, "pid": 0, "exit_code": 143}
SPEC = job_spec("job", stop=Stop("SIGINT", 30.0))
ACK = Report(received_s=101.0, checkpoint=CheckpointAck(7, "/ckpt/7"))


def aside(one: Inspected) -> Inspected:
    return replace(one, name=set_aside_name("i", "job"))


EXITED = replace(OLD, **ENDED)  # type: ignore[arg-type]
GONE = aside(EXITED)


def move_of(spec: JobSpec = SPEC) -> Move:
    start = Start(spec, Limits(0.5), 1024, gpus=("b", "c"))
    return Move("old", start, Checkpoint("SIGUSR1", 20.0, "/ckpt"), "a test")


class Acts:
    """Does nothing but write down, and fails as the test wants."""

    instance = SimpleNamespace(options=SimpleNamespace(read_only=False))

    def __init__(self) -> None:
        self.done: list[str] = []
        self.raises: dict[str, Exception] = {}
        self.asked = False

    def __getattr__(self, name: str) -> Any:
        def act(*_: object, **__: object) -> object:
            self.done.append(name)
            if name in self.raises:
                raise self.raises[name]
            return Allotment(gpus=("a",)) if name == "ask" else None

        return act

    def make(self, call: Any, _report: Any, abandoned: Any) -> object:
        stop = [abandoned] if call.act == "pack" else []
        return getattr(self, call.act)(*call.args, *stop)

    def end_old(self, *_: object) -> None:
        self.set_aside()
        self.end()

    def poll(self, job: str) -> None:
        if "poll" in self.raises:
            raise self.raises["poll"]

    def was_asked(self, job: str) -> bool:
        return self.asked


class World:
    """Moves, and the containers that the next observation shows."""

    arrivals: Any = None
    present: Inspected | None = OLD

    def __init__(self) -> None:
        self.acts: Any = Acts()
        self.now_s = 100.0
        self.open()

    def open(self) -> None:
        """An agent begins."""
        self.executor = making(self.acts, [], lambda: self.now_s)
        self.machine = Machine(self.executor.do)
        clock = SimpleNamespace(now_s=lambda: self.now_s)
        listings: Any = SimpleNamespace(hide=self.hide, ended_with_engine=lambda one: one is EXITED)
        watches: Any = SimpleNamespace(of_job=lambda _: self.present)
        self.moves = Moves(
            instance_of(None, clock=clock),
            self.machine,
            self.acts,
            self.arrivals,
            listings,
            watches,
            "/".join,
        )

    def hide(self, jobs: Set[str]) -> None:
        """Those stay set aside."""

    def begin(self, spec: JobSpec = SPEC) -> Outcome:
        outcome = self.moves.begin(move_of(spec), OLD, self.now_s)
        self.take()
        return outcome

    def take(self) -> None:
        """What was begun is done: no test is about what is not, unless it holds it."""
        self.machine.take(self.executor.ended())

    def see(self, *there: Inspected, at_s: float | None = None, reports: Any = ()) -> None:
        """One observation, which shows these; the last one stands for the job."""
        self.now_s = self.now_s + 1.0 if at_s is None else at_s
        listing = self.listing(*there)
        self.moves.find(listing, self.now_s)
        facts = [
            ContainerFact("job", key, one.state, "", "", reports=tuple(reports))
            for key, one in listing.containers.items()
        ]
        self.moves.advance(listing, facts, self.now_s)
        self.take()

    def listing(self, *there: Inspected) -> Listing:
        *before, last = there or (None,)
        containers = {} if last is None else {last.container_id: last}
        others = {one.container_id: one for one in before if one is not None}
        return Listing(self.now_s, containers, others)

    @property
    def step(self) -> str:
        return str(self.moves.operation("job", self.now_s) or "")

    @property
    def alarms(self) -> tuple[str, ...]:
        return texts(self.moves.alarms(self.now_s))

    def ends(self, spec: JobSpec = SPEC) -> None:
        """The old one has acknowledged, is renamed, and has ended."""
        self.begin(spec)
        self.see(OLD, reports=[ACK])
        self.see(GONE)

    def watched(self, spec: JobSpec = SPEC) -> None:
        """Its new container runs."""
        self.ends(spec)
        self.see(GONE, NEW)


@pytest.fixture
def world() -> World:
    return World()


def test_saved_ended_made_anew_and_the_old_one_removed_once_the_new_one_reports(
    world: World,
) -> None:
    assert world.begin().status == "begun"
    assert world.step == "moving to b/c: the job saves itself (20 s left)"
    world.see(OLD)
    assert world.acts.done == ["ask"]
    world.see(OLD, reports=[replace(ACK, received_s=102.0)])
    assert world.acts.done == ["ask", "set_aside", "end"]
    assert world.step == "moving to b/c: the old container ends (30 s left)"
    world.see(aside(OLD))
    world.see(GONE)
    assert world.acts.done[3:] == ["replace"]
    assert world.step == "moving to b/c: dlsched makes the new container"
    assert world.moves.kept("job", ("a",)) == ("b", "c")
    world.see(GONE, NEW)
    assert world.moves.kept("job", ("b", "c")) == ("a",)
    world.see(GONE, NEW)
    assert (
        world.step
        == "moving to b/c: dlsched waits for the first report of the new container (179 s left)"
    )
    world.see(GONE, NEW, reports=[Report(200.0)])
    assert world.acts.done[4:] == ["remove"]
    world.see(NEW)
    assert world.step == ""
    assert world.moves.kept("job", ("b",)) == ()
    assert world.alarms == ()


def test_what_was_acknowledged_before_it_was_asked_does_not_count(world: World) -> None:
    world.begin()
    world.see(OLD, reports=[replace(ACK, received_s=100.0)])
    assert world.step.startswith("moving to b/c: the job saves itself")
    world.see(OLD, at_s=120.0)
    assert world.step == ""
    assert world.alarms == ("job: not moved: the job acknowledged no checkpoint within 20 s",)
    assert world.begin().status == "failed"
    world.now_s = 120.0 + AGAIN_S
    assert world.begin().status == "begun"


@pytest.mark.parametrize("why", [EngineRefused(409, "not running"), OSError("disk full")])
def test_one_that_cannot_be_asked_is_left_alone(world: World, why: Exception) -> None:
    world.acts.raises["ask"] = why
    world.begin()
    world.see(OLD)
    assert world.alarms == (f"job: not moved: the job cannot be asked to save itself: {why}",)


@pytest.mark.parametrize(
    ("saved_before", "done"), [(False, ["withdraw"]), (True, ["set_aside", "end"])]
)
def test_one_that_lost_its_gpu_and_does_not_answer_goes_on_from_what_it_saved_before(
    world: World, saved_before: bool, done: list[str]
) -> None:
    world.moves.begin(replace(move_of(), saved_before=saved_before), OLD, world.now_s)
    world.take()
    world.see(OLD, at_s=119.0)
    assert world.acts.done == ["ask"]
    world.see(OLD, at_s=121.0)
    assert world.acts.done[1:] == done


def test_a_move_goes_on_at_the_limit_of_processes(world: World) -> None:
    world.begin()
    world.acts.raises["poll"] = EngineUnavailable("no thread can be started")
    for _ in range(2):
        world.see(OLD)
    world.see(OLD, reports=[replace(ACK, received_s=103.0)])
    assert world.acts.done == ["ask", "set_aside", "end"]


def test_one_that_saves_itself_and_ends_over_it_goes_on_elsewhere(world: World) -> None:
    world.begin()
    world.see(EXITED, reports=[ACK])
    world.see(GONE)
    assert world.acts.done == ["ask", "set_aside", "end", "replace"]


def test_one_whose_name_cannot_be_changed_is_not_ended(world: World) -> None:
    world.acts.raises["set_aside"] = EngineRefused(409, "the name is taken")
    world.begin()
    world.see(OLD, reports=[ACK])
    world.see(OLD, at_s=world.now_s + REST_S)
    assert world.acts.done[:2] == ["ask", "set_aside"]
    assert "end" not in world.acts.done
    assert world.alarms == (
        "job: not moved: the job's container cannot be renamed: the name is taken",
    )


def test_one_that_does_not_heed_its_signal_is_killed_after_its_grace(world: World) -> None:
    world.begin()
    world.see(OLD, at_s=102.0, reports=[replace(ACK, received_s=102.0)])
    world.see(aside(OLD), at_s=131.9)
    assert "kill" not in world.acts.done
    world.see(aside(OLD), at_s=132.0)
    world.see(aside(OLD), at_s=133.0)
    assert world.acts.done.count("kill") == 1
    world.see(aside(OLD), at_s=132.0 + REST_S)
    assert world.acts.done.count("kill") == 2


def slow_to_end(world: World) -> None:
    """The engine takes a minute to send a container its signal."""

    def end(*_: object, **__: object) -> None:
        world.acts.done.append("end")
        world.now_s += 60.0

    world.acts.end = end


def test_grace_of_the_old_container_begins_with_its_signal(world: World) -> None:
    slow_to_end(world)
    world.begin()
    world.see(OLD, at_s=102.0, reports=[replace(ACK, received_s=102.0)])
    world.see(aside(OLD), at_s=191.9)
    assert "kill" not in world.acts.done
    world.see(aside(OLD), at_s=192.0)
    assert world.acts.done[-1] == "kill"


def test_grace_of_a_new_container_that_is_given_up_begins_with_its_signal(world: World) -> None:
    world.watched()
    slow_to_end(world)
    broken = replace(NEW, restarts=1, exit_code=None)
    world.see(GONE, broken, at_s=110.0)
    world.see(GONE, broken, at_s=199.9)
    assert world.acts.done[-1] == "end"
    world.see(GONE, broken, at_s=200.0)
    assert world.acts.done[-1] == "kill"


def test_a_signal_for_a_new_container_that_never_got_there_is_sent_again(world: World) -> None:
    world.watched()
    world.acts.raises["end"] = EngineUnavailable("no answer")
    broken = replace(NEW, restarts=1, exit_code=None)
    world.see(GONE, broken)
    world.see(GONE, broken, at_s=world.now_s + 60.0)
    assert world.acts.done[-2:] == ["end", "end"]


def test_a_signal_that_never_got_there_is_sent_again(world: World) -> None:
    world.acts.raises["end"] = EngineUnavailable("no answer")
    world.begin()
    world.see(OLD, reports=[ACK])
    world.see(aside(OLD))
    assert world.acts.done.count("end") == 1
    world.see(aside(OLD), at_s=world.now_s + REST_S)
    assert world.acts.done.count("end") == 2


@pytest.mark.parametrize(
    ("heir", "why"),
    [
        (replace(NEW, state=ContainerState.EXITED, pid=0, exit_code=9), "ended with exit code 9"),
        (replace(NEW, restarts=1, exit_code=None), "ended, and Docker started it again"),
        (replace(NEW, state=ContainerState.CREATED, pid=0), "was never started"),
    ],
)
def test_a_new_one_that_ends_is_removed_and_the_old_one_started(
    world: World, heir: Inspected, why: str
) -> None:
    world.watched()
    before = len(world.acts.done)
    world.see(GONE, heir)
    assert (
        world.step
        == f"moving back, since the job's new container {why}: dlsched removes the new container"
    )
    ended = replace(heir, state=ContainerState.EXITED, pid=0)
    if heir.state is ContainerState.RUNNING:
        assert world.acts.done[before:] == ["end"]
        world.see(GONE, ended)
        assert world.acts.done[before:] == ["end", "remove"]
    else:
        assert world.acts.done[before:] == ["remove"]
    world.see(GONE)
    assert world.acts.done[-1] == "bring_back"
    world.see(OLD)
    assert world.step == ""
    assert world.alarms == (f"job: moved back: the job's new container {why}",)


def test_one_that_came_to_its_end_there_has_come_back(world: World) -> None:
    world.watched()
    finished = replace(NEW, state=ContainerState.EXITED, pid=0, exit_code=0)
    world.see(GONE, finished)
    assert world.acts.done[-1] == "remove"
    world.see(finished)
    assert world.step == ""


def test_silence_is_a_failure_only_of_a_job_with_a_target(world: World) -> None:
    world.watched()
    world.see(GONE, NEW, at_s=world.now_s + STAYS_UP_S)
    assert "waits for the first report" in world.step
    world.see(GONE, NEW, at_s=world.now_s + REPORT_WITHIN_S)
    assert f"reported nothing within {REPORT_WITHIN_S:g} s" in world.step

    other = World()
    other.watched(replace(SPEC, target=None))
    other.see(GONE, NEW, at_s=other.now_s + STAYS_UP_S)
    assert other.acts.done[-1] == "remove"


def test_two_never_run_beside_each_other(world: World) -> None:
    world.watched()
    world.see(aside(OLD), NEW)
    assert world.acts.done[-1] == "kill"


def test_what_cannot_be_removed_is_tried_again_after_a_rest(world: World) -> None:
    world.acts.raises["remove"] = EngineRefused(500, "busy")
    world.watched()
    world.see(GONE, NEW, reports=[Report(200.0)])
    world.see(GONE, NEW)
    assert world.acts.done.count("remove") == 1
    world.see(GONE, NEW, at_s=world.now_s + REST_S)
    assert world.acts.done.count("remove") == 2


def test_an_old_one_that_cannot_be_started_again_keeps_its_name_and_is_told(world: World) -> None:
    world.acts.raises = {
        "replace": EngineRefused(500, "no such device"),
        "bring_back": EngineRefused(500, "its device is gone"),
    }
    world.ends()
    for _ in range(4):
        world.see(GONE, at_s=world.now_s + REST_S)
    assert world.acts.done[3:] == ["replace", *["bring_back"] * 3, "name"]
    world.see(replace(GONE, name=OLD.name))
    assert world.alarms[0] == (
        "job: moved back: the job's new container cannot be started: no such device; and the "
        "old container cannot be started again: its device is gone"
    )


def test_a_new_one_that_was_given_up_and_comes_late_is_removed(world: World) -> None:
    world.acts.raises = {
        "replace": EngineUnavailable("no answer"),
        "bring_back": EngineRefused(409, "its name is taken"),
    }
    world.ends()
    world.see(GONE)
    late = replace(NEW, state=ContainerState.CREATED, pid=0)
    world.see(aside(OLD), late, at_s=world.now_s + REST_S)
    assert world.acts.done[3:] == ["replace", "bring_back", "remove"]
    world.acts.raises = {}
    world.see(aside(OLD))
    assert world.acts.done[-1] == "bring_back"


# ---------------------------------------------------------------------- the agent's end and death


def test_an_agent_that_ends_takes_back_what_it_asked(world: World) -> None:
    world.begin()
    world.moves.winding_up = True
    world.see(OLD)
    assert not world.moves.unsettled
    assert world.moves.begin(move_of(), OLD, world.now_s).status == "failed"


def test_an_agent_that_ends_kills_what_has_saved_itself_and_starts_it_again(world: World) -> None:
    world.begin()
    world.see(OLD, reports=[ACK])
    world.moves.winding_up = True
    world.see(aside(OLD))
    assert world.acts.done[-1] == "kill"
    world.see(GONE)
    assert world.acts.done[-1] == "bring_back"
    assert world.moves.unsettled
    world.see(OLD)
    assert not world.moves.unsettled


def test_an_agent_that_ends_leaves_a_new_one_that_runs(world: World) -> None:
    world.watched()
    world.moves.winding_up = True
    world.see(GONE, NEW)
    assert not world.moves.unsettled


def test_found_container_goes_back_after_one_observation(world: World) -> None:
    world.see(GONE)
    assert world.step == (
        "moving to the new container or back to the old one: dlsched ended in the middle of the "
        "move"
    )
    assert world.acts.done == []
    world.see(GONE)
    assert world.acts.done == ["bring_back"]
    world.see(OLD)
    assert world.step == ""
    assert world.begin().status == "begun", "it says nothing against the move"


def test_one_that_is_found_running_may_end_at_any_moment_so_it_is_ended(world: World) -> None:
    for _ in range(2):
        world.see(aside(OLD))
    assert world.acts.done == ["set_aside", "end"]
    world.see(GONE)
    assert world.acts.done[-1] == "bring_back"


def test_a_new_one_that_is_found_is_waited_for(world: World) -> None:
    for _ in range(2):
        world.see(GONE, NEW)
    assert world.step.startswith("moving to a new container: dlsched waits for the first report")
    world.see(GONE, NEW, reports=[Report(200.0)])
    assert world.acts.done == ["remove"]


def test_one_that_ended_over_being_asked_is_started_again(world: World) -> None:
    world.acts.asked = True
    for _ in range(2):
        world.see(EXITED)
    assert world.acts.done == ["bring_back"]


def test_one_that_the_engine_started_again_meanwhile_is_left_running(world: World) -> None:
    world.acts.asked = True
    world.see(EXITED)
    world.see(OLD)
    assert world.step == ""
    assert "end" not in world.acts.done


def test_one_that_is_still_asked_is_told_that_it_is_not(world: World) -> None:
    world.acts.asked = True
    world.see(OLD)
    assert world.step == ""
    assert world.acts.done == ["withdraw"]


# ---------------------------------------------------------------------- the wish wins

REMOVE = Remove("job", "new", Stop(), None, "its file was removed")


def test_a_job_that_is_removed_loses_both_containers(world: World) -> None:
    world.watched()
    listing = replace(world.listing(GONE, NEW), at_s=world.now_s + 1.0)
    assert world.moves.forsake(REMOVE, listing, world.now_s) == (GONE,)
    assert world.step == ""
    world.see(GONE)
    assert world.step == "", "it is not taken up again"


def test_none_of_several_forsaken_containers_is_taken_up_again(world: World) -> None:
    # The removal of the first one failed, and its job was not to be removed any more for a while.
    world.watched()
    for _ in range(2):
        listing = replace(world.listing(GONE, NEW), at_s=world.now_s + 1.0)
        assert world.moves.forsake(REMOVE, listing, world.now_s) == (GONE,)
        world.moves.begin(replace(move_of(), container_id="new"), NEW, world.now_s)
        world.take()
    listing = replace(world.listing(GONE, NEW), at_s=world.now_s + 1.0)
    world.moves.forsake(REMOVE, listing, world.now_s)
    world.see(GONE, NEW)
    assert world.step == ""
    assert not world.machine.job("job").move


def test_a_removal_waits_for_the_step_under_way(world: World) -> None:
    world.begin()
    world.see(OLD, reports=[ACK])
    world.executor.held = True
    world.see(GONE)
    waits = world.moves.forsake(REMOVE, world.listing(GONE), world.now_s)
    assert isinstance(waits, Outcome)
    assert (waits.status, waits.detail) == (
        "begun",
        "moving to b/c: dlsched makes the new container",
    )


def test_a_job_that_is_not_moved_is_nobodys_business(world: World) -> None:
    assert world.moves.forsake(REMOVE, world.listing(OLD), world.now_s) == ()


def test_jobs_are_moved_for_their_own_sake_only(world: World) -> None:
    other = replace(OLD, container_id="other", job="other", name=container_name("i", "other"))
    adopted = replace(aside(OLD), container_id="theirs", adopted=SPEC)
    world.see(other)
    world.see(adopted)
    assert world.acts.done == []
    assert world.moves.operation("other", world.now_s) is None


# ---------------------------------------------------------------------- whom to believe


@pytest.mark.parametrize("path", ["/tmp/7", "/ckpt/../tmp/7", "ckpt/7", "/ckptelse/7", ""])
def test_what_is_saved_elsewhere_would_be_lost(world: World, path: str) -> None:
    world.begin()
    world.see(OLD, reports=[replace(ACK, checkpoint=CheckpointAck(7, path))])
    assert world.step == ""
    assert "set_aside" not in world.acts.done
    assert world.alarms == (f"job: not moved: the job saved itself at {path}, not below /ckpt",)
