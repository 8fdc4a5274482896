"""What is laid into a container: modes, atomic replacement, and an environment that adds."""

from __future__ import annotations

import json
import os
import stat
import threading
from dataclasses import asdict
from pathlib import Path

import pytest

from dlsched.runtime import allotment
from dlsched.runtime.allotment import (
    LIB,
    Allotment,
    change_allotment,
    container_environment,
    install_reporter,
    job_dir,
    job_path,
    read_allotment,
    write_allotment,
)


@pytest.fixture(autouse=True)
def _closed_umask() -> object:
    before = os.umask(0o077)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_reporter_can_be_read_by_any_user_whatever_the_umask(tmp_path: Path) -> None:
    installed = install_reporter(tmp_path)
    for path in (installed, *installed.rglob("*")):
        assert mode(path) == (0o755 if path.is_dir() else 0o644), path
    assert (installed / "dlsched" / "report" / "__init__.py").is_file()
    assert not (installed / "dlsched" / "model.py").exists()


def test_a_second_install_is_the_same_directory_untouched(tmp_path: Path) -> None:
    first = install_reporter(tmp_path)
    inodes = {path: path.stat().st_ino for path in first.rglob("*")}
    (tmp_path / "reporter" / ".new-left").mkdir()
    assert install_reporter(tmp_path) == first
    assert {path: path.stat().st_ino for path in first.rglob("*")} == inodes
    assert list((tmp_path / "reporter").iterdir()) == [first], "what a crash left is gone"


def test_another_version_gets_another_directory_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = install_reporter(tmp_path)
    monkeypatch.setattr(allotment, "__version__", "9.9.9")
    second = install_reporter(tmp_path)
    assert second != first
    assert (first / "dlsched" / "report" / "__init__.py").is_file()
    assert "Version: 9.9.9" in (second / "dlsched_report-9.9.9.dist-info/METADATA").read_text()


def test_an_install_that_fails_leaves_no_directory_to_bind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(allotment, "_sync", full)
    with pytest.raises(OSError, match="No space"):
        install_reporter(tmp_path)
    monkeypatch.undo()
    assert (install_reporter(tmp_path) / "dlsched" / "report" / "writer.py").is_file()


def test_an_allotment_is_replaced_whole_and_readable(tmp_path: Path) -> None:
    directory = job_dir(tmp_path, "face-unlock")
    assert mode(directory) == 0o755
    write_allotment(directory, Allotment(cpu_cores=0.5))
    held = (directory / "allotment.json").open()
    write_allotment(directory, Allotment(cpu_cores=1.5, stop_soon=True))
    assert '"cpu_cores": 0.5' in held.read(), "a reader keeps the whole old one"
    held.close()
    assert '"cpu_cores": 1.5' in (directory / "allotment.json").read_text()
    assert mode(directory / "allotment.json") == 0o644
    assert [path.name for path in directory.iterdir()] == ["allotment.json"]


def test_a_change_keeps_what_it_does_not_name(tmp_path: Path) -> None:
    change_allotment(tmp_path, deliverable=True)
    change_allotment(tmp_path, cpu_cores=0.5)
    told = json.loads((tmp_path / "allotment.json").read_text())
    assert told == asdict(Allotment(cpu_cores=0.5, deliverable=True)) | {"gpus": []}
    written = (tmp_path / "allotment.json").stat().st_ino
    change_allotment(tmp_path, deliverable=True)
    assert (tmp_path / "allotment.json").stat().st_ino == written, "nothing new: left alone"


@pytest.mark.parametrize("before", ["", "[]", '{"cpu_cores": "x"}'])
def test_a_change_of_a_broken_file_begins_anew(tmp_path: Path, before: str) -> None:
    (tmp_path / "allotment.json").write_text(before)
    change_allotment(tmp_path, deliverable=True)
    assert json.loads((tmp_path / "allotment.json").read_text())["deliverable"] is True


def test_an_allotment_of_an_older_version_is_changed_too(tmp_path: Path) -> None:
    (tmp_path / "allotment.json").write_text(
        '{"cpu_cores": 0.5, "gpus": [], "deadline": null, "stop_soon": true}'
    )
    change_allotment(tmp_path, deliverable=True)
    told = json.loads((tmp_path / "allotment.json").read_text())
    assert (told["cpu_cores"], told["stop_soon"], told["deliverable"]) == (0.5, True, True)


