"""Nobody is worse off for `adaptive` than under plain Docker, where everything fits the node.

Both runs play the same requests; a service is judged by what they took in the world.
"""

from __future__ import annotations

import pytest

from dlsched.model.facts import NodeFact
from dlsched.model.spec import LatencyTarget
from dlsched.simulation.node.loops import Loop
from dlsched.simulation.node.workloads import ServiceLoad, Trace
from tests.worlds.harm import Served, harmed
from tests.worlds.harm_worlds import CORES, World, training
from tests.worlds.kinds import KINDS
from tests.worlds.kinds import world as drawn_world
from tests.worlds.open_worlds import simulated_job
from tests.worlds.played import play, row_of

_SLOW = World(
    seed=10215,
    use_ratio=0.4043790998758165,
    kinds=("poisson", "poisson", "periodic", "poisson"),
    hopeless=True,
    trainings=0,
    heavy_ratio=0.1,
    threads=2,
    full_speed=0.75,
)
_BURSTY = World(
    seed=11579,
    use_ratio=0.45929377664878984,
    kinds=("bursty", "bursty", "periodic", "periodic", "bursty"),
    hopeless=True,
    trainings=1,
    heavy_ratio=0.1,
)


REGRESSIONS = {
    # A camera's next frame comes whenever a report is due: it seemed a closed loop of one client.
    "cameras": World(1, 0.1, ("periodic",) * 5, False, 2),
    # A camera that uses most of a core had a ceiling in its first seconds.
    "large cameras": World(1, 0.5, ("periodic", "periodic"), False, 1),
    # Light services weighed little, so that trainings were in the way of each of their requests.
    "light": World(1, 0.1, ("poisson",) * 5, True, 2),
    # Urgent services kept the others from the CPU, although all of them fitted the node.
    "slow": _SLOW,
    "bursty": _BURSTY,
}

MENDED = [
    # Priority from the first second: 141 ms became 2.8 s, and a training had .57 of its CPU.
    ("locks", 10003),
    ("locks", 10119),
    # A hog of half a core came last, as it used nearly all of its share.
    ("small-hog", 10136),
]
"""Worlds in which somebody was harmed once."""
DRAWS = 40
"""Of all kinds in turn. In some of many more draws somebody is harmed (no-harm.json)."""
PLAYED = [(kind, seed) for seed in range(1, 1 + DRAWS) for kind in KINDS][:DRAWS]


@pytest.mark.parametrize("world", REGRESSIONS.values(), ids=REGRESSIONS)
def test_no_service_is_harmed_again(world: World) -> None:
    row = row_of(world.trace(), world.seed % 1000)
    assert not (row.fits and row.harmed)


@pytest.mark.parametrize(("kind", "seed"), [*PLAYED, *MENDED])
def test_nobody_is_harmed_where_everything_fits(kind: str, seed: int) -> None:
    """One of them again: `python -m benchmarks run no-harm --seed SEED --kind KIND`."""
    row = row_of(drawn_world(kind, seed), seed)
    assert not (row.fits and row.worse)


def test_beside_services_that_do_not_fit_a_training_keeps_a_tenth_of_an_even_share() -> None:
    loop = Loop("poisson", 10.0)
    jobs = [
        simulated_job(f"service-{index}", LatencyTarget(0.2), ServiceLoad(0.05, loop=loop))
        for index in range(5)
    ]
    trace = Trace(NodeFact(CORES, 1 << 34), (*jobs, training(1)), 120.0)
    own = play(trace, "adaptive", 1).loads["training-1"]
    assert own.usage_core_s >= 0.1 * CORES / 6 * 118.0


@pytest.mark.parametrize(
    ("plain", "own", "target_s", "is_harm"),
    [
        (Served(0.1, None), Served(0.111, None), 0.1, False),
        (Served(0.1, None), Served(0.113, None), 0.1, True),
        (Served(0.1, None), Served(0.113, None), None, True),
        (Served(0.1, None), Served(0.5, None), 1.0, False),
        (Served(0.1, 0.2), Served(0.1, 0.23), 0.1, True),
        (Served(0.1, None), Served(0.1, 9.0), 0.1, False),
    ],
)
def test_harm_is_what_is_felt_near_a_target(
    plain: Served, own: Served, target_s: float | None, is_harm: bool
) -> None:
    assert harmed(plain, own, target_s) is is_harm
