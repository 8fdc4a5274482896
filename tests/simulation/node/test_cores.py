"""The kernel's division of a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.simulation.node.world import divide

CLAIMS = st.lists(st.tuples(st.floats(2, 262_144), st.floats(0.001, 64)), min_size=1, max_size=30)


def test_by_weight_where_all_want_more() -> None:
    assert divide(4, [(1024, 8), (3072, 8)]) == pytest.approx([1, 3])


def test_who_wants_less_leaves_the_rest_to_the_others_by_weight() -> None:
    assert divide(4, [(1024, 0.4), (1024, 8), (2048, 8)]) == pytest.approx([0.4, 1.2, 2.4])


@given(st.floats(0.1, 64), CLAIMS)
def test_nothing_that_is_wanted_stays_idle_and_nobody_gets_more(
    cores: float, claims: list[tuple[float, float]]
) -> None:
    given_cores = divide(cores, claims)
    assert sum(given_cores) == pytest.approx(min(cores, sum(wanted for _, wanted in claims)))
    for got, (_, wanted) in zip(given_cores, claims, strict=True):
        assert 0 <= got <= wanted


@given(st.floats(0.1, 64), CLAIMS)
def test_who_is_left_short_has_as_much_by_weight_as_anybody(
    cores: float, claims: list[tuple[float, float]]
) -> None:
    pairs = list(zip(divide(cores, claims), claims, strict=True))
    level = max(got / weight for got, (weight, _) in pairs)
    for got, (weight, wanted) in pairs:
        assert got == wanted or got / weight == pytest.approx(level)
