"""What blocks, tables, pictures, README and pages on GPUs make of result files."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.publish import blocks, hardware, pictures, readme, results
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


def test_readme_says_what_the_result_files_say() -> None:
    text = readme.README.read_text()
    assert readme.filled(text) == text, "run: python -m benchmarks run readme"


def test_what_is_between_the_markers_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme, "measured", lambda: "new")
    monkeypatch.setattr(hardware, "for_readme", lambda: "of GPUs")
    gpu = f"{readme.GPU_BEGIN}\n{{}}\n{readme.GPU_END}"
    told = readme.filled(f"before {readme.BEGIN}\nold\n{readme.END} {gpu.format('old')} after")
    new = f"before {readme.BEGIN}\nnew\n{readme.END} {gpu.format('of GPUs')} after"
    assert told == new


@pytest.mark.parametrize("text", ["", readme.BEGIN, f"{readme.END} {readme.BEGIN}"])
def test_a_missing_marker_is_said(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(readme, "measured", lambda: "new")
    with pytest.raises(ValueError, match="measured:begin"):
        readme.filled(text)


def gpu_result(**changes: Any) -> dict[str, Any]:
    part = {"state": "ran", "reason": "", "seconds": 61.2, "figures": {"p50_ms": 0.71}}
    failed = part | {"state": "failed", "reason": "no <b>|", "figures": {}}
    return {
        "rehearsal": False,
        "date": "2027-03-01",
        "machine": {"gpu": "NVIDIA H100", "driver": "570.86", "cuda": "12.8", "torch": "2.9"},
        "script": {"commit": None},
        "seconds": 300.0,
        "parts": {"inference": part, "pacing": failed},
        **changes,
    }


def kept(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any] | None) -> None:
    monkeypatch.setattr(results, "load", {"gpu-truth": found}.get)


@pytest.mark.parametrize("found", [None, gpu_result(machine={"gpu": None, "driver": None})])
def test_without_a_gpu_readme_keeps_its_sentence(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Any] | None
) -> None:
    kept(monkeypatch, found)
    assert hardware.for_readme() == (
        "**GPU support has not run on hardware**: it is tested on stand-ins for the driver and "
        "the devices."
    )
    assert hardware.for_how_to() == "**This has not run on GPU hardware yet.**"
    assert hardware.block() == "Nothing on this page was measured on a GPU."


def test_with_a_result_gpu_driver_day_and_parts_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    kept(monkeypatch, gpu_result())
    facts = "one NVIDIA H100 with driver 570.86, on 2027-03-01: 1 of 2 parts ran; failed: pacing"
    assert facts in hardware.for_readme()
    assert facts in hardware.for_how_to()
    monkeypatch.setattr(readme, "measured", lambda: "new")
    assert facts in readme.filled(readme.README.read_text())
    block = hardware.block()
    assert block.startswith("1 of 2 parts ran; failed: pacing.")
    assert "- p50_ms: 0.71" in block
    assert r"| pacing | failed | no \<b\>\| | 61.2 |" in block
    assert "CUDA 12.8, torch 2.9" in block


@pytest.mark.parametrize("rehearsal", [True, None, "no"])
def test_a_rehearsal_is_refused(monkeypatch: pytest.MonkeyPatch, rehearsal: object) -> None:
    kept(monkeypatch, gpu_result(rehearsal=rehearsal))
    for told in (hardware.for_readme, hardware.for_how_to, hardware.block):
        with pytest.raises(ValueError, match="is a rehearsal without a GPU"):
            told()
