"""The daemon and containers that others started, on a real engine: by `docker run`, by Compose."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.daemon.forked import command
from tests.daemon.strangers import Strangers
from tests.daemon.test_daemon import alarms, goes_on, reaches, row
from tools.base_image import BASE
from tools.compose import ensure_compose
from tools.session import Session, wait_for
from tools.steps import SetupError

pytestmark = [pytest.mark.e2e, pytest.mark.engine]

SLEEP = ["sleep", "600"]
SERVE = [
    "python",
    "-c",
    """
import json, time
while True:
    begun = time.monotonic()
    end = time.thread_time() + 0.02
    while time.thread_time() < end:
        pass
    with open("/tmp/told.jsonl", "a") as file:
        file.write(json.dumps({"latency_s": [time.monotonic() - begun]}) + "\\n")
""",
]
SOURCE = {"dlsched.metrics.path": "/tmp/told.jsonl"}
COMPOSE_FILE = Path(__file__).parents[2] / "examples" / "compose" / "compose.yaml"


ENABLED = {"dlsched.enable": "true"}


def cores_of(node: Session, name: str) -> float | None:
    cpu = row(node, name).get("cpu")
    return None if cpu is None else cpu["actual_cores"]


def test_the_first_start_says_what_it_touches_and_later_ones_do_not(
    node: Session, strangers: Strangers
):
    labels = {**ENABLED, **SOURCE, "dlsched.target.latency": "60ms", "dlsched.cpus.min": "0.1"}
    name = strangers.run(SERVE, labels, cpu_period=100_000, cpu_quota=90_000)
    before = strangers.limits(name)
    node.start("dqoes")
    wait_for(lambda: strangers.limits(name) != before, 60, "its limit to be changed")
    node.stop()
    log = node.root / "daemon.log"
    assert "dlsched manages 1 adopted container and 0 jobs of its own\n" in log.read_text()
    assert strangers.limits(name) == before
    node.start("dqoes")
    node.stop()
    assert log.read_text().count("first start: ") == 1


def test_under_none_what_its_owner_gave_it_stays_and_earlier_changes_are_given_back(
    node: Session, strangers: Strangers, docker_client: docker.APIClient
):
    asks = {**ENABLED, **SOURCE, "dlsched.target.latency": "60ms", "dlsched.cpus.max": "0.8"}
    limited = strangers.run(SERVE, asks, cpu_period=100_000, cpu_quota=90_000, cpu_shares=300)
    free = strangers.run(SERVE, asks)
    before = {name: strangers.limits(name) for name in (limited, free)}

    def now() -> dict[str, tuple[int, int, int, int]]:
        return {name: strangers.limits(name) for name in before}

    node.start("none")
    for name in before:
        reaches(node, name, "running")
    # Its owner changes it while it is observed, too.
    docker_client.update_container(free, cpu_period=100_000, cpu_quota=50_000, cpu_shares=200)
    before = now()
    wait_for(lambda: cores_of(node, free) == 0.5, 30, "the change to be observed")
    goes_on(node, 4)
    assert now() == before
    assert not list((node.state_dir / "originals").glob("*.json")), "none was ever changed"
    assert "observed only" in command(node, "why", limited).stdout

    node.configure("dqoes")
    node.process.send_signal(signal.SIGHUP)
    wait_for(lambda: all(now()[name] != before[name] for name in before), 90, "both to be changed")
    node.configure("none")
    node.process.send_signal(signal.SIGHUP)
    wait_for(lambda: now() == before, 30, "both to get back what they had")
    wait_for(lambda: cores_of(node, free) == 0.5, 30, "that to be observed")
    goes_on(node, 4)
    assert now() == before
    assert "given back: the policy only observes" in command(node, "why", free).stdout


@pytest.mark.gate
def test_one_that_docker_started_is_kept_at_its_target_and_gets_back_what_it_had(
    node: Session, strangers: Strangers
):
    name = strangers.run(
        SERVE,
        {**ENABLED, **SOURCE, "dlsched.target.latency": "60ms", "dlsched.cpus.min": "0.1"},
        cpu_period=100_000,
        cpu_quota=90_000,
    )
    before = strangers.limits(name)
    node.start("dqoes")
    job = reaches(node, name, "running")
    assert job["source"] == "container"
    assert (job["cpu"]["floor_cores"], job["cpu"]["ceiling_cores"]) == (0.1, 0.9)
    wait_for(lambda: row(node, name)["requests"] > 20, 30, "its lines to be read")
    wait_for(lambda: (cores_of(node, name) or 1) < 0.6, 60, "its limit to follow its target")
    wait_for(lambda: strangers.limits(name)[1] < 60_000, 30, "the engine to say the same")
    assert "adopted" in command(node, "ps").stdout
    assert ": running, adopted, target" in command(node, "why", name).stdout
    refused = command(node, "stop", name)
    assert refused.returncode == 1
    assert f"{name} is an adopted container: dlsched only sets its limits" in refused.stderr
    assert row(node, name)["state"] == "running"

    # A daemon that was killed gives nothing back: the next one still knows what it came with.
    node.kill()
    assert strangers.limits(name) != before
    node.start("dqoes")
    job = reaches(node, name, "running")
    assert job["cpu"]["ceiling_cores"] == 0.9
    node.stop()
    assert strangers.limits(name) == before


def test_an_exit_a_restart_and_a_removal_are_seen_and_nothing_is_done_about_them(
    node: Session, strangers: Strangers
):
    name = strangers.run(SERVE, {**ENABLED, **SOURCE, "dlsched.target.latency": "60ms"})
    node.start("dqoes")
    first = reaches(node, name, "running")
    wait_for(lambda: row(node, name)["requests"] > 0, 30, "its lines to be read")
    strangers.client.kill(name, "SIGTERM")
    assert "exit code" in reaches(node, name, "stopped")["reason"]
    strangers.client.start(name)
    again = reaches(node, name, "running")
    assert again["container"] == first["container"]
    wait_for(lambda: row(node, name)["requests"] > 0, 30, "its lines to be read again")
    strangers.client.rename(name, f"{name}-2")
    assert reaches(node, f"{name}-2", "running")["container"] == first["container"]
    reaches(node, name, "absent")
    strangers.remove(f"{name}-2")
    reaches(node, f"{name}-2", "absent")
    assert list((node.state_dir / "ended").glob("*")) == []


@pytest.mark.gate
def test_who_is_left_alone_is_not_touched_and_where_its_labels_are_wrong_that_is_told(
    node: Session, strangers: Strangers
):
    wrong = strangers.run(SLEEP, {**ENABLED, "dlsched.cpus.max": "many"})
    foreign = strangers.run(SLEEP, ENABLED, instance="somebody-else")
    unasked = strangers.run(SLEEP, {"dlsched.enable": "false"})
    tag = f"dlsched-test/{secrets.token_hex(4)}"
    labels = {**ENABLED, "dlsched.instance": node.instance, "dlsched.weight": "7"}
    changes = [f"LABEL {label}={value}" for label, value in labels.items()]
    strangers.client.commit(wrong, tag, "1", changes=changes)
    try:
        vendors = strangers.run(SLEEP, ENABLED, image=f"{tag}:1")
        mine = strangers.run(SLEEP, {**ENABLED, "dlsched.weight": "7"}, image=BASE)
        before = {name: strangers.limits(name) for name in (wrong, foreign, unasked, vendors)}
        node.start("fair", more={"capacity": 1.0})
        wait_for(lambda: cores_of(node, mine) == 1.0, 30, "the one that asks to be managed")
        alarm = alarms(node, "label dlsched.cpus.max: 'many' is not a number")
        # A busy engine may just be late with an answer.
        wait_for(lambda: node.client.jobs()["alarms"] == [alarm], 30, "no other alarm")
        assert [job["name"] for job in node.client.jobs()["jobs"]] == [mine]
        assert alarm.startswith(f"container {wrong} (")
        assert alarm.endswith("label dlsched.cpus.max: 'many' is not a number")
        assert alarm in " ".join(command(node, "ps").stdout.split())
        assert {name: strangers.limits(name) for name in before} == before
    finally:
        strangers.close()
        strangers.client.remove_image(f"{tag}:1", force=True)


# ---------------------------------------------------------------------- Compose


class Project:
    """The example's Compose file as a project of its own, without a network."""

    def __init__(self, compose: list[str], override: Path, name: str) -> None:
        self.name = name
        self._words = [*compose, "-p", name, "-f", str(COMPOSE_FILE), "-f", str(override)]

    def __call__(self, *words: str) -> str:
        """Run Compose; returns what it printed."""
        done = subprocess.run(
            [*self._words, *words], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def project(
    node: Session, inference_image: str, tmp_path: Path, changes_host_network: None
) -> Iterator[Project]:
    try:
        compose = ensure_compose()
    except SetupError as error:
        pytest.skip(f"there is no Compose to test the example with: {error}")
    override = tmp_path / "override.yaml"
    digits = {"network_mode": "none", "labels": {"dlsched.instance": node.instance}}
    override.write_text(json.dumps({"services": {"digits": digits}}))
    made = Project(compose, override, f"dlsched{secrets.token_hex(3)}")
    try:
        yield made
    finally:
        node.stop()
        made("down", "-t", "1", "-v")


def test_the_compose_example_is_adopted_measured_and_left_as_compose_made_it(
    node: Session, project: Project, docker_client: docker.APIClient
):
    project("up", "-d")
    container = project("ps", "-q", "digits").strip()
    name = docker_client.inspect_container(container)["Name"].lstrip("/")
    node.start("dqoes")
    job = reaches(node, name, "running")
    assert job["target"]["text"] == "mean 60 ms"
    assert (job["cpu"]["floor_cores"], job["cpu"]["ceiling_cores"]) == (0.05, 1.0)
    wait_for(lambda: row(node, name)["measured_s"] is not None, 60, "its latency to be measured")
    wait_for(lambda: (cores_of(node, name) or 1) < 0.95, 60, "its limit to follow its target")

    # Compose makes it anew: another container, and the same job.
    project("up", "-d", "--force-recreate", "-t", "1")
    wait_for(lambda: row(node, name)["container"] not in (None, container[:12]), 30, "the new one")
    reaches(node, name, "running")
    # A busy engine may just be late with an answer.
    wait_for(lambda: node.client.jobs()["alarms"] == [], 30, "no alarm")
    node.stop()
    (anew,) = docker_client.containers(
        filters={"label": f"com.docker.compose.project={project.name}"}
    )
    assert docker_client.inspect_container(anew["Id"])["HostConfig"]["NanoCpus"] == 1_000_000_000
