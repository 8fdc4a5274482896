"""HTTP services under Poisson clients on real containers, beside trainings: what their clients saw.

Owns their start, the clients, what is counted while a policy has them, and who is worse off for it.
Latencies are the clients', counted from the moment that a request was due. The bench's own services
stand beside one whose target nothing can meet, beside trainings, and in three scenes that a policy
can harm: beside services without a target, trainings that stall, and workers that spin for a lock.

    python -m benchmarks run open-loop-real     writes benchmarks/results/open-loop-real.json
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.judge import updates
from benchmarks.options import options
from benchmarks.places import ROOT
from benchmarks.publish import results
from benchmarks.publish.results import grouped
from benchmarks.real import training_set
from benchmarks.real.comparison import MODELS
from benchmarks.real.scene import CLIENT, asking, ms
from dlsched.simulation.scoring import PLAIN
from tests.worlds.harm import SLOWER_RATIO, SLOWER_S
from tools.session import Session, session, wait_for

POLICIES = (PLAIN, "adaptive")
LOCKED = ROOT / "benchmarks" / "real" / "programs" / "locked.py"
SETTLE_S, JUDGE_S = 25.0, 40.0
IMAGES = 8
"""A request: 2 to 7 ms of CPU."""


BUSY = {
    "name": "busy",
    "image": "dlsched-examples/inference",
    "command": ["python", "-c", "import os; os.fork()\nwhile True: pass"],
    "network": "none",
    "stop": {"grace": "1s"},
}


@dataclass(frozen=True)
class Service:
    """One HTTP service and its client."""

    name: str
    model: str
    rate_per_s: float
    target_s: float | None
    locks: bool = False
    """Whether its workers spin for one lock."""

    def spec(self, sockets: Path) -> str:
        """Its job file; JSON is YAML."""
        job: dict[str, Any] = {
            "name": self.name,
            "image": "dlsched-examples/inference",
            "command": [
                *("python", "serve.py", "--model", self.model),
                *("--uds", f"/sockets/{self.name}"),
            ],
            "volumes": [f"{sockets}:/sockets"],
            "network": "none",
            "memory": "512MiB",
            "stop": {"grace": "1s"},
        }
        if self.target_s is not None:
            job["target"] = {"latency": f"{1000 * self.target_s:g}ms"}
        if self.locks:
            job["command"][1] = "/locked.py"
            job["volumes"].append(f"{LOCKED}:/locked.py:ro")
            job["environment"] = {"PYTHONPATH": "/app:/opt/site-packages"}
        return json.dumps(job)


@dataclass(frozen=True)
class Scenario:
    """Services, and trainings beside them."""

    words: str
    services: tuple[Service, ...]
    trainings: tuple[str, ...] = ()
    stalls: bool = False
    """Whether the trainings stand still in four of ten seconds."""
    busy: bool = False
    """Whether two threads of a job without a target compute all the time."""


@dataclass(frozen=True)
class Measured:
    """What the client of one service saw under one policy."""

    scenario: str
    policy: str
    run: int
    service: str
    target_ms: float | None
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


def begin(one: Session, scenario: Scenario) -> None:
    """Start everything under plain Docker, so that no policy begins with start-ups.

    No daemon runs after it.
    """
    sockets = one.root / "sockets"
    sockets.mkdir()
    sockets.chmod(0o777)
    one.start(PLAIN)
    files = {service.name: service.spec(sockets) for service in scenario.services}
    files |= {
        name: training_set.endless(name, 1, stalls=scenario.stalls) for name in scenario.trainings
    }
    if scenario.busy:
        files["busy"] = json.dumps(BUSY)
    for name, text in files.items():
        one.drop(name, text)
    jobs = len(files)
    wait_for(lambda: one.running() == jobs, 120, f"{jobs} jobs to run", one.why_not_running)
    names = [service.name for service in scenario.services]
    wait_for(lambda: all((sockets / name).exists() for name in names), 120, "every socket")
    rows, trainings = one.client.jobs, scenario.trainings
    wait_for(
        lambda: all(row["blind"] is None for row in rows()["jobs"] if row["name"] in trainings),
        120,
        "every training's first report",
    )
    one.weigh()
    one.stop()


def measure(one: Session, scenario: Scenario, policy: str, number: int) -> list[Measured]:
    """The clients' latencies after the policy has settled; the same arrivals for each policy."""
    one.forget()
    one.start(policy)
    for row in _clients(one, scenario, SETTLE_S, 1000 * number).values():
        if not row["sent"]:
            raise RuntimeError(f"a client sent nothing: {row}")
    first = one.cycle()
    answered = _clients(one, scenario, JUDGE_S, 1000 * number + 500)
    one.cycle()  # raises where the daemon has died meanwhile
    one.stop()
    ceilings = dict.fromkeys(answered, 0)
    attained: dict[str, list[float]] = {name: [] for name in scenario.trainings}
    reports = list(one.reports(first))
    for report in reports:
        limits = {} if report.decision is None else report.decision.limits
        for name in ceilings:
            ceilings[name] += name in limits and limits[name].cpu_cores is not None
        for job in report.snapshot.jobs:
            if job.name in attained:
                attained[job.name].append(job.attained_core_s)
    return [
        Measured(
            scenario.words,
            policy,
            number,
            service.name,
            ms(service.target_s),
            int(row["answered"] or 0),
            int((row["errors"] or 0) + (row["dropped"] or 0)),
            ms(row["mean_s"]),
            ms(row["p95_s"]),
            ceilings[service.name],
            round(updates(reports) / JUDGE_S * 60, 1),
            round(sum(core_s[-1] - core_s[0] for core_s in attained.values()), 1),
        )
        for service in scenario.services
        for row in [answered[service.name]]
    ]


