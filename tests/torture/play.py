"""Plays an act once to list its points, then once for each point and phase, with a death there.

Owns the order of one run: known world, order to die, act, death, another agent, judgement.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.torture.acts import Act
from tests.torture.ceilings import CAPACITY_CORES, ROUNDING_CORES
from tests.torture.points import Phase, Point
from tests.torture.world import Ended, LeftAlone, Runs, Wished, World
from tools.session import session

DIES_WITHIN_S = 2.5
"""Then it is looked at whether the act is over, and the point was not reached."""

TRIES = 3
"""For a point that was not reached: threads do not always come to theirs in the same order."""


@dataclass(frozen=True, slots=True)
class Run:
    """One death, and what was wrong after it."""

    act: str
    policy: str
    point: Point
    phase: Phase
    reached: bool
    wrong: tuple[str, ...]
    took_s: float


@contextmanager
def stage(policy: str) -> Iterator[World]:
    """A world of its own on the engine at DOCKER_HOST; nothing of it is left afterwards."""
    with session(CAPACITY_CORES) as one:
        world = World(one, policy)
        try:
            yield world
        finally:
            world.close()


def points_of(world: World, act: Act) -> list[Point]:
    """Play the act without a fault. Raises AssertionError where even that goes wrong."""
    _prepare(world, act)
    end = world.agent.list_points()
    answered = _perform(world, act)
    wrong = [] if answered else ["nobody answered"]
    if act.kind in ("lives", "starts"):
        wrong += world.becomes(act.after)
    points = end()
    wrong += _judge(world, act, answered)
    if wrong:
        raise AssertionError(f"{act.name}, without a fault: {'; '.join(wrong)}")
    return points


def fault(world: World, act: Act, point: Point, phase: Phase) -> Run:
    """A run in which that point was reached, or the last of some in which it was not.

    One in which the world did not even come to where it begins is lost.
    """
    for _ in range(TRIES):
        try:
            run = _one_fault(world, act, point, phase)
        except AssertionError as error:
            return Run(act.name, world.policy, point, phase, False, (repr(error),), 0.0)
        if run.reached or run.wrong:
            break
    return run


def _one_fault(world: World, act: Act, point: Point, phase: Phase) -> Run:
    """One run: the process dies there and another takes over, or an answer goes astray.

    Where it died after a request, limits are given back by command first, as systemd does it.
    """
    began_s = time.monotonic()
    _prepare(world, act)
    world.agent.order(point, phase)
    answered = _perform(world, act)
    reached = phase in point.delays or _died(world, act)
    wrong: list[str] = []
    if phase in point.delays and act.kind in ("lives", "starts"):
        wrong += world.becomes(act.after)
    world.agent.no_orders()
    if reached and phase == "after" and act.kind == "lives":
        wrong += _give_back(world, act)
    wrong += _judge(world, act, answered)
    return Run(
        act=act.name,
        policy=world.policy,
        point=point,
        phase=phase,
        reached=reached,
        wrong=tuple(wrong),
        took_s=time.monotonic() - began_s,
    )


def _prepare(world: World, act: Act) -> None:
    world.agent.no_orders()
    world.ceilings.rest()
    if not world.agent.alive:
        world.agent.start()
        world.agent.answers()
    act.set_up(world)
    wrong = world.becomes(act.before)
    if wrong:
        raise AssertionError(f"{act.name} cannot begin: {'; '.join(wrong)}")
    world.forget_gone(act.before)
    if act.kind == "starts":
        world.agent.stop()
        act.offline(world)
    elif act.kind == "commands":
        world.agent.kill()
    world.ceilings.taken()
    if act.kind == "lives":
        world.ceilings.watch()
    world.forget_starts()


def _perform(world: World, act: Act) -> bool:
    """Do it; False: the process was asked, and died before it answered."""
    if act.kind == "starts":
        world.agent.start()
    if act.kind == "stops":
        world.ceilings.rest()
        return world.agent.stop() == 0
    if act.kind == "commands":
        return world.agent.release() == 0
    return act.play(world)


def _died(world: World, act: Act) -> bool:
    """Whether it died; waits for that, or until all is done that was wished."""
    if act.kind in ("stops", "commands"):
        return world.agent.last_code != 0
    if world.agent.gone(DIES_WITHIN_S) is not None:
        return True
    return act.kind != "releases" and bool(world.becomes(act.after)) and not world.agent.alive


def _give_back(world: World, act: Act) -> list[str]:
    """What `dlsched release` leaves behind when an agent has died."""
    world.ceilings.rest()
    code = world.agent.release()
    allowed: dict[str, set[float]] = {}
    for wished in (act.before, act.after):
        for job, wish in wished.items():
            if isinstance(wish, Runs | Ended):
                allowed.setdefault(job, set()).add(wish.at_rest_cores)
    wrong = world.limits_left(allowed)
    return wrong if code == 0 else [f"dlsched release ended with {code}", *wrong]


def _judge(world: World, act: Act, answered: bool) -> list[str]:
    """Bring the world where it should be now, and tell what is wrong with it."""
    if act.kind == "commands":
        wrong = [] if world.agent.release() == 0 else ["dlsched release failed"]
        wrong += world.wrongs_at_rest(act.after)
        world.agent.start()
        return wrong + world.becomes(act.before) + _never(world, act.after)
    if not world.agent.alive:
        world.agent.start()
    if not answered and act.kind != "stops":
        world.agent.answers()
        act.play(world)
    if act.kind == "releases":
        world.agent.answers()
        wrong = world.wrongs_at_rest(act.after)
        world.agent.ask(lambda client: client.resume())
        return wrong + world.becomes(act.before) + _never(world, act.after)
    wrong = world.becomes(act.before if act.kind == "stops" else act.after)
    wrong += _never(world, act.after)
    if act.kind == "stops":
        world.ceilings.rest()
        code = world.agent.stop()
        wrong += world.wrongs_at_rest(act.after) if code == 0 else [f"exit code {code}"]
    return wrong


def _never(world: World, wished: Wished) -> list[str]:
    """What must never be, whatever the act."""
    wrong = world.left_behind()
    worst = world.ceilings.taken()
    free = any(isinstance(wish, LeftAlone) for wish in wished.values())
    if world.reserves and not free and worst > CAPACITY_CORES + ROUNDING_CORES:
        wrong.append(f"ceilings summed to {worst:.3f} of {CAPACITY_CORES:.3f} cores")
    for (job, container), count in Counter(world.starts).items():
        if count > 1:
            wrong.append(f"{job}: container {container[:12]} was started {count} times")
    for job, count in Counter(job for job, _ in world.starts).items():
        wish = wished.get(job)
        if isinstance(wish, Ended) and count > wish.starts:
            wrong.append(f"{job}: was started {count} times, and has ended")
    world.forget_starts()
    return wrong
