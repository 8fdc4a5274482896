"""The acts of the play: each begins in a known world, does one thing, and ends in a known world.

Owns what is done and what must come of it, whoever dies on the way. The points of an act are
listed by playing it once without a fault.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from dlsched.model.errors import Refused
from tests.torture.world import Adopted, Ended, LeftAlone, Runs, Wished, World

WAIT = "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done"


def job(name: str, made: str = "1", script: str = WAIT, **keys: str) -> str:
    """A job file's text."""
    lines = {
        "name": name,
        "image": "dlsched-examples/base:3.11",
        "command": json.dumps(["sh", "-c", script]),
        "environment": f"{{ROUND: '{made}'}}",
        "network": "none",
        "restart": "unless-stopped",
        "cpus": "{min: 0.05, max: 0.7}",
        "stop": "{grace: 2s}",
        **keys,
    }
    return "\n".join(f"{key}: {value}" for key, value in lines.items()) + "\n"


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that is done, and what the world is before and after it."""

    name: str
    before: Wished
    set_up: Callable[[World], object]
    """Wishes that lead to `before`, from wherever the last point has left the world."""
    play: Callable[[World], bool]
    """Does it; False: the agent was asked and has not answered, so it has to be asked again."""
    after: Wished
    kind: Literal["lives", "starts", "stops", "releases", "commands"] = "lives"
    """Whose doing is played: an agent's that lives on, that starts, that is told to stop (and gives
    limits back), that is asked to give them back, or a command's that does it without an agent."""
    offline: Callable[[World], object] = lambda _: None
    """What happens before, while no agent is there."""


def wish(world: World, **files: str) -> bool:
    """Exactly these job files: by name, their text. What lies in the folder needs no answer."""
    for path in world.session.watch.glob("*.yaml"):
        if path.stem not in files:
            path.unlink()
    for name, text in files.items():
        path = world.session.watch / f"{name}.yaml"
        if not path.exists() or path.read_text() != text:
            world.session.drop(name, text)
    return True


def _arrive(world: World) -> bool:
    return wish(world, alpha=job("alpha"), beta=job("beta"))


def _lift(world: World) -> bool:
    return world.agent.ask(lambda client: client.start("beta"))


def _deliver(world: World) -> bool:
    line = '{\\"t\\": 1, \\"step\\": $n, \\"accuracy\\": 0.95}'
    told = f'echo "{line}" >> "$DLSCHED_METRICS_FILE"; n=$((n + 1)); sleep 0.2'
    # It goes on telling, as a training does: of what an agent has read and not recorded nothing is
    # left when it dies, and the next one counts the evaluations that come.
    script = f"trap 'exit 0' TERM; n=1; while :; do {told}; done"
    text = job("learns", script=script, target="{metric: accuracy, deliver: 0.9, finish: 0.99}")
    return wish(world, learns=text)


def _web_and(*others: str) -> Callable[[World], bool]:
    def set_up(world: World) -> bool:
        world.unadopt("web", *others)
        for other in others:
            world.adopt(other)
        return _web(world) and wish(world, alpha=job("alpha"))

    return set_up


def _web(world: World) -> bool:
    return world.adopt("web", NanoCpus=900_000_000, CpuShares=512)


_LIMIT, _RAISED = 256 << 20, 320 << 20
"""Memory limits, in bytes: as its owner made it, and its bound."""
_GROW = """
head -c 228M /dev/zero > /dev/shm/x
for i in $(seq 24); do head -c 512K /dev/zero >> /dev/shm/x; sleep 1; done
"""
"""It comes near its limit and still grows, so that another agent sees it too, but holds little
enough for that limit to be given back."""


def _limited(world: World) -> bool:
    """A container with a memory limit that may be raised, just created; it holds nothing."""
    world.unadopt()
    world.adopt(
        "web",
        labels={"dlsched.memory.max": str(_RAISED)},
        Memory=_LIMIT,
        MemorySwap=_LIMIT,
        ShmSize=_RAISED,
    )
    return wish(world, alpha=job("alpha"))


def _grow(world: World) -> bool:
    return world.run_in("web", _GROW)


def _grown(world: World) -> bool:
    return _limited(world) and _grow(world)


def _stranger(world: World) -> bool:
    """A container without labels that ask, which no adoption names any more."""
    with suppress(Refused):
        world.agent.client.drop(world.full("web"))
    world.unadopt()
    return world.adopt("web", asks=False) and wish(world, alpha=job("alpha"))


def _adopt_by_command(world: World) -> bool:
    return world.agent.ask(lambda client: client.adopt(world.full("web"), {"dlsched.weight": "1"}))


def _alone(world: World) -> bool:
    world.unadopt()
    return wish(world, alpha=job("alpha"))


