"""The first minute of a service that dlsched does not know: from `docker run` to its target met.

Each server runs in a container, first alone, then beside two neighbours with two busy threads each
under plain Docker. Its target is twice its p95 alone, at least 50 ms. Then it is started again, and
two commands are typed when its port answers. It gives no metrics. dlsched runs with its default
settings. An open-loop client sends requests that need three tenths of a core. All other containers
of the engine would be adopted, so it must have none.

    python -m tools.engine run --private -- python -m benchmarks run first-minute         as root
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.options import options
from benchmarks.places import ROOT
from benchmarks.publish import results
from benchmarks.real.scene import SPIN, kernel_reading, stranger, takes, told_if_it_fails, typed
from benchmarks.wire import cells, servers
from dlsched.api.schema import JobStatus
from tests.stacks import environments
from tools import debian
from tools.base_image import BASE, ensure_base
from tools.environment import BUILD
from tools.session import Session, session
from tools.steps import SetupError

NAME = "first-minute"
SERVICE, NEIGHBOURS = "first-service", ("first-batch-1", "first-batch-2")
OTHERS = ("adopt", "--others-background", "--yes")
USED_CORES = 0.3
TARGET_LEAST_MS, TARGET_STEP_MS, TARGET_RATIO = 50.0, 10.0, 2.0
"""A target is so many times the p95 of the server alone: one that it cannot meet even alone would
show nothing."""
WARM_REQUESTS, TRIED_REQUESTS, TRIED_PER_S = 10, 50, 10.0
"""Of the trial that shows how much CPU time a request needs."""
MEASURED_S, REQUESTS_LEAST = 20.0, 100
"""Of a measured span: it lasts until both are reached."""
ANSWERED_RATIO = 0.95
"""With fewer answers a p95 of answers says nothing."""
WITHIN_S = 60.0
"""For a server's start, a command, and a target that is missed."""
MET_WITHIN_S = 30.0
"""Figure: so long after the port answers, the status says that the target is met."""
POLL_S = 0.25
_HOST = "127.0.0.1"
_NGINX = BUILD / NAME / "nginx"
_P95 = {"answer": "whole_p95", "first-byte": "first_p95", "gap": "gaps_p95"}
"""What the client calls it."""


@dataclass(frozen=True)
class Kind:
    """A server, what it is asked, and its target."""

    server: servers.Server
    request: Mapping[str, object]
    of: str = "answer"
    target_ms: float = TARGET_LEAST_MS

    @property
    def adopt(self) -> Sequence[str]:
        """The first command."""
        of = () if self.of == "answer" else ("--of", self.of)
        return ("adopt", SERVICE, "--latency", f"{self.target_ms:g}ms", "--quantile", "p95", *of)


_COMPUTE, _STREAM = {"path": "/compute"}, {"path": "/compute/stream"}
KINDS = (
    Kind(servers.NGINX, _COMPUTE),
    Kind(servers.UVICORN, _COMPUTE),
    Kind(servers.GUNICORN, _COMPUTE),
    Kind(servers.NODE, _COMPUTE),
    Kind(servers.ONNX, {**servers.ONNX.request, "body": '{"count": 320}'}),
    Kind(servers.STREAM, _STREAM, "first-byte"),
    Kind(servers.STREAM, _STREAM, "gap"),
)


def prepare(kinds: Sequence[Kind]) -> None:
    """See to images and packages, while nothing is measured. Raises SetupError."""
    with session() as one:
        if one.engine.containers.list(all=True):
            raise SetupError("this engine has other containers, which would be adopted")
        ensure_base(one.host)
    for kind in kinds:
        kind.server.packages()
    if any(kind.server is servers.NGINX for kind in kinds):
        debian.unpack("nginx", _NGINX, "the bench of the first minute")


def contained(command: Sequence[str]) -> list[str]:
    """The command with its program's path in a container. Raises SetupError."""
    program = Path(command[0]).name
    if program == "nginx":
        return [str(_NGINX / "usr" / "sbin" / "nginx"), *command[1:]]
    found = "/usr/bin/python3" if program.startswith("python") else shutil.which(program)
    if found is None:
        raise SetupError(f"no program {program} on this host")
    return [found, *command[1:]]


