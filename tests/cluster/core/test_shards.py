"""Summaries of shards: what they count, what is refused of those that others wrote, and waits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.cluster.core.shards import (
    CORES_STEPS,
    ENDS_S,
    GPU_STEPS,
    MEMORY_STEPS,
    SUMMARY_BYTES_MAX,
    Ask,
    BadSummary,
    NodeRoom,
    ShardSummary,
    crowding_s,
    fits,
    parse_summary,
    summarize,
    wait_s,
)

GIB = 1 << 30
LARGEST = Ask(8.0, 64 * GIB, 4)
EMPTY = NodeRoom(8.0, 64 * GIB, 4, cores=8.0)


def full(*ends: tuple[float, float], free: float = 0.0) -> NodeRoom:
    return NodeRoom(free, 0, 0, cores=8.0, demand_cores=8.0, ends=ends)


def shard(*rooms: NodeRoom, queue: tuple[tuple[str, Ask], ...] = ()) -> ShardSummary:
    return summarize("one", LARGEST, rooms, queue)


def test_nodes_are_counted_by_what_is_free() -> None:
    found = shard(EMPTY, full((100.0, 8.0)), NodeRoom(3.9, None, 3, cores=8.0, demand_cores=12.0))
    assert found.nodes == 3
    assert dict(zip(CORES_STEPS, found.free_cores, strict=True))[2.0] == 1
    assert dict(zip(CORES_STEPS, found.free_cores, strict=True))[8.0] == 1
    assert found.free_memory[MEMORY_STEPS.index(64 * GIB)] == 1
    assert found.free_memory[-1] == 1  # unknown refuses no job
    assert dict(zip(GPU_STEPS, found.free_gpus, strict=True)) == {
        0: 1, 1: 0, 2: 0, 3: 1, 4: 1, 6: 0, 8: 0, 16: 0,
    }  # fmt: skip
    assert (found.cores, found.demand_cores) == (24.0, 20.0)
    assert sum(found.ends_cores) == 8.0


def test_a_job_starts_now_where_there_is_room_and_no_queue() -> None:
    assert wait_s(shard(EMPTY, full()), Ask(8.0), 0.0, queued=False) == 0.0
    # Pieces of 4 cores on two nodes are no 8.
    apart = shard(full((500.0, 4.0), free=4.0), full((900.0, 4.0), free=4.0))
    assert wait_s(apart, Ask(4.0), 0.0, queued=False) == 0.0
    assert wait_s(apart, Ask(8.0), 0.0, queued=False) == 500.0


def test_what_was_promised_takes_room() -> None:
    two = shard(EMPTY, EMPTY)
    assert wait_s(two, Ask(8.0), 8.0, queued=False) == 0.0
    assert wait_s(two, Ask(8.0), 16.0, queued=False) > 0.0


def test_a_job_waits_until_all_before_it_and_itself_have_cores() -> None:
    ends = [full((300.0 * (index + 1), 8.0)) for index in range(4)]
    queue = (("first", Ask(8.0)), ("second", Ask(8.0)))
    found = shard(*ends, queue=queue)
    waits = [wait_s(found, Ask(8.0), ahead, queued=True) for ahead in (0.0, 8.0, 16.0, 24.0)]
    assert waits == sorted(waits)
    assert waits[0] == 300.0
    # Bins are half as long again as the one before: an end is known to within that.
    for ahead, wait in enumerate(waits):
        assert 300.0 * (ahead + 1) / 1.5 <= wait <= 300.0 * (ahead + 1) * 1.5
    assert wait_s(found, Ask(8.0), 64.0, queued=True) > waits[-1]  # beyond what runs now
    assert (found.head, found.head_cores, found.queue_length) == ("first", 8.0, 2)
    assert found.queue_cores == 16.0


def test_cores_that_are_too_few_for_the_head_do_not_let_others_start() -> None:
    apart = [full((500.0, 4.0), free=4.0)] * 4
    queued = shard(*apart, queue=(("head", Ask(8.0)),))
    assert wait_s(queued, Ask(1.0), 8.0, queued=True) > 300.0


@pytest.mark.parametrize("ask", [Ask(1.0, 2 * GIB), Ask(1.0, 0, 1)])
@pytest.mark.parametrize("queued", [False, True])
def test_a_job_waits_where_cores_are_free_but_no_memory_or_gpu(ask: Ask, queued: bool) -> None:
    taken = NodeRoom(4.0, GIB, 0, cores=8.0, demand_cores=4.0, ends=((900.0, 2.0), (9000.0, 2.0)))
    wait = wait_s(shard(taken), ask, 0.0, queued)
    assert 600.0 <= wait <= 1350.0
    assert wait_s(shard(taken, EMPTY), ask, 0.0, queued=False) == 0.0
    assert wait_s(shard(NodeRoom(8.0, GIB, 0)), ask, 0.0, queued) >= 1e9


def test_a_shard_where_nothing_ends_takes_for_ever() -> None:
    assert wait_s(shard(full()), Ask(1.0), 0.0, queued=True) >= 1e9


def test_a_job_that_is_too_large_for_each_node_does_not_fit() -> None:
    assert fits(shard(EMPTY), LARGEST)
    for ask in (Ask(9.0), Ask(1.0, 65 * GIB), Ask(1.0, 0, 5)):
        assert not fits(shard(EMPTY), ask)
    assert not fits(shard(), Ask(1.0))


@pytest.mark.parametrize(("demand", "more", "expected"), [(4, 0, 0), (12, 0, 50), (12, 4, 100)])
def test_crowding_is_what_sharing_adds(demand: float, more: float, expected: float) -> None:
    found = shard(NodeRoom(0.0, cores=8.0, demand_cores=demand))
    assert crowding_s(found, 100.0, more) == expected


def test_a_summary_comes_back_from_json() -> None:
    found = shard(EMPTY, full((50.0, 2.5)), queue=(("job", Ask(2.0, GIB, 1)),))
    assert parse_summary(found.to_json()) == found


@given(
    st.lists(
        st.builds(
            NodeRoom,
            st.floats(0, 4096),
            st.none() | st.integers(0, 1 << 45),
            st.integers(0, 64),
            st.floats(0, 4096),
            st.floats(0, 1e6),
            st.lists(st.tuples(st.floats(0, 1e8), st.floats(0, 64)), max_size=4).map(sorted),
        ),
        max_size=5,
    ),
    st.text(st.characters(exclude_categories=["C", "Z"]), max_size=64),
)
def test_every_summary_is_small_and_can_be_read(rooms: list[NodeRoom], name: str) -> None:
    found = summarize(name, LARGEST, rooms * 100, [(name, Ask(1.0))] * 1000, 1e6)
    assert len(found.to_json().encode()) <= SUMMARY_BYTES_MAX
    assert parse_summary(found.to_json()) == found


GOOD: dict[str, Any] = json.loads(shard(EMPTY).to_json())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": 501}, "nodes must be a number from 0 to 500"),
        ({"nodes": True}, "nodes must be"),
        ({"nodes": "1"}, "nodes must be"),
        ({"age_s": -1}, "age_s must be"),
        ({"age_s": float("nan")}, "age_s must be"),
        ({"queue_cores": float("inf")}, "queue_cores must be"),
        ({"free_cores": [1]}, "free_cores must be a list of 12 numbers"),
        ({"free_cores": [100] * 12}, "free_cores counts 1200 nodes"),
        ({"ends_cores": {"a": 1}}, "ends_cores must be a list"),
        ({"largest": [1, 2]}, "largest must be a list of 3"),
        ({"shard": "x" * 65}, "shard must be a name"),
        ({"head": "a\nb"}, "head must be a name"),
        ({"head": None}, "head must be a name"),
        ({"other": 1}, "must be an object with exactly"),
    ],
)
def test_a_bad_summary_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSummary) as found:
        parse_summary(json.dumps({**GOOD, **change}))
    assert message in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 4000, "9" * 4096, " " * 4097, "é" * 3000, b"\xff\xfe{"]
)
def test_what_is_no_summary_is_refused(text: str | bytes) -> None:
    with pytest.raises(BadSummary):
        parse_summary(text)


def test_bins_go_from_half_a_minute_to_more_than_a_day() -> None:
    assert ENDS_S[0] == 30.0
    assert ENDS_S[-1] > 86_400.0
