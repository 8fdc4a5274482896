"""The service from start to stop, with a job of its own and a container of somebody else's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import docker
import pytest

from tests.systemd import held
from tests.v2host.inside import limits_of, shell, until
from tools.base_image import BASE
from tools.environment import ROOT

pytestmark = [pytest.mark.v2host, pytest.mark.engine, pytest.mark.timeout(900)]

SETTINGS = """
policy: held:HeldPolicy
reserve: {cpus: 0, memory: 64MiB}
period: 1s
engine: {timeout: 60s}
"""
JOB = f"""
name: alpha
image: {BASE}
network: none
command: [sleep, "3600"]
cpus: {{min: 0.05, max: 1}}
stop: {{grace: 1s}}
"""
LAUNCHER = """#!/bin/sh
PYTHONPATH=/mnt/packages:/mnt/project:/etc/dlsched/policies exec python3 -m dlsched "$@"
"""
# Slow enough to look at the host between an end and the next start.
DROP_IN = """
[Service]
WatchdogSec=300s
TimeoutStartSec=300s
TimeoutStopSec=300s
RestartSec=15s
"""
FILES = {
    "/etc/dlsched/dlsched.yaml": SETTINGS,
    "/etc/dlsched/jobs.d/alpha.yaml": JOB,
    "/etc/dlsched/policies/held.py": Path(held.__file__).read_text(),
    "/etc/systemd/system/dlsched.service": (ROOT / "config/dlsched.service").read_text(),
    "/etc/systemd/system/dlsched.service.d/slow.conf": DROP_IN,
    "/etc/sysusers.d/dlsched.conf": (ROOT / "config/dlsched.sysusers").read_text(),
}
TIMED = "timed"
SERVER = """
from http.server import BaseHTTPRequestHandler, HTTPServer

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

HTTPServer(("127.0.0.1", 18999), Answer).serve_forever()
"""
CLIENT = (
    "python3 -c 'from urllib.request import urlopen; urlopen(\"http://127.0.0.1:18999/\").read()'"
)
ALPHA = "dlsched-alpha"
WEB = "web"
HELD = f"{round(held.CORES * 100_000)} 100000\n"
CEILING = "100000 100000\n"
Before = Mapping[str, str]


@pytest.fixture(scope="module")
def before(docker_client: docker.APIClient, base_image: str) -> Iterator[Before]:
    """The service installed, not started, beside a container to adopt: that one's limits."""
    for name, text in FILES.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    launcher = Path("/usr/local/bin/dlsched")
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    shell("systemd-sysusers && systemctl daemon-reload")
    shell(
        f"docker run -d --name {WEB} --network none --label dlsched.enable=true --cpus 0.6 "
        f"--cpu-shares 512 --memory 100m {base_image} sleep 3600"
    )
    yield limits_of(docker_client, WEB)
    shell(f"systemctl stop dlsched; docker rm -f {WEB} {ALPHA}", code=None)


@pytest.fixture
def node(docker_client: docker.APIClient, before: Before) -> docker.APIClient:
    """The service runs and holds both."""
    shell("systemctl start dlsched")
    held_both(docker_client)
    return docker_client


def held_both(client: docker.APIClient) -> None:
    until(lambda: cpu_max(client, ALPHA) == HELD, "the job to be held", shown=log)
    until(lambda: cpu_max(client, WEB) == HELD, "the adopted one to be held", shown=log)


def cpu_max(client: docker.APIClient, name: str) -> str | None:
    if not client.containers(filters={"name": f"^/{name}$"}):
        return None
    return limits_of(client, name)["cpu.max"]


def given_back(client: docker.APIClient, before: Before) -> None:
    """The adopted one has what it had, the job its spec's ceiling and the default weight."""
    assert limits_of(client, WEB) == before, log()
    job = limits_of(client, ALPHA)
    assert (job["cpu.max"], job["cpu.weight"]) == (CEILING, "100\n"), log()
    assert job["cpu.max.burst"] == "0\n"


