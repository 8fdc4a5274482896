"""An engine that answers at once, over a host of real files: for what the loop itself costs.

Owns a folder tree as the kernel shows containers (processes, control groups of version 1, the
sidecar's files), and the few calls that a loop makes. It must not reckon: counters move when told.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dlsched.model.spec import JobSpec
from dlsched.report.buckets import bucket_index, bucket_value_s
from dlsched.runtime.allotment import METRICS_FILE
from dlsched.runtime.docker.engine import Body, Engine, EngineRefused
from dlsched.runtime.docker.identity.labels import container_name, labels_of

_GROUP = "/dlsched-loop"
_CPU = {
    "cpuacct.usage": "1000000000",
    "cpu.stat": "nr_periods 120\nnr_throttled 3\nthrottled_time 91230000",
    "cpu.cfs_quota_us": "-1",
    "cpu.cfs_period_us": "100000",
    "cpu.shares": "1024",
    "cpu.cfs_burst_us": "0",
    "cpu.idle": "0",
}
_MEMORY = {"memory.usage_in_bytes": "104857600"}
_STARTED = "2026-01-01T00:00:00.000000001Z"
_WRITTEN = {"CpuQuota": "cpu.cfs_quota_us", "CpuShares": "cpu.shares"}


class Host:
    """The files of containers, as the kernel would show them below `root`."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self._cpu, self._memory = root / "sys" / "cpu", root / "sys" / "memory"
        mounts = [
            f"32 31 0:29 / {self._cpu} rw - cgroup cgroup rw,cpu,cpuacct",
            f"34 31 0:31 / {self._memory} rw - cgroup cgroup rw,memory",
        ]
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "mountinfo").write_text("\n".join(mounts) + "\n")

    def add(self, pid: int, container: str) -> None:
        """A process in a group of its own, with a sidecar's folder in its root."""
        for folder, files in ((self._cpu, _CPU), (self._memory, _MEMORY)):
            group = folder / _GROUP[1:] / container
            group.mkdir(parents=True)
            for name, text in files.items():
                (group / name).write_text(f"{text}\n")
        process = self.proc / str(pid)
        self.metrics_file(pid).parent.mkdir(parents=True)
        lines = (f"4:memory:{_GROUP}/{container}", f"1:cpu,cpuacct:{_GROUP}/{container}")
        (process / "cgroup").write_text("\n".join(lines) + "\n")
        (process / "stat").write_text(f"{pid} (python) S " + "1 " * 40 + "\n")

    def metrics_file(self, pid: int) -> Path:
        """Where that process reports."""
        return self.proc / str(pid) / "root" / METRICS_FILE[1:]

    def write(self, container: str, name: str, text: str) -> None:
        """As the kernel does when something is counted or limited."""
        (self._cpu / _GROUP[1:] / container / name).write_text(f"{text}\n")


class InstantEngine(Engine):
    """Running containers of these jobs; every call is answered from memory."""

    def __init__(
        self, host: Host, instance: str, specs: Iterable[JobSpec], sources: Mapping[str, str]
    ) -> None:
        super().__init__("instant", 10.0)
        self._host = host
        self._bodies: dict[str, Body] = {}
        self.updates = 0
        self._ended = threading.Event()
        for pid, spec in enumerate(specs, 10_000):
            labels = labels_of(spec, instance, sources[spec.name])
            body = _body(spec, instance, pid, labels)
            self._bodies[body["Id"]] = body
            host.add(pid, body["Id"])

    @property
    def pids(self) -> Mapping[str, int]:
        """Of each container."""
        return {key: body["State"]["Pid"] for key, body in self._bodies.items()}

    def containers(self, labels: Mapping[str, str]) -> list[Body]:
        """As a real client gives them: parsed from text."""
        listed = [
            {
                "Id": key,
                "Names": [body["Name"]],
                "State": body["State"]["Status"],
                "Labels": body["Config"]["Labels"],
            }
            for key, body in self._bodies.items()
            if labels.items() <= body["Config"]["Labels"].items()
        ]
        return list(json.loads(json.dumps(listed)))

    def inspect(self, container: str) -> Body:
        """Its description."""
        if container not in self._bodies:
            raise EngineRefused(404, "no such container")
        return self._bodies[container]

    def update(self, container: str, body: Body) -> None:
        """Into the description and the kernel's files."""
        self.updates += 1
        self._bodies[container]["HostConfig"].update(body)
        for word, file in _WRITTEN.items():
            if word in body:
                self._host.write(container, file, str(body[word]))

    def image(self, reference: str) -> Body:
        """One without labels."""
        return {"Id": reference, "Config": {"Labels": {}}}

    def info(self) -> Body:
        """The little that is asked for."""
        return {"ID": "instant", "NCPU": 2, "CgroupDriver": "cgroupfs", "CgroupVersion": "1"}

    def version(self) -> Body:
        """A runc of before 1.3.2."""
        return {"Components": [{"Name": "runc", "Version": "1.1.5"}]}

    def events(self, labels: Mapping[str, str], kinds: Iterable[str]) -> Any:
        """None, until it is closed."""
        return _Silence(self._ended)

    def close(self) -> None:
        """End the stream of events."""
        self._ended.set()


class _Silence:
    def __init__(self, ended: threading.Event) -> None:
        self._ended = ended

    def __iter__(self) -> Iterator[Body]:
        self._ended.wait()
        return iter(())

    def close(self) -> None:
        self._ended.set()


def line(now_s: float, latencies_s: Iterable[float]) -> bytes:
    """A second's report of a service, as `dlsched.report` writes it."""
    counts: dict[int, int] = {}
    for latency_s in latencies_s:
        index = bucket_index(latency_s)
        counts[index] = counts.get(index, 0) + 1
    latency = {
        "count": sum(counts.values()),
        "sum": sum(bucket_value_s(index) * count for index, count in counts.items()),
        "buckets": {str(index): count for index, count in sorted(counts.items())},
        "errors": 0,
        "in_flight": 1,
        "oldest_s": 0.01,
    }
    return (json.dumps({"t": now_s, "w": "7", "latency": latency}) + "\n").encode()


def _body(spec: JobSpec, instance: str, pid: int, labels: Mapping[str, str]) -> Body:
    return {
        "Id": hashlib.sha256(spec.name.encode()).hexdigest(),
        "Name": f"/{container_name(instance, spec.name)}",
        "Image": "sha256:0",
        "RestartCount": 0,
        "State": {"Status": "running", "Pid": pid, "StartedAt": _STARTED, "ExitCode": 0},
        "Config": {"Image": spec.container.image, "Labels": dict(labels)},
        "HostConfig": {"CpuQuota": 0, "CpuPeriod": 0, "CpuShares": 0, "NanoCpus": 0},
        "NetworkSettings": {"Networks": {}},
    }