@pytest.mark.parametrize(
    ("has", "synced"),
    [
        (Allotment(cpu_cores=1.0, gpu_share=0.5, gpus=("GPU-a",)), False),
        (Allotment(cpu_cores=1.0, gpu_memory_bytes=1 << 30), True),
        (Allotment(cpu_cores=1.0, deliverable=True), True),
        (Allotment(cpu_cores=1.0, stop_soon=True), True),
    ],
)
def test_what_nobody_tells_again_outlasts_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: Allotment, synced: bool
) -> None:
    write_allotment(tmp_path, has)
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    change_allotment(tmp_path, cpu_cores=0.5)
    assert bool(calls) is synced


@pytest.mark.timed
def test_changes_from_many_threads_are_all_there(tmp_path: Path) -> None:
    fields = [{"cpu_cores": 0.5}, {"gpu_share": 0.25}, {"stop_soon": True}, {"deliverable": True}]
    threads = [
        threading.Thread(target=change_allotment, args=(tmp_path,), kwargs=change)
        for change in fields
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = json.loads((tmp_path / "allotment.json").read_text())
    assert told == asdict(Allotment(0.5, 0.25, stop_soon=True, deliverable=True)) | {"gpus": []}


@pytest.mark.parametrize("job", ["", ".", "..", "a/b", "/etc", "a\0b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, job: str) -> None:
    with pytest.raises(ValueError, match="cannot name"):
        job_dir(tmp_path, job)


@pytest.mark.parametrize(
    ("image", "spec", "merged"),
    [
        (None, {}, LIB),
        ("", {}, LIB),
        ("/app", {}, f"/app:{LIB}"),
        ("/app", {"PYTHONPATH": "/mine:/too"}, f"/mine:/too:{LIB}"),
        ("/app", {"PYTHONPATH": ""}, LIB),
    ],
)
def test_the_reporter_comes_last_on_the_path(
    image: str | None, spec: dict[str, str], merged: str
) -> None:
    assert container_environment("j", image, spec)["PYTHONPATH"] == merged


def test_the_specs_variables_stay_and_ours_are_ours() -> None:
    spec = {"MODEL": "mobilenet", "DLSCHED_METRICS_FILE": "/etc/passwd"}
    assert container_environment("face-unlock", None, spec) == {
        "MODEL": "mobilenet",
        "PYTHONPATH": "/run/dlsched/lib",
        "PYTHONUNBUFFERED": "1",
        "DLSCHED_METRICS_FILE": "/run/dlsched/out/metrics.jsonl",
        "DLSCHED_ALLOTMENT_FILE": "/run/dlsched/in/allotment.json",
        "DLSCHED_JOB": "face-unlock",
    }
    buffered = container_environment("j", None, {"PYTHONUNBUFFERED": ""})
    assert buffered["PYTHONUNBUFFERED"] == "", "as the job file says"
    assert spec["DLSCHED_METRICS_FILE"] == "/etc/passwd", "the spec itself is left alone"


def test_jobs_that_share_a_gpu_find_the_same_file_to_lock(tmp_path: Path) -> None:
    one, other = job_dir(tmp_path, "one"), job_dir(tmp_path, "other")
    write_allotment(one, Allotment(gpus=("GPU-1", "MIG-GPU-1/3/0"), gpu_share=0.5))
    write_allotment(other, Allotment(gpus=("GPU-1",)))
    assert [path.name for path in other.iterdir()] == ["allotment.json"], "its device is its own"
    change_allotment(other, gpu_share=0.25)
    assert (one / "turn-GPU-1").samefile(other / "turn-GPU-1")
    assert mode(other / "turn-GPU-1") == 0o644
    assert (one / "turn-MIG-GPU-1_3_0").exists()
    inode = (one / "turn-GPU-1").stat().st_ino
    change_allotment(one, gpu_share=0.75)
    assert (one / "turn-GPU-1").stat().st_ino == inode, "a turn that is held is not lost"


def test_where_no_turns_can_be_laid_the_allotment_is_told_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "turns").write_text("no folder")
    directory = job_dir(tmp_path, "one")
    write_allotment(directory, Allotment(gpus=("GPU-1",), gpu_share=0.5))
    assert [path.name for path in directory.iterdir()] == ["allotment.json"]


def test_a_path_that_is_only_read_is_not_created(tmp_path: Path) -> None:
    assert read_allotment(job_path(tmp_path, "a")) == Allotment()
    assert list(tmp_path.iterdir()) == []
