"""Services under open loops, where plain Docker has room: nobody may be worse off for `adaptive`.

Owns the two measurements that the default policy once failed. Real: HTTP services (the inference
example) under Poisson clients, beside a service whose target nothing can meet, and beside two
trainings. Simulated: ten such services beside a hopeless one, on seeds of their own. Latencies are
the clients', counted from the moment that a request was due.

    python -m benchmarks run open-loops                writes benchmarks/results/open-loops.json
    python -m benchmarks run open-loops --simulated    prints the simulated half alone
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from benchmarks.places import ROOT
from benchmarks.publish import results
from benchmarks.real import training_set
from benchmarks.real.session import Session, session, wait_for
from dlsched.control.decider import NamedPolicy
from dlsched.model.actions import Resize
from dlsched.model.facts import NodeFact
from dlsched.model.spec import ContainerSpec, JobSpec, LatencyTarget
from dlsched.policies.registry import load as load_policy
from dlsched.simulation.node.workloads import ServiceLoad, SimulatedJob, Trace
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN

NAME = "open-loops"
POLICIES = (PLAIN, "adaptive")
CLIENT = ROOT / "examples" / "images" / "inference"
ENDLESS_STEPS = 1_000_000
SETTLE_S, JUDGE_S = 25.0, 40.0
IMAGES = 8
"""A request: 2 to 7 ms of CPU, so that the six services use less than half of two cores."""
MOST_WORSE_S = 1.0
"""Simulated: the first seconds of a run differ by chance."""

HARM_RATIO, HARM_S = 1.1, 0.002
"""A service is harmed when its latency is over plain Docker's by more than this ratio and time."""


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


_MODELS = ("mobilenet", "xception", "inception", "resnet", "vgg")
SCENARIOS = (
    Scenario(
        "five services beside one with a target of 1 ms",
        (
            *(Service(f"{model}-1", model, 5.0, 0.150) for model in _MODELS),
            Service("hopeless", "resnet", 5.0, 0.001),
        ),
    ),
    Scenario(
        "six services beside two trainings",
        tuple(
            Service(f"{model}-{index}", model, rate, 0.025)
            for index, (model, rate) in enumerate(
                zip((*_MODELS, "mobilenet"), (60.0, 30.0, 30.0, 30.0, 30.0, 60.0), strict=True), 1
            )
        ),
        trainings=("cnn", "lstm"),
    ),
)


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


# ---------------------------------------------------------------------- real


def real(console: Console, runs: int) -> tuple[str, list[Measured]]:
    """Every scenario under every policy, `runs` times: the engine's version and the rows."""
    found = []
    for scenario in SCENARIOS:
        for number in range(1, runs + 1):
            with session() as one:
                sockets = one.root / "sockets"
                sockets.mkdir()
                sockets.chmod(0o777)
                _begin(one, scenario, sockets)
                for policy in POLICIES:
                    console.print(f"{scenario.words}: {policy}, run {number} of {runs}")
                    found += _measure(one, scenario, sockets, policy, number)
                version = str(one.engine.version()["Version"])
    return version, found


def _begin(one: Session, scenario: Scenario, sockets: Path) -> None:
    """Start everything under plain Docker, so that no policy begins with start-ups."""
    one.start(PLAIN)
    for service in scenario.services:
        one.drop(service.name, service.spec(sockets))
    for name in scenario.trainings:
        model = replace(training_set.MODELS[name], steps=ENDLESS_STEPS)
        one.drop(name, training_set.spec_text(training_set.TrainingJob(name, model, 0.0), 1))
    jobs = len(scenario.services) + len(scenario.trainings)
    wait_for(lambda: one.running() == jobs, 120, f"{jobs} jobs to run")
    names = [service.name for service in scenario.services]
    wait_for(lambda: all((sockets / name).exists() for name in names), 120, "every socket")
    rows = one.client.jobs
    wait_for(
        lambda: all(
            row["blind"] is None for row in rows()["jobs"] if row["name"] in scenario.trainings
        ),
        120,
        "every training's first report",
    )
    one.confine()
    one.stop()


