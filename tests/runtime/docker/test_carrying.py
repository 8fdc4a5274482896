"""Archives on disk, and what is durable about jobs that came from another node."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.model.spec import Checkpoint, JobSpec, Limits
from dlsched.runtime.docker import carrying
from dlsched.runtime.docker.archives import Unfit
from dlsched.runtime.docker.carrying import (
    CHECKS,
    Arrivals,
    Brought,
    NotShared,
    Withdrawn,
    pack,
    remove_archive,
    size_of,
)
from dlsched.runtime.docker.create.containers import create_body
from dlsched.runtime.docker.engine import EngineRefused, PathStat
from dlsched.runtime.docker.instance import BusyContainers
from dlsched.runtime.machine.outcomes import Packed
from tests.doubles import job_spec
from tests.runtime.docker.create.test_containers import AROUND
from tests.runtime.docker.fake_engine import FakeEngine
from tests.runtime.docker.making import instance_of
from tests.runtime.docker.test_archives import TOP, cut, entry, packed

WHOLE = packed(TOP, entry("ckpt/a", text=b"a" * 5000))
MOST = 1 << 20


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "outgoing" / "job-e1.tar"


def files(archive: Path) -> list[str]:
    return sorted(one.name for one in archive.parent.iterdir())


def test_an_archive_is_whole_and_its_digest_that_of_its_bytes(archive: Path) -> None:
    done = pack(cut(WHOLE), archive, MOST)
    content = archive.read_bytes()
    assert done == Packed(hashlib.sha256(content).hexdigest(), len(content))
    assert archive.stat().st_mode & 0o777 == 0o600
    assert files(archive) == ["job-e1.tar"]
    with tarfile.open(archive) as tar:
        assert tar.getnames() == ["checkpoint", "checkpoint/a"]


def test_what_an_earlier_agent_left_is_overwritten(archive: Path) -> None:
    archive.parent.mkdir()
    archive.write_text("old")
    archive.with_name(".job-e1.tar.tmp").symlink_to("/dev/null")
    pack(cut(WHOLE), archive, MOST)
    assert tarfile.is_tarfile(archive)
    assert files(archive) == ["job-e1.tar"]
    remove_archive(archive)
    remove_archive(archive)
    assert files(archive) == []


@pytest.mark.parametrize("most_bytes", [100, 2048, 6000])
def test_its_size_is_bounded(archive: Path, most_bytes: int) -> None:
    with pytest.raises(Unfit, match="the archive is larger than"):
        pack(cut(WHOLE), archive, most_bytes)
    assert files(archive) == []


def test_its_long_names_count(archive: Path) -> None:
    whole = packed(TOP, *(entry(f"ckpt/{'n' * 200}{number}") for number in range(20)))
    with pytest.raises(Unfit, match="the checkpoint is larger than 20 KiB"):
        pack(cut(whole), archive, 20_480)


def test_it_leaves_a_part_of_the_disk_free(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = SimpleNamespace(f_bavail=2, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    with pytest.raises(Unfit, match=r"the checkpoint is larger than 6.4 KiB"):
        pack(cut(WHOLE), archive, MOST)


def test_it_ends_as_soon_as_it_is_not_wanted(archive: Path) -> None:
    answers = iter([False, True])
    with pytest.raises(Withdrawn):
        pack(cut(WHOLE), archive, MOST, lambda: next(answers))
    assert files(archive) == []


def test_what_breaks_off_leaves_nothing(archive: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield WHOLE[:2000]
        raise EngineUnavailable("no answer")

    with pytest.raises(EngineUnavailable):
        pack(broken(), archive, MOST)
    assert files(archive) == []


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    return FakeEngine(tmp_path)


@pytest.fixture
def copied() -> list[str]:
    """Containers whose files were copied, and which may be inspected again."""
    return []


@pytest.fixture
def arrivals(engine: FakeEngine, tmp_path: Path, copied: list[str]) -> Arrivals:
    return Arrivals(instance_of(engine, tmp_path, busy=BusyContainers(copied.append)))


MINE = {"dlsched.instance": "i", "dlsched.job": "job"}


def bring(arrivals: Arrivals, archive: Path, epoch: int = 2) -> Brought:
    arrivals.bring("job", epoch, archive)
    return arrived(arrivals)


def arrived(arrivals: Arrivals) -> Brought:
    brought = arrivals.of("job")
    assert brought is not None
    return brought


def job(*volumes: str, path: str = "/data/ckpt", **more: Any) -> JobSpec:
    spec = replace(job_spec("job"), checkpoint=Checkpoint("SIGUSR1", 1.0, path))
    container = replace(spec.container, volumes=volumes or ("data:/data:nocopy",), **more)
    return replace(spec, container=container)


def test_what_is_brought_outlives_the_agent_and_a_later_epoch_replaces_it(
    engine: FakeEngine, arrivals: Arrivals, tmp_path: Path
) -> None:
    assert arrivals.of("job") is None
    arrivals.bring("job", 2, tmp_path / "a")
    arrivals.bring("job", 2, tmp_path / "b")
    arrivals.bring("job", 1, tmp_path / "c")
    expected = Brought("job", 2, str(tmp_path / "a"))
    assert arrivals.of("job") == expected
    assert Arrivals(instance_of(engine, tmp_path)).of("job") == expected
    arrivals.bring("job", 3, tmp_path / "d")
    assert arrivals.of("job") == Brought("job", 3, str(tmp_path / "d"))
    arrivals.forget("job")
    assert Arrivals(instance_of(engine, tmp_path)).of("job") is None


@pytest.mark.parametrize("name", ["../job", "", "JOB", "a" * 80])
def test_names_that_no_job_has(arrivals: Arrivals, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a record"):
        arrivals.bring(name, 2, Path("a"))


def test_the_volume_takes_the_place_of_the_spec_s(arrivals: Arrivals) -> None:
    spec = job("data:/data:z,nocopy", "/srv:/images:ro")
    brought = Brought("job", 2, "a")
    adapted = arrivals.adapted(spec, brought)
    assert adapted.container.volumes == ("dlsched-i-job-e2:/data:nocopy", "/srv:/images:ro")
    assert replace(adapted, container=spec.container) == spec
    body = create_body(adapted, Limits(0.5), 1024, AROUND)
    arrivals.label(body, brought)
    labelled = [one["Source"] for one in body["HostConfig"]["Mounts"] if "Labels" in str(one)]
    assert labelled == ["dlsched-i-job-e2"]
    (mount,) = [one for one in body["HostConfig"]["Mounts"] if one["Target"] == "/data"]
    assert mount["VolumeOptions"] == {"NoCopy": True, "Labels": MINE}


def test_a_checkpoint_in_no_volume(arrivals: Arrivals) -> None:
    with pytest.raises(ValueError, match="path /tmp is in no writable volume"):
        arrivals.adapted(job(path="/tmp"), Brought("job", 2, "a"))
    came = Brought("job", 2, "a", filled=True)
    assert arrivals.adapted(job(path="/tmp"), came) == job(path="/tmp"), "its file has changed"


@pytest.mark.parametrize(
    ("volume", "shared", "own"),
    [
        ("data:/data", False, True),
        ("fresh:/data", False, False),
        ("/mnt/nfs:/data", False, False),
        ("data:/data", True, False),
    ],
)
def test_a_file_that_has_changed_since_has_another_volume(
    arrivals: Arrivals, volume: str, shared: bool, own: bool
) -> None:
    spec = job(volume)
    assert spec.checkpoint is not None
    spec = replace(spec, checkpoint=replace(spec.checkpoint, shared=shared))
    came = Brought("job", 2, "a", filled=True, volume="data")
    found = arrivals.adapted(spec, came).container.volumes
    assert found == (("dlsched-i-job-e2:/data",) if own else (volume,))


def test_another_job_of_its_name_gets_nothing_of_it(arrivals: Arrivals) -> None:
    arrivals.bring("job", 2, Path("a"), "/state/cluster/jobs/job.json")
    assert arrivals.of("job", "/state/cluster/jobs/job.json") is not None
    assert arrivals.of("job", "/etc/dlsched/jobs.d/job.yaml") is None


def test_a_volume_that_somebody_has_removed_is_forgotten(
    engine: FakeEngine, arrivals: Arrivals, monkeypatch: pytest.MonkeyPatch, archive: Path
) -> None:
    monkeypatch.setattr(carrying, "time", Mock())
    pack(cut(WHOLE), archive, MOST)
    bring(arrivals, archive)
    arrivals.sweep("job")
    arrivals.fill("container", job(), arrived(arrivals))
    engine.kept = {"dlsched-i-job-e2": MINE}
    arrivals.sweep("job")
    assert arrivals.of("job") is not None
    engine.kept = {}
    arrivals.sweep("job")
    assert arrivals.of("job") is None


@pytest.mark.parametrize(
    ("spec", "path", "top"),
    [
        (job(), "/", "data/ckpt"),
        (job(path="/data"), "/", "data"),
        (job("v:/var/data", path="/var/data/a/b"), "/var", "data/a/b"),
        (job(read_only=True), "/data", "ckpt"),
        (job(read_only=True, path="/data"), "/data", "."),
        (job("v:/srv/data", "/srv:/srv:ro", path="/srv/data"), "/srv/data", "."),
        (job("v:/srv/data", path="/srv/data", tmpfs=("/srv:size=1m",)), "/srv/data", "."),
    ],
)
def test_the_place_where_it_is_unpacked(
    engine: FakeEngine,
    arrivals: Arrivals,
    copied: list[str],
    archive: Path,
    spec: JobSpec,
    path: str,
    top: str,
) -> None:
    pack(cut(WHOLE), archive, MOST)
    brought = bring(arrivals, archive)
    arrivals.fill("container", spec, brought)
    ((container, place, content),) = engine.unpacked
    assert (container, place, copied) == ("container", path, ["container"])
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert [os.path.normpath(name) for name in tar.getnames()] == [
            top,
            os.path.normpath(f"{top}/a"),
        ]
    filled = replace(brought, filled=True, volume=spec.container.volumes[0].partition(":")[0])
    assert arrivals.of("job") == filled
    arrivals.bring("job", 2, archive)
    assert arrivals.of("job") == filled


@pytest.mark.parametrize("content", [None, b"noise" * 1000])
def test_one_that_is_not_filled_stays_so(
    arrivals: Arrivals, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "a").write_bytes(content)
    brought = bring(arrivals, tmp_path / "a")
    with pytest.raises((OSError, Unfit)):
        arrivals.fill("container", job(), brought)
    assert arrivals.of("job") == brought


def test_volumes_of_earlier_epochs_are_removed_and_no_others(
    engine: FakeEngine, arrivals: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "time", Mock())
    names = [f"dlsched-i-job-e{epoch}" for epoch in range(4)]
    others = {**MINE, "dlsched.instance": "j"}
    engine.kept = {**dict.fromkeys(names, MINE), "dlsched-j-job-e1": others, "data": {}}
    host = {"Mounts": [{"Source": names[1]}]}
    engine.put("has it", "has-it", {"Image": "x", "HostConfig": host})
    arrivals.bring("job", 3, Path("a"))
    arrivals.sweep("job")
    assert sorted(engine.kept) == sorted([names[1], names[3], "dlsched-j-job-e1", "data"])
    arrivals.forget("job")
    engine.discard("has it")
    arrivals.sweep("job")
    assert sorted(engine.kept) == ["data", "dlsched-j-job-e1"]


def test_a_volume_goes_once_its_container_is_removed(
    engine: FakeEngine, arrivals: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "time", Mock())
    engine.kept = {"dlsched-i-job-e1": MINE}
    engine.remove_volume = Mock(side_effect=[EngineRefused(409, "in use"), None])
    arrivals.sweep("job")
    assert engine.remove_volume.call_count == 2


def test_a_broken_record_is_an_alarm(engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "arrivals").mkdir()
    (tmp_path / "arrivals" / "job.json").write_text("{")
    (alarm,) = Arrivals(instance_of(engine, tmp_path)).alarms
    assert alarm.text.endswith("the job's next container starts without its checkpoint")


def test_containers_are_left_alone_while_their_files_are_copied() -> None:
    over: list[str] = []
    busy = BusyContainers(over.append)
    with busy.of("a"), busy.of("b"):
        assert "a" in busy
        assert "c" not in busy
        assert over == []
    with pytest.raises(Unfit), busy.of("c"):
        raise Unfit("no")
    assert over == ["b", "a", "c"]
    assert "a" not in busy


def test_an_archive_that_another_host_changed_is_checked_again(
    engine: FakeEngine, arrivals: Arrivals, archive: Path
) -> None:
    archive.parent.mkdir()
    archive.write_bytes(packed(TOP, entry("ckpt/dev", tarfile.BLKTYPE)))
    brought = bring(arrivals, archive)
    with pytest.raises(Unfit, match="is a device"):
        arrivals.fill("container", job(), brought)
    assert engine.unpacked == []


FOLDER, LINK = 1 << 31, 1 << 27


def test_shared_checkpoint_is_only_checked_once(
    engine: FakeEngine, arrivals: Arrivals, copied: list[str]
) -> None:
    arrivals.expect("job", 2, "/ckpt/7.pt", 4096)
    brought = arrived(arrivals)
    assert brought == Brought("job", 2, "", file="/ckpt/7.pt", size_bytes=4096)
    assert arrivals.adapted(job(), brought) == job()
    engine.shown["/ckpt/7.pt"] = PathStat(4096, 0o644, "")
    arrivals.fill("container", job(), brought)
    assert (engine.unpacked, copied) == ([], ["container"])
    assert arrivals.of("job") == replace(brought, filled=True)
    arrivals.expect("job", 2, "/ckpt/7.pt", 4096)
    assert arrivals.of("job") == replace(brought, filled=True)


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ({}, "the job's checkpoint /ckpt/7.pt does not exist"),
        (
            {"/ckpt/7.pt": PathStat(0, 0o644, "")},
            "the job's checkpoint /ckpt/7.pt has 0 B here, but 4 KiB on the node that saved it",
        ),
    ],
)
def test_one_that_the_storage_here_does_not_show(
    engine: FakeEngine, arrivals: Arrivals, shown: dict[str, PathStat], why: str
) -> None:
    engine.shown = shown
    for epoch in (2, 4):
        arrivals.expect("job", epoch, "/ckpt/7.pt", 4096)
        brought = arrived(arrivals)
        passing = []
        for _ in range(CHECKS):
            with pytest.raises(NotShared, match=why) as caught:
                arrivals.fill("container", job(), brought)
            passing.append(caught.value.retryable)
        assert passing == [True] * (CHECKS - 1) + [False]
        assert arrivals.of("job") == brought, "it is not filled"


def test_the_size_of_what_a_job_saved(engine: FakeEngine) -> None:
    engine.shown = {
        "/ckpt/folder": PathStat(4096, FOLDER | 0o755, ""),
        "/ckpt/last": PathStat(4, LINK | 0o777, "/ckpt/7.pt"),
        "/ckpt/7.pt": PathStat(700, 0o644, ""),
        "/ckpt/away": PathStat(4, LINK | 0o777, "/ckpt/none"),
    }
    sizes = [size_of(engine, "c", f"/ckpt/{name}") for name in ("folder", "last", "7.pt")]
    assert sizes == [0, 700, 700]
    with pytest.raises(NotShared, match="/ckpt/away does not exist"):
        size_of(engine, "c", "/ckpt/away")
