"""The example job files, dropped as they are into a real daemon."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.conftest import node
from tests.daemon.forked import command
from tests.daemon.test_daemon import reaches, row
from tests.daemon.test_gpus import Host, held, host
from tools.session import Session, wait_for

__all__ = ["host", "node"]

JOBS = Path(__file__).parents[2] / "examples" / "jobs"
IMAGE = JOBS.parent / "images" / "inference"


@pytest.mark.engine
@pytest.mark.parametrize("name", ["face-unlock", "lane-detection"])
def test_a_closed_loop_example_starts_and_reports(
    node: Session,
    inference_image: str,
    name: str,
):
    node.start("dqoes")
    node.drop(name, (JOBS / f"{name}.yaml").read_text())
    reaches(node, name, "running", 60)
    wait_for(lambda: row(node, name)["requests"] >= 5, 60, "requests")
    assert row(node, name)["sidecar"]["bad_lines"] == 0


@pytest.mark.engine
def test_the_training_example_reports_its_accuracy_and_saves_itself_when_it_is_stopped(
    node: Session,
    training_image: str,
    tmp_path: Path,
):
    saved = tmp_path / "checkpoints"
    saved.mkdir()
    saved.chmod(0o777)
    text = (JOBS / "digit-training.yaml").read_text()
    node.start("tradl")
    node.drop("digit-training", text.replace("digit-training-checkpoints", str(saved)))
    reaches(node, "digit-training", "running", 60)
    wait_for(lambda: row(node, "digit-training")["metric"] is not None, 120, "an accuracy")
    assert 0 < row(node, "digit-training")["metric"] <= 1
    assert row(node, "digit-training")["sidecar"]["bad_lines"] == 0
    command(node, "stop", "digit-training")
    wait_for(lambda: any(saved.glob("step-*.ckpt")), 60, "a checkpoint")


@pytest.mark.engine
@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes can only be made by root")
def test_the_example_that_shares_a_gpu_gets_one_and_reports(
    host: Host,
    training_image: str,
    tmp_path: Path,
):
    saved = tmp_path / "checkpoints"
    saved.mkdir()
    saved.chmod(0o777)
    text = (JOBS / "gpu-share.yaml").read_text()
    host.start()
    host.node.drop("gpu-share", text.replace("gpu-share-checkpoints", str(saved)))
    reaches(host.node, "gpu-share", "running", 60)
    assert len(held(host, "gpu-share")) == 1
    wait_for(lambda: row(host.node, "gpu-share")["metric"] is not None, 120, "an accuracy")

    def told() -> bool:
        said = host.allotment("gpu-share")
        return (said.get("gpu_share"), said.get("gpu_memory_bytes")) == (1.0, 4 << 30)

    wait_for(told, 60, "its share to be told")
    assert row(host.node, "gpu-share")["sidecar"]["bad_lines"] == 0


@pytest.mark.engine
def test_the_http_example_answers_an_open_loop_and_reports_through_its_middleware(
    node: Session,
    inference_image: str,
):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    # The engine under test may have no bridge network, so the port is the host's own.
    text = (JOBS / "digit-service.yaml").read_text().replace("0.0.0.0", "127.0.0.1")
    text = text.replace('ports: ["127.0.0.1:8080:8080"]', "network: host").replace("8080", port)
    node.start("dqoes")
    node.drop("digit-service", text)
    reaches(node, "digit-service", "running", 60)
    wait_for(lambda: _connects(port), 60, "the service to listen")
    client = [sys.executable, IMAGE / "client.py", f"http://127.0.0.1:{port}"]
    done = subprocess.run(
        [*client, "--rate", "10", "--seconds", "4", "--seed", "1"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    total = json.loads(done.stdout.splitlines()[-1])
    assert total["answered"] >= 20
    wait_for(lambda: row(node, "digit-service")["requests"] >= 20, 60, "the requests in ps")


def _connects(port: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
    except OSError:
        return False
    return True
