"""Drawn mixes of leaks, steps and caches under raised memory limits, beside `max` from the start.

Owns the world: containers whose use is a curve, a kernel that kills what goes above its limit, a
host whose memory ends, cycles of a second whose changes take a while. The decisions are the
product's own. `memory` runs it; the seeds are not those by which the constants of
`control.memory_limits` were chosen (1 to 60).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dlsched.control.guards import GuardOptions
from dlsched.control.ledger.memory import MemoryTracker
from dlsched.control.ledger.updated import State
from dlsched.control.memory_limits import MemoryLimits
from dlsched.model.decision import Answer
from dlsched.model.facts import ContainerFact, ContainerState, MemoryFact
from dlsched.model.spec import ContainerSpec, JobSpec
from dlsched.model.state import JobState, JobView, NodeView, Snapshot

GIB, MIB = float(1 << 30), float(1 << 20)
LASTS_S = 1800.0
TICK_S = 0.1
"""The kernel's steps: a program that allocates 1 GiB/s takes 100 MiB in one."""
MOST_S = 5.0
PACE_BYTES_PER_S, NOISE_BYTES = 6 * GIB, 0.1 * GIB
"""How fast all together may grow: until they could reach a limit nothing has to be looked at."""
RESERVE_BYTES = 0.5 * GIB
OTHERS_BYTES = 2 * GIB
"""What the host's own processes hold."""
SEEDS = tuple(range(90_001, 90_101))
WAYS = ("plain", "raised", "oracle")
"""Limits that stay at `min`, that dlsched raises, and that are `max` from the start."""

Curve = Callable[[float], float]
"""Bytes held at a time, in seconds since the start."""


@dataclass(frozen=True)
class Load:
    """One container of a mix."""

    name: str
    kind: str
    min_bytes: float
    max_bytes: float
    held: Curve
    cached: bool = False
    """Whether it fills with page cache what its limit leaves."""


def _between(chance: random.Random, low: float, high: float) -> float:
    """By ratios: as many in each doubling."""
    return math.exp(chance.uniform(math.log(low), math.log(high)))


def _end(chance: random.Random, most: float) -> float:
    """Where a growth ends: below its bound, but for one in eight, which no limit holds."""
    return 4 * most if chance.random() < 0.125 else chance.uniform(0.4, 0.93) * most


def _leak(chance: random.Random, least: float, most: float) -> Curve:
    base, end = chance.uniform(0.2, 0.6) * least, _end(chance, most)
    begins_s, pace = chance.uniform(30, 600), _between(chance, 2 * MIB, GIB)
    return lambda at_s: max(base, min(base + pace * (at_s - begins_s), max(end, base)))


def _steps(chance: random.Random, least: float, most: float) -> Curve:
    base, end = chance.uniform(0.2, 0.6) * least, _end(chance, most)
    every_s, size = chance.uniform(40, 300), chance.uniform(0.05, 0.4) * least
    takes_s = size / _between(chance, 20 * MIB, GIB)

    def held(at_s: float) -> float:
        epoch, within_s = divmod(at_s, every_s)
        return min(base + size * (epoch + min(within_s / takes_s, 1.0)), max(end, base))

    return held


def _peaks(chance: random.Random, least: float, most: float) -> Curve:
    base, top = chance.uniform(0.2, 0.6) * least, chance.uniform(0.4, 0.93) * most
    top = max(top, base)
    every_s, lasts_s = chance.uniform(120, 700), chance.uniform(10, 90)
    rises_s = max((top - base) / _between(chance, 20 * MIB, GIB), 0.1)

    def held(at_s: float) -> float:
        within_s = at_s % every_s - 30
        inside = 0 <= within_s < rises_s + lasts_s
        return base + (top - base) * min(within_s / rises_s, 1.0) if inside else base

    return held


def _garbage(chance: random.Random, least: float, _: float) -> Curve:
    base, height = chance.uniform(0.2, 0.5) * least, chance.uniform(0.1, 0.4) * least
    every_s = chance.uniform(5, 200)
    return lambda at_s: base + height * (at_s % every_s) / every_s


def _flat(chance: random.Random, least: float, _: float) -> Curve:
    base = chance.uniform(0.1, 0.88) * least
    return lambda _: base


KINDS: dict[str, Callable[[random.Random, float, float], Curve]] = {
    "leak": _leak,
    "steps": _steps,
    "peaks": _peaks,
    "garbage": _garbage,
    "cache": _flat,
    "flat": _flat,
}
GROWING = ("leak", "steps", "peaks")


