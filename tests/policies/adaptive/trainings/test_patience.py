"""No training ends much later than if all shared the CPU equally."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dlsched.policies.adaptive.trainings.model import TrainingMemory
from dlsched.policies.adaptive.trainings.patience import due_in_s, gone, pressing, shared_equally
from dlsched.policies.adaptive.trainings.value import MarginalValue


def value(end_core_s: float, attained_core_s: float = 0.0) -> MarginalValue:
    return MarginalValue(1.0, end_core_s, attained_core_s, True, False, "")


def memory(name: str, **known: float) -> TrainingMemory:
    return replace(TrainingMemory(name), **known)


def test_each_would_end_when_equal_shares_have_done_its_work() -> None:
    known = [memory("narrow", usable_cores=1.0), memory("short"), memory("long")]
    values = {"narrow": value(100.0), "short": value(150.0), "long": value(450.0)}
    after = shared_equally(known, values, 7.0, 0.0)
    # 1, 3 and 3 cores until the short one ends after 50 s, then 1 and 6.
    assert {name: one.fair_end_s for name, one in after.items()} == {
        "short": pytest.approx(50.0),
        "narrow": pytest.approx(100.0),
        "long": pytest.approx(100.0),
    }
    later = shared_equally(after.values(), values, 7.0, 10.0)
    assert later["long"].fair_core_s == pytest.approx(30.0)


def test_one_that_really_ended_goes_on_in_the_imagined_sharing() -> None:
    known = shared_equally(
        [memory("a"), memory("b")], {"a": value(100.0), "b": value(100.0)}, 2.0, 0.0
    )
    # `a` got all cores and ended after 50 s; `b` got nothing.
    after = shared_equally([gone(known["a"]), known["b"]], {"b": value(100.0)}, 2.0, 50.0)
    assert after["b"].fair_end_s == pytest.approx(100.0)
    assert due_in_s(after["b"], 0.0, 50.0, patience=0.0) == pytest.approx(50.0)
    assert due_in_s(after["b"], 0.0, 50.0, patience=0.25) == pytest.approx(70.0)
    assert not shared_equally(after.values(), {"b": value(100.0)}, 2.0, 150.0)["a"].goes_on


def test_an_unknown_end_is_never_due() -> None:
    assert due_in_s(memory("a"), 0.0, 10.0, 0.05) == math.inf


def test_the_ones_about_to_end_too_late_come_first() -> None:
    widths = dict.fromkeys("abcd", 8.0) | {"narrow": 1.0}
    values = {"a": value(400.0), "b": value(400.0), "c": value(80.0), "narrow": value(95.0)}
    due_s = {"a": 110.0, "b": 110.0, "c": 900.0, "narrow": 100.0}
    # 8 cores have 895 core-s to do until 110 s; `narrow` needs 95 of its 100 s on one core.
    assert pressing(values, due_s, widths, 8.0, 10.0) == {"narrow": 0, "a": 1, "b": 1}
    relaxed = {name: 2.0 * at_s for name, at_s in due_s.items()}
    assert pressing(values, relaxed, widths, 8.0, 10.0) == {}
