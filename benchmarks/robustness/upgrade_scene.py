"""The scene of an upgrade: other people's containers, own jobs, two GPUs that are none.

Owns making all of it under one random instance, and clearing it away. It must not import
`dlsched`, nor judge.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, NotFound

from benchmarks.robustness.upgrade_checks import Original, limit_files
from tests.nvml.library import Stub, build
from tests.nvml.scenario import GIB, GPU_IS_LOST, Failure, Gpu, Scenario
from tools.base_image import BASE
from tools.engine import CGROUP_PARENT
from tools.engine_remains import cgroup_mounts

CAPACITY_CORES = 1.0
GPUS = ("GPU-aaaa0000-0000-0000-0000-000000000000", "GPU-bbbb1111-0000-0000-0000-000000000000")
_NODES = {
    "nvidia0": (10, 229),
    "nvidia1": (10, 237),
    "nvidiactl": (1, 7),
    "nvidia-uvm": (1, 3),
    "nvidia-uvm-tools": (1, 5),
}
"""Character devices that every kernel lets be opened."""

FOREIGN: Mapping[str, Mapping[str, int]] = {
    "quota": {"cpu_period": 50_000, "cpu_quota": 40_000},
    "cpus": {"nano_cpus": 900_000_000},
    "shares": {"cpu_shares": 512},
    "untouched": {},
}
"""Other people's containers: what each was made with."""

SAVES_S = 6.0
"""So long the job that is moved saves itself: the daemon is killed meanwhile."""

_WORK = """
import json, os, time
while True:
    begun = time.monotonic()
    end = time.thread_time() + 0.02
    while time.thread_time() < end:
        pass
    with open(os.environ["DLSCHED_METRICS_FILE"], "a") as file:
        file.write(json.dumps({"latency_s": [time.monotonic() - begun]}) + "\\n")
    time.sleep(0.02)
"""
_LEARN = """
import json, os, time
step = 0
while True:
    step += 1
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass
    line = {"step": step, "loss": 1 / step, "accuracy": 1 - 1 / (1 + step / 20)}
    with open(os.environ["DLSCHED_METRICS_FILE"], "a") as file:
        file.write(json.dumps(line) + "\\n")
    time.sleep(0.4)
"""
REPORTED = {step: 1 - 1 / (1 + step / 20) for step in range(1, 1000)}
"""The accuracies that the training reports, by step."""
_SAVE = f"""
import json, os, signal, time
path = "/ckpt/step"
step = int(open(path).read()) if os.path.exists(path) else 0
print("from step", step, flush=True)
def tell(**line):
    with open(os.environ["DLSCHED_METRICS_FILE"], "a") as out:
        out.write(json.dumps(line) + "\\n")
def save(*_):
    time.sleep({SAVES_S})
    with open(path + ".new", "w") as file:
        file.write(str(step))
    os.rename(path + ".new", path)
    tell(checkpoint={{"step": step, "path": path}})
signal.signal(signal.SIGUSR1, save)
while True:
    step += 1
    if step % 25 == 0:
        tell(step=step, loss=1 / step)
    time.sleep(0.02)
"""
_WAIT = "import signal; signal.pause()"

MOVED = "moved"
_OWN: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "serves": (_WORK, {"target": "{latency: 60ms}"}),
    "learns": (_LEARN, {"target": "{metric: accuracy, deliver: 0.9, finish: 0.99}"}),
    "ends": ("print(42)", {"restart": "on-failure"}),
    "stopped": (_WAIT, {}),
    MOVED: (
        _SAVE,
        {
            "gpus": "{count: 1, share: 0.5}",
            "checkpoint": "{signal: SIGUSR1, timeout: 30s, path: /ckpt}",
        },
    ),
}
JOBS = tuple(_OWN)
OWN_CEILING_CORES = 0.8


