"""Tables of several hosts show the mean over seeds beside the worst seed."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.publish import pictures
from benchmarks.simulated.cluster import CONTENDERS, ENDS, PLAIN
from dlsched.simulation.cluster.scoring import ClusterScore, Contender

SCORE = ClusterScore("w", PLAIN.name, 1, 80.0, 70.0, 150.0, 300.0, 2, 0, 0.5, 0.75, 4, 1.5, "a")


def saved(*scores: ClusterScore, **more: object) -> dict[str, object]:
    rows = [{**asdict(one), **more} for one in scores]
    return {"rows": rows, "seeds": [1, 2], "headlines": ["so far: reached"]}


def test_the_picture_is_drawn_of_the_means(tmp_path: Path) -> None:
    drawn = [*CONTENDERS, Contender("spread", ENDS)]
    picture = tmp_path / "cluster.png"
    pictures.draw_cluster(saved(*(replace(SCORE, contender=one.name) for one in drawn)), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
