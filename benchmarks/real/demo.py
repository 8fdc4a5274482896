"""`make demo`: real models under plain Docker, published DQoES and dlsched, live, in two scenes.

`models`: eight closed loops. The last two policies are dlsched's own: `adaptive` told to stay
within the band, then as it is by default, where a model may be as fast as there is CPU for. Nothing
is chosen: the seed draws the set, the host measures it. `traffic`: HTTP services whose requests
come by themselves, one hopeless, beside a training, under plain Docker and the default. Each prints
its tables, draws a picture, and writes `benchmarks/results/demo.json` or `demo-traffic.json`. The
page's address is printed while daemons run, and at the end where `dlsched report` wrote its page.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import docker
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from benchmarks.judge.services import BAND_RATIO
from benchmarks.places import ROOT
from benchmarks.publish import results
from benchmarks.real import traffic
from benchmarks.real.comparison import SETTLED_RATIO, Comparison, Plan, compare
from tools.engine import CGROUP_PARENT
from tools.session import Session, free_address, session

_TITLES = {"none": "plain Docker", "adaptive": "adaptive (default)"}

SCENES = ("models", "traffic")

REPORT_LINES = 3
"""Of the report, after its headline: targets met, plain Docker's estimate, the model's error."""
REPORT_PAGE = ROOT / ".build" / "demo-report.html"


class Screen:
    """The live table on a terminal; a line every ten seconds elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._told_s = 0.0

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def stage(self, text: str) -> None:
        """A new stage begins."""
        self._console.print(f"[bold]==[/] {text}", highlight=False, soft_wrap=True)
        self._told_s = time.monotonic()

    def progress(self, text: str, left_s: float, status: Mapping[str, Any]) -> None:
        """The table of this second."""
        if self._live is not None:
            self._live.update(Group(live_table(status), Text(f"{text}: {left_s:.0f} s left")))
        elif time.monotonic() - self._told_s >= 10:
            self._told_s = time.monotonic()
            self._console.print(
                f"   {text}: {_glance(status)}, {left_s:.0f} s left", soft_wrap=True
            )


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
    """The comparison at a glance."""
    count = len(comparison.set)
    table = Table(
        title=f"satisfied models of {count} (seed {comparison.plan.seed}, demand "
        f"{comparison.plan.demand_ratio:.0%} of {comparison.capacity_cores:.2f} cores)",
        title_justify="left",
        caption=f"in band: mean latency within {BAND_RATIO:.0%} of the target; settled: "
        f"seconds until at least {SETTLED_RATIO:.0%} stay in band / not slower; updates: a minute, "
        "in all / while judged; daemon: CPU of one core",
        caption_justify="left",
    )
    for column in ("policy", "in band", "not slower", "settled", "updates", "daemon"):
        left = column == "policy"
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for run in comparison.runs:
        row = run.row()
        table.add_row(
            _TITLES.get(run.policy, run.policy),
            f"{row['satisfied_band']} of {count}",
            f"{row['satisfied_slo']} of {count}",
            f"{_seconds(row['settle_s'])} / {_seconds(row['settle_slo_s'])}",
            f"{run.updates_per_min:.0f} / {run.judged_updates_per_min:.0f}",
            f"{run.loop_core_ratio:.1%}",
        )
    return table


def by_model(comparison: Comparison) -> Table:
    """Latency over target of each model under each policy; its drawn share in cores."""
    table = Table(title="latency / target by model", title_justify="left")
    table.add_column("model", no_wrap=True)
    table.add_column("cores", justify="right")
    table.add_column("target", justify="right")
    for run in comparison.runs:
        name = _TITLES.get(run.policy, run.policy)
        table.add_column(re.sub("[ ?&-]", "\n", name), justify="right")
    for job in comparison.set:
        ratios = []
        for run in comparison.runs:
            judged = next(j for j in run.judged if j.job == job.name)
            few = "" if judged.enough else f" ({judged.requests} of {judged.needed} requests)"
            ratio = "-" if judged.ratio is None else f"{judged.ratio:.2f}"
            ratios.append(f"{ratio} {_verdict(judged.ratio)}{few}")
        share, target_s = comparison.shares[job.name], comparison.targets[job.name]
        table.add_row(job.name, f"{share:.2f}", f"{target_s * 1000:.0f} ms", *ratios)
    return table


