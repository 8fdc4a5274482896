"""`allotment()` reads what the agent writes, and anything else as well as it can."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched import report
from dlsched.runtime.allotment import Allotment, write_allotment


def test_the_job_reads_what_the_agent_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLSCHED_ALLOTMENT_FILE", str(tmp_path / "allotment.json"))
    assert report.allotment() is None
    write_allotment(tmp_path, Allotment(0.5, 0.25, ("GPU-1",), 1760000000.0, True, True, True))
    assert report.allotment() == (0.5, 0.25, ("GPU-1",), 1760000000.0, True, True, True)
    write_allotment(tmp_path, Allotment())
    assert report.allotment() == report.Allotment()


@pytest.mark.parametrize("text", ["", "[]", '{"cpu_cores":', "\udcff", "[" * 60000])
def test_a_broken_file_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = tmp_path / "allotment.json"
    path.write_text(text, errors="surrogateescape")
    monkeypatch.setenv("DLSCHED_ALLOTMENT_FILE", str(path))
    assert report.allotment() is None


def test_a_value_of_the_wrong_kind_is_not_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "allotment.json"
    path.write_text('{"cpu_cores": true, "gpu_share": NaN, "gpus": 3, "deadline": "soon", "x": 1}')
    monkeypatch.setenv("DLSCHED_ALLOTMENT_FILE", str(path))
    assert report.allotment() == report.Allotment()


def test_outside_of_dlsched_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLSCHED_ALLOTMENT_FILE", raising=False)
    assert report.allotment() is None
