"""Which memory limits change now: raised where a container is about to reach its limit and the host
has room, and given back step by step when it has needed less for a while.

Only jobs with `memory.max` are raised. A raise takes only memory that no one else was promised and
that the host's reserve does not need. Page cache is no use here, as the kernel takes it back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.control.guard_rules import GuardOptions
from dlsched.control.guards import observed_only
from dlsched.control.ledger.memory import RAISE_RATIO, most_held, promised_bytes
from dlsched.control.ledger.updated import State
from dlsched.estimate.memory import (
    FAST_S,
    LASTING_MIN,
    LEAST_RATIO,
    RECENT_S,
    SETTLED_RATIO,
    SLOT_S,
    MemoryDemand,
    filling_text,
)
from dlsched.model.actions import Memory, Outcome
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.decision import Answer
from dlsched.model.facts import OperationKind
from dlsched.model.state import JobView, Snapshot
from dlsched.model.units import render_bytes, render_seconds

MOST_FACTOR = 2.0
"""One raise of a container that grows fast, at most; of others it is `RAISE_RATIO`. A judgement."""
NEAR_RATIO = 0.9
"""From here on any growth raises the limit: a program that allocates 0.5 GiB/s fills the last tenth
of 8 GiB in under two seconds, and a cycle takes one."""
FAST_RATIO = 0.5
"""Below this part of the limit fast growth is a start: a raise would be too early to know."""
AHEAD_S = 5.0
"""A limit that is reached within this time at the present rate is raised: two cycles, a slow
reading and a slow call. `benchmarks run memory` has the evidence."""
STEP_RATIO = 1.2
"""The next step may be that much larger than the ones before."""
BACK_RATIO = 1.25
"""A limit is given back to no less than this much of the highest use in the last minutes."""
BACK_EVERY_S = 60.0
"""Between two steps back, so that each shows its effect. A judgement."""
DEAD_RATIO = 0.05
"""A step back of less than this part of the limit is not worth an update, but for the last one."""
LEAST_BYTES = 16 << 20
LEAST_RAISE_RATIO = 0.02
"""The smallest raise, in bytes and as a part of the limit: less is gone before the next cycle."""
MOST_PATIENCE = 16
"""A limit that is raised again soon after a step back waits twice as long for the next one, up to
this many times: else a step or a trend raises what ten quiet minutes lower, by turns for hours."""
FAILS_SHOWN = 2
"""Raises that fail in a row before there is an alarm: one may meet another change under way."""
STAYS_S = 60.0
"""An alarm keeps its text for this long, and stays for as long after its cause ended."""
_MIB = 1 << 20


@dataclass(slots=True)
class _Known:
    """What is known of one start of a job's container."""

    container_id: str | None
    starts: int
    kills: int | None
    """None: unknown, so that the next count is no news."""
    demand: MemoryDemand = field(default_factory=MemoryDemand)
    changed_s: float = -math.inf
    raised_s: float = -math.inf
    lowered_s: float = -math.inf
    patience: int = 1
    """The wait for a step back, as a multiple of the first one."""
    asked_bytes: int = 0
    """The limit of the last change."""
    failures: int = 0
    """Raises that failed in a row."""
    alarm: Alarm | None = None
    worded_s: float = -math.inf
    earlier_bytes: int = 0
    """The last limit of its container before this one, until that is asked for; 0: unknown."""
    wanted_s: float = -math.inf
    """When it last needed a raise that it did not get."""

    def changes(self, change: Memory, now_s: float) -> None:
        """Take in a change that is decided."""
        self.changed_s, self.asked_bytes = now_s, change.limit_bytes
        if not change.grows:
            self.lowered_s = now_s
            return
        soon = now_s - self.lowered_s <= LASTING_MIN * SLOT_S
        if self.raised_s < self.lowered_s:
            patience = 2 * self.patience if soon else self.patience // 2
            self.patience = min(max(patience, 1), MOST_PATIENCE)
        self.raised_s = now_s