def show(property_: str) -> str:
    return shell(f"systemctl show -P {property_} dlsched")


def log() -> str:
    return shell("journalctl -u dlsched --no-pager -o cat | tail -40", code=None)


@pytest.mark.gate
def test_it_holds_a_job_in_a_slice_of_its_own_and_an_adopted_container(
    node: docker.APIClient,
) -> None:
    assert (show("ActiveState"), show("Type")) == ("active", "notify")
    ours, theirs = (node.inspect_container(name)["HostConfig"] for name in (ALPHA, WEB))
    assert ours["CgroupParent"] == "dlsched_default.slice"
    # Each in its own dialect, the other one's words stay out.
    assert (ours["CpuQuota"], ours["NanoCpus"]) == (round(held.CORES * 100_000), 0)
    assert (theirs["CpuQuota"], theirs["NanoCpus"]) == (0, round(held.CORES * 1e9))
    # Beside an adopted container that of the job in it; by systemd, so that a reload leaves it.
    weight = Path("/sys/fs/cgroup/dlsched_default.slice/cpu.weight")
    of_job = limits_of(node, ALPHA)["cpu.weight"]
    assert of_job == limits_of(node, WEB)["cpu.weight"]
    until(lambda: weight.read_text() == of_job, "the slice's weight")
    shell("systemctl daemon-reload")
    assert weight.read_text() == of_job
    assert cpu_max(node, ALPHA) == cpu_max(node, WEB) == HELD
    rows = {row["name"]: row for row in json.loads(shell("dlsched ps -o json"))["jobs"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "alpha": "running",
        WEB: "running",
    }


def test_the_unit_measures_a_silent_service_at_its_socket(
    node: docker.APIClient, base_image: str, tmp_path: Path
) -> None:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    shell(
        f"docker run -d --name {TIMED} --network host --label dlsched.enable=true "
        f"--label dlsched.target.latency=5s -v {program}:/server.py -v /usr:/usr:ro "
        f"-v /lib:/lib:ro -v /lib64:/lib64:ro {base_image} /usr/bin/python3 /server.py"
    )

    def measured() -> bool:
        shell(CLIENT, code=None)
        jobs = json.loads(shell("dlsched ps -o json"))["jobs"]
        (timed,) = (one for one in jobs if one["name"] == TIMED)
        return bool(timed["requests"] and timed["sidecar"]["wire"]["judges"])

    try:
        until(measured, "a measured answer", shown=log)
    finally:
        shell(f"docker rm -f {TIMED}", code=None)


def test_release_gives_back_and_keeps_off_until_resumed(
    node: docker.APIClient, before: Before
) -> None:
    shell("dlsched release")
    given_back(node, before)
    shell("systemctl daemon-reload; sleep 3")
    given_back(node, before)
    shell("dlsched release --resume")
    held_both(node)


@pytest.mark.gate
def test_after_kill_9_limits_are_given_back_before_it_starts_again(
    node: docker.APIClient, before: Before
) -> None:
    shell("kill -KILL $(systemctl show -P MainPID dlsched)")
    until(lambda: show("SubState") == "auto-restart", "the agent's end")
    given_back(node, before)


def test_after_that_it_starts_by_itself_and_holds_both(
    docker_client: docker.APIClient, before: Before
) -> None:
    held_both(docker_client)
    assert show("NRestarts") == "1"


def test_stop_gives_back_and_both_run_on(node: docker.APIClient, before: Before) -> None:
    began = [node.inspect_container(name)["State"]["StartedAt"] for name in (ALPHA, WEB)]
    shell("systemctl stop dlsched")
    assert show("ActiveState") == "inactive"
    given_back(node, before)
    assert began == [node.inspect_container(name)["State"]["StartedAt"] for name in (ALPHA, WEB)]