def main(arguments: list[str] | None = None) -> int:
    """The demo; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cores", type=float, help="most cores to ask for, on a shared engine")
    parser.add_argument("--demand", type=float, default=0.7, help="of capacity (default 0.7)")
    parser.add_argument("--policies", default=",".join(Plan.policies))
    parser.add_argument("--scenes", default=",".join(SCENES))
    parser.add_argument("--settle", type=float, default=60.0, help="seconds before judging")
    chosen = parser.parse_args(arguments)
    scenes = chosen.scenes.split(",")
    if not set(scenes) <= set(SCENES):
        parser.error(f"--scenes {chosen.scenes}: there are {', '.join(SCENES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=False)
    cores = chosen.cores or _shared_cores(console)
    plan = Plan(
        seed=chosen.seed,
        policies=tuple(chosen.policies.split(",")),
        demand_ratio=chosen.demand,
        settle_s=chosen.settle,
    )
    try:
        if "models" in scenes:
            _models(console, cores, plan, ends="traffic" not in scenes)
        if "traffic" in scenes:
            _traffic(console, cores, plan.seed)
    except KeyboardInterrupt:
        console.print("interrupted; this run's containers are removed")
        return 130
    except RuntimeError as error:
        console.print(f"demo: {error}")
        return 1
    return 0


def _models(console: Console, cores: float | None, plan: Plan, *, ends: bool) -> None:
    """The eight closed loops under every policy of the plan; `ends`: the last scene."""
    with session(cores) as one, Screen(console) as screen:
        _listen(console, one)
        comparison = compare(one, plan, screen)
        host = results.host_facts(one.engine.version()["Version"])
        report = _report(one) if ends else []
    console.print(by_model(comparison))
    console.print(summary(comparison))
    from benchmarks.publish import plot

    picture = results.FOLDER / "demo.png"
    plot.draw(comparison, picture)
    path = results.save("demo", host, [plan.seed], [run.row() for run in comparison.runs])
    console.print(f"picture: {picture}\nfigures: {path}", soft_wrap=True)
    _end(console, report)


def _traffic(console: Console, cores: float | None, seed: int) -> None:
    """The open loops under plain Docker and the default policy."""
    with session(cores) as one, Screen(console) as screen:
        _listen(console, one)
        found = traffic.play(one, seed, screen)
        host = results.host_facts(one.engine.version()["Version"])
        report = _report(one)
    console.print(traffic.table(found))
    from benchmarks.publish import traffic_plot

    picture = results.FOLDER / "demo-traffic.png"
    traffic_plot.draw(found, picture)
    path = results.save("demo-traffic", host, [seed], [vars(row) for row in found])
    console.print(f"picture: {picture}\nfigures: {path}", soft_wrap=True)
    _end(console, report)


def _listen(console: Console, one: Session) -> None:
    """The daemons of this session serve their page on a free port."""
    one.listen = free_address()
    console.print(
        f"page while a policy runs: http://{one.listen}/", highlight=False, soft_wrap=True
    )


def _report(one: Session) -> list[str]:
    """`dlsched report` on the last policy's time: the lines to end with."""
    try:
        REPORT_PAGE.parent.mkdir(exist_ok=True)
        lines = [line for line in one.report(REPORT_PAGE)[1 : 1 + REPORT_LINES] if line]
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return [f"no report: {error}"]
    return [*lines, f"report: {REPORT_PAGE}"]


def _end(console: Console, report: list[str]) -> None:
    for line in report:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


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


def _seconds(at_s: object) -> str:
    return f"{at_s:.0f}" if isinstance(at_s, float) else "never"


def _verdict(ratio: float | None) -> str:
    if ratio is None:
        return ""
    if abs(ratio - 1) <= BAND_RATIO:
        return "ok"
    return "slow" if ratio > 1 else "fast"


def _glance(status: Mapping[str, Any]) -> str:
    rows = status["jobs"]
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    good = sum(abs(ratio - 1) <= BAND_RATIO for ratio in ratios)
    met = sum(ratio <= 1 for ratio in ratios)
    return f"of {len(rows)}, {good} within {BAND_RATIO:.0%}, {met} not slower"
