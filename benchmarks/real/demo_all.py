"""`make demo-all`: real models under plain Docker, published DQoES and dlsched, in two scenes.

`models`: eight closed loops. The last two policies are dlsched's own: `adaptive` told to stay
within the band, then as it is by default, where a model may be as fast as there is CPU for. Nothing
is chosen: the seed draws the set, the host measures it. `traffic`: HTTP services whose requests
come by themselves, one hopeless, beside a training, under plain Docker and the default. Each prints
its table and writes its result file, `demo-all.json` or `demo-traffic.json`. The page's address is
printed while daemons run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import docker

from benchmarks.judge import satisfied
from benchmarks.options import options, stage
from benchmarks.publish import results
from benchmarks.real import http_services
from benchmarks.real.comparison import MODELS, Plan, compare
from benchmarks.real.http_services import POLICIES, Measured, Scenario, Service
from benchmarks.real.kept import KeptServices
from benchmarks.real.scene import told_if_it_fails
from dlsched.model.spec import BAND_RATIO
from tools.engine import CGROUP_PARENT
from tools.session import Session, free_address, session

_TITLES = {"none": "plain Docker", "adaptive": "adaptive (default)"}

SCENES = ("models", "traffic")

SETTLE_S, JUDGE_S = 20.0, 60.0
TRAFFIC = Scenario(
    "real traffic",
    (
        # 15 a second: 900 requests, so that a p95 is more than chance; half of a core together.
        *(Service(model, model, 15.0, 0.025) for model in MODELS),
        Service("hopeless", "resnet", 15.0, 0.001),
    ),
    trainings=("cnn",),
)
"""Web services that nobody waits for, one of them hopeless, beside a training that wants every
core: plain Docker and the default policy on the same arrivals."""


def row_of(run: KeptServices) -> dict[str, Any]:
    """What came of a policy, for the result file."""
    judged = run.judged()
    band, slo = satisfied(judged)
    return {
        "policy": run.policy,
        "jobs": len(judged),
        "satisfied_band": band,
        "satisfied_slo": slo,
        "updates_per_min": round(run.updates_per_min(), 1),
        "requests": sum(job.requests for job in judged),
        "too_few_requests": sum(not job.enough for job in judged),
    }


def models_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """A line a policy."""
    return [
        {
            "policy": _TITLES.get(row["policy"], row["policy"]),
            "in band": f"{row['satisfied_band']} of {row['jobs']}",
            "not slower": f"{row['satisfied_slo']} of {row['jobs']}",
            "updates a minute": f"{row['updates_per_min']:.0f}",
        }
        for row in rows
    ]


def play_traffic(session: Session, seed: int) -> list[Measured]:
    """The open loops under plain Docker, then under the default policy; about three minutes."""
    stage(
        f"real traffic: {len(TRAFFIC.services)} HTTP services under Poisson clients, one with a "
        "target that nothing can meet, beside a training"
    )
    http_services.begin(session, TRAFFIC)
    found = []
    for policy in POLICIES:
        stage(f"policy {policy}, {SETTLE_S:g} s to settle and {JUDGE_S:g} s judged")
        found += http_services.measure(
            session, TRAFFIC, policy, seed, settle_s=SETTLE_S, judge_s=JUDGE_S
        )
    return found


Found = TypeVar("Found")


def play(cores: float | None, scene: Callable[[Session], Found]) -> tuple[Found, dict[str, object]]:
    """A scene in a session of its own: what was found, and the host."""
    with session(cores) as one:
        one.listen = free_address()
        print(f"page while a policy runs: http://{one.listen}/", flush=True)
        found = scene(one)
        return found, results.host_facts(one.engine.version()["Version"])


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        seed=(1, "of the models and of the arrivals"),
        cores=(float, "most cores to ask for, on a shared engine"),
        policies=(",".join(Plan.policies), "of the models"),
        scenes=(SCENES, "those to play"),
    )
    plan = Plan(seed=chosen.seed, policies=tuple(chosen.policies.split(",")))

    def run() -> None:
        cores = chosen.cores or _shared_cores()
        if "models" in chosen.scenes:
            models, host = play(cores, partial(compare, plan=plan))
            title = (
                f"Satisfied models of {len(models.set)} (seed {plan.seed}, demand "
                f"{plan.demand_ratio:.0%} of {models.capacity_cores:.2f} cores); in band: mean "
                f"latency within {BAND_RATIO:.0%} of the target"
            )
            rows = list(map(row_of, models.runs))
            results.finish("demo-all", host, [plan.seed], rows, {title: models_table(rows)})
        if "traffic" in chosen.scenes:
            found, host = play(cores, partial(play_traffic, seed=plan.seed))
            tables, lines = http_services.told(found)
            results.finish("demo-traffic", host, [plan.seed], found, tables, lines)
        print(f"figures: {results.FOLDER}")

    return told_if_it_fails("demo-all", run)


def _shared_cores() -> float | None:
    """On an engine that is not ours: half of its cores, and say so."""
    if os.environ.get(CGROUP_PARENT):
        return None
    client = docker.from_env()
    try:
        cores = float(client.info()["NCPU"]) / 2
    finally:
        client.close()
    print(
        f"uses the engine that answers here, and asks for at most {cores:g} of its cores "
        "(--cores N for another number); touches only containers of its own instance"
    )
    return cores
