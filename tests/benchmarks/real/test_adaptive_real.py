"""How long the comparison takes, what it runs, and that whatever is kept is judged."""

from __future__ import annotations

import pytest

from benchmarks.real import adaptive_real
from benchmarks.real.adaptive_real import (
    ADAPTIVE,
    CHANGE_S,
    POLICIES,
    SEEDS,
    START_S,
    planned_s,
    timing,
)
from dlsched.policies.registry import load


def test_everything_fits_into_half_an_hour():
    assert planned_s(len(SEEDS), POLICIES) <= 30 * 60


def test_the_plan_adds_up_starts_targets_and_policies():
    one = timing("dqoes")
    run_s = one.settle_s + one.judge_s + CHANGE_S
    calibrate_s = adaptive_real.CALIBRATE_S
    assert planned_s(1, {0.7: ("dqoes",)}) == START_S + calibrate_s + run_s
    # Above capacity targets are measured in two groups.
    assert planned_s(2, {1.4: ("dqoes",)}) == 2 * (START_S + 2 * calibrate_s + run_s)


@pytest.mark.parametrize("policy", ADAPTIVE)
def test_ours_is_judged_from_second_15_on(policy):
    assert timing(policy).settle_s == 15.0


def test_plain_docker_is_always_there_to_be_held_against_and_first():
    assert {policies[0] for policies in POLICIES.values()} == {"none"}


@pytest.mark.parametrize("policy", sorted({one for many in POLICIES.values() for one in many}))
def test_every_policy_of_the_comparison_can_be_loaded(policy):
    assert callable(load(policy).decide)
