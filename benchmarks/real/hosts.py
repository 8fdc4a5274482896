"""Real hosts of one swarm on one machine: an engine each, its daemon, and controllers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import docker

from tools.engines import EngineNode

DLSCHED = Path(sys.executable).parent / "dlsched"


class Host:
    """One host: its engine, its daemon, and on a manager its controller."""

    def __init__(
        self,
        node: EngineNode,
        folder: Path,
        instance: str,
        capacity_cores: float = 1.0,
        program: Callable[[str], Sequence[str | Path]] = lambda _: (DLSCHED,),
    ) -> None:
        """`program` returns what is run as `dlsched`, by its first word."""
        self._program = program
        self.node, self.folder, self.instance = node, folder, instance
        self.settings = folder / "dlsched.yaml"
        self.cluster = folder / "cluster.d"
        for one in (folder / "jobs.d", self.cluster):
            one.mkdir(parents=True)
        settings = {
            "instance": instance,
            "state_dir": str(folder / "state"),
            "run_dir": str(folder / "run"),
            "watch": str(folder / "jobs.d"),
            "policy": "fair",
            "capacity": capacity_cores,
            "reserve": {"cpus": 0, "memory": "256MiB"},
            "engine": {"host": node.host, "cgroup_parent": node.engine.cgroup_parent},
            "cluster": {"enabled": True, "watch": str(self.cluster)},
        }
        self.settings.write_text(json.dumps(settings))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.engine = docker.DockerClient(base_url=node.host, timeout=60)
        self._label = f"dlsched.instance={instance}"

    def start(self, *words: str) -> None:
        """`dlsched WORDS` at this host's address: `run`, or `cluster run`."""
        enter = ["nsenter", f"--net={self.node.namespaces.network}"]
        with (self.folder / f"{words[0]}.log").open("ab") as log:
            self._processes[words[0]] = subprocess.Popen(
                [*enter, *self._program(words[0]), *words, "--config", self.settings],
                stdout=log,
                stderr=log,
            )

    def pid(self, word: str) -> int:
        """Of what `start` began with that first word."""
        return self._processes[word].pid

    def kill(self, word: str) -> None:
        """SIGKILL to what `start` began with that first word."""
        if word in self._processes:
            process = self._processes.pop(word)
            process.kill()
            process.wait(10)

    def running(self) -> list[str]:
        """The jobs whose containers run here."""
        found = self.engine.api.containers(filters={"label": self._label})
        return sorted(str(one["Labels"]["dlsched.job"]) for one in found)

    def notes(self, job: str) -> list[str]:
        """What a running job noted in `/ckpt/log`; empty where it does not run here."""
        filters = {"label": [self._label, f"dlsched.job={job}"]}
        for one in self.engine.containers.list(filters=filters):
            output = one.exec_run(["cat", "/ckpt/log"]).output
            return [line for line in output.decode().splitlines() if line.count(" ") == 2]
        return []

    def logs(self, characters: int = 4000) -> str:
        """The last lines of its processes."""
        parts = [
            f"{log}:\n{log.read_text()[-characters:]}" for log in sorted(self.folder.glob("*.log"))
        ]
        return "\n".join(parts)

    def close(self) -> None:
        """End the processes, remove the containers."""
        for word in list(self._processes):
            self.kill(word)
        for one in self.engine.containers.list(all=True, filters={"label": self._label}):
            one.remove(force=True, v=True)
        self.engine.close()


def until(holds: Callable[[], bool], within_s: float, what: str) -> None:
    """Poll until true; AssertionError with `what` when the time passes."""
    end_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end_s:
            raise AssertionError(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.2)


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
    return json.dumps(  # JSON is YAML
        {
            "name": job,
            "image": image,
            "command": ["python3", "-c", code],
            "network": "none",
            "volumes": [f"{job}:/ckpt"],
            "target": {"metric": "accuracy", "deliver": 0.8, "finish": 0.9},
            "checkpoint": {"signal": "SIGUSR1", "timeout": "30s", "path": "/ckpt"},
            "stop": {"grace": "5s"},
        }
    )
