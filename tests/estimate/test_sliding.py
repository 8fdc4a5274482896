"""A window's running sum is what merging it anew would give."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dlsched.estimate.sketch import from_latencies, merge
from dlsched.estimate.sliding import SlidingSketch
from dlsched.model.facts import LatencySketch

SKETCHES = st.builds(
    lambda latencies, errors, missed, off_s: replace(
        from_latencies(latencies, errors), missed=missed, sum_error_s=off_s
    ),
    st.lists(st.floats(0.001, 10), max_size=5),
    st.integers(0, 3),
    st.integers(0, 3),
    st.just(0.0) | st.floats(0.001, 10),
)


@given(st.lists(st.one_of(SKETCHES, st.none()), max_size=40))
def test_it_equals_a_merge_of_what_is_in_it(moves: list[LatencySketch | None]) -> None:
    sliding, members = SlidingSketch(), list[LatencySketch]()
    dropped = 0
    for move in moves:
        if move is not None:
            sliding.add(move, dropped + len(members))
            members.append(move)
        elif members:
            dropped += 1
            sliding.drop_before(dropped)
            members.pop(0)
        assert sliding.total() == merge(*members)
        assert len(sliding) == len(members)


def test_a_copy_goes_its_own_way() -> None:
    sliding, sketch = SlidingSketch(), replace(from_latencies([0.1, 0.2]), missed=7)
    sliding.add(sketch)
    other = sliding.copy()
    other.drop_before(1.0)
    other.add(from_latencies([0.3]))
    assert sliding.total() == sketch
    assert other.total() == from_latencies([0.3])
    assert (len(sliding), len(other)) == (1, 1)