class Scene:
    """A server in containers of a session, its neighbours and its client."""

    def __init__(self, one: Session, kind: Kind, folder: Path) -> None:
        self._one, self._kind, self._folder = one, kind, folder
        self._port = servers.free_port(_HOST)
        self._cell = cells.Cell(replace(kind.server, request=kind.request), True, TRIED_PER_S)

    def run(self, name: str, command: Sequence[str], **more: Any) -> Any:
        """A container."""
        return stranger(self._one, BASE, name, command, **more)

    def serve(self) -> Any:
        """The server's container, once its port answers. Raises RuntimeError and SetupError."""
        server = self._kind.server
        command = contained(server.command(servers.At(self._folder, _HOST, self._port)))
        packages = environments.folder(servers.ENVIRONMENT).resolve()
        site = packages / "lib" / "python3.11" / "site-packages"
        read = {str(path) for path in (ROOT, BUILD.resolve(), packages)}
        if Path(command[0]).name == "node":
            read.add(command[0])
        container = self.run(
            SERVICE,
            command,
            network_mode="host",
            volumes=[f"{self._folder}:{self._folder}", *(f"{path}:{path}:ro" for path in read)],
            tmpfs={"/var/lib/nginx": "", "/var/log/nginx": ""},
            environment={"PYTHONPATH": str(site), **server.environment()},
        )
        until_s = time.monotonic() + WITHIN_S
        while not takes(f"{_HOST}:{self._port}"):
            container.reload()
            if container.status == "exited" or time.monotonic() > until_s:
                line = container.logs(tail=1).decode(errors="replace").strip()
                raise RuntimeError(f"{container.status}, and its port does not answer: {line}")
            time.sleep(0.02)
        return container

    def try_it(self, container: Any) -> float:
        """CPU seconds of a request; from now on requests come at the rate for `USED_CORES`."""
        self.ask(WARM_REQUESTS)
        before_s = _used_s(container)
        self.ask(TRIED_REQUESTS)
        request_s = (_used_s(container) - before_s) / TRIED_REQUESTS
        self._cell = replace(self._cell, rate_per_s=USED_CORES / request_s)
        return request_s

    def client(self, count: int) -> subprocess.Popen[bytes]:
        """A client that asks so often; SIGTERM ends it earlier."""
        command = cells.asking(_HOST, self._port, self._cell, count)
        return subprocess.Popen(command, stdout=subprocess.PIPE)

    def ask(self, count: int, meanwhile: Callable[[], object] = lambda: None) -> dict[str, Any]:
        """What the client saw of so many requests; `meanwhile` is called again and again."""
        with self.client(count) as process:
            while process.poll() is None:
                meanwhile()
                time.sleep(POLL_S)
            return dict(json.loads(process.communicate()[0]))

    def count_in(self, seconds: float) -> int:
        return round(seconds * self._cell.rate_per_s)

    def p95_ms(self, meanwhile: Callable[[], object] = lambda: None) -> float | None:
        """That of the client over a measured span; None: too few requests were answered."""
        count = max(REQUESTS_LEAST, self.count_in(MEASURED_S))
        found = self.ask(count, meanwhile)
        return found[_P95[self._kind.of]] if found["answered"] >= ANSWERED_RATIO * count else None

    def typed(self, *words: str) -> list[str]:
        """What a command prints. Raises RuntimeError when it fails."""
        return typed(self._one, *words)

    def is_met(self) -> bool:
        """Whether the status says so."""
        jobs: Sequence[JobStatus] = self._one.client.status().jobs
        return any(job.name == SERVICE and job.satisfied_slo for job in jobs)


def _used_s(container: Any) -> float:
    container.reload()
    return kernel_reading(container).usage_core_s or 0.0


