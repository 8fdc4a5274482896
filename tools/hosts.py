"""Real hosts of one swarm on one machine: an engine each, its daemon, and controllers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from dlsched.api.cluster_schema import ClusterStatus
from dlsched.cluster.status_file import read_status
from dlsched.model.errors import DaemonUnavailable
from tools.engine_remains import end_group, groups_named
from tools.engines import EngineNode, EngineNodes
from tools.private_engine import uninterrupted
from tools.waiting import wait_for

# A host's daemon takes for foreign what its host's cores do beside its containers. The other hosts'
# containers are not on it, nor is what else this machine does: to it, nothing else happens.
_MOUNT = 'mount --bind "$0" /proc/stat && exec "$@"'
_STILL = ("unshare", "--mount", "--propagation=slave", "sh", "-c", _MOUNT)

DLSCHED = Path(sys.executable).parent / "dlsched"
READY_WITHIN_S = 120.0


class Host:
    """One host: its engine, its daemon, and on a manager its controller."""

    def __init__(
        self,
        node: EngineNode,
        folder: Path,
        instance: str,
        capacity_cores: float = 1.0,
        policy: str = "fair",
        cluster: Mapping[str, object] | None = None,
        program: Callable[[str], Sequence[str | Path]] = lambda _: (DLSCHED,),
    ) -> None:
        """`cluster`: settings of the cluster beside those that it needs here. `program`: what is
        run as `dlsched`, by its first word."""
        self._program = program
        self.node, self.folder, self.instance = node, folder, instance
        self.settings = folder / "dlsched.yaml"
        self.cluster = folder / "cluster.d"
        for one in (folder / "jobs.d", self.cluster):
            one.mkdir(parents=True)
        self._machine = folder / "stat"
        self._machine.write_text(Path("/proc/stat").read_text())
        settings = {
            "instance": instance,
            "state_dir": str(folder / "state"),
            "run_dir": str(folder / "run"),
            "watch": str(folder / "jobs.d"),
            "policy": policy,
            "capacity": capacity_cores,
            "reserve": {"cpus": 0, "memory": "256MiB"},
            "engine": {"host": node.host, "cgroup_parent": node.engine.cgroup_parent},
            "cluster": {"enabled": True, "watch": str(self.cluster), **(cluster or {})},
        }
        self.settings.write_text(json.dumps(settings))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.engine = docker.DockerClient(base_url=node.host, timeout=60)
        self.label = f"dlsched.instance={instance}"

    def start(self, *arguments: str) -> None:
        """`dlsched WORDS` at this host's address: `run`, or `cluster run`."""
        enter = ["nsenter", f"--net={self.node.namespaces.network}", *_STILL, str(self._machine)]
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            self._processes[arguments[0]] = subprocess.Popen(
                [*enter, *self._program(arguments[0]), *arguments, "--config", str(self.settings)],
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is the caller's
            )

    def ask(self, *arguments: str) -> str:
        """What a command of `dlsched` prints on this host. AssertionError where it fails."""
        done = subprocess.run(
            [DLSCHED, *arguments, "--config", str(self.settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={**os.environ, "COLUMNS": "120"},
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def status(self) -> ClusterStatus | None:
        """What its controller reports; None: nothing yet."""
        try:
            return read_status(self.folder / "run")
        except DaemonUnavailable:
            return None

    def drop(self, job: str, text: str) -> None:
        """Put a job file into its folder of the cluster."""
        (self.cluster / f"{job}.yaml").write_text(text)

    def withdraw(self, job: str) -> None:
        """Remove it from there."""
        (self.cluster / f"{job}.yaml").unlink()

    def pid(self, command: str) -> int:
        """Of what `start` began with that first word."""
        return self._processes[command].pid

    def kill(self, command: str) -> None:
        """SIGKILL to what `start` began with that first word."""
        if command in self._processes:
            process = self._processes.pop(command)
            process.kill()
            process.wait(60)

    def power_off(self) -> list[str]:
        """SIGKILL to its daemon, its engine and all containers, also those that are just being
        started; returns the ids of the jobs' ones."""
        self.kill("run")
        killed = [str(one["Id"]) for one in self.containers() if one["State"] != "exited"]
        self.node.engine.kill()
        for group in groups_named({self.node.engine.cgroup_parent.lstrip("/")}):
            end_group(group)
        return killed

    def power_on(self) -> None:
        """Start its engine and its daemon again."""
        self.node.engine.restart()
        self.start("run")

    def running(self) -> list[str]:
        """The jobs whose containers run here."""
        found = self.engine.api.containers(filters={"label": self.label})
        return sorted(str(one["Labels"]["dlsched.job"]) for one in found)

    def containers(self) -> list[dict[str, Any]]:
        """Those of jobs, also ended ones, as the engine lists them."""
        found: list[dict[str, Any]] = self.engine.api.containers(
            all=True, filters={"label": self.label}
        )
        return found

    def notes(self, job: str) -> list[str]:
        """What a running job noted in `/ckpt/log`; empty where it does not run here."""
        filters: Any = {"label": [self.label, f"dlsched.job={job}"]}
        with suppress(APIError):  # it ends just now
            for one in self.engine.containers.list(filters=filters):
                output: Any = one.exec_run(["cat", "/ckpt/log"]).output
                return [line for line in output.decode().splitlines() if line.count(" ") == 2]
        return []

    def logs(self, characters: int = 4000) -> str:
        """The last lines of its processes."""
        parts = [
            f"{log}:\n{log.read_text()[-characters:]}" for log in sorted(self.folder.glob("*.log"))
        ]
        return "\n".join(parts)

    def close(self) -> None:
        """End the processes, remove the containers, and the volumes of the private engine."""
        for command in list(self._processes):
            self.kill(command)
        with suppress(DockerException, RequestException):  # it may be dead just now
            for one in self.engine.containers.list(all=True, filters={"label": self.label}):
                one.remove(force=True, v=True)
            # What a job saved must not be gone on with by the next one of its name.
            for volume in self.engine.volumes.list():
                volume.remove(force=True)
        self.engine.close()


@contextmanager
def cluster(
    engines: EngineNodes,
    sizes_cores: Sequence[float],
    folder: Path,
    instance: str,
    policy: str,
    cluster_policy: str,
) -> Iterator[list[Host]]:
    """A daemon on each engine and a controller on the first, ready for jobs. AssertionError where
    they are not in time."""
    hosts: list[Host] = []
    try:
        for node, cores in zip(engines.nodes, sizes_cores, strict=True):
            node.limit(cores)
            settings = {"policy": cluster_policy}
            hosts.append(Host(node, folder / node.name, instance, cores, policy, settings))
            hosts[-1].start("run")
        hosts[0].start("cluster", "run")
        wait_for(lambda: _ready(hosts), READY_WITHIN_S, "all hosts to be ready")
        yield hosts
    except AssertionError:
        print("\n".join(host.logs() for host in hosts), file=sys.stderr)
        raise
    finally:
        with uninterrupted():
            for host in hosts:
                host.close()


def _ready(hosts: Sequence[Host]) -> bool:
    status = hosts[0].status()
    states = [one.state for one in status.nodes] if status else []
    return states == ["ready"] * len(hosts)


@contextmanager
def repeating(act: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call it so often, in a thread, until the block ends. What engines refuse or do not answer is
    passed over: they are killed and started meanwhile."""
    ends = threading.Event()

    def repeat() -> None:
        while not ends.wait(every_s):
            with suppress(DockerException, RequestException):
                act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


_TRAINS = """
import json, os, signal, sys, time
folder, asked, ended = "/ckpt", [], []
saved = folder + "/step"
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
def tell(**what):
    with open(os.environ["DLSCHED_METRICS_FILE"], "a") as file:
        file.write(json.dumps(dict(what, t=time.time())) + "\\n")
def note(word, step):
    with open(folder + "/log", "a") as log:
        log.write(f"{word} {step} {time.time():.2f}\\n")
step = int(open(saved).read()) if os.path.exists(saved) else 0
note("begins", step)
while not ended:
    step += 1
    tell(step=step, accuracy=0.5, total_steps=STEPS)
    if asked:
        asked.clear()
        with open(folder + "/weights", "wb") as file:
            file.write(os.urandom(1 << 16) * (SIZE >> 16))
        with open(saved + ".new", "w") as file:
            file.write(str(step))
        os.rename(saved + ".new", saved)
        note("saved", step)
        tell(checkpoint={"step": step, "path": saved})
    time.sleep(0.1)
sys.exit(143)
"""
"""Makes ten steps a second; when it is asked, it saves as many bytes as SIZE."""


def training_file(job: str, image: str, steps: int, size_bytes: int) -> str:
    """The job file of such a training."""
    code = _TRAINS.replace("STEPS", str(steps)).replace("SIZE", str(size_bytes))
    return saving_job(job, image, code, [f"{job}:/ckpt"])


def saving_job(job: str, image: str, code: str, volumes: Sequence[str]) -> str:
    """The job file of a Python program that saves itself into /ckpt when it is asked."""
    return json.dumps(  # JSON is YAML
        {
            "name": job,
            "image": image,
            "command": ["python3", "-c", code],
            "network": "none",
            "volumes": volumes,
            "target": {"metric": "accuracy", "deliver": 0.8, "finish": 0.9},
            "checkpoint": {"signal": "SIGUSR1", "timeout": "30s", "path": "/ckpt"},
            "stop": {"grace": "5s"},
        }
    )
