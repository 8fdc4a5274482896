"""Blocks, tables and pictures are made of result files."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.publish import blocks, pictures, results
from benchmarks.simulated.cluster import CONTENDERS, ENDS, PLAIN
from dlsched.simulation.cluster.scoring import ClusterScore, Contender


@pytest.mark.parametrize("name", blocks.BLOCKS)
def test_every_block_can_be_made_from_the_kept_results(name: str) -> None:
    assert "Host: " in blocks.BLOCKS[name]() or name in WITHOUT_HOST


WITHOUT_HOST = {
    "adaptive-inference",
    "adaptive-training",
    "sim-vs-real",
    "gpu-truth",
}


def test_a_table_shows_what_never_came_and_what_a_row_does_not_have() -> None:
    table = results.markdown([{"a": 1, "b": None}, {"a": 2}])
    assert table == "| a | b |\n| --- | --- |\n| 1 | never |\n| 2 | - |"


SCORE = ClusterScore("w", PLAIN.name, 1, 80.0, 70.0, 150.0, 300.0, 2, 0, 0.5, 0.75, 4, 1.5, "a")


def saved(*scores: ClusterScore, **more: object) -> dict[str, object]:
    rows = [{**asdict(one), **more} for one in scores]
    return {"rows": rows, "seeds": [1, 2], "headlines": ["so far: reached"]}


def test_the_picture_is_drawn_of_the_means(tmp_path: Path) -> None:
    drawn = [*CONTENDERS, Contender("spread", ENDS)]
    picture = tmp_path / "cluster.png"
    pictures.draw_cluster(saved(*(replace(SCORE, contender=one.name) for one in drawn)), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