def measured(kind: Kind, folder: Path) -> dict[str, Any]:
    """The row of one server."""
    row: dict[str, Any] = {"server": kind.server.name}
    with session() as one:
        os.environ["DLSCHED_RUN_DIR"] = str(one.root / "run")
        one.start("adaptive", more={"reserve": {}})
        scene = Scene(one, kind, folder)
        try:
            first = scene.serve()
        except (RuntimeError, SetupError) as error:
            return row | {"verdict": f"not brought here: {error}"}
        row["CPU a request, ms"] = 1e3 * scene.try_it(first)
        row["p95 alone, ms"] = alone_ms = scene.p95_ms()
        if alone_ms is None:
            return row | {"verdict": "not brought here: alone it does not answer all requests"}
        kind = replace(kind, target_ms=target_ms(alone_ms))
        row["command"] = " ".join(kind.adopt)
        one.weigh()
        for name in NEIGHBOURS:
            scene.run(name, SPIN, network_mode="none")
        row["p95 under plain Docker, ms"] = scene.p95_ms()
        first.remove(force=True)
        return row | adopted(scene, kind)


def adopted(scene: Scene, kind: Kind) -> dict[str, Any]:
    """The part of the row that begins with `docker run`, beside neighbours and a daemon."""
    began_s = time.monotonic()
    scene.serve()
    answers_s = time.monotonic()
    met_s, polls = None, list[bool]()
    client = scene.client(scene.count_in(3 * WITHIN_S))
    try:
        lines = scene.typed(*kind.adopt)
        scene.typed(*OTHERS)
        typed_s = time.monotonic() - answers_s
        while met_s is None and time.monotonic() < answers_s + WITHIN_S:
            met_s = time.monotonic() - answers_s if scene.is_met() else None
            time.sleep(POLL_S)
    finally:
        client.terminate()
        client.communicate()
    p95_ms = scene.p95_ms(lambda: polls.append(scene.is_met()))
    scene.typed("ps")
    return {
        "adopt found": next((one.strip() for one in lines if "sockets:" in one), "nothing"),
        "run to port, s": answers_s - began_s,
        "both commands, s": typed_s,
        "port to met, s": met_s,
        "p95 afterwards, ms": p95_ms,
        "met, of the time afterwards": sum(polls) / len(polls),
        "verdict": results.verdict(is_reached(met_s, p95_ms, kind.target_ms)),
    }


def target_ms(alone_ms: float) -> float:
    """The target of a server with that p95 alone."""
    steps = math.ceil(TARGET_RATIO * alone_ms / TARGET_STEP_MS)
    return max(TARGET_LEAST_MS, steps * TARGET_STEP_MS)


def is_reached(met_s: float | None, p95_ms: float | None, target_ms: float) -> bool:
    """Whether the status says met in time, and the client afterwards, too."""
    in_time = met_s is not None and met_s <= MET_WITHIN_S
    return in_time and p95_ms is not None and p95_ms <= target_ms


def headline(rows: Sequence[Mapping[str, Any]]) -> str:
    """In how many rows the figure is reached."""
    count = sum(row["verdict"] == results.verdict(True) for row in rows)
    return (
        f"Two commands and at most {MET_WITHIN_S:g} s from the port's first answer until the "
        f"status says met, and p95 at the client within the target afterwards: in {count} of "
        f"{len(rows)} rows: {results.verdict(count == len(rows))}."
    )


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, only=("", "servers whose name has this; writes nothing"))

    def run() -> None:
        kinds = [kind for kind in KINDS if chosen.only in kind.server.name]
        rows, load = [], os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="dlsched-first-") as name:
            folder = Path(name)
            try:
                prepare(kinds)
            except SetupError as error:
                raise RuntimeError(error) from error
            servers.prepare(folder)
            for kind in kinds:
                rows.append(measured(kind, folder))
                print(results.markdown(rows[-1:]), flush=True)
        title = (
            "From `docker run` to a target that is met, beside two neighbours with two busy "
            f"threads each; `dlsched {' '.join(OTHERS)}` follows the command of the row. Load "
            f"average before: {load:.2f}"
        )
        tables, whole = {title: rows}, not chosen.only
        host = results.engine_facts() if whole else {}
        results.finish(NAME, host, [1], rows, tables, [headline(rows)], whole=whole)

    return told_if_it_fails(NAME, run)
