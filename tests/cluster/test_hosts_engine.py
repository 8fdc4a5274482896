"""Two real hosts of one swarm: daemons, the controller, a training that moves between them."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest

from dlsched.cluster.swarm.calls import SwarmCalls
from dlsched.cluster.swarm.store import SwarmStore
from dlsched.runtime.docker.engine import Engine
from tests.runtime.docker.moves.test_moves_engine import SAVES, TRAINS
from tests.tools.live import needs_dockerd
from tools.base_image import BASE, ensure_base
from tools.engines import EngineNode, EngineNodes, copy_images, swarm

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(300), needs_dockerd]

DLSCHED = Path(sys.executable).parent / "dlsched"
JOB = "trains"
STEPS = 3000


class Host:
    """One host: its daemon, and on a manager its controller."""

    def __init__(self, node: EngineNode, folder: Path, instance: str) -> None:
        self.node, self.folder = node, folder
        self.file = folder / "dlsched.yaml"
        self.cluster = folder / "cluster.d"
        for one in (folder / "jobs.d", self.cluster):
            one.mkdir(parents=True)
        settings = {
            "instance": instance,
            "state_dir": str(folder / "state"),
            "run_dir": str(folder / "run"),
            "watch": str(folder / "jobs.d"),
            "policy": "fair",
            "capacity": 1.0,
            "reserve": {"cpus": 0, "memory": "256MiB"},
            "engine": {"host": node.host, "cgroup_parent": node.engine.cgroup_parent},
            "cluster": {"enabled": True, "watch": str(self.cluster)},
        }
        self.file.write_text(json.dumps(settings))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.engine = docker.DockerClient(base_url=node.host, timeout=60)
        self.label = f"dlsched.instance={instance}"

    def start(self, *words: str) -> None:
        """`dlsched WORDS` at this host's address."""
        enter = ["nsenter", f"--net={self.node.namespaces.network}"]
        with (self.folder / f"{words[0]}.log").open("ab") as log:
            self.processes[words[0]] = subprocess.Popen(
                [*enter, DLSCHED, *words, "--config", self.file], stdout=log, stderr=log
            )

    def kill(self, word: str) -> None:
        self.processes[word].kill()
        self.processes.pop(word).wait(10)

    def running(self) -> list[str]:
        found = self.engine.containers.list(filters={"label": self.label})
        return [str(one.name) for one in found]

    def log(self) -> list[str]:
        """What the job noted in its checkpoint's folder."""
        found = self.engine.containers.list(all=True, filters={"label": self.label})
        return [
            line
            for one in found
            for line in one.exec_run(["cat", "/ckpt/log"]).output.decode().splitlines()
            if one.status == "running"
        ]

    def close(self) -> None:
        for word in list(self.processes):
            self.kill(word)
        for one in self.engine.containers.list(all=True, filters={"label": self.label}):
            one.remove(force=True, v=True)
        self.engine.close()


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineNodes]:
    with swarm(2, 1, tmp_path_factory.mktemp("engines")) as engines:
        first = engines.nodes[0]
        ensure_base(first.host)
        for node in engines.nodes[1:]:
            copy_images(first.host, node.host, [BASE])
        yield engines


@pytest.fixture
def hosts(engines: EngineNodes, tmp_path: Path) -> Iterator[list[Host]]:
    instance = f"test-{secrets.token_hex(4)}"
    made = [Host(node, tmp_path / node.name, instance) for node in engines.nodes]
    try:
        for host in made:
            host.start("run")
        made[0].start("cluster", "run")
        yield made
    finally:
        for host in made:
            for log in sorted(host.folder.glob("*.log")):
                sys.stdout.write(f"{log}:\n{log.read_text()[-6000:]}")
            host.close()


@pytest.fixture
def store(engines: EngineNodes, hosts: list[Host]) -> Iterator[SwarmStore]:
    instance = hosts[0].label.partition("=")[2]
    with closing(Engine(engines.nodes[0].host, 20.0)) as engine:
        yield SwarmStore(SwarmCalls(engine), instance)


def until(holds: Callable[[], bool], within_s: float, what: str) -> None:
    end_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end_s:
            raise AssertionError(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.2)


def job_file() -> str:
    """A training that saves itself when it is asked."""
    code = TRAINS.replace("{when_asked}", SAVES).replace("{at_start}", "").replace("{at_end}", "")
    code = code.replace("accuracy=0.5", f"accuracy=0.5, total_steps={STEPS}")
    return (
        f"name: {JOB}\nimage: {BASE}\nnetwork: none\nvolumes: ['{JOB}:/ckpt']\n"
        "target: {metric: accuracy, deliver: 0.8, finish: 0.9}\n"
        "checkpoint: {signal: SIGUSR1, timeout: 30s, path: /ckpt}\nstop: {grace: 5s}\n"
        "command:\n  - python3\n  - -c\n  - |\n" + textwrap.indent(code, "    ")
    )


def test_a_training_moves_when_its_host_drains_and_goes_on_where_it_was(
    hosts: list[Host], store: SwarmStore
) -> None:
    (hosts[0].cluster / "trains.yaml").write_text(job_file())
    until(lambda: sum(len(host.running()) for host in hosts) == 1, 60, "the job to run")
    source = next(host for host in hosts if host.running())
    target = next(host for host in hosts if host is not source)
    until(lambda: len(source.log()) > 20, 30, "some steps")
    store.drain(source.node.node_id)
    until(lambda: bool(target.running()), 90, "the job to run on the other host")
    until(lambda: len(target.log()) > 100, 30, "steps there")
    words = [line.split() for line in target.log()]
    saved = [int(step) for word, step in words if word == "saved"]
    begun = [int(step) for word, step in words if word == "begins"]
    assert begun == [0, saved[-1]]
    until(lambda: not source.running(), 5, "nothing to run on the drained host")
    (hosts[0].cluster / "trains.yaml").unlink()
    until(lambda: not target.running(), 60, "the withdrawn job to end")
