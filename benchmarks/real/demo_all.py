"""`make demo-all`: real models under plain Docker, published DQoES and dlsched, in two scenes.

`models`: eight closed loops. The last two policies are dlsched's own: `adaptive` told to stay
within the band, then as it is by default, where a model may be as fast as there is CPU for. Nothing
is chosen: the seed draws the set, the host measures it. `traffic`: HTTP services whose requests
come by themselves, one hopeless, beside a training, under plain Docker and the default. Each prints
its tables, draws a picture, and writes its result file, `demo-all.json` or `demo-traffic.json`. The
page's address is printed while daemons run, and at the end where `dlsched report` wrote its page.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import docker
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from benchmarks.options import options, told_if_it_fails
from benchmarks.places import ROOT
from benchmarks.publish import results
from benchmarks.real import http_services
from benchmarks.real.comparison import Comparison, Plan, Watcher, compare
from benchmarks.real.http_services import MODELS, POLICIES, Measured, Scenario, Service, harmed
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

REPORT_LINES = 3
"""Of the report, after its headline: targets met, plain Docker's estimate, the model's error."""
REPORT_PAGE = ROOT / ".build" / "demo-report.html"


class Screen(Watcher):
    """The live table, on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def stage(self, text: str) -> None:
        self._console.print(f"[bold]==[/] {text}", highlight=False, soft_wrap=True)

    def progress(self, text: str, left_s: float, status: Mapping[str, Any]) -> None:
        if self._live.is_started:
            self._live.update(Group(live_table(status), Text(f"{text}: {left_s:.0f} s left")))


def live_table(status: Mapping[str, Any]) -> Table:
    """The daemon's own `ps`, as a table."""
    table = Table(title=f"policy {status['policy']}", title_justify="left")
    for column in ("model", "target", "measured", "of target", "cpu used / limit", ""):
        table.add_column(column, justify="left" if column in ("model", "") else "right")
    for row in status["jobs"]:
        ratio, cpu = row["ratio"], row["cpu"]
        limit = "-" if cpu["actual_cores"] is None else f"{cpu['actual_cores']:.2f}"
        used = "-" if cpu["usage_cores"] is None else f"{cpu['usage_cores']:.2f}"
        measured = "-" if row["measured_s"] is None else f"{row['measured_s'] * 1000:.0f} ms"
        table.add_row(
            row["name"],
            "-" if row["target"] is None else row["target"]["text"],
            measured,
            "-" if ratio is None else f"{ratio:.2f}",
            f"{used} / {limit}",
            _verdict(ratio),
        )
    return table


def summary(comparison: Comparison) -> Table:
    count = len(comparison.set)
    table = Table(
        title=f"satisfied models of {count} (seed {comparison.plan.seed}, demand "
        f"{comparison.plan.demand_ratio:.0%} of {comparison.capacity_cores:.2f} cores)",
        title_justify="left",
        caption=f"in band: mean latency within {BAND_RATIO:.0%} of the target; updates: a minute",
        caption_justify="left",
    )
    for column in ("policy", "in band", "not slower", "updates"):
        left = column == "policy"
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for run in comparison.runs:
        row = run.row()
        table.add_row(
            _TITLES.get(run.policy, run.policy),
            f"{row['satisfied_band']} of {count}",
            f"{row['satisfied_slo']} of {count}",
            f"{run.updates_per_min:.0f}",
        )
    return table


def play_traffic(session: Session, watcher: Watcher, seed: int) -> list[Measured]:
    """The open loops under plain Docker, then under the default policy; about three minutes."""
    watcher.stage(
        f"real traffic: {len(TRAFFIC.services)} HTTP services under Poisson clients, one with a "
        "target that nothing can meet, beside a training"
    )
    http_services.begin(session, TRAFFIC)
    found = []
    for policy in POLICIES:
        watcher.stage(f"policy {policy}, {SETTLE_S:g} s to settle and {JUDGE_S:g} s judged")
        found += http_services.measure(
            session,
            TRAFFIC,
            policy,
            seed,
            settle_s=SETTLE_S,
            judge_s=JUDGE_S,
            look=partial(watcher.progress, f"traffic under {policy}"),
        )
    return found


