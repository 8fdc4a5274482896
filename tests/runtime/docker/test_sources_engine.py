"""Progress of containers that somebody else started: a Prometheus endpoint, and printed lines."""

from __future__ import annotations

import math
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import APIError

from dlsched.model.facts import ContainerFact, Report
from dlsched.runtime.docker.identity.labels import ENABLE, INSTANCE
from dlsched.runtime.progress.sources import METRICS
from tests.runtime.docker.rig import Rig, fact
from tests.waiting import until

PORT, HTTP_PATH, NAME = f"{METRICS}.port", f"{METRICS}.http_path", f"{METRICS}.name"
PATTERN, STEP = f"{METRICS}.pattern", f"{METRICS}.step"

pytestmark = pytest.mark.engine

DEADLINE_S = 60.0

SERVER = """
import http.server, itertools
asked = itertools.count(1)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        n = next(asked)
        lines = [f'app_latency_seconds_bucket{{le="0.1"}} {3 * n}',
                 f'app_latency_seconds_bucket{{le="+Inf"}} {4 * n}',
                 f'app_latency_seconds_count {4 * n}', f'app_latency_seconds_sum {n}', '']
        body = '\\n'.join(lines).encode()
        self.send_response(200 if self.path == '/custom' else 404)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(('', 8000), Page).serve_forever()
"""

PRINTER = """
import signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append("to step"))
print("loading")
while not asked:
    print("GET / 9 ms", file=sys.stderr, flush=True)
    time.sleep(0.05)
for step in range(1000):
    print(f"step {step}: loss {1 / (1 + step)}", flush=True)
    print(f"GET / {step % 5 + 10} ms", file=sys.stderr, flush=True)
    time.sleep(0.05)
"""

LAST_WORDS = """
import itertools, signal, sys, time
def end(*_):
    print("step 2000: loss 0.5")
    print("step 2001: loss 0.25")
    sys.exit()
signal.signal(signal.SIGTERM, end)
for step in itertools.count():
    time.sleep(0.05)
    sys.stderr.write(f"step {step}: loss 1\\n")
"""

BUFFERED = """
import time
for step in range(100000):
    print(f"step {step}: loss {1 / (1 + step):.6f} and what else there is to say")
    time.sleep(0.01)
"""

LOSS = {
    "dlsched.target.latency": "",
    "dlsched.target.metric": "loss",
    "dlsched.target.deliver": "0.3",
    "dlsched.target.finish": "0.1",
}


@pytest.fixture
def foreign(
    rig: Rig, docker_client: docker.APIClient, cgroup_parent: str, base_image: str, network: str
) -> Iterator[Callable[..., str]]:
    """Run a Python program as somebody else would, while the agent looks on; its name."""
    made: list[str] = []
    rig.until(lambda seen: seen.engine_ok)

    def start(
        program: str,
        labels: Mapping[str, str],
        network_mode: str = network,
        tty: bool = False,
        command: Sequence[str] = ("python", "-c"),
        **more: Any,
    ) -> str:
        name = f"foreign-{secrets.token_hex(4)}"
        asks = {ENABLE: "true", INSTANCE: rig.options.instance, "dlsched.target.latency": "50ms"}
        asks = {key: value for key, value in {**asks, **labels}.items() if value}
        host = {"network_mode": network_mode, "cgroup_parent": cgroup_parent, **more}
        container = docker_client.create_container(
            base_image,
            [*command, program],
            name=name,
            labels=asks,
            tty=tty,
            host_config=docker_client.create_host_config(**host),
        )["Id"]
        made.append(container)
        docker_client.start(container)
        return name

    yield start
    for container in made:
        with suppress(APIError):
            docker_client.remove_container(container, force=True)


def reports_until(
    rig: Rig, job: str, enough: Callable[[list[Report]], object]
) -> tuple[list[Report], ContainerFact]:
    """What is reported until it is enough."""
    reports: list[Report] = []

    def observed() -> ContainerFact | None:
        found = fact(rig.observe(), job)
        reports.extend(found.reports if found is not None else ())
        return found

    found = until(
        observed,
        "enough reports",
        so=lambda found: found is not None and enough(reports),
        shown=lambda: reports,
    )
    assert found is not None
    return reports, found