@dataclass(slots=True)
class Scene:
    """Everything that both daemons find."""

    root: Path
    driver: Stub
    client: docker.APIClient
    host: str
    instance: str = field(default_factory=lambda: f"upgrade-{secrets.token_hex(4)}")
    originals: dict[str, Original] = field(default_factory=dict)
    """Other people's containers, by name; what each had before any daemon ran."""
    lost: str | None = None
    """The GPU that the driver says is lost."""

    @property
    def state_dir(self) -> Path:
        """What one daemon leaves to the next."""
        return self.root / "state"

    @property
    def saved(self) -> Path:
        """Where the moved job's step is."""
        return self.root / "saved"

    def settings(self) -> Path:
        """Write the settings' file."""
        settings = {
            "instance": self.instance,
            "state_dir": str(self.state_dir),
            "run_dir": str(self.root / "run"),
            "watch": str(self.root / "jobs.d"),
            "capacity": CAPACITY_CORES,
            "reserve": {"cpus": 0, "memory": "256MiB"},
            "engine": {"host": self.host, "cgroup_parent": os.environ.get(CGROUP_PARENT) or None},
            "gpus": {
                "injection": "nodes",
                "device_folder": str(self.root / "dev"),
                "on_loss": "move",
            },
        }
        file = self.root / "dlsched.yaml"
        file.write_text(json.dumps(settings))  # JSON is YAML
        return file

    def begin_foreign(self) -> None:
        """Other people start their containers; what each has is written down."""
        for kind, made in FOREIGN.items():
            host = self.client.create_host_config(network_mode="none", init=True)
            host.update({_ENGINES[key]: value for key, value in made.items()})
            name = f"{self.instance}-{kind}"
            labels = {
                "dlsched.enable": "true",
                "dlsched.instance": self.instance,
                "dlsched.target.latency": "50ms",
                "dlsched.cpus.min": "0.05",
                "dlsched.cpus.max": "0.4",
                "dlsched.metrics.path": "/tmp/told.jsonl",
            }
            one = self.client.create_container(
                BASE,
                ["python", "-c", _WORK],
                name=name,
                labels=labels,
                environment={"DLSCHED_METRICS_FILE": "/tmp/told.jsonl"},
                host_config=host,
            )
            self.client.start(one["Id"])
            body = self.client.inspect_container(one["Id"])
            pid = int(body["State"]["Pid"])
            self.originals[name] = Original(one["Id"], pid, body["HostConfig"], limit_files(pid))

    def drop(self) -> None:
        """Own jobs' files into the watch folder."""
        for name, (code, keys) in _OWN.items():
            lines = {
                "name": name,
                "image": BASE,
                "command": json.dumps(["python", "-c", code]),
                "network": "none",
                "cpus": f"{{min: 0.05, max: {OWN_CEILING_CORES}}}",
                "stop": "{grace: 1s}",
                **keys,
            }
            if name == MOVED:
                lines["volumes"] = f"['{self.saved}:/ckpt']"
            partial = self.root / "jobs.d" / f".{name}.partial"
            partial.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
            partial.rename(partial.with_name(f"{name}.yaml"))

    def lose(self, uuid: str | None = None) -> None:
        """What the driver tells from now on: both GPUs, or that one of them is lost."""
        self.lost = uuid
        gpus = (
            Gpu(GPUS[0], "NVIDIA A100-SXM4-40GB", minor=0, memory_bytes=40 * GIB),
            Gpu(GPUS[1], "Tesla T4", minor=1, memory_bytes=16 * GIB),
        )
        failures = () if uuid is None else (Failure("*", GPU_IS_LOST, uuid),)
        self.driver.show(Scenario(gpus, failures))

    def body(self, container: str) -> dict[str, Any]:
        """The engine's inspection."""
        return dict(self.client.inspect_container(container))

    def own(self, job: str) -> dict[str, Any]:
        """The inspection of a job's container; empty: there is none."""
        try:
            return self.body(f"dlsched-{self.instance}-{job}")
        except NotFound:
            return {}

    def held(self, job: str) -> str:
        """The GPU that the job's container was made with."""
        body = self.own(job)
        return str(body["Config"]["Labels"].get("dlsched.gpus", "")) if body else ""

    def printed(self, job: str) -> str:
        """What the job's present container has written."""
        return bytes(self.client.logs(f"dlsched-{self.instance}-{job}")).decode()

    def heard(self, since_s: float, *kinds: str) -> list[tuple[str, str]]:
        """Events of this instance's containers since then: kind and container's name."""
        events = self.client.events(
            since=since_s,
            until=time.time(),
            decode=True,
            filters={"label": f"dlsched.instance={self.instance}", "event": list(kinds)},
        )
        return [(one["Action"], one["Actor"]["Attributes"]["name"]) for one in events]

    def close(self) -> None:
        """Nothing of it is left."""
        label = f"dlsched.instance={self.instance}"
        for one in self.client.containers(all=True, filters={"label": label}):
            with suppress(APIError):
                self.client.remove_container(one["Id"], force=True, v=True)
        self.client.close()
        for mount in cgroup_mounts():
            with suppress(OSError):
                group = f"{os.environ.get(CGROUP_PARENT, '')}/dlsched-{self.instance}"
                Path(f"{mount}{group}").rmdir()


_ENGINES = {
    "cpu_period": "CpuPeriod",
    "cpu_quota": "CpuQuota",
    "nano_cpus": "NanoCpus",
    "cpu_shares": "CpuShares",
}


@contextmanager
def scene() -> Iterator[Scene]:
    """A scene in a temporary folder, on the engine at DOCKER_HOST; cleared away at the end."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    root = Path(tempfile.mkdtemp(prefix="dlsched-"))
    for name in ("jobs.d", "saved", "dev"):
        (root / name).mkdir()
    for name, (major, minor) in _NODES.items():
        os.mknod(root / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
    driver = Stub(build(), root / "nvml-scenario")
    before = dict(os.environ)
    os.environ.update(driver.environment)
    one = Scene(root, driver, docker.APIClient(base_url=host, timeout=60), host)
    one.lose()
    try:
        yield one
    finally:
        os.environ.clear()
        os.environ.update(before)
        one.close()
        shutil.rmtree(root, ignore_errors=True)


def wait_for(condition: Callable[[], object], within_s: float, what: str) -> None:
    """Poll until true; RuntimeError with `what` when the time is over."""
    until_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until_s:
            raise RuntimeError(f"waited {within_s:.0f} s in vain for {what}")
        time.sleep(0.2)
