"""Which queued jobs are handed over, and that they do not go to and fro."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.cluster.core.federation import (
    HOLD_S,
    ROUND_S,
    RULE,
    FederationDecision,
    FederationMemory,
    QueuedJob,
    considered,
    decide,
    holds,
    sample,
)
from dlsched.cluster.core.shards import Ask, NodeRoom, ShardSummary, summarize

LARGEST = Ask(8.0, 1 << 40, 0)


def crowded(name: str, queue: Sequence[QueuedJob] = (), nodes: int = 4) -> ShardSummary:
    """All its cores are taken for an hour."""
    rooms = [NodeRoom(0.0, cores=8.0, demand_cores=8.0, ends=[(3600.0, 8.0)])] * nodes
    return summarize(name, LARGEST, rooms, [(job.name, job.ask) for job in queue])


def empty(name: str, nodes: int = 4) -> ShardSummary:
    return summarize(name, LARGEST, [NodeRoom(8.0, cores=8.0)] * nodes)


def line(count: int, **more: object) -> list[QueuedJob]:
    """Jobs of 8 cores, one after the other."""
    return [
        replace(QueuedJob(f"job-{index}", Ask(8.0), 8.0 * index, 8.0), **more)  # type: ignore[arg-type]
        for index in range(count)
    ]


def between(
    own: ShardSummary, *others: ShardSummary, queue: Sequence[QueuedJob], **more: object
) -> FederationDecision:
    shards = {one.shard: one for one in (own, *others)}
    return decide(1, 1000.0, shards, {own.shard: queue}, **more)  # type: ignore[arg-type]


def test_a_job_that_would_wait_long_goes_where_it_can_start() -> None:
    queue = line(2)
    found = between(crowded("a", queue), empty("b"), queue=queue).hand_overs
    assert [(one.job, one.source, one.target) for one in found] == [
        ("job-0", "a", "b"),
        ("job-1", "a", "b"),
    ]
    assert found[0].own_s >= 3600.0
    assert found[0].other_s == 0.0


def test_only_as_many_go_as_find_room_there() -> None:
    queue = line(10)
    found = between(crowded("a", queue), empty("b", nodes=3), queue=queue).hand_overs
    assert [one.job for one in found] == ["job-0", "job-1", "job-2"]


def test_those_behind_a_job_that_goes_move_up() -> None:
    """The second job would gain by the room that the first one found, but not by the wait there,
    once it is the first in its own queue."""
    ends = [(600.0, 8.0), (9000.0, 8.0)]
    rooms = [NodeRoom(0.0, cores=8.0, demand_cores=8.0, ends=[end]) for end in ends]
    queue = line(2)
    own = summarize("a", LARGEST, rooms, [(job.name, job.ask) for job in queue])
    busy = NodeRoom(0.0, cores=8.0, demand_cores=8.0, ends=[(500.0, 8.0)])
    other = summarize("b", LARGEST, [NodeRoom(8.0, cores=8.0), busy])
    assert [one.job for one in between(own, other, queue=queue).hand_overs] == ["job-0"]


def test_a_job_crowds_the_shard_that_it_comes_to() -> None:
    job = QueuedJob("job", Ask(1.0), parallel_cores=8.0, shortest_s=3600.0)
    own = summarize("a", LARGEST, [NodeRoom(4.0, cores=8.0, demand_cores=16.0)])
    other = summarize("b", LARGEST, [NodeRoom(4.0, cores=8.0, demand_cores=4.0)])
    (found,) = between(own, other, queue=[job]).hand_overs
    assert (found.own_s, found.other_s) == (3600.0, 1800.0)


@pytest.mark.parametrize(("number", "first"), [(0, "a"), (1, "b"), (2, "a")])
def test_another_shard_chooses_first_in_each_round(number: int, first: str) -> None:
    queues = {name: [QueuedJob(f"of-{name}", Ask(8.0))] for name in "ab"}
    shards = {name: crowded(name, queue) for name, queue in queues.items()}
    shards["c"] = empty("c", nodes=1)
    found = decide(number, 0.0, shards, queues).hand_overs
    assert [one.job for one in found] == [f"of-{first}"]


def test_what_an_old_summary_does_not_contain_yet_counts() -> None:
    queue = line(3)
    old = replace(empty("b", nodes=3), age_s=ROUND_S)
    first = between(crowded("a", queue), old, queue=queue)
    assert len(first.hand_overs) == 3
    more = [replace(one, name=f"more-{one.name}") for one in queue]
    again = between(crowded("a", more), old, queue=more, memory=first.memory)
    assert again.hand_overs == ()
    # A summary that was made later has them.
    shards = {"a": crowded("a", more), "b": replace(old, age_s=0.0)}
    later = decide(2, 1000.0 + 2 * ROUND_S, shards, {"a": more}, first.memory)
    assert len(later.hand_overs) == 3
    assert all(one.at_s > 1000.0 for one in later.memory.recent)


@pytest.mark.parametrize("other", [crowded("b"), replace(empty("b"), age_s=91.0), empty("b", 0)])
def test_no_job_goes_to_a_shard_that_is_full_silent_or_without_nodes(other: ShardSummary) -> None:
    queue = line(2)
    assert between(crowded("a", queue), other, queue=queue).hand_overs == ()


def test_a_shard_that_is_silent_or_unknown_hands_nothing_over() -> None:
    queue = line(2)
    own = replace(crowded("a", queue), age_s=91.0)
    assert between(own, empty("b"), queue=queue).hand_overs == ()
    assert decide(1, 0.0, {"b": empty("b")}, {"a": queue}).hand_overs == ()


def test_a_shard_that_has_lost_its_nodes_hands_its_queue_over() -> None:
    queue = line(2)
    own = crowded("a", queue, nodes=0)
    assert len(between(own, empty("b"), queue=queue).hand_overs) == 2


def test_a_job_that_fits_no_node_there_stays() -> None:
    queue = line(1, ask=Ask(9.0))
    assert between(crowded("a", queue), empty("b"), queue=queue).hand_overs == ()


@pytest.mark.parametrize(
    "more",
    [
        {"stays": "needs a label"},
        {"came_at_s": 1000.0 - RULE.rest_s + 1.0},
        {"hops": RULE.hops_max},
        {"been": frozenset({"b"})},
    ],
)
def test_a_job_that_is_bound_or_came_just_now_or_often_or_was_there_stays(
    more: dict[str, object],
) -> None:
    queue = line(1, **more)
    assert between(crowded("a", queue), empty("b"), queue=queue).hand_overs == ()


@pytest.mark.parametrize(
    ("own_s", "other_s", "hops", "gains"),
    [
        (60.0, 0.0, 0, False),
        (81.0, 0.0, 0, True),
        (1000.0, 691.0, 0, False),
        (1000.0, 689.0, 0, True),
        (1000.0, 400.0, 1, False),
        (1000.0, 370.0, 1, True),
        (float("inf"), 1000.0, 0, True),
        (float("inf"), float("inf"), 0, False),
        (1e12, 0.0, RULE.hops_max, False),
    ],
)
def test_the_other_delay_must_be_clearly_less(
    own_s: float, other_s: float, hops: int, gains: bool
) -> None:
    assert RULE.gains(own_s, other_s, hops) is gains


def test_a_job_goes_where_a_gpu_is_free() -> None:
    """Cores are free in both; in the own shard some more are in a moment, but no GPU."""
    job = QueuedJob("job", Ask(1.0, 0, 1))
    largest = Ask(8.0, 1 << 40, 2)
    ends = [(20.0, 1.0), (3600.0, 7.0)]
    own = summarize("a", largest, [NodeRoom(4.0, cores=16.0, ends=ends)], [("job", job.ask)])
    other = summarize("b", largest, [NodeRoom(4.0, None, 1, cores=16.0)])
    assert considered(own, [job]) == [job]
    (found,) = between(own, other, queue=[job]).hand_overs
    assert (found.target, found.other_s) == ("b", 0.0)
    without = summarize("b", largest, [NodeRoom(4.0, cores=16.0, ends=ends)])
    assert between(own, without, queue=[job]).hand_overs == ()


def test_so_many_go_in_a_round() -> None:
    queue = line(200)
    own = crowded("a", queue)
    others = [empty(f"b{index}", nodes=200) for index in range(6)]
    found = between(own, *others, queue=queue).hand_overs
    assert len(found) == RULE.out_max
    rule = replace(RULE, in_max=5)
    found = between(own, *others, queue=queue, rule=rule).hand_overs
    assert max([one.target for one in found].count(f"b{index}") for index in range(6)) == 5


def test_of_three_or_more_others_two_are_sampled() -> None:
    """All could take it; the two are others in each round, and every shard has its turn."""
    queue = line(1)
    shards = {f"s{index}": empty(f"s{index}") for index in range(10)}
    shards["a"] = crowded("a", queue)
    targets = [
        decide(number, 0.0, shards, {"a": queue}).hand_overs[0].target for number in range(200)
    ]
    assert set(targets) == shards.keys() - {"a"}
    assert all(5 <= targets.count(name) <= 60 for name in set(targets))


@given(st.text(max_size=20), st.integers(0, 1000), st.integers(2, 40))
def test_a_sample_is_two_different_ones_and_the_same_each_time(
    job: str, number: int, count: int
) -> None:
    first, second = sample(job, number, count)
    assert 0 <= first < count
    assert 0 <= second < count
    assert first != second
    assert sample(job, number, count) == (first, second)


def test_a_crowded_shard_holds_jobs_that_arrive_for_a_round() -> None:
    job = QueuedJob("job", Ask(1.0), parallel_cores=8.0, shortest_s=3600.0)
    rooms = [NodeRoom(4.0, cores=8.0, demand_cores=16.0)] * 4
    twice = summarize("a", LARGEST, rooms)
    assert holds(twice, job)
    assert not holds(crowded("a"), job)
    assert not holds(twice, replace(job, shortest_s=60.0))  # it would gain less than that
    assert not holds(twice, replace(job, stays="needs a label"))
    assert not holds(twice, job, replace(RULE, holding=False))
    assert HOLD_S > ROUND_S
    found = between(twice, empty("b"), queue=[job]).hand_overs
    assert [one.target for one in found] == ["b"]
    assert found[0].own_s == pytest.approx(3600.0)


def test_a_federation_considers_only_jobs_with_a_long_delay() -> None:
    soon = summarize(
        "a", LARGEST, [NodeRoom(0.0, cores=8.0, demand_cores=8.0, ends=[(20.0, 8.0)])] * 3
    )
    queue = line(400)
    found = considered(soon, queue)
    assert [one.name for one in found[:2]] == ["job-3", "job-4"]
    assert len(found) == RULE.considered_max
    crowd = replace(soon, demand_cores=48.0)
    assert considered(crowd, [replace(queue[0], shortest_s=100.0)])


@given(st.lists(st.integers(0, 12), min_size=2, max_size=6), st.integers(1, 30))
def test_a_job_does_not_go_to_and_fro(lengths: list[int], rounds: int) -> None:
    """Whatever the queues: with hand-overs carried out each round and nothing ever started, no job
    comes twice to a shard, and after a few rounds all rest."""
    names = [f"s{index}" for index in range(len(lengths))]
    queues = {
        name: [
            QueuedJob(f"{name}-{index}", Ask(8.0), parallel_cores=8.0) for index in range(length)
        ]
        for name, length in zip(names, lengths, strict=True)
    }
    visits: dict[str, list[str]] = {}
    memory = FederationMemory()
    for number in range(rounds):
        now_s = number * ROUND_S
        for name, queue in queues.items():
            queues[name] = [
                replace(one, ahead_cores=8.0 * index) for index, one in enumerate(queue)
            ]
        shards = {name: crowded(name, queue) for name, queue in queues.items()}
        decision = decide(number, now_s, shards, queues, memory)
        memory = decision.memory
        for one in decision.hand_overs:
            job = next(job for job in queues[one.source] if job.name == one.job)
            queues[one.source].remove(job)
            queues[one.target].append(
                replace(job, hops=job.hops + 1, been=job.been | {one.source}, came_at_s=now_s)
            )
            visits.setdefault(one.job, [one.source]).append(one.target)
    assert all(len(set(path)) == len(path) <= RULE.hops_max + 1 for path in visits.values())
    assert sum(map(len, queues.values())) == sum(lengths)
