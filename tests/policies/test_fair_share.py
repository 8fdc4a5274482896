"""Water-filling: bounds kept, everything given that bounds allow, one level in between."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.policies.fair_share import Claim, water_fill

claims = st.builds(
    lambda weight, floor, width: Claim(weight, floor, floor + width),
    st.floats(0.01, 100),
    st.floats(0, 1),
    st.floats(0, 4),
)


@pytest.mark.parametrize(
    ("capacity", "given_claims", "expected"),
    [
        (4.0, [(1, 0, 4), (1, 0, 4)], [2.0, 2.0]),
        (4.0, [(3, 0, 4), (1, 0, 4)], [3.0, 1.0]),
        (4.0, [(1, 0, 0.5), (1, 0, 4), (1, 0, 4)], [0.5, 1.75, 1.75]),
        (4.0, [(1, 3, 4), (1, 0, 4), (1, 0, 4)], [3.0, 0.5, 0.5]),
        (4.0, [(1, 0, 1), (1, 0, 1)], [1.0, 1.0]),
        (1.0, [(1, 0.8, 1), (1, 0.8, 1)], [0.8, 0.8]),
        (4.0, [], []),
    ],
    ids=["equal", "weight", "ceiling", "floor", "left over", "floors too big", "nobody"],
)
def test_pour_by_hand(
    capacity: float, given_claims: list[tuple[float, float, float]], expected: list[float]
) -> None:
    poured = water_fill(capacity, {str(i): Claim(*one) for i, one in enumerate(given_claims)})
    assert list(poured.values()) == pytest.approx(expected)


@given(st.floats(0, 16), st.dictionaries(st.text(max_size=3), claims, max_size=8))
def test_pour_keeps_bounds_and_gives_all_that_bounds_allow(
    capacity: float, given_claims: dict[str, Claim]
) -> None:
    poured = water_fill(capacity, given_claims)
    assert poured.keys() == given_claims.keys()
    for name, one in given_claims.items():
        assert one.floor_cores <= poured[name] <= one.ceiling_cores
    least = math.fsum(one.floor_cores for one in given_claims.values())
    most = math.fsum(one.ceiling_cores for one in given_claims.values())
    assert math.fsum(poured.values()) == pytest.approx(max(least, min(capacity, most)))


@given(st.floats(0.1, 16), st.dictionaries(st.text(max_size=3), claims, min_size=2, max_size=8))
def test_between_their_bounds_all_stand_at_one_level_per_weight(
    capacity: float, given_claims: dict[str, Claim]
) -> None:
    poured = water_fill(capacity, given_claims)
    levels = [
        poured[name] / one.weight
        for name, one in given_claims.items()
        if one.floor_cores + 1e-6 < poured[name] < one.ceiling_cores - 1e-6
    ]
    assert all(level == pytest.approx(levels[0], rel=1e-5) for level in levels)