def requests(reports: list[Report]) -> int:
    return sum(report.latency.count for report in reports if report.latency)


@pytest.mark.gate
def test_a_histogram_of_the_containers_own_endpoint(rig: Rig, foreign: Callable[..., str]) -> None:
    labels = {PORT: "8000", HTTP_PATH: "/custom", NAME: "app_latency_seconds"}
    job = foreign(SERVER, labels)
    reports, found = reports_until(rig, job, lambda all_: requests(all_) >= 8)
    told = [report.latency for report in reports if report.latency and report.latency.count]
    assert told[0].mean_s == pytest.approx(0.25)
    assert (found.sidecar_problem, found.bad_lines) == (None, 0)


def test_in_the_hosts_network_only_its_own_socket_is_asked(
    rig: Rig, foreign: Callable[..., str]
) -> None:
    with socket.create_server(("", 0)) as other, socket.create_server(("", 0)) as free:
        taken, port = other.getsockname()[1], free.getsockname()[1]
        free.close()
        labels = {HTTP_PATH: "/custom", NAME: "app_latency_seconds"}
        server = SERVER.replace("8000", str(port))
        own = foreign(server, {PORT: str(port), **labels}, network_mode="host")
        _, found = reports_until(rig, own, lambda all_: requests(all_) >= 8)
        assert found.sidecar_problem is None
        not_its = foreign(PRINTER, {PORT: str(taken), **labels}, network_mode="host")
        problem = f"container:{taken}/custom: the socket that listens there is not the container's"
        rig.until(lambda seen: problem in str(getattr(fact(seen, not_its), "sidecar_problem", "")))


PROXY = """
import http.server, itertools
asked = itertools.count(1)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        n = next(asked)
        name = 'traefik_service_request_duration_seconds'
        lines = [f'{name}_{kind}{{service="{service}@docker"}} {n * factor}'
                 for service, each in (('SERVED', 0.25), ('other', 9.0))
                 for kind, factor in (('count', 4), ('sum', 4 * each))]
        body = '\\n'.join([*lines, '']).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(('', 8080), Page).serve_forever()
"""


def test_a_service_without_metrics_is_read_at_its_proxy(
    rig: Rig, foreign: Callable[..., str], docker_client: docker.APIClient
) -> None:
    proxy = f"proxy-{secrets.token_hex(4)}"
    served = foreign(PRINTER, {METRICS: "traefik", f"{METRICS}.via": proxy})
    reports_until(rig, served, lambda _: True)
    edge = foreign(PROXY.replace("SERVED", served), {ENABLE: ""})
    docker_client.rename(edge, proxy)
    reports, _ = reports_until(rig, served, lambda all_: requests(all_) >= 8)
    found = [report.latency for report in reports if report.latency and report.latency.count]
    assert found[-1].mean_s == pytest.approx(0.25)


@pytest.mark.parametrize("tty", [False, True])
@pytest.mark.parametrize("driver", ["json-file", "local"])
def test_lines_that_it_prints(
    rig: Rig, foreign: Callable[..., str], driver: str, tty: bool
) -> None:
    pattern = r"step (?P<step>\d+): loss (?P<loss>\S+)|GET / (?P<latency_ms>\d+) ms"
    logging = {"Type": driver, "Config": {}}
    job = foreign(PRINTER, {PATTERN: pattern}, log_config=logging, tty=tty)
    reports_until(rig, job, requests)  # its log is followed
    rig.client.kill(job, "SIGTERM")
    reports, found = reports_until(rig, job, lambda all_: len(steps_of(all_)) > 10)
    samples = [report.sample for report in reports if report.sample]
    assert samples[0].step == 0 and samples[0].metrics == (("loss", 1.0),)
    assert [sample.step for sample in samples] == list(range(len(samples)))
    assert (found.sidecar_problem, found.bad_lines) == (None, 0)


