"""`dlsched submit --cluster`: what reaches a manager's folder, and what is refused before."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlsched.cluster.core.records import Submission
from dlsched.cluster.store import Member, MemoryStore, StoreError
from dlsched.cluster.submitted import SubmittedFolder
from dlsched.cluster.swarm.store import SwarmStore
from dlsched.config.settings import Settings
from dlsched.daemon import cluster_wiring
from dlsched.runtime.docker.engine import Engine
from tests.cli.conftest import Program
from tests.cluster.swarm.played import PlayedSwarm

MOVABLE = """
name: resnet
image: example/training
volumes: ["checkpoints:/checkpoints"]
checkpoint: {signal: SIGUSR1, path: /checkpoints}
"""


@pytest.fixture
def folder(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = folders / "cluster.d"
    folder.mkdir()
    monkeypatch.setenv("DLSCHED_CLUSTER_WATCH", str(folder))
    return folder


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """That of manager m1."""
    store = MemoryStore([Member("m1", host="gpu-1"), Member("m2", host="gpu-2")])

    @contextmanager
    def opened(settings: Settings) -> Iterator[tuple[str, MemoryStore]]:
        yield "m1", store

    monkeypatch.setattr(cluster_wiring, "opened_manager", opened)
    return store


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_missing_folder_is_named_with_the_remedy(
    program: Program, store: MemoryStore, folder: Path, tmp_path: Path
) -> None:
    folder.rmdir()
    result = program("submit", "--cluster", written(tmp_path / "resnet.yaml", MOVABLE))
    assert result.exit_code == 1
    assert result.stderr == f"error: {folder} does not exist: mkdir -p {folder}\n"


def test_a_file_goes_whole_into_the_managers_folder(
    program: Program, store: MemoryStore, folder: Path, tmp_path: Path
) -> None:
    file = written(tmp_path / "resnet.yaml", MOVABLE)
    done = program("submit", "--cluster", file)
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{folder}/resnet.yaml\n", "")
    assert (folder / "resnet.yaml").read_text() == MOVABLE
    watched = SubmittedFolder(folder, store, "m1")
    assert [*watched.scan(0.0).submitted, *watched.scan(1.0).submitted] == ["resnet"]
    assert program("submit", "--cluster", file).exit_code == 0


def test_a_job_that_will_not_be_moved_is_submitted_and_said(
    program: Program, store: MemoryStore, folder: Path, tmp_path: Path
) -> None:
    text = MOVABLE + 'ports: ["8080:80"]\n'
    done = program("submit", "--cluster", written(tmp_path / "web.yaml", text))
    assert done.exit_code == 0
    assert done.stderr == (
        "web.yaml: the job stays on its first node: the job publishes port 8080:80, whose address "
        "would change\n"
    )
    assert (folder / "web.yaml").exists()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: Bad Name\nimage: x\n", "resnet.yaml:1:7: name: 'Bad Name' is not a name"),
        ("name: ab\nimage: x\nenv_file: a.env\n", "an env_file stays on its host"),
        ("name: taken\nimage: x\n", "name: manager gpu-2 has submitted a job of that name"),
        ("name: own\nimage: x\n", "resnet.yaml:1:7: name: own is the job of own.yaml"),
    ],
)
def test_what_the_cluster_would_reject_is_one_line_and_puts_nothing(
    program: Program, store: MemoryStore, folder: Path, tmp_path: Path, text: str, line: str
) -> None:
    store.submit(Submission("taken", "", "m2", "taken.yaml"))
    store.submit(Submission("own", "", "m1", "own.yaml"))
    (folder / "own.yaml").write_text("name: own\nimage: x\n")
    done = program("submit", "--cluster", written(tmp_path / "resnet.yaml", text))
    assert done.exit_code == 2
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "resnet.yaml").exists()


def test_the_file_of_a_job_may_be_renamed(
    program: Program, store: MemoryStore, folder: Path, tmp_path: Path
) -> None:
    store.submit(Submission("own", "", "m1", "own.yaml"))
    file = written(tmp_path / "new.yaml", "name: own\nimage: x\n")
    assert program("submit", "--cluster", file).exit_code == 0


def test_a_file_that_the_swarm_does_not_take_is_refused(
    program: Program, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swarm = PlayedSwarm()

    @contextmanager
    def opened(settings: Settings) -> Iterator[object]:
        yield "node1", SwarmStore(swarm, "lab")

    monkeypatch.setattr(cluster_wiring, "opened_manager", opened)
    noise = random.Random(1).randbytes(20_000).hex()
    file = written(tmp_path / "long.yaml", f"name: long\nimage: x\n# {noise}\n")
    done = program("submit", "--cluster", file)
    assert done.exit_code == 2
    assert "bytes when compressed; at most 16384 can be submitted" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(folder.iterdir()) == []
    assert not any(call.startswith("POST") for call in swarm.calls)


def test_without_an_answer_of_the_store_the_file_waits_in_the_folder(
    program: Program,
    store: MemoryStore,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent() -> None:
        raise StoreError("no manager of the swarm leads")

    monkeypatch.setattr(store, "submissions", silent)
    done = program("submit", "--cluster", written(tmp_path / "resnet.yaml", MOVABLE))
    assert done.exit_code == 0
    assert "not compared with the cluster's jobs: no manager of the swarm leads" in done.stderr
    assert (folder / "resnet.yaml").exists()


def test_a_worker_names_the_managers(
    program: Program, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managers = [{"NodeID": "m2", "Addr": "10.0.0.2:2377"}, {"NodeID": "m1", "Addr": "junk\x1b["}]
    swarm = {
        "LocalNodeState": "active",
        "NodeID": "w1",
        "ControlAvailable": False,
        "RemoteManagers": managers,
    }
    monkeypatch.setattr(Engine, "exchange", lambda *_: {"Swarm": swarm})
    done = program("submit", "--cluster", written(tmp_path / "resnet.yaml", MOVABLE))
    assert done.exit_code == 1
    assert done.stderr == "error: this engine is not a manager of a swarm; its managers: 10.0.0.2\n"
    assert list(folder.iterdir()) == []


def test_only_the_operators_files_are_submitted(
    program: Program,
    store: MemoryStore,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    done = program("submit", "--cluster", written(tmp_path / "resnet.yaml", MOVABLE))
    assert (done.exit_code, done.stderr) == (
        1,
        (
            f"error: {folder}: only root and the folder's owner may submit jobs to it: "
            "run this command as root\n"
        ),
    )


def test_start_and_another_folder(
    program: Program, store: MemoryStore, folder: Path, tmp_path: Path
) -> None:
    file = written(tmp_path / "resnet.yaml", MOVABLE)
    assert program("submit", "--cluster", "--start", file).exit_code == 2
    assert list(folder.iterdir()) == []
    other = tmp_path / "other"
    other.mkdir()
    assert program("submit", "--cluster", "--watch", str(other), file).exit_code == 0
    assert (other / "resnet.yaml").exists()
