"""Shards of fluid nodes, and queued jobs that go between them."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dlsched.cluster.core.benefit import Forecasts
from dlsched.cluster.core.federation import RULE
from dlsched.cluster.core.forecast import Load, completions
from dlsched.cluster.core.hand_over import Entry, EntryState
from dlsched.cluster.core.model import ClusterSnapshot, Sharing
from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.registry import load
from dlsched.cluster.core.shards import SUMMARY_BYTES_MAX
from dlsched.simulation.cluster import federation
from dlsched.simulation.cluster.federation import (
    FederationRun,
    FederationWorld,
    WorldOptions,
    draw_world,
    flat,
    simulate_federation,
)
from dlsched.simulation.cluster.fluid import FluidJob, FluidNode, FluidShard, cluster_job

SMALL = WorldOptions(shards=4, nodes=10, jobs=400, stretch=1.5)


def job(name: str, cores: int, work: float, arrives_s: float = 0.0, home: str = "a") -> FluidJob:
    return FluidJob(name, home, arrives_s, cores, cores, work, work)


def submit(shard: FluidShard, *jobs: FluidJob, now_s: float = 0.0) -> dict[str, float]:
    for one in jobs:
        shard.submit(one, Entry(one.name, EntryState.QUEUED))
    return shard.serve(now_s)


def test_a_node_ends_its_jobs_when_the_forecast_says() -> None:
    node = FluidNode("node", 8)
    jobs = [
        replace(job(f"job-{n}", 1 + n, 100.0 * (1 + n * n)), parallel_cores=6) for n in range(3)
    ]
    for one in jobs:
        node.add(one)
    loads = [Load(one.work_core_s, one.parallel_cores, one.cores) for one in jobs]
    expected = completions(8, Sharing.FAIR, loads)
    now_s = node.divide()
    while now_s < math.inf:
        assert node.finish(now_s)
        now_s = node.divide()
    assert [one.ended_s for one in jobs] == pytest.approx(expected)
    assert node.free == 8


def test_a_job_that_has_outlived_its_estimate_is_still_expected_to_take_a_while() -> None:
    late = replace(job("late", 1, 100.0), estimate_core_s=10.0, done_core_s=80.0)
    assert late.expected_core_s == pytest.approx(20.0)


def _full_snapshot(shard: FluidShard, queue: Sequence[FluidJob]) -> ClusterSnapshot:
    views = [node.view() for node in shard.nodes.values()]
    running = sorted((one for _, jobs in views for one in jobs), key=lambda one: one.name)
    return ClusterSnapshot(
        0, 0.0, tuple(one for one, _ in views), tuple(running), tuple(map(cluster_job, queue))
    )


@pytest.mark.parametrize("seed", range(20))
def test_jobs_start_where_the_real_policy_puts_them(seed: int) -> None:
    """Or on a node that adds as little: candidates are selected by heaps, and forecasts of all
    nodes are not made."""
    draw = random.Random(seed)
    shard = FluidShard("a", 40, 8)
    for index in range(draw.randint(10, 80)):
        size = draw.choice((1, 2, 4))
        submit(shard, job(f"old-{index}", size, size * draw.uniform(100, 10_000)))
    new = job("new", draw.choice((1, 2)), draw.uniform(100, 10_000))
    snapshot = _full_snapshot(shard, [new])
    decision = load("adaptive?moves=false&pull_s=0").decide(snapshot, None)
    forecasts = Forecasts(Occupancy(snapshot))
    (chosen,) = submit(shard, new)
    own, real = (
        forecasts.added_s(cluster_job(new), node) for node in (chosen, decision.place["new"])
    )
    assert own == pytest.approx(real)


def test_others_go_before_the_head_only_where_they_do_not_delay_it() -> None:
    shard = FluidShard("a", 2, 8)
    submit(shard, job("short", 6, 600.0), job("long", 6, 6000.0))
    submit(shard, job("head", 8, 800.0, 1.0), job("small", 2, 20_000.0, 2.0), now_s=2.0)
    assert [one.name for one in shard.queue] == ["head"]
    # The head is to start where the short one ends; the small one would be in its way there.
    beside = next(node for node in shard.nodes.values() if node.jobs[-1].name == "small")
    assert beside.jobs[0].name == "long"


def test_the_node_that_the_head_waits_for_is_known_though_it_is_full() -> None:
    """The head is to start on the full node, so a job that runs longer may start on the other."""
    shard = FluidShard("a", 2, 8)
    submit(shard, job("full", 8, 800.0), job("long", 6, 6000.0))
    submit(shard, job("head", 8, 800.0, 1.0), job("small", 2, 20_000.0, 2.0), now_s=2.0)
    assert [one.name for one in shard.queue] == ["head"]


def test_candidates_are_the_nodes_with_most_cores_free_and_those_done_first() -> None:
    shard = FluidShard("a", 12, 8)
    kinds = [("idle", 1, 1e6), ("middle", 2, 1e5), ("soon", 4, 100.0)]
    expected = set()
    for (kind, cores, work), node in zip(kinds * 4, shard.nodes.values(), strict=True):
        node.add(job(f"{kind}-{node.name}", cores, work))
        shard.divide(node)
        expected |= {node.name} if kind != "middle" else set()
    assert shard.candidates(1) == expected
    assert shard.candidates(8) == set()


def test_a_held_job_is_queued_but_not_started() -> None:
    shard = FluidShard("a", 1, 8)
    shard.submit(job("held", 1, 10.0), Entry("held", EntryState.QUEUED), hold=True)
    assert shard.serve(0.0) == {}
    assert [one.name for one in shard.waiting()] == ["held"]
    shard.release("held")
    assert list(shard.serve(40.0)) == ["node-00000"]


def test_a_summary_counts_running_queued_and_held_jobs() -> None:
    shard = FluidShard("a", 2, 8)
    submit(shard, job("one", 8, 800.0), job("two", 4, 800.0), job("three", 8, 800.0))
    shard.submit(job("held", 1, 10.0), Entry("held", EntryState.QUEUED), hold=True)
    found = shard.summary(0.0)
    assert (found.nodes, found.cores, found.demand_cores) == (2, 16.0, 21.0)
    assert (found.head, found.queue_length, found.queue_cores) == ("two", 1, 4.0)
    assert shard.crowding().demand_cores == 21.0


@pytest.fixture(scope="module")
def world() -> FederationWorld:
    return draw_world(3, SMALL)


@pytest.fixture(scope="module")
def runs(world: FederationWorld) -> dict[str, FederationRun]:
    return {
        "none": simulate_federation(world, federated=False),
        "federation": simulate_federation(world, federated=True),
        "flat": simulate_federation(flat(world), federated=False),
    }


def mean_s(run: FederationRun) -> float:
    return statistics.fmean(run.completions_s.values())


@pytest.mark.timed
def test_no_job_is_lost(world: FederationWorld, runs: dict[str, FederationRun]) -> None:
    for run in runs.values():
        assert run.completions_s.keys() == {one.name for one in world.jobs}
        for one in world.jobs:
            assert run.completions_s[one.name] >= one.work_core_s / one.parallel_cores - 1e-3


@pytest.mark.timed
def test_a_federation_is_nearly_as_good_as_one_queue(runs: dict[str, FederationRun]) -> None:
    assert runs["federation"].moved > 10
    assert mean_s(runs["federation"]) < 0.9 * mean_s(runs["none"])
    assert mean_s(runs["federation"]) < 1.05 * mean_s(runs["flat"])
    assert 0 < runs["federation"].largest_bytes <= SUMMARY_BYTES_MAX
    assert runs["none"].moved == runs["flat"].moved == 0


@pytest.mark.timed
def test_holding_jobs_for_a_round_is_what_spreads_those_that_never_wait(
    world: FederationWorld, runs: dict[str, FederationRun]
) -> None:
    prompt = simulate_federation(world, federated=True, rule=replace(RULE, holding=False))
    assert prompt.held == 0 < runs["federation"].held
    assert mean_s(runs["federation"]) < mean_s(prompt)


@pytest.mark.timed
def test_the_same_world_gives_the_same_run(
    world: FederationWorld, runs: dict[str, FederationRun]
) -> None:
    again = simulate_federation(world, federated=True)
    assert again.completions_s == runs["federation"].completions_s
    assert again.hand_overs == runs["federation"].hand_overs
    assert all(one.ended_s is None for one in world.jobs)


@pytest.mark.timed
def test_a_moved_job_leaves_a_tombstone_in_each_shard_that_it_left(
    world: FederationWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards: list[FluidShard] = []

    class Kept(FluidShard):
        def __init__(self, name: str, nodes: int, cores: int) -> None:
            super().__init__(name, nodes, cores)
            shards.append(self)

    monkeypatch.setattr(federation, "FluidShard", Kept)
    run = simulate_federation(world, federated=True)
    left = [entry for shard in shards for entry in shard.entries.values()]
    assert {entry.state for entry in left} == {EntryState.GONE}
    assert len({entry.job for entry in left}) == run.moved
    assert len(left) == run.hand_overs - run.returned


@pytest.mark.timed
def test_a_job_that_its_shard_starts_during_the_hand_over_stays_there() -> None:
    """Both nodes of a are full, so in the round after 30 s the third job is to go to b. Half a
    second later, before the tombstone is written, a node of a is free."""
    long = [job(f"long-{index}", 8, 8 * 5000.0) for index in range(2)]
    long[0].work_core_s = 8 * 30.5
    third = job("third", 8, 800.0, arrives_s=1.0)
    run = simulate_federation(FederationWorld({"a": 2, "b": 1}, 8, [*long, third]), federated=True)
    assert (run.hand_overs, run.returned, run.moved) == (1, 1, 0)
    assert run.completions_s["third"] == pytest.approx(29.5 + 100.0)


def test_arrivals_are_uneven_and_lengths_have_heavy_tails() -> None:
    options = replace(SMALL, shards=8, jobs=8000)
    found = draw_world(1, options)
    counts = sorted(sum(one.home == name for one in found.jobs) for name in found.shards)
    assert statistics.fmean(counts[-2:]) == pytest.approx(3 * statistics.fmean(counts[:6]), rel=0.1)
    floors = sum(one.work_core_s for one in found.jobs)
    assert floors == pytest.approx(0.85 * 8 * 10 * 8 * 86_400, rel=0.1)
    works = sorted(one.work_core_s for one in found.jobs)
    assert sum(works[-800:]) > 0.4 * floors
    assert max(one.arrives_s for one in found.jobs) <= 86_400.0
