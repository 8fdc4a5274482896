from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.cluster.core.completion import Load, completions, phases
from dlsched.cluster.core.snapshot import Sharing
from dlsched.policies.fair_share import Claim, water_fill

VECTOR_C = [Load(100, 2), Load(400, 2), Load(1600, 4), Load(200, 4)]

loads = st.lists(
    st.builds(
        Load,
        st.just(0.0) | st.floats(0.01, 1e6),
        st.floats(0.01, 64),
        st.floats(0.01, 100),
        st.just(0.0) | st.floats(0, 1e4),
    ),
    max_size=8,
)
sharings = st.sampled_from(Sharing)
capacities = st.floats(0.1, 64)


def test_under_fair_sharing_cores_that_a_job_cannot_use_go_to_the_others() -> None:
    assert completions(8, Sharing.FAIR, VECTOR_C) == pytest.approx(
        [50, 200, 433 + 1 / 3, 83 + 1 / 3]
    )
    assert completions(8, Sharing.FAIR, [Load(800, 4)] * 4) == [400] * 4


def test_shares_are_by_weight() -> None:
    assert completions(3, Sharing.FAIR, [Load(100, 8, 2), Load(100, 8, 1)]) == [
        50,
        pytest.approx(200 / 3),
    ]


def test_shortest_first_with_the_critical_job_before_it() -> None:
    # The 1600 takes 400 s however many cores there are, of a rest of 287.5 s. After 50 s the 400
    # is critical too: 200 s of 237.5 s.
    assert completions(8, Sharing.SHORTEST, VECTOR_C) == pytest.approx([50, 250, 400, 100])


def test_without_a_critical_job_the_least_work_is_first() -> None:
    found = completions(4, Sharing.SHORTEST, [Load(400, 4), Load(100, 4), Load(401, 4)])
    assert found == pytest.approx([125, 25, 225.25])


@pytest.mark.parametrize("sharing", Sharing)
def test_a_job_in_transit_begins_after_its_pause(sharing: Sharing) -> None:
    assert completions(8, sharing, [Load(300, 4), Load(200, 4, 1, 10)]) == pytest.approx([75, 60])
    assert completions(8, sharing, [Load(80, 8, 1, 100)]) == [110]


def test_no_work_ends_as_soon_as_it_begins() -> None:
    assert completions(8, Sharing.FAIR, [Load(0, 4), Load(0, 4, 1, 7), Load(8, 8)]) == [0, 7, 1]
    assert completions(8, Sharing.FAIR, []) == []


@given(capacities, sharings, loads)
def test_work_is_conserved(cores: float, sharing: Sharing, found: list[Load]) -> None:
    granted = dict.fromkeys(range(len(found)), 0.0)
    until_s = 0.0
    for phase in phases(cores, sharing, found):
        assert phase.begins_s >= until_s
        until_s = phase.ends_s
        assert math.fsum(rate for _, rate in phase.granted) <= cores * (1 + 1e-9)
        for index, rate in phase.granted:
            assert 0 < rate <= found[index].parallel_cores
            assert phase.begins_s >= found[index].begins_s
            granted[index] += rate * (phase.ends_s - phase.begins_s)
    for index, load in enumerate(found):
        assert granted[index] == pytest.approx(load.left_core_s, rel=1e-6, abs=1e-6)


@given(capacities, loads)
def test_fair_shares_are_those_of_water_filling(cores: float, found: list[Load]) -> None:
    claims = {
        str(index): Claim(load.weight, 0, load.parallel_cores)
        for index, load in enumerate(found)
        if load.left_core_s and not load.begins_s
    }
    if claims:
        first = next(phases(cores, Sharing.FAIR, found))
        expected = water_fill(cores, claims)
        assert {str(index): rate for index, rate in first.granted} == pytest.approx(expected)


@given(capacities, st.floats(0.05, 1), loads)
def test_with_fewer_cores_no_job_ends_earlier(cores: float, part: float, found: list[Load]) -> None:
    many = completions(cores, Sharing.FAIR, found)
    few = completions(cores * part, Sharing.FAIR, found)
    assert all(later >= early * (1 - 1e-9) for early, later in zip(many, few, strict=True))


@given(capacities, loads)
def test_the_order_of_jobs_is_irrelevant(cores: float, found: list[Load]) -> None:
    there = completions(cores, Sharing.FAIR, found)
    assert there == pytest.approx(completions(cores, Sharing.FAIR, found[::-1])[::-1])
