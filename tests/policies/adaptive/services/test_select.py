"""Who is satisfied: hysteresis at the edge of the room."""

from __future__ import annotations

from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.services.select import Need, Triage, triaged

RULE = AdaptiveParameters()


def chosen(last_cores: float, *, kept: bool, room_cores: float = 4.0) -> Triage:
    """Three that need a core each, satisfied already, and one more."""
    needs = [Need(name, 1.0, 1.0, 1.1, True) for name in "abc"]
    return triaged([*needs, Need("d", 1.0, last_cores, 1.1, kept)], room_cores, 0.0)


def test_who_is_satisfied_stays_so_to_the_edge_of_the_room() -> None:
    assert not chosen(0.999, kept=True).short
    assert [need.name for need in chosen(1.001, kept=True).short] == ["d"]


def test_who_was_left_out_comes_in_where_a_little_is_left_over() -> None:
    assert [need.name for need in chosen(0.99, kept=False).short] == ["d"]
    assert not chosen(0.9, kept=False).short


def test_at_the_edge_one_that_was_left_out_stays_out_beside_others_that_are_too() -> None:
    needs = [Need("a", 1.0, 1.0, 1.1, True), Need("b", 1.0, 0.999, 1.1, False)]
    found = triaged([*needs, Need("c", 1.0, 9.0, 9.0, False)], 2.0, 0.0)
    assert [need.name for need in found.met] == ["a"]
