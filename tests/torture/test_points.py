"""Points are counted by name, and only one that is ordered ends the process."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.torture import points as module
from tests.torture.points import Order, Point, Points, give_order, listed, withdraw_order


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    died: list[str] = []
    monkeypatch.setattr(module, "die", lambda: died.append("here"))
    return died


def test_points_are_listed_with_their_ordinals_until_the_order_is_withdrawn(
    tmp_path: Path, deaths: list[str]
):
    points, file = Points(tmp_path), tmp_path / "list"
    with points.around("engine: start", "alpha"):
        pass  # nobody listens yet
    give_order(tmp_path, Order(1, list_to=str(file)))
    for whose in ("alpha", "beta", "alpha"):
        with points.around("engine: start", whose, has_inside=True):
            pass
    withdraw_order(tmp_path)
    with points.around("engine: start", "alpha"):
        pass
    assert listed(file) == [
        Point("engine: start", "alpha", 1, has_inside=True),
        Point("engine: start", "beta", 1, has_inside=True),
        Point("engine: start", "alpha", 2, has_inside=True),
    ]
    assert deaths == []


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


def test_a_call_that_fails_is_no_change_to_die_after(tmp_path: Path, deaths: list[str]):
    points = Points(tmp_path)
    give_order(tmp_path, Order(1, point=Point("write lock", "", 1), phase="after"))
    with pytest.raises(OSError, match="full"), points.around("write lock", ""):
        raise OSError("full")
    assert deaths == []


def test_only_requests_can_lose_their_answer_and_go_on_after_a_death():
    assert Point("engine: kill", "a", 1, has_inside=True).delays == ("lost", "slow")
    assert Point("write lock", "", 1, has_inside=True).delays == ()
    assert Point("engine: kill", "a", 1, has_inside=True).deaths == ("before", "inside", "after")
    assert Point("write lock", "", 1, has_inside=True).deaths == ("before", "inside")
    assert Point("put in place lock", "", 1).deaths == ("before",)


@pytest.mark.process
def test_another_process_may_be_the_one_that_dies(tmp_path: Path, deaths: list[str]):
    points = Points(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as other:
        give_order(tmp_path, Order(1, point=Point("write lock", "", 1), pid=other.pid))
        with points.around("write lock", ""):
            assert other.wait(60) == -signal.SIGKILL
    assert deaths == []
