"""Which memory limits change: before a container reaches its own, and only where there is room."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import pytest

from dlsched.control.guards import GuardOptions
from dlsched.control.ledger.updated import State
from dlsched.control.memory_limits import MemoryLimits
from dlsched.model.actions import Memory, Outcome
from dlsched.model.alarms import AlarmKey
from dlsched.model.decision import Answer, PolicyTraits
from dlsched.model.facts import Operation, OperationKind
from dlsched.model.spec import ContainerSpec, JobSpec, OwnerCeilings
from dlsched.model.state import Filling, JobState, JobView, MemoryUse, NodeView, Snapshot
from tests.doubles import job_spec

MIB, GIB = 1 << 20, 1 << 30
NODE = NodeView(4.0, 4.0, 63 * GIB, memory_spare_bytes=40 * GIB)


def job(
    name: str = "a", limit_gib: float = 8, max_gib: float | None = 32, **changes: object
) -> JobView:
    spec = job_spec(
        name,
        container=ContainerSpec("m", memory_bytes=round(limit_gib * GIB)),
        memory_max_bytes=None if max_gib is None else round(max_gib * GIB),
    )
    use = MemoryUse(
        held_bytes=GIB, own_bytes=round(limit_gib * GIB), limit_bytes=round(limit_gib * GIB)
    )
    view = JobView(spec, JobState.RUNNING, container_id=f"id-{name}", memory=use, starts=1)
    return replace(view, **changes)  # type: ignore[arg-type]


def holding(one: JobView, held_gib: float, **changes: object) -> JobView:
    use = replace(one.memory, held_bytes=round(held_gib * GIB), **changes)  # type: ignore[arg-type]
    return replace(one, memory=use)


class World:
    """Cycles of one second; a limit that is decided is set at once."""

    def __init__(
        self,
        *jobs: JobView,
        node: NodeView = NODE,
        options: GuardOptions = GuardOptions(),  # noqa: B008 - it is frozen
        observes: bool = False,
    ) -> None:
        self.jobs = {one.name: one for one in jobs}
        self.node, self.options, self.now_s = node, options, 0.0
        self.limits = MemoryLimits()
        self.made: list[Memory] = []
        self.status: Literal["done", "withheld"] = "done"
        self.starts: tuple[JobSpec, ...] = ()
        self.answer = Answer("p", traits=PolicyTraits(observes_only=observes))

    def cycle(self, **held_gib: float) -> list[Memory]:
        for name, one in held_gib.items():
            self.jobs[name] = holding(self.jobs[name], one)
        self.now_s += 1.0
        views = tuple(self.jobs[name] for name in sorted(self.jobs))
        state = State(Snapshot(1, self.now_s, self.node, views), starts=self.starts)
        made = list(self.limits.decide(state, self.answer, self.options))
        self.limits.applied([Outcome(one, self.status) for one in made], state)
        for one in made if self.status == "done" else ():
            view = self.jobs[one.job]
            before = view.memory.before_bytes
            use = replace(
                view.memory,
                own_bytes=one.limit_bytes,
                limit_bytes=one.limit_bytes,
                before_bytes=one.before_bytes if before is None else before,
            )
            self.jobs[one.job] = replace(view, memory=use)
        self.made += made
        return made

    def play(self, held_gib: Iterable[float], name: str = "a") -> list[Memory]:
        return [one for held in held_gib for one in self.cycle(**{name: held})]

    def limit_gib(self, name: str = "a") -> float:
        return (self.jobs[name].memory.own_bytes or 0) / GIB

    @property
    def alarms(self) -> list[str]:
        assert all(one.key is AlarmKey.MEMORY_NOT_RAISED for one in self.limits.alarms)
        return [one.text for one in self.limits.alarms]


def ramp(begin: float, end: float, seconds: int) -> list[float]:
    return [begin + (end - begin) * second / seconds for second in range(seconds + 1)]


def test_growth_near_the_limit_raises_it_by_half() -> None:
    (first, *_) = World(job()).play(ramp(7.0, 7.9, 100))
    assert (first.before_bytes, first.limit_bytes) == (8 * GIB, 12 * GIB)
    assert first.why == "memory in use grew by 212 MiB in 23 s, to 7.21 GiB of 8 GiB"


@pytest.mark.parametrize(
    "held",
    [[7.6] * 200, ramp(1.0, 6.9, 600), ramp(0.0, 3.9, 4) + [3.9] * 60, [7.6, 7.62, 7.6] * 60],
    ids=["steady", "slow and far", "start", "noise"],
)
def test_what_does_not_reach_the_limit_raises_nothing(held: list[float]) -> None:
    assert World(job()).play(held) == []


@pytest.mark.parametrize("gib_per_s", [0.05, 0.2, 0.5, 1.0])
def test_leak_of_any_pace_finds_its_limit_raised_before(gib_per_s: float) -> None:
    world = World(job())
    for held in ramp(1.0, 30.0, round(29 / gib_per_s)):
        assert held < world.limit_gib() or world.limit_gib() == 32
        world.cycle(a=held)
    assert world.limit_gib() == 32


def test_steps_from_epoch_to_epoch_are_foreseen() -> None:
    world = World(job())
    held = [
        one
        for level in (2.0, 3.5, 5.0)
        for one in [*[level] * 60, *ramp(level, level + 1.5, 8), *[level + 1.5] * 20]
    ]
    (raised,) = world.play(held)
    assert raised.why == "memory in use grows in steps of 1.5 GiB, and 1.69 GiB are left of 8 GiB"


def test_trend_and_kill_raise_it() -> None:
    world = World(holding(job(), 5.0))
    world.cycle(a=5.0)
    filling = Filling(GIB, 1800.0, 8 * GIB, 600.0, 0.0)
    world.jobs["a"] = holding(world.jobs["a"], 5.0, filling=filling)
    (raised,) = world.cycle(a=5.0)
    assert raised.why.startswith("memory in use grew by 1 GiB in the last 30 min")
    world.jobs["a"] = holding(world.jobs["a"], 1.0, filling=None, oom_kills=0)
    assert world.cycle() == []
    world.jobs["a"] = holding(world.jobs["a"], 1.0, oom_kills=1)
    (again,) = world.cycle()
    assert again.why == "the kernel killed a process of it for want of memory, at 12 GiB"


def test_kill_that_ended_its_last_start_raises_the_limit_of_the_next() -> None:
    world = World(holding(job(), 1.0, oom_kills=0))
    world.cycle()
    world.jobs["a"] = replace(world.jobs["a"], state=JobState.RESTARTING)
    world.cycle()
    again = holding(world.jobs["a"], 0.1, oom_kills=1, peak_bytes=GIB // 8)
    world.jobs["a"] = replace(again, state=JobState.RUNNING, starts=2)
    (raised,) = world.cycle()
    assert raised.limit_bytes == 12 * GIB
    assert world.cycle() == []


def test_kill_before_it_was_observed_is_no_news() -> None:
    world = World(holding(job(), 1.0, oom_kills=7))
    assert world.play([1.0] * 10) == []


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        ({"spec": replace(job(max_gib=None).spec)}, 8),
        ({"operation": Operation(OperationKind.UPDATING, "updating")}, 8),
        ({"state": JobState.PAUSED}, 8),
    ],
    ids=["without max", "being changed", "paused"],
)
def test_what_may_not_be_raised_is_not(more: dict[str, object], limit: float) -> None:
    world = World(job(**more))  # type: ignore[arg-type]
    assert world.play(ramp(7.0, 8.0, 30)) == []
    assert world.limit_gib() == limit


def test_under_a_policy_that_only_observes_an_adopted_container_keeps_its_limit() -> None:
    leak = ramp(7.0, 8.0, 30)
    assert World(job(adopted=True), observes=True).play(leak) == []
    assert World(job(), observes=True).play(leak) != []
    assert World(job(adopted=True)).play(leak) != []


def test_limit_is_raised_to_its_bound_and_then_there_is_an_alarm() -> None:
    world = World(job(max_gib=9))
    (raised,) = world.play(ramp(7.0, 8.9, 100))
    assert raised.limit_bytes == 9 * GIB
    (alarm,) = world.alarms
    assert alarm.startswith("a: memory in use grew by ")
    assert "its limit is 9 GiB, and `memory.max` 9 GiB" in alarm
    assert world.play([8.9] * 130) == []
    assert world.alarms == []


def test_raise_takes_what_room_there_is_and_then_says_who_holds_it() -> None:
    hog = holding(job("hog", 40, None), 35.0, working_set_bytes=35 * GIB)
    room = 2 + (40 - 35) + 1  # what it may still use itself, and the other
    world = World(job(), hog, node=replace(NODE, memory_spare_bytes=room * GIB))
    raised = world.play([7.0, 7.2, 7.3])
    assert sum(one.limit_bytes - one.before_bytes for one in raised) <= 2.4 * GIB
    assert world.limit_gib() < 12
    (alarm,) = world.alarms
    assert "8 GiB to spare beside its reserve, 5 GiB of it promised to other jobs" in alarm
    assert alarm.endswith("other jobs use 35 GiB (hog)")


def test_nothing_is_raised_into_the_reserve() -> None:
    for spare_gib in (-3, 0, 0.05):
        node = replace(NODE, memory_spare_bytes=round(spare_gib * GIB))
        world = World(job(), node=node)
        assert world.play(ramp(7.0, 7.9, 30)) == []
        assert len(world.alarms) == 1


def test_two_that_grow_share_what_there_is_the_fuller_first() -> None:
    node = replace(NODE, memory_spare_bytes=6 * GIB)
    world = World(job("a"), job("b"), node=node)
    world.cycle(a=7.25, b=7.75)
    world.cycle(a=7.3, b=7.8)
    left = 6 - (8 - 7.3) - (8 - 7.8)
    assert world.limit_gib("b") == 12
    assert world.limit_gib("a") == pytest.approx(8 + left - 4, abs=0.01)


def test_adopted_neighbours_limit_is_no_promise_unless_it_may_be_raised() -> None:
    node = replace(NODE, memory_spare_bytes=10 * GIB)
    for most, expected in ((None, 12), (400, 8)):
        other = job("other", 300, most, adopted=True)
        world = World(job(), other, node=node)
        world.play(ramp(7.0, 7.9, 30))
        assert world.limit_gib() == expected


def test_owners_ceiling_bounds_a_raise() -> None:
    def ceilings(owner: int | None) -> OwnerCeilings | None:
        return OwnerCeilings(5, memory_bytes=10 * GIB) if owner == 1000 else None

    spec = replace(job().spec, owner=1000)
    world = World(job(spec=spec), options=GuardOptions(ceilings_of=ceilings))
    (raised,) = world.play(ramp(7.0, 7.5, 30))
    assert raised.limit_bytes == 10 * GIB
    assert "the jobs of uid 1000 may have " in world.alarms[0]


def test_limit_around_the_container_is_named_and_nothing_is_raised() -> None:
    world = World(holding(job(), 6.0, limit_bytes=7 * GIB))
    filling = Filling(GIB, 1800.0, 7 * GIB, 600.0, 0.0)
    world.jobs["a"] = holding(world.jobs["a"], 6.8, filling=filling)
    assert world.cycle() == []
    assert "a control group around the container has a limit of 7 GiB" in world.alarms[0]


def test_limit_goes_back_step_by_step_when_use_allows_for_long_enough() -> None:
    world = World(job(limit_gib=4))
    world.play(ramp(3.0, 15.0, 60))
    assert world.limit_gib() >= 16
    assert world.play([2.0] * 530) == []
    back = world.play([2.0] * 900)
    assert all(one.limit_bytes < one.before_bytes for one in back)
    assert [one.before_bytes for one in back[1:]] == [one.limit_bytes for one in back[:-1]]
    assert len(back) >= 4
    assert world.limit_gib() == 4
    assert back[-1].why == "memory in use was at most 2 GiB in the last minutes"


def test_no_step_goes_below_what_was_held_in_the_last_minutes() -> None:
    world = World(job(limit_gib=4))
    world.play(ramp(3.0, 15.0, 60))
    # An evaluation every eight minutes.
    world.play([one for _ in range(5) for one in [2.0] * 470 + [9.0] * 10])
    assert world.limit_gib() >= 9.0 * 1.25
    assert world.limit_gib() < 12.0


@pytest.mark.parametrize("spare_gib", [40, 0.5], ids=["room", "scarce"])
def test_load_that_grew_in_steps_and_stays_is_not_raised_and_lowered_by_turns(
    spare_gib: float,
) -> None:
    node = replace(NODE, memory_spare_bytes=round(spare_gib * GIB))
    world = World(job(limit_gib=4), node=NODE)
    for level in (1.0, 2.0):
        world.play([*[level] * 60, *ramp(level, level + 1.0, 8)])
    world.node = node
    world.play([3.0] * 2 * 3600)
    assert len(world.made) <= 4
    assert world.alarms == []


def test_slow_trend_does_not_raise_and_lower_by_turns() -> None:
    world = World(job(limit_gib=4))
    filling = Filling(GIB, 4 * 3600.0, 4 * GIB, 3600.0, 0.0)
    world.play([3.0] * 700)
    for _ in range(2 * 3600):
        limit = world.limit_gib()
        trend = replace(filling, limit_bytes=round(limit * GIB)) if limit < 5 else None
        world.jobs["a"] = holding(world.jobs["a"], 3.0, filling=trend)
        world.cycle()
    assert len(world.made) <= 10


def test_raise_under_way_is_counted() -> None:
    node = replace(NODE, memory_spare_bytes=7 * GIB)
    world = World(job("a"), job("b"), node=node)
    first = world.cycle(a=7.2, b=7.0) + world.cycle(a=7.4, b=7.0)
    assert first[0].limit_bytes == 12 * GIB
    slow = Operation(OperationKind.UPDATING, "updating")
    use = replace(world.jobs["a"].memory, own_bytes=8 * GIB, before_bytes=None)
    world.jobs["a"] = replace(world.jobs["a"], memory=use, operation=slow)
    world.play([7.4, 7.6], "b")
    assert 8 < world.limit_gib("b") <= 7 - (12 - 7.4) + 7.6


def test_kill_during_an_operation_is_not_forgotten() -> None:
    world = World(holding(job(), 1.0, oom_kills=0))
    world.cycle()
    slow = Operation(OperationKind.UPDATING, "updating")
    world.jobs["a"] = replace(holding(world.jobs["a"], 1.0, oom_kills=1), operation=slow)
    assert world.cycle() == []
    world.jobs["a"] = replace(world.jobs["a"], operation=None)
    assert len(world.cycle()) == 1


def test_limit_of_its_owner_above_the_bound_is_neither_raised_nor_lowered() -> None:
    world = World(job(limit_gib=40, max_gib=32, adopted=True))
    world.jobs["a"] = holding(world.jobs["a"], 1.0, before_bytes=40 * GIB)
    world.play([1.0] * 800 + ramp(1.0, 39.9, 60))
    assert world.made == []
    assert "its limit is 40 GiB, and `memory.max` 32 GiB" in world.alarms[0]


def test_limit_below_its_minimum_is_raised_to_that_alone() -> None:
    world = World(job(limit_gib=9, adopted=True))
    world.jobs["a"] = holding(world.jobs["a"], 1.0, own_bytes=8 * GIB, limit_bytes=8 * GIB)
    (raised,) = world.play([1.0] * 60)
    assert raised.limit_bytes == 9 * GIB


def test_container_that_must_not_be_changed_has_its_alarm() -> None:
    refused = Operation(OperationKind.REFUSED, "limits not changed: it has a burst")
    world = World(job(operation=refused))
    assert world.play(ramp(7.0, 7.9, 30)) == []
    assert "of 8 GiB; limits not changed: it has a burst" in world.alarms[0]


def test_kill_below_the_limit_does_not_raise_it() -> None:
    """As by a group within the container, one around it, or the host."""
    world = World(holding(job(), 1.0, oom_kills=0, peak_bytes=2 * GIB))
    world.cycle()
    world.jobs["a"] = holding(world.jobs["a"], 1.0, oom_kills=1)
    assert world.cycle() == []


def test_owners_ceiling_counts_jobs_that_start_now() -> None:
    def ceilings(owner: int | None) -> OwnerCeilings | None:
        return OwnerCeilings(5, memory_bytes=12 * GIB) if owner == 1000 else None

    spec = replace(job().spec, owner=1000)
    world = World(job(spec=spec), options=GuardOptions(ceilings_of=ceilings))
    world.play([7.2, 7.2])
    starts = (replace(job("new", 3, None).spec, owner=1000),)
    world.starts = starts
    world.play([7.3, 7.6])
    assert world.limit_gib() <= 9


def test_job_whose_max_is_gone_gets_its_limit_back_and_a_hand_raised_one_stays() -> None:
    spec = job(limit_gib=4, max_gib=None).spec
    use = MemoryUse(held_bytes=GIB, own_bytes=8 * GIB, limit_bytes=8 * GIB)
    by_hand = job(spec=spec, memory=use)
    ours = job(spec=spec, memory=replace(use, before_bytes=4 * GIB))
    assert World(by_hand).play([1.0] * 1200) == []
    world = World(ours)
    world.play([1.0] * 1200)
    assert world.limit_gib() == 4


def test_unread_memory_changes_nothing() -> None:
    world = World(replace(job(), memory=MemoryUse()))
    for _ in range(20):
        assert world.cycle() == []


def created_again(world: World, **changes: object) -> None:
    """Another container of the job, after a cycle without any."""
    name = "a"
    gone = replace(world.jobs[name], state=JobState.WAITING, container_id=None)
    world.jobs[name] = gone
    world.cycle()
    new = job(name, container_id="id-new", starts=2)
    world.jobs[name] = replace(new, **changes)  # type: ignore[arg-type]


def test_new_container_gets_the_last_limit_of_the_one_before() -> None:
    world = World(job())
    world.play(ramp(7.0, 10.0, 100))
    assert world.limit_gib() == 12
    created_again(world)
    (raised,) = world.cycle()
    assert (raised.container_id, raised.limit_bytes) == ("id-new", 12 * GIB)
    assert raised.why == "its container before this one needed 12 GiB"
    created_again(world)
    world.status = "withheld"
    world.play([1.0] * 10)
    world.status = "done"
    (raised,) = world.cycle()
    assert raised.limit_bytes == 12 * GIB, "it was not changed in the first cycle"
    world.play([1.0] * 3600)
    assert world.limit_gib() == 8, "it needs less now"
    created_again(world)
    assert world.play([1.0] * 10) == []


@pytest.mark.parametrize(("max_gib", "spare_gib", "limit"), [(10, 40, 10), (32, 3, 11), (32, 0, 8)])
def test_new_container_gets_what_its_bound_and_the_room_allow(
    max_gib: float, spare_gib: float, limit: float
) -> None:
    world = World(job())
    world.play(ramp(7.0, 10.0, 100))
    # The room for its first limit is there: 8 GiB less what it holds.
    world.node = replace(NODE, memory_spare_bytes=round((7 + spare_gib) * GIB))
    created_again(world, spec=job(max_gib=max_gib).spec)
    world.play([1.0] * 10)
    assert world.limit_gib() == limit
    assert bool(world.alarms) is (spare_gib < 4)


def test_job_that_left_and_comes_again_starts_at_its_minimum() -> None:
    world = World(job())
    world.play(ramp(7.0, 10.0, 100))
    world.jobs.clear()
    world.cycle()
    world.jobs["a"] = job(container_id="id-new")
    assert world.play([1.0] * 10) == []
