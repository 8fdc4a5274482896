"""`dlsched adopt`, `drop` and `export` on a real engine: containers without any label of ours."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.daemon.forked import command, ok, session
from tests.daemon.strangers import Strangers
from tests.daemon.test_adoption import SERVE, SLEEP
from tests.daemon.test_daemon import alarms, reaches, row, shows
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]

READ = "path=/tmp/told.jsonl"


def refused(node: Session, *words: str) -> str:
    done = command(node, *words)
    assert done.returncode != 0, done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    return str(done.stderr)


def test_a_running_service_is_adopted_and_dropped_as_it_was(node: Session, strangers: Strangers):
    name = f"Web-{node.instance}"
    service = strangers.named(name, SERVE)
    other = strangers.named(f"busy-{node.instance}", ["sh", "-c", "while :; do :; done"])
    before = strangers.facts(service)
    node.start("adaptive")
    printed = ok(node, "adopt", name, "--latency", "60ms", "--metrics", READ)
    job = name.lower()
    assert f"{name}: adopted while it runs, as job {job}: no restart, no labels" in printed
    assert f"limit before: no limit; `dlsched drop {name}` gives it back" in printed
    assert " over " in printed, printed
    shows(node, job, lambda one: one["measured_s"], "to be measured")
    assert strangers.facts(service)[:3] == before[:3]
    assert "adopted" in ok(node, "ps")
    assert "'dlsched.target.latency': '60ms'" in ok(node, "export", job)

    dropped = ok(node, "drop", name)
    assert f"{name}: dropped; its limits now: " in dropped
    assert "(checked)" in dropped
    assert strangers.facts(service) == before
    wait_for(lambda: row(node, job)["state"] == "absent", 30, "it to be no job any more")
    assert "dropped" in ok(node, "drop", name), "a lost answer may be asked for again"
    assert "not adopted, so nothing is dropped" in refused(node, "drop", other)
    assert strangers.limits(other) == (0, 0, 100_000, 1024)


PRINTS = [
    "python",
    "-u",
    "-c",
    """
import time
for _ in range(400):
    print("took 900 ms")
time.sleep(12)
while True:
    print("took 20 ms; slow 700 ms")
    time.sleep(0.1)
""",
]


def test_old_requests_are_not_news_and_another_adoption_reads_elsewhere(
    node: Session, strangers: Strangers
):
    name = f"prints-{node.instance}"
    container = strangers.named(name, PRINTS)
    wait_for(
        lambda: b"20 ms" in strangers.client.logs(container, tail=1), 40, "its present requests"
    )
    node.start("none")
    took = r"pattern=took (?P<latency_ms>[0-9.]+) ms"
    ok(node, "adopt", name, "--latency", "50ms", "--metrics", took)
    job = shows(node, name, lambda one: one["requests"] >= 5, "to have requests")
    assert job["measured_s"] == pytest.approx(0.02)
    slow = r"pattern=slow (?P<latency_ms>[0-9.]+) ms"
    ok(node, "adopt", name, "--latency", "50ms", "--metrics", slow)
    shows(node, name, lambda one: (one["measured_s"] or 0) > 0.5, "to be read elsewhere", 90)


TRAINS = [
    "python",
    "-u",
    "-c",
    """
import time
for step in range(5000):
    print(f"step {step} acc {step / 10000}")
time.sleep(12)
for step in range(5000, 100000):
    print(f"step {step} acc 0.5")
    time.sleep(0.2)
