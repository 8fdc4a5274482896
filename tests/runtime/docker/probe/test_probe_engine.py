"""Probing containers of a real engine: each is read rightly, and none is changed."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import docker
import pytest
from docker.errors import APIError

from dlsched.config.metrics.loading import package_presets
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.docker.probe import Probed, ProbeOptions, probe

pytestmark = pytest.mark.engine

DEADLINE_S = 60.0

SERVICE = """
import http.server, itertools, threading, time
asked = itertools.count(1)
begun = time.monotonic()
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/metrics":
            self.send_response(404); self.end_headers(); return
        # 50 requests a second of 60 to 80 ms each.
        n = 1_000_000 + int(50 * (time.monotonic() - begun))
        label = 'handler="/predict",method="POST"'
        name = "http_request_duration_seconds"
        body = f'''# HELP {name} Latency
# TYPE {name} histogram
{name}_bucket{{{label},le="0.06"}} 0
{name}_bucket{{{label},le="0.08"}} {n}
{name}_bucket{{{label},le="+Inf"}} {n}
{name}_count{{{label}}} {n}
{name}_sum{{{label}}} {n * 0.07}
'''.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.HTTPServer(("", 8000), Page).serve_forever()
"""

PRINTER = """
import time
for n in range(1000):
    print(f'[GIN] 2026/11/21 - 14:00:00 | 200 |  {1.5 + n % 2}s |  172.17.0.1 | POST "/api/chat"',
          flush=True)
    time.sleep(0.2 if n > 40 else 0)
"""

TRAINER = """
import time
for step in range(0, 3000, 250):
    print(f"step {step}: train loss {4 - step / 1000:.4f}, val loss {4.1 - step / 1000:.4f}",
          flush=True)
time.sleep(600)
"""

BUSY = "while True: pass"

Start = Callable[..., str]


@pytest.fixture
def start(
    docker_client: docker.APIClient, cgroup_parent: str, base_image: str, network: str
) -> Iterator[Start]:
    """Run a Python program as anybody would; returns the container's name."""
    made: list[str] = []

    def run(program: str, *, ports: tuple[int, ...] = (), mode: str = network, **more: Any) -> str:
        name = f"probed-{secrets.token_hex(4)}"
        container = docker_client.create_container(
            base_image,
            ["python", "-c", program],
            name=name,
            ports=list(ports),
            host_config=docker_client.create_host_config(
                network_mode=mode, cgroup_parent=cgroup_parent, **more
            ),
        )["Id"]
        made.append(container)
        docker_client.start(container)
        return name

    yield run
    for container in made:
        with suppress(APIError):
            docker_client.remove_container(container, force=True)


@pytest.fixture
def engine(docker_host: str) -> Iterator[Engine]:
    one = Engine(docker_host, 30.0)
    yield one
    one.close()


def probed(
    engine: Engine, names: tuple[str, ...], read: Callable[[Probed], object], **more: Any
) -> dict[str, Probed]:
    """What is found, once the first of them can be read: programs take a moment to begin."""
    options = ProbeOptions(names, **{"over_s": 1.0, **more})
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        found = {one.name: one for one in probe(engine, package_presets(), options)}
        if read(found[names[0]]) or time.monotonic() > deadline_s:
            return found


def described(client: docker.APIClient, names: list[str]) -> list[dict]:
    return [client.inspect_container(name) for name in names]


@pytest.mark.gate
def test_each_kind_is_read_and_nothing_is_changed(
    engine: Engine, start: Start, docker_client: docker.APIClient
) -> None:
    service = start(SERVICE, ports=(8000,))
    printer, trainer, busy = start(PRINTER), start(TRAINER), start(BUSY, cpu_quota=30_000)
    names = (service, printer, trainer, busy)
    probed(engine, (printer,), lambda one: one.reading)
    probed(engine, (trainer,), lambda one: one.reading and one.reading.step == 2750)
    probed(engine, (service,), lambda one: one.reading)
    probed(engine, (busy,), lambda one: one.cpu_cores)
    before = described(docker_client, list(names))
    found = probed(engine, names, lambda one: one.reading and one.reading.over_s)
    assert described(docker_client, list(names)) == before

    one = found[service]
    assert (one.preset, one.where, one.sources) == ("fastapi", "port 8000", ("fastapi",))
    assert one.reading.quantile == 0.95
    assert one.reading.seconds == pytest.approx(0.079, rel=0.03)
    assert one.reading.over_s is not None
    # Those of the time between the two pages alone, not the million before.
    assert 0 < one.reading.requests < 100_000

    one = found[printer]
    assert (one.preset, one.where, one.sources) == ("ollama", "its log", ("ollama",))
    assert one.reading.seconds == pytest.approx(2.5, rel=0.02)
    assert one.reading.requests == one.reading.lines

    one = found[trainer]
    assert (one.preset, one.where) == ("nanogpt", "its log")
    assert (one.reading.step, one.reading.metrics) == (2750, (("val_loss", 1.35),))

    one = found[busy]
    assert (one.preset, one.where, one.reading, one.managed) == (None, None, None, None)
    assert one.cpu_cores is not None
    # Its limit; beside busy neighbours it gets less, and the look at it may be held up.
    assert 0.0 < one.cpu_cores < 0.9
    assert one.limit_cores == pytest.approx(0.3)


def test_a_service_in_the_hosts_network_is_asked_on_its_own_port_alone(
    engine: Engine, start: Start
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as other:
        # Somebody else's server on the host: a connection to it would be a page asked for.
        other.settimeout(0.0)
        strange = other.getsockname()[1]
        program = SERVICE.replace("8000", str(port))
        service = start(program, ports=(port, strange), mode="host")
        found = probed(engine, (service,), lambda one: one.reading)[service]
        with pytest.raises(BlockingIOError):
            other.accept()
    assert (found.preset, found.where) == ("fastapi", f"port {port}")
    assert found.sources == ("fastapi", f"port={port}")
    assert found.reading is not None