def _measure(
    one: Session, scenario: Scenario, sockets: Path, policy: str, number: int
) -> list[Measured]:
    """The clients' latencies after the policy has settled; the same arrivals for each policy."""
    one.forget()
    one.start(policy)
    for row in _clients(scenario, sockets, SETTLE_S, seed=1000 * number).values():
        assert row["sent"], row
    first = one.cycle()
    told = _clients(scenario, sockets, JUDGE_S, seed=1000 * number + 500)
    one.stop()
    ceilings = dict.fromkeys(told, 0)
    updates = 0
    for report in one.reports(first):
        updates += sum(
            isinstance(outcome.action, Resize) and outcome.status in ("done", "begun")
            for outcome in report.outcomes
        )
        limits = {} if report.decision is None else report.decision.limits
        for name in ceilings:
            ceilings[name] += name in limits and limits[name].cpu_cores is not None
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
            round(updates / JUDGE_S * 60, 1),
        )
        for service in scenario.services
        for row in [told[service.name]]
    ]


def _clients(
    scenario: Scenario, sockets: Path, seconds: float, seed: int
) -> dict[str, Mapping[str, float | None]]:
    """Every service's client, all together, for so long; what each counted."""
    clients = {
        service.name: subprocess.Popen(
            [
                *(sys.executable, "client.py", f"unix:{sockets / service.name}"),
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
    for name, client in clients.items():
        output, _ = client.communicate(timeout=seconds + 90)
        told[name] = json.loads(output.splitlines()[-1])
    return told


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 1)


def real_table(found: Sequence[Measured]) -> list[dict[str, object]]:
    """One row a service: its mean and p95 in the median of the runs, under each policy."""
    table = []
    for scenario in dict.fromkeys(row.scenario for row in found):
        for service in dict.fromkeys(row.service for row in found if row.scenario == scenario):
            mine = [row for row in found if (row.scenario, row.service) == (scenario, service)]
            line: dict[str, object] = {
                "beside": scenario,
                "service": service,
                "target, ms": mine[0].target_ms,
            }
            for policy in POLICIES:
                rows = [row for row in mine if row.policy == policy]
                line[f"mean, {policy}"] = _median([row.mean_ms for row in rows])
                line[f"p95, {policy}"] = _median([row.p95_ms for row in rows])
            line["cycles with a ceiling"] = sum(row.ceilings for row in mine)
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
            if own > HARM_RATIO * plain + 1000 * HARM_S:
                found.append(f"{row['service']} ({measure} {own:g} ms, plain {plain:g} ms)")
    return found


# ---------------------------------------------------------------------- simulated

SEEDS = range(201, 221)
LOADS = (0.1, 0.3, 0.5, 0.7)
CORES = 2.0
SERVICES = 10
DURATION_S = 120.0
TARGET_OVER_ALONE = 3.0


def trace_of(load_ratio: float, hopeless: int, seed: int) -> Trace:
    """Ten Poisson services that use so much of the node, beside so many hopeless ones.

    Each has a target of three times what it answers in with a core of its own.
    """
    chance = random.Random(seed)
    parts = [chance.uniform(0.2, 1.0) for _ in range(SERVICES)]
    jobs = []
    for index, part in enumerate(parts):
        use_cores = min(load_ratio * CORES * part / math.fsum(parts), 0.9)
        work_core_s = 10 ** chance.uniform(-2.3, -1.3)
        alone_s = work_core_s / (1.0 - use_cores)
        load = ServiceLoad(work_core_s, arrivals_per_s=use_cores / work_core_s, noise=0.3)
        jobs.append(_job(f"service-{index}", TARGET_OVER_ALONE * alone_s, load))
    hog = ServiceLoad(0.02, arrivals_per_s=5.0)
    jobs += [_job(f"hopeless-{index}", 0.001, hog) for index in range(hopeless)]
    jobs.sort(key=lambda job: job.name)
    return Trace(NodeFact(CORES, 1 << 34), tuple(jobs), DURATION_S)


def _job(name: str, target_s: float, load: ServiceLoad) -> SimulatedJob:
    spec = JobSpec(name, ContainerSpec(image="model"), target=LatencyTarget(target_s))
    return SimulatedJob(spec, load)


@dataclass(frozen=True)
class Simulated:
    """One policy on one trace."""

    load_ratio: float
    hopeless: int
    policy: str
    seed: int
    met_ratio: float
    """Part of the time in which a service is not slower than its target, mean of the ten."""
    worst_ratio: float
    updates_per_min: float


def simulated() -> list[Simulated]:
    """Every load, with and without a hopeless service, under every policy and seed."""
    found = []
    for load_ratio in LOADS:
        for hopeless in (0, 1):
            for seed in SEEDS:
                trace = trace_of(load_ratio, hopeless, seed)
                for policy in POLICIES:
                    run = simulate(trace, NamedPolicy(policy, load_policy(policy)), seed)
                    met = [
                        job.met_ratio or 0.0 for job in run.jobs if job.name.startswith("service")
                    ]
                    found.append(
                        Simulated(
                            load_ratio,
                            hopeless,
                            policy,
                            seed,
                            round(statistics.mean(met), 4),
                            round(min(met), 4),
                            round(run.updates / DURATION_S * 60, 2),
                        )
                    )
    return found


def simulated_table(found: Sequence[Simulated]) -> list[dict[str, object]]:
    """One row a load: how much of the time services were not slower, mean and worst seed."""
    table = []
    for load_ratio in LOADS:
        for hopeless in (0, 1):
            line: dict[str, object] = {"use of the node": load_ratio, "hopeless": hopeless}
            for policy in POLICIES:
                rows = [
                    row
                    for row in found
                    if (row.load_ratio, row.hopeless, row.policy) == (load_ratio, hopeless, policy)
                ]
                line[f"not slower, {policy}"] = statistics.mean(row.met_ratio for row in rows)
                line[f"worst service, {policy}"] = min(row.worst_ratio for row in rows)
                if policy != PLAIN:
                    line["updates/min"] = statistics.mean(row.updates_per_min for row in rows)
            table.append(line)
    return table


# ---------------------------------------------------------------------- saving


def headlines(real_rows: Sequence[Mapping[str, object]], worse: int, pairs: int) -> list[str]:
    """The figures that the policy is held to, in words."""
    slower = harmed(real_rows)
    held = sum(bool(row["cycles with a ceiling"]) for row in real_rows)
    return [
        (
            f"Real, slower than under plain Docker by more than 10 % + 2 ms: "
            f"{', '.join(slower) or 'none'} of {len(real_rows)} services."
        ),
        f"Real, services that had a ceiling: {held} of {len(real_rows)}.",
        (
            f"Simulated, traces where services were within target for over {MOST_WORSE_S:g} s of "
            f"{DURATION_S:g} less than under plain Docker: {worse} of {pairs}."
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and save; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3, help="real runs of each scenario")
    parser.add_argument("--simulated", action="store_true", help="the simulated half alone")
    parser.add_argument("--dry", action="store_true", help="print, but do not save")
    chosen = parser.parse_args(arguments)
    console = Console()
    rows = simulated()
    tables = {"Simulated: ten Poisson services on two cores, 20 seeds": simulated_table(rows)}
    plain = {(r.load_ratio, r.hopeless, r.seed): r.met_ratio for r in rows if r.policy == PLAIN}
    own = [row for row in rows if row.policy != PLAIN]
    worse = sum(row.met_ratio < plain[row.load_ratio, row.hopeless, row.seed] - 1e-9 for row in own)
    told: list[str] = []
    if not chosen.simulated:
        version, measured = real(console, chosen.runs)
        real_rows = real_table(measured)
        title = f"Real HTTP services under Poisson clients, ms, median of {chosen.runs} runs"
        tables = {title: real_rows, **tables}
        told = headlines(real_rows, worse, len(own))
        if not chosen.dry:
            results.save(
                NAME,
                results.host_facts(version),
                list(SEEDS),
                [vars(row) for row in (*measured, *rows)],
                tables=tables,
                headlines=told,
            )
    for title, table in tables.items():
        console.print(f"\n{title}\n", markup=False, soft_wrap=True)
        console.print(results.markdown(table), markup=False, soft_wrap=True)
    for line in told:
        console.print(f"- {line}", markup=False, soft_wrap=True)
    return 0