@dataclass(frozen=True)
class Mix:
    """Containers, and the host that they share."""

    loads: tuple[Load, ...]
    host_bytes: float
    fits: bool
    """Whether all of their `max` fit the host: only then would dlsched admit them with that."""


OVERBOOKED = 0.3
"""Part of the mixes that do not fit."""


def drawn(seed: int) -> Mix:
    """The mix of that seed."""
    chance = random.Random(f"mix {seed}")
    loads = []
    for number in range(chance.randint(3, 6)):
        kind = chance.choice(GROWING if number == 0 else tuple(KINDS))
        least = round(_between(chance, 4, 12)) * GIB
        most = round(chance.uniform(1.5, 4.0) * least / GIB) * GIB
        curve = _noisy(random.Random(f"{seed} {number}"), KINDS[kind](chance, least, most), least)
        loads.append(Load(f"{kind}-{number}", kind, least, most, curve, kind == "cache"))
    together = sum(load.max_bytes for load in loads)
    fits = chance.random() >= OVERBOOKED
    part = chance.uniform(1.0, 1.2) if fits else chance.uniform(0.4, 0.8)
    return Mix(tuple(loads), OTHERS_BYTES + RESERVE_BYTES + part * together, fits)


def _noisy(chance: random.Random, curve: Curve, least: float) -> Curve:
    """With an allocator's noise of up to 0.5 %, the same at the same time."""
    noise = [chance.uniform(0.0, 0.005) * least for _ in range(997)]
    return lambda at_s: curve(at_s) + noise[int(at_s) % 997]


@dataclass
class _Container:
    load: Load
    limit: float
    before: float | None = None
    killed_s: float | None = None
    raises: int = 0
    alarm_s: float | None = None
    highest: float = 0.0
    tracker: MemoryTracker = field(default_factory=MemoryTracker)
    due: list[tuple[float, float]] = field(default_factory=list)
    """Limits that are being set: when that is done, and to what."""

    def held(self, at_s: float) -> float:
        return 0.0 if self.killed_s is not None else self.load.held(at_s)


@dataclass(frozen=True)
class Outcome:
    """What became of one container."""

    seed: int
    way: str
    name: str
    killed_s: float | None
    raises: int
    fits: bool
    warned_s: float | None
    """How long before the kill an alarm said that its limit cannot be raised; None: none did."""
    by_host: bool
    """Whether the host was out of memory, and not its limit."""
    limit_ratio: float
    """The highest limit, as a part of `max`."""


def play(seed: int, way: str) -> list[Outcome]:
    """One mix under one way."""
    chance, mix = random.Random(f"delays {seed}"), drawn(seed)
    there = [
        _Container(load, load.max_bytes if way == "oracle" else load.min_bytes)
        for load in mix.loads
    ]
    limits, by_host = MemoryLimits(), set[str]()
    next_s, at_s = chance.uniform(0, 1), 0.0
    while at_s < LASTS_S:
        for one in there:
            while one.due and one.due[0][0] <= at_s:
                _, limit = one.due.pop(0)
                one.before, one.limit = one.before or one.limit, limit
            one.highest = max(one.highest, one.limit)
            if one.held(at_s) > one.limit:
                one.killed_s = at_s
        used = OTHERS_BYTES + sum(one.held(at_s) for one in there)
        if used > mix.host_bytes:
            most = max(there, key=lambda one: one.held(at_s))
            by_host.add(most.load.name)
            most.killed_s = at_s
        if way == "raised" and at_s >= next_s:
            _cycle(limits, there, at_s, mix.host_bytes, mix.host_bytes - used, chance)
            next_s += chance.uniform(1.0, 1.3)
        until_s = min([at_s + MOST_S, *(one.due[0][0] for one in there if one.due)])
        if way == "raised":
            until_s = min(until_s, next_s)
        left = min([mix.host_bytes - used, *(one.limit - one.held(at_s) for one in there)])
        at_s = max(at_s + TICK_S, min(until_s, at_s + (left - NOISE_BYTES) / PACE_BYTES_PER_S))
    return [
        Outcome(
            seed=seed,
            way=way,
            name=one.load.name,
            killed_s=None if one.killed_s is None else round(one.killed_s, 1),
            raises=one.raises,
            fits=mix.fits,
            warned_s=_ahead_s(one),
            by_host=one.load.name in by_host,
            limit_ratio=round(one.highest / one.load.max_bytes, 3),
        )
        for one in there
    ]


def _ahead_s(one: _Container) -> float | None:
    if one.alarm_s is None or one.killed_s is None:
        return None
    return round(one.killed_s - one.alarm_s, 1)


