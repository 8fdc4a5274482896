"""Tables of several hosts show the mean over seeds beside the worst seed."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.publish import blocks_cluster, pictures
from benchmarks.publish.blocks_cluster import BEST
from benchmarks.simulated.cluster import CONTENDERS, ENDS, PLAIN
from dlsched.simulation.cluster.clairvoyant import ClairvoyantScore
from dlsched.simulation.cluster.scoring import ClusterScore, Contender

SCORE = ClusterScore("w", PLAIN.name, 1, 80.0, 70.0, 150.0, 300.0, 2, 0, 0.5, 0.75, 4, 1.5, "a")


def saved(*scores: ClusterScore, **more: object) -> dict[str, object]:
    rows = [{**asdict(one), **more} for one in scores]
    return {"rows": rows, "seeds": [1, 2], "headlines": ["so far: reached"]}


def test_a_world_has_a_row_for_each_contender_that_is_shown() -> None:
    best = replace(SCORE, contender=BEST.name)
    worse = replace(best, seed=2, mean_ratio=0.7, worst_ratio=3.0, slower=5, failed_moves=1)
    told = blocks_cluster.worlds(saved(SCORE, best, worse, replace(SCORE, contender="other")))
    assert "**w**, 2 seeds" in told
    cells = "| 0.600 (0.700) | 0.750 | 70, 150 | 2.0 (0.5) | 4.5 | 3.00 |"
    assert f"| `adaptive`, `adaptive` on the nodes {cells}" in told
    assert "other" not in told and "clairvoyant" not in told
    assert told.endswith("- so far: reached")


def test_the_clairvoyant_stands_below_with_its_two_figures() -> None:
    both = saved(SCORE)
    best = ClairvoyantScore("w", "clairvoyant", 1, 30.0, 90.0, 0.25, 0.3)
    both["rows"] = [*both["rows"], asdict(best)]  # type: ignore[misc]
    told = blocks_cluster.worlds(both)
    cells = "| 0.250 | 0.300 | - | - | - | - |"
    assert f"| clairvoyant (its mean is no proven bound) {cells}" in told


def test_real_hosts_have_pauses_and_what_was_lost() -> None:
    more = {"median_pause_s": 9.0, "lost_steps": 0, "twice": 0}
    told = blocks_cluster.hosts(saved(SCORE, replace(SCORE, seed=2), **more))
    assert "2 seeds:" in told
    assert told.splitlines()[4].endswith("| 1.50 | 9.0 | 0 | 0 |")


def test_the_picture_is_drawn_of_the_means(tmp_path: Path) -> None:
    drawn = [*CONTENDERS, Contender("spread", ENDS)]
    picture = tmp_path / "cluster.png"
    pictures.draw_cluster(saved(*(replace(SCORE, contender=one.name) for one in drawn)), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
