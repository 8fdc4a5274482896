"""Points are counted by name, and only one that is ordered ends the process."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.torture import points as module
from tests.torture.points import Order, Point, Points, give_order


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    died: list[str] = []
    monkeypatch.setattr(module, "die", lambda: died.append("here"))
    return died


def test_death_comes_at_the_one_point_and_counting_begins_anew_with_each_order(
    tmp_path: Path, deaths: list[str]
):
    points = Points(tmp_path)
    for number in (1, 2):
        give_order(tmp_path, Order(number, point=Point("write lock", "", 2), phase="before"))
        for ordinal in (1, 2, 3):
            with points.around("write lock", "") as phase:
                assert (phase == "before") == (ordinal == 2)
    assert deaths == ["here", "here"]


@pytest.mark.process
def test_another_process_may_be_the_one_that_dies(tmp_path: Path, deaths: list[str]):
    points = Points(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as other:
        give_order(tmp_path, Order(1, point=Point("write lock", "", 1), pid=other.pid))
        with points.around("write lock", ""):
            assert other.wait(60) == -signal.SIGKILL
    assert deaths == []
