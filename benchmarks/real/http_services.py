"""HTTP services under Poisson clients on real containers, beside trainings: what their clients saw.

Owns their start, the clients, what is counted while a policy has them, and who is worse off for it.
It must not choose the services: whoever compares does. Latencies are the clients', counted from the
moment that a request was due.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.places import ROOT
from benchmarks.publish.results import grouped
from benchmarks.real import training_set
from dlsched.model.actions import Resize
from dlsched.runtime.docker.identity.labels import container_name
from dlsched.simulation.scoring import PLAIN
from tests.worlds.harm import SLOWER_RATIO, SLOWER_S
from tools.session import STRANGER, Session, idle_group, wait_for

POLICIES = (PLAIN, "adaptive")
BY_HAND = "by hand"
"""Plain Docker, with the trainings put into the kernel's idle class."""
MODELS = ("mobilenet", "xception", "inception", "resnet", "vgg")
CLIENT = ROOT / "examples" / "images" / "inference"
IMAGES = 8
"""A request: 2 to 7 ms of CPU."""

_TOLD = "/run/dlsched/out/metrics.jsonl"

Look = Callable[[float, Mapping[str, Any]], None]
"""Called about once a second with the seconds that are left and the daemon's status."""


@dataclass(frozen=True)
class Service:
    """One HTTP service and its client."""

    name: str
    model: str
    rate_per_s: float
    target_s: float

    def spec(self, sockets: Path) -> str:
        """Its job file; JSON is YAML."""
        return json.dumps(
            {
                "name": self.name,
                "image": "dlsched-examples/inference",
                "command": [
                    *("python", "serve.py", "--model", self.model),
                    *("--uds", f"/sockets/{self.name}"),
                ],
                "volumes": [f"{sockets}:/sockets"],
                "network": "none",
                "memory": "512MiB",
                "target": {"latency": f"{1000 * self.target_s:g}ms"},
                "stop": {"grace": "1s"},
            }
        )


@dataclass(frozen=True)
class Scenario:
    """Services, and trainings beside them."""

    words: str
    services: tuple[Service, ...]
    trainings: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    """Of both, those that somebody else starts, with labels."""
    unmanaged: tuple[str, ...] = ()
    """Trainings that somebody else starts without labels."""

    @property
    def own(self) -> int:
        """How many dlsched starts."""
        return len(self.services) + len(self.trainings) - len(self.adopted)


@dataclass(frozen=True)
class Measured:
    """What the client of one service saw under one policy."""

    scenario: str
    policy: str
    run: int
    service: str
    target_ms: float
    requests: int
    failed: int
    """Answered with an error, or never sent since too many waited."""
    mean_ms: float | None
    p95_ms: float | None
    ceilings: int
    """Cycles in which the policy wanted a ceiling for it."""
    updates_per_min: float
    """Of all jobs together, while it was measured."""
    trainings_core_s: float
    """CPU time of the trainings meanwhile, in core-seconds."""
    trainings_steps: int


def begin(one: Session, scenario: Scenario) -> None:
    """Start everything under plain Docker, so that no policy begins with start-ups.

    No daemon runs after it.
    """
    sockets = one.root / "sockets"
    sockets.mkdir()
    sockets.chmod(0o777)
    one.start(PLAIN)
    files = {service.name: service.spec(sockets) for service in scenario.services}
    for name in (*scenario.trainings, *scenario.unmanaged):
        files[name] = training_set.endless(name, 1)
    for name, text in files.items():
        if name in scenario.adopted or name in scenario.unmanaged:
            _run_by_hand(one, text, adopted=name in scenario.adopted)
        else:
            one.drop(name, text)
    jobs = len(scenario.services) + len(scenario.trainings)
    wait_for(lambda: one.running() == jobs, 120, f"{jobs} jobs to run", one.why_not_running)
    names = [service.name for service in scenario.services]
    wait_for(lambda: all((sockets / name).exists() for name in names), 120, "every socket")
    rows, trainings = one.client.jobs, scenario.trainings
    wait_for(
        lambda: all(row["blind"] is None for row in rows()["jobs"] if row["name"] in trainings),
        120,
        "every training's first report",
    )
    one.confine()
    one.stop()


def _run_by_hand(one: Session, job_file: str, *, adopted: bool) -> None:
    """Start what that job file describes by `docker run`; the session ends it.

    It lies under another parent control group than dlsched's own. `adopted`: with labels for it.
    """
    spec: dict[str, Any] = yaml.safe_load(job_file)
    labels = {STRANGER: one.instance}
    if adopted:
        labels |= {"dlsched.instance": one.instance, "dlsched.enable": "true"}
        labels |= {f"dlsched.target.{name}": str(value) for name, value in spec["target"].items()}
        labels["dlsched.metrics.path"] = _TOLD
    one.engine.containers.run(
        spec["image"],
        spec["command"],
        name=spec["name"],
        detach=True,
        labels=labels,
        environment={
            "DLSCHED_METRICS_FILE": _TOLD,
            "PYTHONPATH": "/opt/site-packages:/opt/dlsched",
        },
        volumes=[*spec.get("volumes", ()), f"{ROOT}/dlsched/report:/opt/dlsched/dlsched/report:ro"],
        tmpfs={str(Path(_TOLD).parent): "size=1m,mode=1777"},
        network_mode="none",
        init=True,
    )


