"""What containers that somebody else started print, by the engine's own log drivers."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import docker
import pytest
from docker.errors import APIError

from dlsched.model.facts import ContainerFact, Report
from dlsched.runtime.docker.identity.labels import ENABLE, INSTANCE
from dlsched.runtime.progress.sources import METRICS
from tests.runtime.docker.rig import Rig, fact
from tests.waiting import until

PATTERN = f"{METRICS}.pattern"

pytestmark = pytest.mark.engine

DEADLINE_S = 60.0

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

LOSS = {
    "dlsched.target.latency": "",
    "dlsched.target.metric": "loss",
    "dlsched.target.deliver": "0.3",
    "dlsched.target.finish": "0.1",
}


@pytest.fixture
def foreign(
    rig: Rig, docker_client: docker.APIClient, cgroup_parent: str, base_image: str
) -> Iterator[Callable[..., str]]:
    """Run a Python program as somebody else would, while the agent looks on; its name."""
    made: list[str] = []
    rig.until(lambda seen: seen.engine_ok)

    def start(
        program: str,
        labels: Mapping[str, str],
        tty: bool = False,
        command: Sequence[str] = ("python", "-c"),
        **more: Any,
    ) -> str:
        name = f"foreign-{secrets.token_hex(4)}"
        asks = {ENABLE: "true", INSTANCE: rig.options.instance, "dlsched.target.latency": "50ms"}
        asks = {key: value for key, value in {**asks, **labels}.items() if value}
        host = {"network_mode": "none", "cgroup_parent": cgroup_parent, **more}
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


def steps_of(reports: list[Report]) -> list[int | None]:
    return [report.sample.step for report in reports if report.sample]


def test_a_log_driver_that_cannot_be_read_is_said(rig: Rig, foreign: Callable[..., str]) -> None:
    logging = {"Type": "none", "Config": {}}
    job = foreign(PRINTER, {**LOSS, PATTERN: r"loss (?P<loss>\S+)"}, log_config=logging)

    def said(seen: Any) -> bool:
        found = fact(seen, job)
        why = "" if found is None else str(found.sidecar_problem)
        return why.startswith("the container's log cannot be read: configured logging driver")

    rig.until(said)
