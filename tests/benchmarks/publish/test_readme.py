"""What README says of the result files, and of GPU hardware."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.publish import hardware, readme, results


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


def result(**changes: Any) -> dict[str, Any]:
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


@pytest.mark.parametrize("found", [None, result(machine={"gpu": None, "driver": None})])
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
    kept(monkeypatch, result())
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
    kept(monkeypatch, result(rehearsal=rehearsal))
    for told in (hardware.for_readme, hardware.for_how_to, hardware.block):
        with pytest.raises(ValueError, match="is a rehearsal without a GPU"):
            told()