def measure(
    one: Session,
    scenario: Scenario,
    policy: str,
    number: int,
    *,
    settle_s: float,
    judge_s: float,
    look: Look | None = None,
) -> list[Measured]:
    """The clients' latencies after the policy has settled; the same arrivals for each policy."""
    one.forget()
    _idle_by_hand(one, scenario.trainings, idle=policy == BY_HAND)
    plain = policy in (PLAIN, BY_HAND)
    # Under plain Docker all containers are siblings, whoever started them.
    flat = {"group_weight": max(scenario.own, 1)} if scenario.adopted or scenario.unmanaged else {}
    one.start(PLAIN if plain else policy, more=flat if plain else {})
    for row in _clients(one, scenario, settle_s, 1000 * number, look).values():
        if not row["sent"]:
            raise RuntimeError(f"a client sent nothing: {row}")
    first = one.cycle()
    answered = _clients(one, scenario, judge_s, 1000 * number + 500, look)
    one.stop()
    ceilings = dict.fromkeys(answered, 0)
    updates = 0
    attained: dict[str, list[float]] = {name: [] for name in scenario.trainings}
    steps: dict[str, list[int]] = {name: [0] for name in scenario.trainings}
    for report in one.reports(first):
        updates += sum(
            isinstance(outcome.action, Resize) and outcome.status in ("done", "begun")
            for outcome in report.outcomes
        )
        limits = {} if report.decision is None else report.decision.limits
        for name in ceilings:
            ceilings[name] += name in limits and limits[name].cpu_cores is not None
        for job in report.snapshot.jobs:
            if job.name in attained:
                attained[job.name].append(job.attained_core_s)
                told = [sample.step for sample in job.progress.samples if sample.step is not None]
                steps[job.name] += told[-1:]
    return [
        Measured(
            scenario.words,
            policy,
            number,
            service.name,
            1000 * service.target_s,
            int(row["answered"] or 0),
            int((row["errors"] or 0) + (row["dropped"] or 0)),
            _ms(row["mean_s"]),
            _ms(row["p95_s"]),
            ceilings[service.name],
            round(updates / judge_s * 60, 1),
            round(sum(core_s[-1] - core_s[0] for core_s in attained.values()), 1),
            sum(max(told) - min(told[1:], default=0) for told in steps.values()),
        )
        for service in scenario.services
        for row in [answered[service.name]]
    ]


def _idle_by_hand(one: Session, names: Sequence[str], *, idle: bool) -> None:
    found = one.engine.containers.list(ignore_removed=True)
    for name in names:
        (container,) = [
            each for each in found if each.name in (name, container_name(one.instance, name))
        ]
        idle_group(container.attrs["State"]["Pid"], idle=idle)


def _clients(
    one: Session, scenario: Scenario, seconds: float, seed: int, look: Look | None
) -> dict[str, Mapping[str, float | None]]:
    """Every service's client, all together, for so long; what each counted."""
    end_s = time.monotonic() + seconds
    clients = {
        service.name: subprocess.Popen(
            [
                *(sys.executable, "client.py", f"unix:{one.root / 'sockets' / service.name}"),
                *("--rate", str(service.rate_per_s), "--seconds", str(seconds)),
                *("--seed", str(seed + index), "--count", str(IMAGES)),
                *("--timeout", "60", "--in-flight", "256"),
            ],
            cwd=CLIENT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for index, service in enumerate(scenario.services)
    }
    told = {}
    try:
        while (left_s := end_s - time.monotonic()) > 0.0:
            if look is not None:
                look(left_s, one.client.jobs())
            time.sleep(min(1.0, left_s))
        for name, client in clients.items():
            output, _ = client.communicate(timeout=90)
            if client.returncode:
                raise RuntimeError(f"the client of {name} ended with {client.returncode}")
            told[name] = json.loads(output.splitlines()[-1])
    finally:
        for client in clients.values():
            client.kill()
    return told


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 1)


def real_table(found: Sequence[Measured]) -> list[dict[str, object]]:
    """One row a service: its mean and p95 in the median of the runs, under each policy."""
    table = []
    services = grouped(found, lambda row: (row.scenario, row.service))
    for (scenario, service), mine in services.items():
        line: dict[str, object] = {"beside": scenario, "service": service}
        line["target, ms"] = mine[0].target_ms
        for policy in POLICIES:
            rows = [row for row in mine if row.policy == policy]
            line[f"mean, {policy}"] = _median([row.mean_ms for row in rows])
            line[f"p95, {policy}"] = _median([row.p95_ms for row in rows])
        table.append(line | {"cycles with a ceiling": sum(row.ceilings for row in mine)})
    return table


def trainings_table(found: Sequence[Measured]) -> list[dict[str, object]]:
    """One row a scenario with trainings: their steps, and what was changed, in the median."""
    table = []
    for scenario in dict.fromkeys(row.scenario for row in found if row.trainings_steps):
        line: dict[str, object] = {"scenario": scenario}
        for policy in (PLAIN, BY_HAND, POLICIES[1]):
            rows = [row for row in found if (row.scenario, row.policy) == (scenario, policy)]
            if rows:
                line[f"steps, {policy}"] = _median([row.trainings_steps for row in rows])
                line[f"updates/min, {policy}"] = _median([row.updates_per_min for row in rows])
        table.append(line)
    return table


def _median(values: Sequence[float | None]) -> float:
    return statistics.median(math.inf if value is None else value for value in values)


def harmed(table: Sequence[Mapping[str, object]]) -> list[str]:
    """The services that are slower than under plain Docker, in the mean or in p95."""
    found = []
    for row in table:
        for measure in ("mean", "p95"):
            plain, own = (float(str(row[f"{measure}, {policy}"])) for policy in POLICIES)
            if own > SLOWER_RATIO * plain + 1000 * SLOWER_S:
                found.append(f"{row['service']} ({measure} {own:g} ms, plain {plain:g} ms)")
    return found
