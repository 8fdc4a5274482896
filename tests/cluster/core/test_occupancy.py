from __future__ import annotations

from typing import Any

import pytest

from dlsched.cluster.core.occupancy import UNKNOWN_LEFT, Occupancy, summary
from dlsched.cluster.core.snapshot import Left, Transit
from tests.cluster.core.plant import job, node, snapshot


def test_unknown_work_counts_as_the_mean_of_the_others() -> None:
    jobs = [job("x", "n", None), job("y", "n", Left(1, 2, 3)), job("z", None, Left(3, 4, 11))]
    assert Occupancy(snapshot([node("n")], jobs)).left["x"] == Left(2, 3, 7)
    assert Occupancy(snapshot([node("n")], jobs[:1])).left["x"] == UNKNOWN_LEFT


def test_a_node_without_free_cores_has_a_finite_forecast() -> None:
    full: Any = node("n", foreign_cores=9.0)
    seen = Occupancy(snapshot([full], [job("x", "n", 8.0)]))
    assert seen.ends("n", seen.loads("n")) == [pytest.approx(800)]


def test_a_job_of_an_unknown_node_counts_nowhere() -> None:
    seen = Occupancy(snapshot([node("n")], [job("x", "gone")]))
    assert seen.on == {"n": []}


@pytest.mark.parametrize("owner", ["a", "b"])
def test_a_job_under_way_is_on_its_target_after_the_rest_of_its_pause(owner: str) -> None:
    moving = (Transit("x", "a", "b", 10_007.0),)
    one = job("x", owner, gpus=1)
    seen = Occupancy(snapshot([node("a"), node("b", gpus_free=1)], [one], moving=moving))
    assert seen.on == {"a": [], "b": [one]}
    assert seen.loads("b")[0].begins_s == 7
    # Once the target owns the job, its report says what is left.
    assert (seen.lacks(job("y", gpus=1), "b") is None) == (owner == "b")


def test_reasons_are_summed_up() -> None:
    reasons = {"a": "x", "b": "y", "c": "x", "d": "z", "e": "w"}
    assert summary(reasons) == "2 nodes: x; b: y; d: z; 1 more node: others"
