"""How long a device was busy, by events that are done when the test says so."""

from __future__ import annotations

import math
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dlsched.report.pacing import Clocked, Timed, captures, cuda


class Marks:
    """Stands for `torch.cuda`: events at times that the test names, in order."""

    def __init__(self, *at_s: float) -> None:
        self._at_s = list(at_s)
        self.done = 0
        self.waited = 0
        self._made = 0

    def Event(self, enable_timing: bool, blocking: bool) -> Any:  # noqa: N802 - torch's name
        number, self._made = self._made, self._made + 1
        at_s = self._at_s[number]

        def wait() -> None:
            self.waited += 1
            self.done = max(self.done, number)

        return SimpleNamespace(
            at_s=at_s,
            record=lambda: None,
            query=lambda: number <= self.done,
            synchronize=wait,
            elapsed_time=lambda other: (other.at_s - at_s) * 1e3,
        )


def test_steps_under_way_count_as_long_ones_and_nobody_waits_before_the_end() -> None:
    marks = Marks(10.0, 10.1, 10.4, 10.5, 10.6)
    timed = Timed(marks, None)
    timed.step()
    assert timed.so_far_s() == math.inf, "nobody knows how long a step takes"
    timed.step()
    marks.done = 2
    assert timed.so_far_s() == pytest.approx(0.4)
    timed.step()
    timed.step()
    assert timed.so_far_s() == pytest.approx(0.4 + 2 * 0.3)
    assert marks.waited == 0
    assert timed.end_s() == pytest.approx(0.6)
    assert marks.waited == 1
    assert timed.step_s == pytest.approx(0.3 * 0.95**2), "a long step is remembered, and fades"


def test_a_section_ends_when_the_device_is_done_with_it() -> None:
    marks = Marks(1.0, 1.25)
    assert Timed(marks, None).end_s() == pytest.approx(0.25)
    assert marks.waited == 1


def test_without_events_the_clock_tells() -> None:
    now_s = [5.0]
    clocked = Clocked(lambda: now_s[0])
    clocked.step()
    now_s[0] = 5.5
    assert clocked.so_far_s() == clocked.end_s() == 0.5


@pytest.mark.parametrize(
    "there",
    [
        {},
        {"cuda": SimpleNamespace(is_initialized=lambda: False)},
        {"cuda": SimpleNamespace()},
    ],
)
def test_a_torch_that_uses_no_gpu_is_left_alone(
    there: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("torch")
    vars(module).update(there)
    monkeypatch.setitem(sys.modules, "torch", module)
    assert cuda() is None
    assert not captures()


def test_a_torch_too_old_for_graphs_records_none(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch")
    module.cuda = SimpleNamespace(is_initialized=lambda: True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    assert cuda() is module.cuda
    assert not captures()