class MemoryLimits:
    """Decides on memory limits; remembers what each container has held lately."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._raised_bytes: dict[str, int] = {}
        """The last raised limit of each job, which its next container gets, too."""
        self.alarms: tuple[Alarm, ...] = ()
        """Of containers that need more and cannot get it."""
        self.managed: frozenset[str] = frozenset()
        """The jobs whose limits it raises, or warns of."""

    def decide(self, state: State, answer: Answer, options: GuardOptions) -> tuple[Memory, ...]:
        """The changes, those that lower a limit first. The same facts and history, the same
        changes."""
        snapshot = state.snapshot
        managed = [job for job in snapshot.running if _is_managed(job, answer)]
        self.managed = frozenset(job.name for job in managed)
        there = {job.name: job.container_id for job in snapshot.jobs}
        self._known = {
            name: one for name, one in self._known.items() if there.get(name) == one.container_id
        }
        self._raised_bytes = {
            name: size for name, size in self._raised_bytes.items() if name in there
        }
        if not managed:
            self.alarms = ()
            return ()
        asked = {name: one.asked_bytes for name, one in self._known.items()}
        rooms = _Rooms(state, options, asked)
        scarce = rooms.free_bytes < max(map(_raise_bytes, managed))
        lowered: list[Memory] = []
        needy: list[tuple[JobView, str]] = []
        for job in managed:
            known, why = self._learn(job, snapshot.now_s)
            if job.operation is not None:
                if why is not None and job.operation.kind is OperationKind.REFUSED:
                    self._warn(job, why, str(job.operation), state)
                continue
            if why is not None:
                needy.append((job, why))
            elif (back := _back(job, known, snapshot.now_s, scarce=scarce)) is not None:
                lowered.append(back)
        raised = self._raise(needy, rooms, state)
        for one in (*lowered, *raised):
            self._known[one.job].changes(one, snapshot.now_s)
        self._show(snapshot.now_s)
        return (*lowered, *raised)

    def applied(self, outcomes: Sequence[Outcome], state: State) -> None:
        """Take in what became of the changes: an alarm says why a raise fails."""
        jobs = {job.name: job for job in state.snapshot.jobs}
        for outcome in outcomes:
            change = outcome.action
            if not isinstance(change, Memory) or not change.grows:
                continue
            known = self._known[change.job]
            known.failures = known.failures + 1 if outcome.status == "failed" else 0
            if outcome.ok:
                known.earlier_bytes = 0
            if known.failures >= FAILS_SHOWN:
                lacks = f"its limit of {render_bytes(change.before_bytes)} cannot be raised: "
                self._warn(jobs[change.job], change.why, f"{lacks}{outcome.detail}", state)
        self._show(state.snapshot.now_s)

    def _show(self, now_s: float) -> None:
        self.alarms = tuple(
            one.alarm
            for one in self._known.values()
            if one.alarm is not None and now_s - one.wanted_s <= STAYS_S
        )

    def _learn(self, job: JobView, now_s: float) -> tuple[_Known, str | None]:
        """Take in what it holds; returns why its limit must be raised now, None: it must not."""
        use, known = job.memory, self._known.get(job.name)
        if known is None:
            known = self._known[job.name] = _Known(job.container_id, job.starts, use.oom_kills)
            known.earlier_bytes = min(self._raised_bytes.get(job.name, 0), _most(job))
        elif known.starts != job.starts:
            # A kill that ended the start before is news: the next one would end by it, too.
            known = self._known[job.name] = _Known(job.container_id, job.starts, known.kills)
        if use.held_bytes is None or use.own_bytes is None:
            return known, None
        # The count has kills by a group within it, by one around it and by the host, too. How much
        # an earlier start held is not known.
        full = use.peak_bytes is None or use.peak_bytes >= NEAR_RATIO * use.own_bytes
        killed = (
            (full or known.demand.empty)
            and known.kills is not None
            and (use.oom_kills or 0) > known.kills
        )
        if job.operation is None:  # else that news waits
            known.kills = use.oom_kills
        known.demand.add(now_s, use.held_bytes)
        if use.before_bytes is not None:
            self._raised_bytes[job.name] = use.own_bytes
        elif not known.earlier_bytes:
            self._raised_bytes.pop(job.name, None)
        return known, _need(job, known, now_s, killed=killed)

    def _raise(
        self, needy: Sequence[tuple[JobView, str]], rooms: _Rooms, state: State
    ) -> list[Memory]:
        """A raise for each of them that there is room for; the others get an alarm. First those
        with the least left."""
        snapshot, found = state.snapshot, list[Memory]()
        for job, why in sorted(needy, key=lambda one: _left_ratio(one[0])):
            known, has = self._known[job.name], job.memory.own_bytes or 0
            wanted = _wanted(job, known, snapshot.now_s)
            room_bytes, lacks = rooms.of(job)
            given = min(wanted, _whole(has + room_bytes, up=False))
            least = max(LEAST_BYTES, LEAST_RAISE_RATIO * has)
            if given - has >= min(least, _most(job) - has) > 0:
                rooms.take(job, given - has)
                found.append(_change(job, given, why))
            if given < wanted:
                self._warn(job, why, lacks, state)
            elif wanted <= has and _is_near(job):
                self._warn(job, why, _bound(job), state)
        return found

    def _warn(self, job: JobView, why: str, lacks: str, state: State) -> None:
        known, now_s = self._known[job.name], state.snapshot.now_s
        known.wanted_s = now_s
        if known.alarm is None or now_s - known.worded_s > STAYS_S:
            known.worded_s = now_s
            parts = [f"{why}; {lacks}", *most_held(job, state.snapshot.jobs)]
            text = f"{job.name}: {'; '.join(parts)}"
            known.alarm = Alarm(job.name, AlarmKey.MEMORY_NOT_RAISED, text)


def _is_managed(job: JobView, answer: Answer) -> bool:
    """Whether dlsched may change its memory limit, or has to bring it back."""
    asked, raised = job.spec.memory_max_bytes is not None, job.memory.before_bytes is not None
    return (asked or raised) and not observed_only(job, answer)


def _most(job: JobView) -> int:
    """The highest limit that it may get."""
    return max(job.spec.memory_max_bytes or 0, job.spec.container.memory_bytes or 0)


def _least(job: JobView) -> int:
    """Where its limit goes back to: to what its file or label says, never below what its owner has
    set at the engine."""
    return max(job.spec.container.memory_bytes or 0, job.memory.before_bytes or 0)


def _need(job: JobView, known: _Known, now_s: float, *, killed: bool) -> str | None:
    """Why its limit must be raised now; None: it need not be."""
    use, demand, least_bytes = job.memory, known.demand, _least(job)
    held, limit = use.held_bytes or 0, use.own_bytes or 0
    if job.spec.memory_max_bytes is None:
        return None
    if limit < _whole(least_bytes, up=False):
        return f"its limit is below `memory.min`, {render_bytes(least_bytes)}"
    if limit < known.earlier_bytes:
        return f"its container before this one needed {render_bytes(known.earlier_bytes)}"
    of_limit = f"to {render_bytes(held)} of {render_bytes(limit)}"
    if killed:
        return f"the kernel killed a process of it for want of memory, at {render_bytes(limit)}"
    if held >= NEAR_RATIO * limit:
        slow, slow_s = demand.grown(now_s, RECENT_S)
        if slow >= LEAST_RATIO * limit:
            return _grew(slow, slow_s, of_limit)
    if held >= FAST_RATIO * limit:
        fast, fast_s = demand.grown(now_s, FAST_S)
        if held + AHEAD_S * fast / max(fast_s, 1.0) >= limit:
            highest = demand.known_bytes(now_s)
            if held > highest + LEAST_RATIO * limit or highest >= NEAR_RATIO * limit:
                return _grew(fast, fast_s, of_limit)
    step = demand.step_bytes(now_s)
    if step and held + STEP_RATIO * step >= limit:
        return (
            f"memory in use grows in steps of {render_bytes(step)}, and "
            f"{render_bytes(max(limit - held, 0))} are left of {render_bytes(limit)}"
        )
    return None if use.filling is None else filling_text(use.filling)


def _grew(grown_bytes: int, over_s: float, of_limit: str) -> str:
    over = render_seconds(max(round(over_s), 1))
    return f"memory in use grew by {render_bytes(grown_bytes)} in {over}, {of_limit}"


def _wanted(job: JobView, known: _Known, now_s: float) -> int:
    """The limit that it should have, at most its bound."""
    limit, held, demand = job.memory.own_bytes or 0, job.memory.held_bytes or 0, known.demand
    fast, fast_s = demand.grown(now_s, FAST_S)
    soon = held + 4 * AHEAD_S * fast / max(fast_s, 1.0)
    most = max(MOST_FACTOR * limit, demand.known_bytes(now_s) / NEAR_RATIO)
    least = max(_least(job), known.earlier_bytes)
    if limit < _whole(least, up=False) and max(held, soon) < NEAR_RATIO * least:
        return least  # its start, and no growth
    wanted = max(RAISE_RATIO * limit, min(most, soon), least)
    return min(_whole(wanted, up=True), _most(job))


def _raise_bytes(job: JobView) -> float:
    """The next raise, if it needs one."""
    has = job.memory.own_bytes or 0
    return max(min((RAISE_RATIO - 1.0) * has, _most(job) - has), 0.0)


def _back(job: JobView, known: _Known, now_s: float, *, scarce: bool) -> Memory | None:
    """The next step back to its limit at the start; None: none now. Where memory is `scarce`, what
    it has not used in the last minute goes back in one step, as another job may need it."""
    limit, least = job.memory.own_bytes, _least(job)
    raised = job.memory.before_bytes is not None
    waits_s = known.patience * (RECENT_S if scarce else BACK_EVERY_S)
    if limit is None or not raised or limit <= least or now_s - known.changed_s < waits_s:
        return None
    if not scarce and now_s - known.raised_s < known.patience * LASTING_MIN * SLOT_S:
        return None
    demand = known.demand
    highest = demand.recent_bytes if scarce else demand.lasting_bytes(now_s)
    if highest is None:
        return None
    step = demand.step_bytes(now_s)
    stepped = (1.0 + SETTLED_RATIO) * highest + STEP_RATIO * step if step else 0.0
    target = max(least, _whole(max(BACK_RATIO * highest, stepped), up=True))
    if target >= limit or (target > least and limit - target < DEAD_RATIO * limit):
        return None
    lasting = "minute, and others may need it" if scarce else "minutes"
    return _change(
        job,
        target if scarce else max(target, _whole(limit / RAISE_RATIO, up=True)),
        f"memory in use was at most {render_bytes(highest)} in the last {lasting}",
    )


def _change(job: JobView, limit_bytes: int, why: str) -> Memory:
    return Memory(
        job=job.name,
        container_id=job.container_id or "",
        before_bytes=job.memory.own_bytes or 0,
        limit_bytes=limit_bytes,
        why=why,
        ceiling_cores=job.spec.bounds.ceiling_cores,
    )


def _bound(job: JobView) -> str:
    use, most = job.memory, job.spec.memory_max_bytes or 0
    return f"its limit is {render_bytes(use.own_bytes or 0)}, and `memory.max` {render_bytes(most)}"


def _is_near(job: JobView) -> bool:
    """Whether it is near its limit, and not only on the way there."""
    near = (job.memory.held_bytes or 0) >= NEAR_RATIO * (job.memory.own_bytes or 0)
    return near or job.memory.filling is not None


def _left_ratio(job: JobView) -> tuple[float, str]:
    limit = job.memory.own_bytes or 1
    return 1.0 - (job.memory.held_bytes or 0) / limit, job.name


def _whole(size_bytes: float, *, up: bool) -> int:
    """A size in whole MiB."""
    return (math.ceil if up else math.floor)(size_bytes / _MIB) * _MIB


class _Rooms:
    """How far limits may be raised in this cycle."""

    def __init__(self, state: State, options: GuardOptions, asked: Mapping[str, int]) -> None:
        """`asked`: the limits last decided, which a job has soon while its change is under way."""
        snapshot = state.snapshot
        self._options = options
        self._snapshot = snapshot
        begun = {spec.name for spec in state.starts}
        self._begun = state.starts
        self._promised = {
            job.name: max(
                promised_bytes(job.spec, job.memory),
                asked.get(job.name, 0) if job.operation is not None else 0,
            )
            for job in snapshot.jobs
        }
        self._unused_bytes = {
            **{
                job.name: _unused_bytes(job, self._promised[job.name])
                for job in snapshot.jobs
                if job.name not in begun
            },
            **{spec.name: spec.container.memory_bytes or 0 for spec in state.starts},
        }
        self._spare_bytes = _spare_bytes(snapshot)
        self.free_bytes = self._spare_bytes - sum(self._unused_bytes.values())
        """What is promised to no one."""
        self._taken: dict[int | None, int] = {}

    def of(self, job: JobView) -> tuple[int, str]:
        """By how much its limit may be raised, and a text on what holds it there."""
        use = job.memory
        if use.limit_bytes is not None and use.limit_bytes < (use.own_bytes or 0):
            return 0, (
                f"a control group around the container has a limit of "
                f"{render_bytes(use.limit_bytes)}: raise that one"
            )
        promised = sum(size for name, size in self._unused_bytes.items() if name != job.name)
        own = self._unused_bytes.get(job.name, 0)
        room = max(self._spare_bytes - promised - own, 0)
        lacks = (
            f"the host has {render_bytes(max(self._spare_bytes, 0))} to spare beside its reserve, "
            f"{render_bytes(promised)} of it promised to other jobs by their limits, so the limit "
            f"of {render_bytes(use.own_bytes or 0)} can be raised by {render_bytes(room)}"
        )
        left = self._left_bytes(job)
        if left is not None and left < room:
            return left, (
                f"the jobs of uid {job.spec.owner} may have {render_bytes(left)} more together"
            )
        return room, lacks

    def take(self, job: JobView, grown_bytes: int) -> None:
        """Count a raise."""
        self._unused_bytes[job.name] = self._unused_bytes.get(job.name, 0) + grown_bytes
        owner = job.spec.owner
        self._taken[owner] = self._taken.get(owner, 0) + grown_bytes

    def _left_bytes(self, job: JobView) -> int | None:
        """What the owner's ceiling leaves; None: there is none."""
        owner = job.spec.owner
        ceilings = self._options.ceilings_of(owner)
        if ceilings is None or ceilings.memory_bytes is None:
            return None
        theirs = sum(
            self._promised[one.name]
            for one in self._snapshot.jobs
            if one.spec.owner == owner and one.state.holds
        )
        theirs += sum(one.container.memory_bytes or 0 for one in self._begun if one.owner == owner)
        return max(ceilings.memory_bytes - theirs - self._taken.get(owner, 0), 0)


def _unused_bytes(job: JobView, promised: int) -> int:
    """What it may still use of what it was promised: by its own job file, or by `memory.max`. A
    container that someone else started has its limit from its owner, who promised nothing."""
    if not job.state.holds or (job.adopted and job.spec.memory_max_bytes is None):
        return 0
    return max(promised - (job.memory.held_bytes or 0), 0)


def _spare_bytes(snapshot: Snapshot) -> int:
    """What the host can still give; where it does not say so, what its jobs were not promised."""
    if snapshot.node.memory_spare_bytes is not None:
        return snapshot.node.memory_spare_bytes
    held = sum(job.memory.held_bytes or 0 for job in snapshot.jobs if job.state.holds)
    return snapshot.node.memory_bytes - held
