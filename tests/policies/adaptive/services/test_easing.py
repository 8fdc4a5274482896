"""A service gets priority once it needs it, or gives weight back that makes it slower."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.estimate.tuning import AGAIN_S
from dlsched.policies.adaptive.services.easing import NOT_EASED, Ease, eased

EVEN_RATIO = 0.25
PRESSED = Ease(pressed=True)


def after(
    ease: Ease,
    begin_s: int,
    end_s: int,
    cost_core_s: float,
    rate: int,
    *,
    latency_ratio: float = 1.2,
    used_ratio: float = 0.6,
) -> Ease:
    """`ease` after these seconds with so many requests in each."""
    for now_s in range(begin_s, end_s):
        recent = ease.recent.after(rate, rate * cost_core_s, 1.0)
        ease = replace(ease, recent=recent)
        near = latency_ratio > 0.8
        ease = eased(ease, now_s, used_ratio, EVEN_RATIO, latency_ratio, near=near)
    return ease


def test_a_service_has_priority_from_when_it_comes_near_its_target() -> None:
    calm = after(NOT_EASED, 0, 200, 0.1, 20, latency_ratio=0.5)
    assert not calm.pressed
    assert calm.shares is None
    assert after(calm, 200, 201, 0.1, 20, latency_ratio=0.9).pressed
    helped = after(calm, 200, 210, 0.1, 20, latency_ratio=0.9)
    assert after(helped, 210, 500, 0.1, 20, latency_ratio=0.5).pressed


def test_one_whose_requests_became_dearer_gets_no_priority() -> None:
    calm = after(NOT_EASED, 0, 20, 0.1, 20, latency_ratio=0.5)
    few = after(calm, 20, 40, 0.2, 20, latency_ratio=0.5, used_ratio=0.2)
    assert few.shares is None, "its weight is no matter"
    dearer = after(calm, 20, 40, 0.2, 20, latency_ratio=0.5)
    assert dearer.shares == 1.0, "nor has it part in the priority of others"
    assert not after(dearer, 40, 60, 0.2, 20).pressed
    again = after(dearer, 40, 48, 0.1, 20)
    assert again.pressed
    assert again.shares is None


def test_priority_is_taken_back_where_requests_become_dearer() -> None:
    trial = after(after(NOT_EASED, 0, 20, 0.1, 20, latency_ratio=0.5), 20, 21, 0.1, 20)
    assert trial.pressed
    assert after(trial, 21, 30, 0.13, 20, latency_ratio=1.1).pressed, "it takes less time"
    over = after(trial, 21, 30, 0.13, 20)
    assert not over.pressed
    assert over.shares == 1.0
    assert not after(over, 30, 140, 0.1, 20).pressed
    assert after(over, 30, 27 + int(AGAIN_S), 0.1, 20).pressed


def test_weight_is_taken_back_while_requests_become_cheaper() -> None:
    trial = after(PRESSED, 0, 11, 0.2, 20)
    assert trial.shares == 1.0, "as under plain Docker"
    # At less weight a request costs half, and more of them are answered.
    cheaper = after(trial, 11, 17, 0.1, 30)
    assert cheaper.shares == 0.5
    back = after(cheaper, 17, 40, 0.1, 30)
    assert back.shares == 1.0, "a further step did not help"
    assert after(back, 40, 140, 0.1, 30).shares == 1.0


@pytest.mark.parametrize(("cost_core_s", "rate"), [(0.2, 20), (0.1, 10)], ids=["same", "fewer"])
def test_a_trial_that_does_not_help_is_taken_back(cost_core_s: float, rate: int) -> None:
    trial = after(PRESSED, 0, 11, 0.2, 20)
    over = after(trial, 11, 20, cost_core_s, rate)
    assert over.shares is None
    assert over.wait_s == AGAIN_S
    assert after(over, 24, int(AGAIN_S), 0.2, 20).shares is None


def test_only_a_late_service_is_tried_that_uses_much_or_whose_requests_became_dearer() -> None:
    assert after(PRESSED, 0, 200, 0.2, 20, latency_ratio=0.9).shares is None
    assert after(PRESSED, 0, 15, 0.2, 1).shares is None, "too few requests to tell"
    assert after(PRESSED, 0, 200, 0.2, 20, used_ratio=0.3).shares is None
    cheap = after(PRESSED, 0, 20, 0.1, 20, latency_ratio=0.9, used_ratio=0.3)
    assert after(cheap, 20, 32, 0.2, 20, used_ratio=0.3).shares == 1.0
    assert after(cheap, 20, 36, 0.2, 20, used_ratio=0.2).shares is None, "its weight is no matter"


def test_one_that_is_late_for_what_it_gave_up_gets_it_back() -> None:
    held = after(after(PRESSED, 0, 11, 0.2, 20), 11, 17, 0.1, 30)
    there = after(held, 17, 40, 0.1, 30, latency_ratio=0.9)
    assert there.shares == 1.0
    assert after(there, 40, 140, 0.1, 30, used_ratio=0.2).shares == 1.0
    assert after(there, 40, 44 + int(AGAIN_S), 0.1, 30, used_ratio=0.2).shares is None