""",
]


def test_what_a_training_printed_before_is_its_history_and_no_bad_line(
    node: Session, strangers: Strangers
):
    name = f"trains-{node.instance}"
    container = strangers.named(name, TRAINS)
    wait_for(
        lambda: b"acc 0.5\n" in strangers.client.logs(container, tail=1), 40, "its present steps"
    )
    node.start("none")
    acc = r"pattern=step (?P<step>[0-9]+) acc (?P<acc>[0-9.]+)"
    ok(node, "adopt", name, "--reach", "acc=0.49", "--metrics", acc)
    job = shows(node, name, lambda one: one["metric"] == 0.5, "to have its present value")
    delivered = job["tiers"]["delivered"]
    assert delivered is not None and 4800 <= delivered["step"] < 5000, "the history counts"
    assert (job["sidecar"]["bad_lines"], job["sidecar"]["refused"]) == (0, None)


def test_a_maximum_above_the_host_is_what_the_host_has(node: Session, strangers: Strangers):
    name = f"wide-{node.instance}"
    strangers.named(name, SERVE, cpu_period=100_000, cpu_quota=20_000)
    node.start("adaptive")
    ok(node, "adopt", name, "--latency", "60ms", "--maximum", "1000", "--metrics", READ)
    shows(node, name, lambda one: (one["cpu"]["actual_cores"] or 0) > 1, "to have its maximum")
    changes = len(node.client.why(name, 100)["changes"])
    time.sleep(4)
    assert len(node.client.why(name, 100)["changes"]) <= changes + 2, "not once in every cycle"


@pytest.mark.gate
def test_limits_that_were_changed_are_as_before_after_a_drop(node: Session, strangers: Strangers):
    name = f"calm-{node.instance}"
    service = strangers.named(name, SERVE, cpu_period=100_000, cpu_quota=90_000)
    before = strangers.facts(service)
    node.start("dqoes")
    printed = ok(node, "adopt", name, "--latency", "60ms", "--metrics", READ, "--minimum", "0.1")
    assert "before: 0.9 cores" in printed
    wait_for(lambda: strangers.facts(service) != before, 60, "its limit to be changed")
    ok(node, "drop", name)
    assert strangers.facts(service) == before


@pytest.mark.gate
def test_an_adoption_outlives_a_killed_daemon_and_holds_for_the_next_container(
    node: Session, strangers: Strangers
):
    name = f"app-{node.instance}"
    compose = {
        "com.docker.compose.project": node.instance,
        "com.docker.compose.service": "app",
        "com.docker.compose.container-number": "1",
    }
    first = strangers.named(name, SLEEP, compose)
    node.start("none")
    printed = ok(node, "adopt", name, "--minimum", "0.2")
    assert f"later containers of service {node.instance}/app are adopted too" in printed
    reaches(node, name, "running")
    node.kill()
    node.start("none")
    reaches(node, name, "running")
    strangers.remove(first)
    # Compose gives a scaled or renamed service another name: the service counts.
    second = strangers.named(f"{name}-2", SLEEP, compose)
    shows(node, name, lambda one: one["container"] == second[:12], "to be the next container")
    strangers.remove(second)
    third = strangers.named(f"{name}-2", SLEEP)
    shows(node, name, lambda one: one["container"] == third[:12], "to be the next of that name")


def test_a_drop_outlives_labels_and_restarts_until_it_is_adopted_again(
    node: Session, strangers: Strangers
):
    name = f"labelled-{node.instance}"
    labels = {"dlsched.enable": "true", "dlsched.instance": node.instance}
    container = strangers.named(name, SLEEP, labels)
    node.start("none")
    reaches(node, name, "running")
    assert "not changed: the container's own labels adopt it" in refused(
        node, "adopt", name, "--minimum", "0.2"
    )
    ok(node, "drop", name)
    strangers.client.restart(container, timeout=0)
    node.kill()
    node.start("none")
    wait_for(lambda: node.client.about()["pid"], 30, "the daemon to answer")
    other = strangers.named(f"other-{node.instance}", SLEEP, labels)
    reaches(node, f"other-{node.instance}", "running")
    assert row(node, name)["state"] == "absent"
    # A busy engine may just be late with an answer.
    wait_for(lambda: node.client.jobs()["alarms"] == [], 30, "no alarm")
    node.client.adopt(name, {})
    reaches(node, name, "running")
    strangers.remove(other)


@pytest.mark.gate
def test_bad_input_gets_one_line_and_changes_nothing(node: Session, strangers: Strangers):
    name = f"plain-{node.instance}"
    container = strangers.named(name, SLEEP)
    ended = f"ended-{node.instance}"
    strangers.client.stop(strangers.named(ended, SLEEP), timeout=0)
    before = strangers.facts(container)
    node.start("none")
    assert "no container 'nothing-here'" in refused(node, "adopt", "nothing-here", "--weight", "2")
    assert "the container does not run (exited)" in refused(node, "adopt", ended, "--weight", "2")
    wrong = "cpus: min 4 cores is above max 2 cores"
    assert wrong in refused(node, "adopt", name, "--minimum", "4", "--maximum", "2")
    reach = ("--reach", "accuracy=0.9")
    assert "give --metrics PRESET or KEY=VALUE" in refused(node, "adopt", name, *reach)
    assert "was not adopted by `dlsched adopt`" in refused(node, "export", name)
    assert strangers.facts(container) == before
    assert node.client.jobs()["jobs"] == []
    assert json.loads(ok(node, "adopt", name, "--weight", "2", "--json"))["job"] == name
    twin = name.capitalize()
    strangers.named(twin, SLEEP)
    said = refused(node, "adopt", twin, "--weight", "2")
    assert f"another container, {name}, already runs as job {name}" in said


@pytest.fixture
def second(node: Session) -> Iterator[Session]:
    """The home of another instance on the same engine."""
    with session() as one:
        yield one


def test_of_two_instances_the_first_has_a_container_until_its_limits_are_given_back(
    node: Session, second: Session, strangers: Strangers
):
    name = f"shared-{node.instance}"
    container = strangers.named(name, SLEEP, cpu_period=100_000, cpu_quota=90_000)
    before = strangers.facts(container)

    def gets(cores: float) -> None:
        wait_for(lambda: strangers.limits(container)[1] == cores * 100_000, 60, f"{cores} cores")

    fixed = "tools.fixed_policy:FixedPolicy"
    node.start(fixed, {"cores": f"{name}=0.2"})
    ok(node, "adopt", name, "--weight", "2")
    gets(0.2)
    second.start(fixed, {"cores": f"{name}=0.3"})
    has = "another dlsched instance on this host has the container"
    assert f"{name}: {has}" in refused(second, "adopt", name, "--weight", "2")

    node.kill()
    assert "the limits of 1 container are still as dlsched set them" in command(node, "ps").stderr
    ok(node, "release")
    assert strangers.facts(container) == before
    ok(second, "adopt", name, "--weight", "2")
    gets(0.3)
    node.start(fixed, {"cores": f"{name}=0.2"})
    assert has in alarms(node, f"{name}: limits not changed")
    ok(second, "drop", name)
    gets(0.2)
    ok(node, "drop", name)
    assert strangers.facts(container) == before


BUSY = ["sh", "-c", "while :; do :; done & while :; do :; done"]


def test_the_least_weight_keeps_busy_containers_behind_a_service(
    node: Session, strangers: Strangers
):
    shop, left = f"shop-{node.instance}", f"left-{node.instance}"
    busy = [f"busy-{number}-{node.instance}" for number in (1, 2)]
    service = strangers.named(shop, SERVE)
    containers = {name: strangers.named(name, BUSY) for name in busy}
    stays = strangers.named(left, BUSY)
    every = [service, *containers.values(), stays]
    before = [strangers.facts(one) for one in every]
    node.start("adaptive")
    ok(node, "adopt", shop, "--latency", "60ms", "--metrics", READ)
    others = {one["name"]: one for one in node.client.containers()["others"]}
    assert {*busy, left} <= others.keys() and shop not in others
    assert others[left]["cpu_cores"] > 0
    for name in busy:
        assert "in the background: the container gets" in ok(node, "adopt", name, "--background")
    assert not {*busy, shop} & {one["name"] for one in node.client.containers()["others"]}
    refusal = "--background: a background job cannot have a target"
    assert refusal in refused(node, "adopt", busy[0], "--background", "--latency", "1s")

    for name, container in containers.items():
        wait_for(lambda one=container: strangers.limits(one)[3] == 2, 60, f"{name} to come last")
        job = row(node, name)
        assert (job["background"], job["blind"], job["cpu"]["actual_cores"]) == (True, None, None)
        assert "background: the CPU that no other job uses" in ok(node, "why", name)
    assert "adopted; background" in ok(node, "ps")
    assert "'dlsched.background': 'true'" in ok(node, "export", busy[0])

    dropped = ok(node, "drop", "--all", "--yes")
    assert dropped.count("(checked)") == 3
    assert [strangers.facts(one) for one in every] == before