def _cycle(
    limits: MemoryLimits,
    there: Sequence[_Container],
    at_s: float,
    host_bytes: float,
    available: float,
    chance: random.Random,
) -> None:
    views = tuple(_view(one, at_s) for one in there if one.killed_s is None)
    whole, spare = int(host_bytes - RESERVE_BYTES), int(available - RESERVE_BYTES)
    node = NodeView(8.0, 8.0, whole, memory_spare_bytes=spare)
    state = State(Snapshot(1, at_s, node, views))
    by_name = {one.load.name: one for one in there}
    for change in limits.decide(state, Answer(), GuardOptions()):
        one = by_name[change.job]
        one.raises += change.grows
        one.due.append((at_s + _between(chance, 0.02, 0.6), float(change.limit_bytes)))
    for alarm in limits.alarms:
        one = by_name[alarm.source]
        one.alarm_s = at_s if one.alarm_s is None else one.alarm_s


def _view(one: _Container, at_s: float) -> JobView:
    load, held = one.load, int(one.held(at_s))
    use = int(one.limit) if load.cached else held
    before = None if one.before is None else int(one.before)
    fact = ContainerFact(
        job=load.name,
        container_id=load.name,
        state=ContainerState.RUNNING,
        container_digest="",
        digest="",
        started_at_s=0.0,
        memory=MemoryFact(
            use, held, int(one.limit), use, 0, own_bytes=int(one.limit), before_bytes=before
        ),
    )
    one.tracker.update(fact, at_s)
    spec = JobSpec(
        load.name,
        ContainerSpec("", memory_bytes=int(load.min_bytes)),
        memory_max_bytes=int(load.max_bytes),
    )
    view = JobView(spec, JobState.RUNNING, container_id=load.name, memory=one.tracker.use, starts=1)
    # A limit that is being set bars another change, as in the product.
    return replace(view, state=JobState.PAUSED) if one.due else view


def worse(found: Sequence[Outcome]) -> list[Outcome]:
    """The containers that were killed under raised limits, and would have lived with `max` from the
    start."""
    oracle = {(one.seed, one.name): one for one in found if one.way == "oracle"}
    return [
        one
        for one in found
        if one.way == "raised"
        and one.killed_s is not None
        and oracle[one.seed, one.name].killed_s is None
    ]


def played(seed: int) -> list[Outcome]:
    """A mix under each way."""
    return [one for way in WAYS for one in play(seed, way)]


TITLES = {
    True: "Memory limits in mixes whose `max` fit the host together",
    False: "Memory limits in mixes whose `max` do not fit the host together",
}
_SHOWN = {
    "plain": "limits stay at `min`",
    "raised": "raised by dlsched",
    "oracle": "`max` from the start",
}


def tables(found: Sequence[Outcome]) -> dict[str, list[dict[str, object]]]:
    """A row for each way, for mixes that fit and for others."""
    return {
        title: [_row(way, [one for one in found if one.fits is fits]) for way in WAYS]
        for fits, title in TITLES.items()
    }


def _row(way: str, found: Sequence[Outcome]) -> dict[str, object]:
    mine = [one for one in found if one.way == way]
    killed = [one for one in mine if one.killed_s is not None]
    still = [one for one in mine if not one.name.startswith(GROWING)]
    return {
        "memory limits": _SHOWN[way],
        "mixes": len({one.seed for one in mine}),
        "containers": len(mine),
        "killed": len(killed),
        "of these by the host": sum(one.by_host for one in killed),
        "warned before": sum(one.warned_s is not None for one in killed),
        "killed, and not with `max` from the start": len(worse(found)) if way == "raised" else "",
        "limits raised": sum(one.raises for one in mine),
        "of caches, garbage and steady use": sum(one.raises for one in still),
        "mean of the highest limit over `max`": round(
            sum(one.limit_ratio for one in mine) / max(len(mine), 1), 2
        ),
    }


def headline(found: Sequence[Outcome]) -> str:
    """The published sentence."""
    fitting = [one for one in found if one.fits]
    killed = {
        way: sum(one.killed_s is not None for one in fitting if one.way == way) for way in WAYS
    }
    mixes = len({one.seed for one in fitting})
    return (
        f"In {mixes} drawn mixes whose `memory.max` fit the host the kernel killed "
        f"{killed['plain']} containers with limits that stay, {killed['raised']} with limits that "
        f"dlsched raises and {killed['oracle']} with `max` from the start; "
        f"{len(worse(fitting))} were killed that would have lived with `max` from the start."
    )