def _both(world: World) -> bool:
    world.unadopt()
    return _arrive(world)


def acts() -> Sequence[Act]:
    """All acts. Jobs without a target divide the one core evenly under every policy played."""
    half, third = 0.5, 1 / 3
    alone = {"alpha": Runs(0.7)}
    both = {"alpha": Runs(half), "beta": Runs(half)}
    beside = {"alpha": Runs(half), "web": Adopted(half)}
    limited = {"alpha": Runs(half), "web": Adopted(half, _LIMIT)}
    raised = {"alpha": Runs(half), "web": Adopted(half, _RAISED)}
    crowd = {"alpha": Runs(third), "web": Adopted(third), "mail": Adopted(third)}
    return (
        Act(
            "first job arrives",
            before={},
            set_up=lambda world: world.unadopt() or wish(world),
            play=lambda world: wish(world, alpha=job("alpha")),
            after=alone,
        ),
        Act(
            "second arrives, first shrinks",
            before=alone,
            set_up=_alone,
            play=_arrive,
            after=both,
        ),
        Act(
            "spec changes in place",
            before=both,
            set_up=_both,
            play=lambda world: wish(
                world, alpha=job("alpha", cpus="{min: 0.05, max: 0.3}"), beta=job("beta")
            ),
            after={"alpha": Runs(0.3, at_rest_cores=0.3), "beta": Runs(0.7)},
        ),
        Act(
            "container made anew",
            before=both,
            set_up=_both,
            play=lambda world: wish(world, alpha=job("alpha"), beta=job("beta", "2")),
            after={"alpha": Runs(half), "beta": Runs(half, "2")},
        ),
        Act(
            "stop by command",
            before=both,
            set_up=lambda world: _both(world) and _lift(world),
            play=lambda world: world.agent.ask(lambda client: client.stop("beta")),
            after={"alpha": Runs(0.7), "beta": Ended("stopped", container=False)},
        ),
        Act(
            "stop lifted by command",
            before={"alpha": Runs(0.7), "beta": Ended("stopped", container=False)},
            set_up=lambda world: (
                _both(world) and world.agent.ask(lambda client: client.stop("beta"))
            ),
            play=_lift,
            after=both,
        ),
        Act(
            "file removed",
            before=both,
            set_up=_both,
            play=lambda world: wish(world, alpha=job("alpha")),
            after=alone,
        ),
        Act(
            "job ends by itself",
            before={},
            set_up=lambda world: world.unadopt() or wish(world),
            play=lambda world: wish(
                world, once=job("once", secrets.token_hex(4), "exit 0", restart="on-failure")
            ),
            after={"once": Ended("finished", container=True, starts=1)},
        ),
        Act(
            "delivery",
            before={},
            set_up=lambda world: world.unadopt() or wish(world),
            play=_deliver,
            after={"learns": Runs(0.7, delivered=True)},
        ),
        Act(
            "foreign container adopted",
            before=alone,
            set_up=_alone,
            play=_web,
            after=beside,
        ),
        Act(
            "running container adopted by command",
            before={"alpha": Runs(0.7), "web": LeftAlone()},
            set_up=_stranger,
            play=_adopt_by_command,
            after=beside,
        ),
        Act(
            "adopted container dropped by command",
            before=beside,
            set_up=lambda world: _stranger(world) and _adopt_by_command(world),
            play=lambda world: world.agent.ask(lambda client: client.drop(world.full("web"))),
            after={"alpha": Runs(0.7), "web": LeftAlone()},
        ),
        Act(
            "memory limit raised",
            before=limited,
            set_up=_limited,
            play=_grow,
            after=raised,
        ),
        Act(
            "agent stops, memory limit is given back",
            before=raised,
            set_up=_grown,
            play=lambda _: True,
            after=raised,
            kind="stops",
        ),
        Act(
            "memory limit released by command, agent is dead",
            before=raised,
            set_up=_grown,
            play=lambda _: True,
            after=raised,
            kind="commands",
        ),
        Act(
            "agent starts, a container is gone",
            before=crowd,
            set_up=_web_and("mail"),
            offline=lambda world: world.unadopt("mail"),
            play=lambda _: True,
            after={"alpha": Runs(half), "mail": Adopted(half)},
            kind="starts",
        ),
        Act(
            "agent stops, limits are given back",
            before=beside,
            set_up=_web_and(),
            play=lambda _: True,
            after=beside,
            kind="stops",
        ),
        Act(
            "agent is asked to release",
            before=beside,
            set_up=_web_and(),
            play=lambda world: world.agent.ask(lambda client: client.release()),
            after=beside,
            kind="releases",
        ),
        Act(
            "released by command, agent is dead",
            before=beside,
            set_up=_web_and(),
            play=lambda _: True,
            after=beside,
            kind="commands",
        ),
    )
