"""`dlsched cluster`: what its commands print, ask and refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsched.api.cluster_schema import ClusterStatus
from dlsched.cluster.core.records import Record, RecordState, Request, Wanted
from dlsched.cluster.status import write_status
from dlsched.cluster.store import Member, MemoryStore
from dlsched.config.settings import Settings
from dlsched.daemon import cluster as controller
from dlsched.daemon import cluster_wiring
from dlsched.daemon.cluster import ClusterParts
from dlsched.model.errors import AlreadyRunning
from dlsched.runtime.docker.engine import Engine
from tests.cli.conftest import Program
from tests.cluster_status import example, written_ago


def show(program: Program, folders: Path, status: ClusterStatus, *words: str) -> Any:
    write_status(folders / "run", status)
    return program("cluster", *(words or ("status",)))


@pytest.mark.timed
def test_status_shows_nodes_jobs_queue_and_problems(program: Program, folders: Path) -> None:
    done = show(program, folders, example())
    assert done.exit_code == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["gpu-1", "ready", "9", "7.8", "/", "8", "14", "min", "2", "s", "old"] in rows
    assert ["gpu-2", "silent", "0", "?", "?", "none", "yet"] in rows
    assert [row[1] for row in rows if row[:1] in (["n3"], ["n4"])] == ["ready", "drain"]
    assert next(row[:8] for row in rows if row[:1] == ["resnet"]) == [
        "resnet",
        "gpu-1>n3",
        "moving",
        "accuracy",
        "0.9,",
        "0.97",
        "0.71",
        "1",
    ]
    assert next(row[:6] for row in rows if row[:1] == ["vgg"]) == [
        "vgg",
        "30",
        "s",
        "gpu-1:",
        "its",
        "floor",
    ]
    assert "  rejected: a.yaml:3:9: weight: 'no' is not a number" in done.stdout
    assert "  alarm: gpu-2: no report: refu" in done.stdout
    assert "4 nodes, 1 job, 1 waiting; policy adaptive" in done.stdout


@pytest.mark.timed
def test_status_as_json_is_the_file(program: Program, folders: Path) -> None:
    done = show(program, folders, example(), "status", "--json")
    file = folders / "run-cluster" / "cluster.json"
    assert json.loads(done.stdout) == json.loads(file.read_text())


@pytest.mark.timed
def test_ps_shows_the_cluster_the_same_way(program: Program, folders: Path) -> None:
    assert program("ps", "--cluster").exit_code == 3
    done = show(program, folders, replace(example(), written_at=written_ago(3 * 86_400.0)))
    assert "resnet" in done.stdout
    assert program("ps", "--cluster").stdout == done.stdout
    table = json.loads(program("ps", "--cluster", "--json").stdout)
    assert [one["node"] for one in table["jobs"]] == ["n1"]


@pytest.mark.timed
def test_an_old_status_says_so(program: Program, folders: Path) -> None:
    done = show(program, folders, replace(example(), written_at=written_ago(36_000.0)))
    assert "10 h old: the controller on this host has ended, or hangs" in done.stdout
    done = show(program, folders, replace(example(), observed_at=written_ago(36_000.0)))
    assert "hangs" not in done.stdout
    assert "\n10 h old\n" in done.stdout


@pytest.mark.timed
def test_a_follower_says_who_leads(program: Program, folders: Path) -> None:
    status = replace(example(), manager="n2", nodes=(), jobs=(), queue=(), observed_at="")
    done = show(program, folders, status)
    assert "manager n1 leads: ask there; this is n2" in done.stdout
    done = show(program, folders, status, "why", "resnet")
    assert (done.exit_code, done.stderr) == (
        1,
        "error: resnet: no job of the cluster is known here: ask on manager n1\n",
    )


def test_without_a_controller_status_ends_with_3(program: Program, folders: Path) -> None:
    done = program("cluster", "status")
    assert done.exit_code == 3
    assert "no controller of a cluster has run here" in done.stderr


@pytest.mark.timed
def test_a_hostile_status_steers_no_terminal(program: Program, folders: Path) -> None:
    status = replace(example(), alarms=("\x1b[2J\x1b]0;x\x07gone\nfake line",))
    done = show(program, folders, status)
    assert "\x1b" not in done.stdout
    assert "  alarm: gonefake line" in done.stdout.replace("gone fake", "gonefake")


@pytest.mark.timed
def test_why_explains_jobs_that_run_and_that_wait(program: Program, folders: Path) -> None:
    done = show(program, folders, example(), "why", "resnet")
    assert done.stdout.splitlines()[:2] == [
        "resnet is moving on gpu-1, moves to n3, for 12 s",
        "  why: gains 190 s",
    ]
    assert "  2026-01-01T00:00:00.000Z: placed on gpu-1" in done.stdout
    assert "  not to gpu-2: its agent does not report" in done.stdout
    done = program("cluster", "why", "vgg")
    assert done.stdout.splitlines()[:2] == [
        "vgg waits for a node since 30 s",
        "  why: gpu-1: its floor is 64.00 cores of 8.00",
    ]
    assert json.loads(program("cluster", "why", "vgg", "--json").stdout)["waits_s"] == 30.0
    assert program("cluster", "why", "absent").stderr == (
        "error: absent: no job of the cluster; `dlsched cluster status` lists them\n"
    )


UNDONE = example().jobs[0].moved[0]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "forecast -190 s, undone: 0.58 of its speed on twin"),
        ({"measured_s": 40.2, "problem": "slow"}, "forecast -190 s, measured +40 s, undone: slow"),
        ({"outcome": "completed", "measured_s": -160.0}, "forecast -190 s, measured -160 s"),
        (
            {"outcome": "completed", "measured_s": -160.0, "pending": True},
            "forecast -190 s, measured -160 s so far",
        ),
        ({"outcome": "completed", "pending": True}, "forecast -190 s, measured: not known yet"),
        ({"outcome": "completed", "forecast_s": None}, "measured: not known"),
        ({"outcome": "failed", "problem": "n1 is silent"}, "forecast -190 s, failed: n1 is silent"),
        ({"outcome": "under way", "forecast_s": None, "problem": ""}, "under way"),
    ],
)
@pytest.mark.timed
def test_why_says_what_came_of_each_move(
    program: Program, folders: Path, changes: dict[str, Any], text: str
) -> None:
    status = example()
    job = replace(status.jobs[0], moved=(replace(UNDONE, **changes),))
    done = show(program, folders, replace(status, jobs=(job,)), "why", "resnet")
    assert f"  2026-01-01T00:10:00.000Z: n3>gpu-1: {text}\n" in done.stdout


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


@pytest.mark.timed
def test_status_shows_what_was_asked(program: Program, folders: Path) -> None:
    status = replace(example(), asked=("move resnet gpu-2: it drains",))
    assert "  asked: move resnet gpu-2: it drains\n" in show(program, folders, status).stdout


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


@pytest.mark.timed
def test_run_with_an_unknown_policy_ends_with_one_line(
    program: Program, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ClusterParts("m1", MemoryStore([Member("m1")], leader="m1"), agents=None)  # type: ignore[arg-type]
    monkeypatch.setattr(cluster_wiring, "connect", lambda settings, clock: parts)
    given = ("--state-dir", str(folders / "state"), "--run-dir", str(folders / "run"))
    done = program("cluster", "run", *given, "--policy", "ghost")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert done.stderr.startswith("error: no policy 'ghost'; known are adaptive, ")


def test_run_beside_another_controller_ends_with_3(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(settings: Settings, _: object) -> int:
        raise AlreadyRunning("a controller of the cluster runs on this host")

    monkeypatch.setattr(controller, "run", refused)
    assert program("cluster", "run").exit_code == 3


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
def test_where_the_engine_is_no_manager_run_ends_with_1(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = {"Swarm": {"LocalNodeState": "inactive", "ControlAvailable": False, "NodeID": ""}}
    monkeypatch.setattr(Engine, "exchange", lambda *_: info)
    done = program("cluster", "run")
    assert done.exit_code == 1
    assert "error: this engine is not a manager of a swarm" in done.stderr


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


def test_the_doctor_shows_wrong_settings(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "dlsched.yaml"
    file.write_text("cluster: {enabled: maybe}\n")
    done = program("cluster", "doctor", "--config", str(file))
    assert (done.exit_code, done.stdout.split()[:2]) == (1, ["fail", "settings"])
