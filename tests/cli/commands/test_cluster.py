"""`dlsched cluster`: what its commands print, ask and refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsched.cluster.core.records import Record, RecordState, Request, Wanted
from dlsched.cluster.status_file import write_status
from dlsched.cluster.store import Member, MemoryStore
from dlsched.config.settings import Settings
from dlsched.daemon import cluster as controller
from dlsched.daemon import cluster_wiring
from dlsched.runtime.docker.engine import Engine
from tests.cli.conftest import Program
from tests.cluster_status import JOB, example, written_ago
from tests.texts import same_text

OLD = written_ago(3 * 86_400.0)
UNDONE = JOB.moved[0]
MOVES: tuple[dict[str, Any], ...] = (
    {},
    {"measured_s": 40.2, "problem": "slow"},
    {"outcome": "completed", "measured_s": -160.0},
    {"outcome": "completed", "measured_s": -160.0, "pending": True},
    {"outcome": "completed", "pending": True},
    {"outcome": "completed", "forecast_s": None},
    {"outcome": "failed", "problem": "n1 is silent"},
    {"outcome": "under way", "forecast_s": None, "problem": ""},
)
MOVED = replace(JOB, moved=tuple(replace(UNDONE, **one) for one in MOVES))
FOLLOWS = {"manager": "n2", "nodes": (), "jobs": (), "queue": (), "written_at": OLD}
PAGES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"written_at": OLD}, "status"),
    (
        {
            "observed_at": OLD,
            "alarms": ("\x1b[2J\x1b]0;x\x07gone\nfake line",),
            "asked": ("move resnet gpu-2: it drains",),
        },
        "status",
    ),
    (FOLLOWS, "status"),
    ({**FOLLOWS, "leader": ""}, "status"),
    ({"written_at": OLD, "jobs": (MOVED,)}, "why resnet"),
    ({"written_at": OLD}, "why vgg"),
)


def show(program: Program, folders: Path, words: str = "status", **changes: Any) -> Any:
    write_status(folders / "run", replace(example(), **changes))
    return program("cluster", *words.split())


@pytest.mark.timed
def test_pages_show_nodes_jobs_queue_moves_and_problems(program: Program, folders: Path) -> None:
    shown = [show(program, folders, words, **changes).stdout for changes, words in PAGES]
    assert "\x1b" not in "".join(shown)
    same_text("cluster", "\n".join(shown))


@pytest.mark.timed
def test_json_of_the_status_is_the_file(program: Program, folders: Path) -> None:
    done = show(program, folders, "status --json")
    assert json.loads(done.stdout) == json.loads(
        (folders / "run-cluster" / "cluster.json").read_text()
    )
    assert json.loads(program("cluster", "why", "vgg", "--json").stdout)["waits_s"] == 30.0


@pytest.mark.timed
def test_without_a_controller_there_is_no_status(program: Program, folders: Path) -> None:
    assert program("cluster", "status").exit_code == 3


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (FOLLOWS, "absent: no job of the cluster is known here: ask on manager n1"),
        ({}, "absent: no job of the cluster; `dlsched cluster status` lists them"),
    ],
)
@pytest.mark.timed
def test_why_of_an_unknown_job_says_where_to_ask(
    program: Program, folders: Path, changes: dict[str, Any], line: str
) -> None:
    done = show(program, folders, "why absent", **changes)
    assert (done.exit_code, done.stderr) == (1, f"error: {line}\n")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore(
        [Member("n1", host="gpu-1"), *[Member(n, host="twin") for n in ("n3", "n4")]]
    )

    @contextmanager
    def opened(settings: Settings) -> Iterator[MemoryStore]:
        yield store

    monkeypatch.setattr(cluster_wiring, "opened_store", opened)
    return store


def test_drain_and_undrain_by_host_or_node(program: Program, store: MemoryStore) -> None:
    done = program("cluster", "drain", "gpu-1")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("gpu-1: its jobs move away")
    assert store.nodes()["n1"].draining
    assert program("cluster", "undrain", "n1").exit_code == 0
    assert not store.nodes()["n1"].draining


@pytest.mark.parametrize(
    ("node", "line"),
    [
        ("twin", "error: twin: several nodes have that host's name: n3, n4\n"),
        ("gpu-9", "error: gpu-9: no node of the cluster, which has: gpu-1, twin, twin\n"),
    ],
)
def test_a_node_that_is_not_one_is_refused(
    program: Program, store: MemoryStore, node: str, line: str
) -> None:
    done = program("cluster", "drain", node)
    assert (done.exit_code, done.stderr) == (1, line)
    assert not any(one.draining for one in store.nodes().values())


def test_a_move_is_asked_for(program: Program, store: MemoryStore) -> None:
    store.put(Record("resnet", RecordState.PLACED, "n1"), None)
    assert program("cluster", "move", "resnet", "n3").exit_code == 0
    assert store.requests() == [Request(Wanted.MOVE, "resnet", "n3")]
    # Another one takes its place.
    program("cluster", "move", "resnet", "n4")
    assert store.requests() == [Request(Wanted.MOVE, "resnet", "n4")]
    assert program("cluster", "move", "absent", "n3").exit_code == 1
    assert program("cluster", "move", "resnet", "twin").exit_code == 1
    assert len(store.requests()) == 1


def test_pause_and_resume(program: Program, store: MemoryStore) -> None:
    assert program("cluster", "pause").exit_code == 0
    assert store.requests() == [Request(Wanted.PAUSE)]
    assert program("cluster", "resume").exit_code == 0
    assert store.requests() == []


def test_a_node_is_forgotten_only_if_it_is_off(program: Program, store: MemoryStore) -> None:
    assert program("cluster", "forget", "n1").exit_code == 2
    done = program("cluster", "forget", "gpu-1", "--i-know-it-is-off")
    assert (done.exit_code, done.stderr) == (1, "error: gpu-1 is not off: it answers\n")
    assert store.requests() == []
    store.members["n1"] = Member("n1", up=False, host="gpu-1")
    assert program("cluster", "forget", "gpu-1", "--i-know-it-is-off").exit_code == 0
    assert store.requests() == [Request(Wanted.FORGET, "n1")]


def test_a_node_that_has_left_the_cluster_can_be_forgotten(
    program: Program, store: MemoryStore
) -> None:
    store.put(Record("resnet", RecordState.PLACED, "gone"), None)
    assert program("cluster", "forget", "gone", "--i-know-it-is-off").exit_code == 0
    assert store.requests() == [Request(Wanted.FORGET, "gone")]
    assert program("cluster", "forget", "gon", "--i-know-it-is-off").exit_code == 1


def test_run_has_its_flags_before_the_settings(
    program: Program, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Settings] = []
    monkeypatch.setattr(controller, "run", lambda settings, _: runs.append(settings) or 0)
    file = folders / "settings.yaml"
    file.write_text("cluster: {policy: specon, watch: /srv/a}\n")
    flags = ("--policy", "spread", "--state-dir", "/srv/s")
    done = program("cluster", "run", "-c", str(file), *flags)
    assert done.exit_code == 0, done.stderr
    (settings,) = runs
    assert (settings.cluster.policy, settings.cluster.watch) == ("spread", Path("/srv/a"))
    assert settings.state_dir == Path("/srv/s")


@pytest.mark.parametrize("words", [("run",), ("drain", "gpu-1"), ("undrain", "gpu-1"), ("pause",)])
@pytest.mark.timed
def test_where_no_engine_answers_commands_end_with_3(
    program: Program, folders: Path, words: tuple[str, ...]
) -> None:
    engine = f"unix://{folders}/none.sock"
    done = program("cluster", *words, env={"DLSCHED_ENGINE_HOST": engine})
    assert done.exit_code == 3
    assert f"error: no answer from the Docker Engine at {engine}" in done.stderr


@pytest.mark.timed
def test_the_doctor_without_an_engine_fails_with_a_remedy(program: Program, folders: Path) -> None:
    environ = {"DLSCHED_ENGINE_HOST": f"unix://{folders}/none.sock"}
    done = program("cluster", "doctor", env=environ)
    assert done.exit_code == 1
    assert done.stdout.startswith("fail  engine    no answer from the Docker Engine at unix://")
    assert "start Docker (systemctl start docker)" in done.stdout
    (found,) = json.loads(program("cluster", "doctor", "--json", env=environ).stdout)
    assert (found["what"], found["state"]) == ("engine", "fail")


def test_the_doctor_on_a_worker_asks_with_the_certificates_of_the_engine(
    program: Program, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swarm = {"LocalNodeState": "active", "ControlAvailable": False, "NodeID": "n1"}
    info = {"Swarm": swarm, "DockerRootDir": f"{folders}/docker"}
    for method in ("exchange", "info"):
        monkeypatch.setattr(Engine, method, lambda *_: info)
    done = program("cluster", "doctor")
    assert done.exit_code == 1
    states = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()}
    assert states == {
        "swarm": "ok",
        "restart": "warn",
        "agent": "warn",
        "tls": "fail",
        "nodes": "warn",
    }
    assert f"{folders}/docker/swarm/certificates/" in done.stdout
