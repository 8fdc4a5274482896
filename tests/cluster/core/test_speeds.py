"""Speeds of nodes by the pace of jobs of the same image."""

from __future__ import annotations

import math

import pytest

from dlsched.cluster.core.ledger import Pace, speeds


def paces(**by_node: list[float]) -> list[Pace]:
    """The pace of images 0, 1, ... on each node; 0: it has not run there."""
    return [
        Pace(f"image-{index}", node, pace)
        for node, values in by_node.items()
        for index, pace in enumerate(values)
        if pace
    ]


def test_a_slow_node_is_found_by_two_images() -> None:
    found = speeds(paces(a=[10.0, 2.0], b=[10.0, 2.0], c=[5.0, 1.0]))
    assert found == {"a": 1.0, "b": 1.0, "c": pytest.approx(0.5)}


def test_one_image_is_not_enough() -> None:
    assert speeds(paces(a=[10.0], b=[10.0], c=[5.0])) == {}


def test_an_image_on_one_node_alone_says_nothing() -> None:
    assert speeds(paces(a=[10.0, 0, 3.0], b=[0, 2.0, 0])) == {}


def test_noise_is_no_speed() -> None:
    found = speeds(paces(a=[10.0, 2.0], b=[10.4, 1.95], c=[9.7, 2.05]))
    assert set(found.values()) == {1.0}


def test_two_nodes_are_both_measured_by_their_middle() -> None:
    found = speeds(paces(a=[10.0, 2.0], b=[5.0, 1.0]))
    assert found["a"] / found["b"] == pytest.approx(2.0)


@pytest.mark.parametrize("pace", [math.nan, math.inf, 0.0, -1.0])
def test_a_pace_that_is_none_counts_for_nothing(pace: float) -> None:
    odd = [Pace("image-0", "c", pace), Pace("image-1", "c", pace)]
    assert "c" not in speeds([*paces(a=[10.0, 2.0], b=[10.0, 2.0]), *odd])


def test_a_speed_is_bounded() -> None:
    assert speeds(paces(a=[1e9, 1e9], b=[1.0, 1.0], c=[1.0, 1.0]))["a"] == 10.0
