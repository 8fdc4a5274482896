"""The demo: its figures, its table, what it refuses, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from benchmarks.places import ROOT
from benchmarks.real import demo
from benchmarks.real.demo import ADOPTED, NEIGHBOURS, PLAIN, SERVICES, Phase, Row
from tools.session import session

CORES = dict.fromkeys(demo.NAMES, 0.25) | dict.fromkeys(NEIGHBOURS, 0.6)
BEFORE = Phase(PLAIN, 100.0, 140.0, CORES, 0.03, 0.1)
AFTER = Phase(ADOPTED, 160.0, 200.0, CORES | dict.fromkeys(NEIGHBOURS, 0.7), 0.05, 0.1)
TARGETS_MS = {service.name: 30.0 for service in SERVICES}


def answered(before_s: float | None, after_s: float | None) -> demo.Requests:
    due = [(100.0 + at, before_s) for at in range(40)] + [(160.0 + at, after_s) for at in range(40)]
    return {service.name: due for service in SERVICES}


def rows(before_s: float | None, after_s: float | None, run: int = 1) -> list[Row]:
    return demo.rows_of(run, (BEFORE, AFTER), answered(before_s, after_s), TARGETS_MS)


def test_each_figure_ends_in_whether_it_is_reached() -> None:
    latency, neighbours, whole = demo.headlines(rows(0.060, 0.030), [150.0])
    assert latency.endswith("in 1 of 1 runs (0.50, 0.50): reached")
    told = "0.93, 0.93 (dlsched + others used 0.05 + 0.10 of 2 cores): reached"
    assert neighbours.endswith(told)
    assert whole.endswith("150 s: reached")


def test_one_run_that_misses_is_enough_to_miss() -> None:
    both = rows(0.060, 0.030) + rows(0.060, 0.031, run=2)
    starved = [
        replace(row, left_ratio=0.84) if row.container == NEIGHBOURS[1] else row for row in both
    ]
    latency, neighbours, whole = demo.headlines(starved, [150.0, 181.0])
    assert latency.endswith("in 1 of 2 runs (0.50, 0.50, 0.52, 0.52): not reached")
    assert neighbours.endswith("not reached") and whole.endswith("not reached")


def test_a_failed_request_is_later_than_every_answered_one() -> None:
    requests = {name: [*found, (199.5, None)] for name, found in answered(0.060, 0.030).items()}
    (row, *_) = (one for one in demo.rows_of(1, [AFTER], requests, TARGETS_MS) if one.requests)
    assert (row.requests, row.failed, row.p95_ms) == (41, 1, 30.0)
    assert [row.p95_ms for row in rows(0.060, None) if row.phase == ADOPTED and row.requests] == [
        None,
        None,
    ]
    assert demo.headlines(rows(0.060, None), [1.0])[0].endswith("not reached")


def test_a_request_counts_where_it_was_due() -> None:
    between = {name: [(150.0, 9.0), (160.0, 0.03)] for name in TARGETS_MS}
    (row, *_) = (one for one in demo.rows_of(1, [AFTER], between, TARGETS_MS) if one.requests)
    assert (row.requests, row.p95_ms) == (1, 30.0)


def test_what_is_not_as_it_was_is_named() -> None:
    had = {"Pid": 7, "shares": 1024, "quota_us": -1}
    assert demo.changed(had, dict(had)) == []
    assert demo.changed(had, {**had, "shares": 2}) == ["shares was 1024, is 2"]


@pytest.mark.e2e
@pytest.mark.engine
def test_an_interrupted_demo_leaves_no_container_process_or_file(
    docker_host: str, inference_image: str, tmp_path: Path
) -> None:
    client = docker.DockerClient(base_url=docker_host)
    environment = os.environ | {"DOCKER_HOST": docker_host, "TMPDIR": str(tmp_path)}
    with contextlib.closing(client):
        for phase in ("--name demo-batch-2", "dlsched adopt demo-batch-1"):
            command = [sys.executable, "-u", "-m", "benchmarks", "run", "demo", "--judge", "2"]
            with subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
            ) as scene:
                assert scene.stdout is not None
                for line in scene.stdout:
                    if phase in line:
                        scene.send_signal(signal.SIGINT)
                        break
                rest = scene.stdout.read()
            assert scene.returncode == 130, rest
            there = client.containers.list(all=True, ignore_removed=True)
            left = {one.name for one in there}
            assert left.isdisjoint(demo.NAMES)
            assert list(tmp_path.iterdir()) == []
            assert _commands_with(str(tmp_path)) == []


def _commands_with(text: str) -> list[str]:
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = one.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [words] if text in words else []
    return found


@pytest.mark.e2e
@pytest.mark.engine
def test_it_refuses_to_touch_a_container_of_its_name(
    docker_host: str, base_image: str, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    monkeypatch.setenv("DLSCHED_RUN_DIR", "set again by the demo")
    monkeypatch.setattr(demo, "NAMES", (instance,))
    client = docker.DockerClient(base_url=docker_host)
    with contextlib.closing(client):
        labels = {"dlsched.instance": instance}
        stranger = client.containers.create(
            base_image, ["python"], name=instance, labels=labels, network_mode="none"
        )
        with session() as one, pytest.raises(RuntimeError, match=f"a container {instance}; if"):
            demo.play(one, number=1, seed=1, judge_s=1.0)
        assert client.containers.get(stranger.id).status == "created"
