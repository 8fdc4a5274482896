"""Nobody is worse off for `adaptive` than under plain Docker, where the services fit the node.

Both runs play the same requests; a service is judged by what they took in the world.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.judge.harm import FULL_RATIO, Served, busiest_ratio, harmed, served
from dlsched.control.decider import NamedPolicy
from dlsched.model.facts import NodeFact
from dlsched.model.spec import LatencyTarget
from dlsched.policies.registry import load
from dlsched.simulation.node.loops import Loop
from dlsched.simulation.node.played import PlayedService
from dlsched.simulation.node.starting import Computation
from dlsched.simulation.node.training import Training
from dlsched.simulation.node.workloads import ServiceLoad, Trace
from dlsched.simulation.run import simulate
from tests.policies.adaptive.test_room import CORES, neighbours, simulated

DURATION_S = 40.0


@dataclass(frozen=True)
class World:
    """What is drawn."""

    seed: int
    use_ratio: float
    kinds: tuple[str, ...]
    """Of loops, a service each."""
    hopeless: bool
    trainings: int
    heavy_ratio: float = 0.0

    def trace(self) -> Trace:
        """Services that use that part of the node in the mean, and what is beside them."""
        chance = random.Random(self.seed)
        parts = [chance.uniform(0.2, 1.0) for _ in self.kinds]
        jobs = neighbours("two trainings")[: self.trainings]
        for index, (kind, part) in enumerate(zip(self.kinds, parts, strict=True)):
            use_cores = min(self.use_ratio * CORES * part / sum(parts), 0.7)
            rate = chance.choice((5.0, 10.0, 20.0, 30.0))
            load = ServiceLoad(
                use_cores / rate,
                noise=chance.choice((0.1, 0.5)),
                loop=Loop(kind, rate),  # type: ignore[arg-type]
                heavy_ratio=self.heavy_ratio,
            )
            slack = chance.choice((2.0, 5.0, 20.0))
            target = LatencyTarget(slack * load.work_core_s / (1.0 - use_cores))
            jobs.append(simulated(f"service-{index}", target, load))
        if self.hopeless:
            load = ServiceLoad(0.01, loop=Loop("poisson", 5.0))
            jobs.append(simulated("hopeless", LatencyTarget(0.001), load))
        ordered = tuple(sorted(jobs, key=lambda job: job.name))
        return Trace(NodeFact(CORES, 1 << 34), ordered, DURATION_S)


def play(trace: Trace, policy: str, seed: int) -> dict[str, Computation]:
    found: dict[str, Computation] = {}
    named = NamedPolicy(policy, load(policy))
    simulate(trace, named, seed, look=lambda _, loads: found.update(loads))
    return found


WORLDS = st.builds(
    World,
    seed=st.integers(0, 2**32),
    use_ratio=st.floats(0.02, 0.6),
    kinds=st.lists(st.sampled_from(("poisson", "periodic")), min_size=1, max_size=5).map(tuple),
    hopeless=st.booleans(),
    trainings=st.integers(0, 2),
    heavy_ratio=st.sampled_from((0.0, 0.1)),
)


@settings(max_examples=40)
@given(world=WORLDS)
# A camera's next frame comes whenever a report is due: it seemed a closed loop of one client.
@example(world=World(1, 0.1, ("periodic",) * 5, False, 2))
# Light services weighed little, so that trainings were in the way of each of their requests.
@example(world=World(1, 0.1, ("poisson",) * 5, True, 2))
def test_no_service_is_harmed_where_the_services_fit(world: World) -> None:
    trace = world.trace()
    plain, own = (play(trace, policy, world.seed) for policy in ("none", "adaptive"))
    if busiest_ratio(trace, plain) > FULL_RATIO:
        return
    for job in trace.jobs:
        before, after = plain[job.name], own[job.name]
        if isinstance(before, PlayedService) and isinstance(after, PlayedService):
            target = job.spec.target
            assert isinstance(target, LatencyTarget)
            was, now = served(before), served(after)
            assert not harmed(was, now, target.seconds), (job.name, was, now, target)


def test_a_burst_beside_trainings_is_answered_sooner_than_under_plain_docker() -> None:
    loop = Loop("poisson", 30.0, burst_factor=3.0, burst_every_s=30.0)
    jobs = [
        simulated(f"service-{index}", LatencyTarget(0.05), ServiceLoad(0.005, loop=loop))
        for index in range(4)
    ]
    trace = Trace(NodeFact(CORES, 1 << 34), (*jobs, *neighbours("two trainings")), 90.0)
    plain, own = (play(trace, policy, 1) for policy in ("none", "adaptive"))
    for job in jobs:
        before, after = plain[job.name], own[job.name]
        assert isinstance(before, PlayedService) and isinstance(after, PlayedService)
        assert served(after).mean_s < 0.9 * served(before).mean_s


def test_beside_services_that_do_not_fit_a_training_keeps_a_tenth_of_an_even_share() -> None:
    loop = Loop("poisson", 10.0)
    jobs = [
        simulated(f"service-{index}", LatencyTarget(0.2), ServiceLoad(0.05, loop=loop))
        for index in range(5)
    ]
    (training, _) = neighbours("two trainings")
    trace = Trace(NodeFact(CORES, 1 << 34), (*jobs, training), 120.0)
    own = play(trace, "adaptive", 1)[training.name]
    assert isinstance(own, Training)
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