def traffic_table(found: Sequence[Measured]) -> Table:
    """What each service's client saw under both, and what that cost."""
    plain, own = ([row for row in found if row.policy == policy] for policy in POLICIES)
    slower = harmed(http_services.real_table(found))
    failed = sum(row.failed for row in found)
    shown = Table(
        title=f"real traffic, ms: plain Docker and {POLICIES[1]} (seed {found[0].run})",
        title_justify="left",
        caption=f"slower than under plain Docker by more than 10 % + 2 ms: "
        f"{', '.join(slower) or 'none'} of {len(plain)}; requests that failed: {failed}; "
        f"CPU of the training meanwhile: {plain[0].trainings_core_s:g} s and "
        f"{own[0].trainings_core_s:g} s; updates a minute: {plain[0].updates_per_min:g} and "
        f"{own[0].updates_per_min:g}",
        caption_justify="left",
    )
    both = [f"{what}\n{name}" for name in ("plain", POLICIES[1]) for what in ("mean", "p95")]
    for column in ("service", "target", "requests", *both):
        shown.add_column(column, justify="left" if column == "service" else "right")
    for before, after in zip(plain, own, strict=True):
        counts = dict.fromkeys((before.requests, after.requests))
        seen = (before.mean_ms, before.p95_ms, after.mean_ms, after.p95_ms)
        shown.add_row(
            before.service,
            f"{before.target_ms:g}",
            " / ".join(map(str, counts)),
            *("never" if ms is None else f"{ms:.1f}" for ms in seen),
        )
    return shown


Found = TypeVar("Found")


def play(
    console: Console, cores: float | None, scene: Callable[[Session, Watcher], Found]
) -> tuple[Found, Mapping[str, object], list[str]]:
    """A scene in a session of its own: what was found, the host, and what the report says."""
    with session(cores) as one, Screen(console) as screen:
        one.listen = free_address()
        address = f"http://{one.listen}/"
        console.print(f"page while a policy runs: {address}", highlight=False, soft_wrap=True)
        found = scene(one, screen)
        return found, results.host_facts(one.engine.version()["Version"]), _report(one)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        seed=(1, "of the models and of the arrivals"),
        cores=(float, "most cores to ask for, on a shared engine"),
        policies=(",".join(Plan.policies), "of the models"),
        scenes=(SCENES, "those to play"),
    )
    console = Console(stderr=False)
    plan = Plan(seed=chosen.seed, policies=tuple(chosen.policies.split(",")))

    def run() -> None:
        from benchmarks.publish import pictures

        cores = chosen.cores or _shared_cores(console)
        report: list[str] = []
        if "models" in chosen.scenes:
            models, host, report = play(console, cores, partial(compare, plan=plan))
            console.print(summary(models))
            pictures.draw_models(models, results.FOLDER / "demo-all.png")
            results.save("demo-all", host, [plan.seed], [run.row() for run in models.runs])
        if "traffic" in chosen.scenes:
            traffic, host, report = play(console, cores, partial(play_traffic, seed=plan.seed))
            console.print(traffic_table(traffic))
            pictures.draw_traffic(traffic, results.FOLDER / "demo-traffic.png")
            results.save("demo-traffic", host, [plan.seed], [vars(row) for row in traffic])
        console.print(f"pictures and figures: {results.FOLDER}", *report, sep="\n", soft_wrap=True)

    return told_if_it_fails("demo-all", run)


def _report(one: Session) -> list[str]:
    """`dlsched report` on the last policy's time: the lines to end with."""
    try:
        REPORT_PAGE.parent.mkdir(exist_ok=True)
        lines = [line for line in one.report(REPORT_PAGE)[1 : 1 + REPORT_LINES] if line]
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return [f"no report: {error}"]
    return [*lines, f"report: {REPORT_PAGE}"]


def _shared_cores(console: Console) -> float | None:
    """On an engine that is not ours: half of its cores, and say so."""
    if os.environ.get(CGROUP_PARENT):
        return None
    client = docker.from_env()
    try:
        cores = float(client.info()["NCPU"]) / 2
    finally:
        client.close()
    console.print(
        f"uses the engine that answers here, and asks for at most {cores:g} of its cores "
        "(--cores N for another number); touches only containers of its own instance"
    )
    return cores


def _verdict(ratio: float | None) -> str:
    if ratio is None:
        return ""
    if abs(ratio - 1) <= BAND_RATIO:
        return "ok"
    return "slow" if ratio > 1 else "fast"