def _clients(
    one: Session, scenario: Scenario, seconds: float, seed: int
) -> dict[str, Mapping[str, float | None]]:
    """Every service's client, all together, for so long; what each counted."""
    clients = {
        service.name: subprocess.Popen(
            [
                *asking(
                    f"unix:{one.root / 'sockets' / service.name}",
                    service.rate_per_s,
                    IMAGES,
                    seed + index,
                    seconds,
                ),
                *("--timeout", "60"),
            ],
            cwd=CLIENT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for index, service in enumerate(scenario.services)
    }
    told = {}
    try:
        for name, client in clients.items():
            output, _ = client.communicate(timeout=seconds + 90)
            if client.returncode:
                raise RuntimeError(f"the client of {name} ended with {client.returncode}")
            told[name] = json.loads(output.splitlines()[-1])
    finally:
        for client in clients.values():
            client.kill()
    return told


def real_table(found: Sequence[Measured]) -> list[dict[str, object]]:
    """One row a service: its mean and p95 in the median of the runs, under each policy."""
    table = []
    services = grouped(found, lambda row: (row.scenario, row.service))
    for (scenario, service), mine in services.items():
        line: dict[str, object] = {"beside": scenario, "service": service}
        line["target, ms"] = mine[0].target_ms or "none"
        for policy in POLICIES:
            rows = [row for row in mine if row.policy == policy]
            line[f"mean, {policy}"] = _median([row.mean_ms for row in rows])
            line[f"p95, {policy}"] = _median([row.p95_ms for row in rows])
        line["failed"] = sum(row.failed for row in mine)
        table.append(line | {"cycles with a ceiling": sum(row.ceilings for row in mine)})
    return table


def _median(values: Sequence[float | None]) -> float:
    return statistics.median(math.inf if value is None else value for value in values)


def beside_table(found: Sequence[Measured]) -> list[dict[str, object]]:
    """One row a run of a scenario: its trainings' CPU, and how often limits changed."""
    table = []
    for (scenario, number), mine in grouped(found, lambda row: (row.scenario, row.run)).items():
        plain, own = (next(row for row in mine if row.policy == policy) for policy in POLICIES)
        got = own.trainings_core_s / plain.trainings_core_s if plain.trainings_core_s else None
        table.append(
            {
                "beside": scenario,
                "run": number,
                "trainings' CPU, core-s, none": plain.trainings_core_s,
                "trainings' CPU, core-s, adaptive": own.trainings_core_s,
                "of plain Docker's": None if got is None else round(got, 2),
                "updates a minute": own.updates_per_min,
            }
        )
    return table


def harmed(table: Sequence[Mapping[str, object]]) -> list[str]:
    """The services that are slower than under plain Docker, in the mean or in p95."""
    found = []
    for row in table:
        for measure in ("mean", "p95"):
            plain, own = (float(str(row[f"{measure}, {policy}"])) for policy in POLICIES)
            if own > SLOWER_RATIO * plain + 1000 * SLOWER_S:
                found.append(f"{row['service']} ({measure} {own:g} ms, plain {plain:g} ms)")
    return found


NAME = "open-loop-real"
RUNS = 3
"""Of each real scenario."""

SCENARIOS = (
    Scenario(
        "five services beside one with a target of 1 ms",
        (
            *(Service(f"{model}-1", model, 5.0, 0.150) for model in MODELS),
            Service("hopeless", "resnet", 5.0, 0.001),
        ),
    ),
    Scenario(
        # Less than half of two cores.
        "six services beside two trainings",
        tuple(
            Service(f"{model}-{index}", model, rate, 0.025)
            for index, (model, rate) in enumerate(
                zip((*MODELS, "mobilenet"), (60.0, 30.0, 30.0, 30.0, 30.0, 60.0), strict=True), 1
            )
        ),
        trainings=("cnn", "lstm"),
    ),
    Scenario(
        "services without a target, a training and a busy job",
        (
            Service("mobilenet-1", "mobilenet", 30.0, 0.025),
            Service("resnet-1", "resnet", 30.0, 0.025),
            Service("xception-free", "xception", 30.0, None),
            Service("vgg-free", "vgg", 30.0, None),
        ),
        trainings=("cnn",),
        busy=True,
    ),
    Scenario(
        "two trainings that stall",
        tuple(Service(f"{model}-1", model, 30.0, 0.025) for model in MODELS[:3]),
        trainings=("cnn", "lstm"),
        stalls=True,
    ),
    Scenario(
        "a service whose workers spin for a lock, and a training",
        (
            Service("mobilenet-1", "mobilenet", 30.0, 0.025),
            Service("xception-1", "xception", 30.0, 0.025),
            Service("locked", "resnet", 40.0, 0.025, locks=True),
        ),
        trainings=("cnn",),
    ),
)


def headlines(real_rows: Sequence[Mapping[str, object]]) -> list[str]:
    """The figures that the policy is held to, in words."""
    held = sum(bool(row["cycles with a ceiling"]) for row in real_rows)
    return [
        (
            f"Slower than under plain Docker by more than 10 % + 2 ms: "
            f"{', '.join(harmed(real_rows)) or 'none'} of {len(real_rows)} services."
        ),
        f"Services that had a ceiling: {held} of {len(real_rows)}.",
    ]


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        runs=(RUNS, "of each scenario; fewer: not saved"),
        scenario=(str, "only those whose words hold this; not saved"),
    )
    measured: list[Measured] = []
    scenarios = [one for one in SCENARIOS if (chosen.scenario or "") in one.words]
    for scenario, number in product(scenarios, range(1, chosen.runs + 1)):
        with session() as one:
            begin(one, scenario)
            for policy in POLICIES:
                print(f"{scenario.words}: {policy}, run {number}", flush=True)
                measured += measure(one, scenario, policy, number)
            version = str(one.engine.version()["Version"])
    rows = real_table(measured)
    tables = {
        f"Real HTTP services under Poisson clients, ms, median of {chosen.runs} runs": rows,
        "Trainings beside them, and changes of limits": beside_table(measured),
    }
    whole = len(scenarios) == len(SCENARIOS) and chosen.runs >= RUNS
    seeds = range(1, chosen.runs + 1)
    results.finish(NAME, version, seeds, measured, tables, headlines(rows), whole=whole)
    return 0