def test_what_it_prints_before_the_engine_notes_its_start_is_read_once(
    rig: Rig, foreign: Callable[..., str]
) -> None:
    # A shell prints within a millisecond: of eight, about four do so before that note.
    program = 'echo "loss $(date +%N)"; sleep 600'
    labels = {**LOSS, PATTERN: r"loss (?P<loss>\S+)"}
    jobs = [foreign(program, labels, command=("sh", "-c")) for _ in range(8)]
    first = told_by(rig, jobs)
    for job in jobs:
        rig.client.restart(job, timeout=0)
    again = told_by(rig, jobs)
    assert all(len(told) == 1 for told in (*first.values(), *again.values()))
    assert all(again[job] != first[job] for job in jobs)


def told_by(rig: Rig, jobs: list[str]) -> dict[str, list[float]]:
    """The losses that each reports until all have, and for a second more."""
    told: dict[str, list[float]] = {job: [] for job in jobs}
    deadline_s, until_s = time.monotonic() + DEADLINE_S, math.inf
    while time.monotonic() < until_s:
        seen = rig.observe()
        for job in jobs:
            reports = getattr(fact(seen, job), "reports", ())
            told[job] += [one.sample.metrics[0][1] for one in reports if one.sample]
        if all(told.values()):
            until_s = min(until_s, time.monotonic() + 1.0)
        assert time.monotonic() < deadline_s, told
        time.sleep(0.05)
    return told


@pytest.mark.gate
def test_what_it_prints_last_is_seen_after_its_end(rig: Rig, foreign: Callable[..., str]) -> None:
    job = foreign(LAST_WORDS, {**LOSS, PATTERN: r"step (?P<step>\d+): loss (?P<loss>\S+)"})
    reports_until(rig, job, len)  # its log is followed
    rig.client.kill(job, "SIGTERM")
    # Before it: its errors, whose last line may be logged after these.
    reports, _ = reports_until(rig, job, lambda all_: 2001 in steps_of(all_))
    assert [step for step in steps_of(reports) if (step or 0) >= 2000] == [2000, 2001]


def test_block_buffered_output_is_noticed(rig: Rig, foreign: Callable[..., str]) -> None:
    job = foreign(BUFFERED, {**LOSS, PATTERN: r"step (?P<step>\d+): loss (?P<loss>\S+)"})

    def noticed(seen: Any) -> bool:
        found = fact(seen, job)
        return found is not None and found.log is not None and found.log.buffered

    rig.until(noticed, 120.0)  # three bursts, none of which was held up


def steps_of(reports: list[Report]) -> list[int | None]:
    return [report.sample.step for report in reports if report.sample]


def test_a_log_driver_that_cannot_be_read_is_said(rig: Rig, foreign: Callable[..., str]) -> None:
    logging = {"Type": "none", "Config": {}}
    job = foreign(PRINTER, {**LOSS, PATTERN: r"loss (?P<loss>\S+)"}, log_config=logging)

    def said(seen: Any) -> bool:
        found = fact(seen, job)
        why = "" if found is None else str(found.sidecar_problem)
        return why.startswith("its log cannot be read: configured logging driver")

    rig.until(said)


@pytest.mark.parametrize("tty", [False, True])
def test_a_flood_of_lines_costs_bounded_cpu_and_no_descriptors(
    rig: Rig, foreign: Callable[..., str], tty: bool
) -> None:
    program = "while True: print('latency 10 ms ' * 20)"
    job = foreign(program, {PATTERN: r"latency (?P<latency_ms>\d+) ms"}, tty=tty)
    reports_until(rig, job, requests)
    opened, bad_lines, shares = _open_files(), 0, list[float]()
    deadline_s = time.monotonic() + DEADLINE_S
    while len(shares) < 10 or bad_lines < 5:
        assert time.monotonic() < deadline_s, bad_lines
        began_s, cpu_s = time.monotonic(), time.process_time()
        time.sleep(0.3)
        found = fact(rig.observe(), job)
        assert requests(list(found.reports)) <= 512
        bad_lines = found.bad_lines
        shares.append((time.process_time() - cpu_s) / (time.monotonic() - began_s))
    # Half of the looks: a collection of garbage may fall into one.
    assert sorted(shares)[len(shares) // 2] < 0.25, shares
    # What stays open stays open; a question to the engine that is under way does not.
    rig.until(lambda _: _open_files() <= opened + 3)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
