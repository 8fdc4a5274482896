"""`allotment()` reads what the agent writes, and anything else as well as it can."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched import report
from dlsched.report import granted
from dlsched.runtime.allotment import Allotment, job_dir, write_allotment


def test_the_job_reads_what_the_agent_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = job_dir(tmp_path, "alpha")
    monkeypatch.setenv("DLSCHED_ALLOTMENT_FILE", str(directory / "allotment.json"))
    assert report.allotment() is None
    told = (0.5, 0.25, ("GPU-1",), 1760000000.0, True, True, True, 2**33)
    write_allotment(directory, Allotment(*told))
    assert report.allotment() == told
    write_allotment(directory, Allotment())
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
    path.write_text(
        '{"cpu_cores": true, "gpu_share": NaN, "gpus": 3, "deadline": "soon", "x": 1,'
        ' "gpu_memory_bytes": "8GiB"}'
    )
    monkeypatch.setenv("DLSCHED_ALLOTMENT_FILE", str(path))
    assert report.allotment() == report.Allotment()


def test_outside_of_dlsched_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLSCHED_ALLOTMENT_FILE", raising=False)
    assert report.allotment() is None


def test_a_grant_is_read_again_only_when_it_has_changed_and_outlasts_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = job_dir(tmp_path, "alpha")
    path = directory / "allotment.json"
    monkeypatch.setenv("DLSCHED_ALLOTMENT_FILE", str(path))
    grant = granted.Grant()
    assert grant.poll() is None
    write_allotment(directory, Allotment(gpu_share=0.25))
    first = grant.poll()
    assert first.gpu_share == 0.25
    assert grant.poll() is first
    write_allotment(directory, Allotment(gpu_share=0.5))
    second = grant.poll()
    assert second.gpu_share == 0.5
    path.write_text("{")
    assert grant.poll() is second
    path.unlink()
    assert grant.poll() is second
