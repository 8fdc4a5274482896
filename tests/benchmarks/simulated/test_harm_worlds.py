"""The drawn worlds of `no-harm`, and its rows."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.simulated.no_harm import headline
from dlsched.simulation.node.workloads import ServiceLoad
from tests.worlds.harm_worlds import CORES, drawn
from tests.worlds.played import Row

WELL = Row(1, 0.5, 3, (), 0.0, kind="hog")
HARM = replace(WELL, seed=2, harmed=("a: 10.0 - 13.0 -",))


def test_a_seed_draws_one_world_that_uses_what_it_says() -> None:
    for seed in range(20):
        world = drawn(seed)
        assert world == drawn(seed)
        loads = [job.load for job in world.trace().jobs if job.name.startswith("service")]
        used = sum(
            one.work_core_s * one.loop.rate_at(10.0)
            for one in loads
            if isinstance(one, ServiceLoad) and one.loop is not None
        )
        assert len(loads) == len(world.kinds)
        assert used <= world.use_ratio * CORES * 1.001


def test_worlds_without_room_are_not_counted() -> None:
    full = replace(HARM, seed=3, busiest_ratio=0.9)
    assert headline([WELL, full]).endswith(": reached")
    assert "harmed in 1 of 2 worlds" in headline([WELL, HARM, full])
    assert headline([WELL, HARM]).endswith("not reached")
