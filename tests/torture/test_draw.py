"""The draw: the same for the same seed, a tenth of all, each kind of action among them."""

from __future__ import annotations

import pytest

from tests.properties import VARIABLE
from tests.torture.draw import SEED, Named, drawn, seed
from tests.torture.points import Point

ALL = [
    Named("fair", "one", Point(f"{verb} {what}", whose, 1, has_inside=verb == "write"))
    for verb in ("make", "write", "put in place")
    for what in "abcdefgh"
    for whose in ("alpha", "beta", "gamma", "delta")
]


def test_the_same_seed_draws_the_same_and_another_draws_others():
    assert drawn(ALL, "a") == drawn(list(reversed(ALL)), "a")
    assert drawn(ALL, "a") != drawn(ALL, "b")


def test_a_tenth_and_one_of_each_kind_that_is_no_step_are_drawn():
    found = drawn(ALL, "a")
    assert len(found) == len({one for one, _ in found})
    tenth, more = found[:10], found[10:]
    assert not [one for one, _ in more if one.point.action.startswith("make")]
    actions = {one.point.action for one, _ in found}
    assert {one.point.action for one in ALL if not one.point.action.startswith("make")} <= actions
    assert len(drawn(ALL, "a", 1.0)) == len(ALL)
    assert {phase for _, phase in tenth + more} == {"before", "inside"}
    assert all(phase in one.point.deaths for one, phase in found)


def test_a_point_that_is_not_there_changes_little_of_the_draw():
    whole, less = set(drawn(ALL, "a")), set(drawn(ALL[1:], "a"))
    assert len(whole - less) <= 2


def test_a_name_tells_policy_act_and_point():
    assert str(ALL[0]) == "fair: one: make a (alpha, 1)"


@pytest.mark.process
def test_the_seed_is_what_the_environment_says_else_the_commit_or_always_the_same(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv(SEED, "42")
    assert seed() == "42"
    monkeypatch.delenv(SEED)
    monkeypatch.setenv(VARIABLE, "dev")
    assert seed() not in ("", "ci")
    monkeypatch.setenv(VARIABLE, "ci")
    assert seed() == "ci"
