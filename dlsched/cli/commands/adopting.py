"""The commands `adopt`, `drop` and `export`: running containers that others started, one of them or
all."""

from __future__ import annotations

import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlsched.cli.commands import options
from dlsched.cli.commands.completing import adopted_names
from dlsched.cli.output import one_line, print_json, print_text, say
from dlsched.cli.program import FAILURE, INVALID
from dlsched.model.errors import Refused
from dlsched.model.units import counted, render_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dlsched.api.client import Daemon
    from dlsched.api.schema import JobStatus

READ_WITHIN_S = 10.0
"""How long `adopt` waits for a first reading of the container's progress."""

_POLL_S = 0.25

NEARLY_RATIO = 0.99
"""Without --good-enough a training is deliverable at this part of what it is to reach."""

BACKGROUND = {"dlsched.background": "true"}

_yes = click.option("--yes", is_flag=True, help="Ask no question, as in scripts.")


@click.command(short_help="Keep a running container at a target, without a restart.")
@click.argument("name", required=False)
@click.option("--latency", metavar="TIME", help="Answer within this time, such as 300ms.")
@click.option(
    "--quantile", metavar="Q", help="Statistic of the latency: mean (default), p50 to p99.9."
)
@click.option(
    "--of",
    metavar="WHAT",
    help="Time of a request that is measured: until its whole answer (answer, the default), until "
    "the first byte (first-byte), or between parts of the answer (gap).",
)
@click.option(
    "--max-failed", metavar="RATIO", help="Part of the requests that may fail (default 0.01)."
)
@click.option(
    "--reach",
    metavar="METRIC=VALUE",
    help="Value of a metric at which the training is finished, such as map=0.60.",
)
@click.option(
    "--good-enough", metavar="VALUE", help="Value at which the model is of use, such as 0.55."
)
@click.option(
    "--deadline",
    metavar="TIME",
    help="Time within which --good-enough should be reached, such as 2h.",
)
@click.option(
    "--metrics",
    metavar="PRESET|KEY=VALUE",
    multiple=True,
    help="Where progress is read: a preset, or as in labels: port=8000, pattern=... (repeatable).",
)
@click.option(
    "--wire", metavar="PORT", help="Ports whose response times are measured; false: none."
)
@click.option(
    "--minimum", metavar="CORES", help="Least cores that the container gets, such as 0.5."
)
@click.option("--maximum", metavar="CORES", help="Most cores that the container gets, such as 4.")
@click.option("--weight", metavar="W", help="Weight of the container beside others (default 1).")
@click.option(
    "--background",
    is_flag=True,
    help="No target: the container gets only CPU that no other job uses.",
)
@click.option(
    "--others-background",
    is_flag=True,
    help="Instead of NAME: all other running containers of this host, in the background.",
)
@_yes
@options.output
@options.asking
@click.pass_context
def adopt(
    ctx: click.Context,
    /,
    name: str | None,
    others_background: bool,
    yes: bool,
    output: str,
    config: Path | None,
    run_dir: Path | None,
    **given: Any,
) -> None:
    """Adopt a running container: no restart, no labels, nothing of it is changed but its limits.

    --others-background adopts all running containers that no dlsched manages yet, after a list of
    them and a question; what fails is one line each, and then it ends with 1.

    The adoption outlives restarts of the container and of dlsched; for a service of Docker Compose
    the next container is adopted as well. Labels of the container win over this command.
    `dlsched drop NAME` gives back every limit and ends the adoption.

    \b
    Examples:
      dlsched adopt asr --latency 300ms --quantile p95
      dlsched adopt asr --latency 300ms --metrics port=8000
      dlsched adopt llm --latency 500ms --of first-byte
      dlsched adopt llm --latency 2s --metrics vllm --metrics where.model_name=llama
      dlsched adopt train --reach map=0.60 --metrics 'pattern=map: (?P<map>[-+0-9.eE]+)'
      dlsched adopt postgres --minimum 1
      dlsched adopt nightly-report --background
      dlsched adopt --others-background
    """
    of_one = any(value for option, value in given.items() if option != "background")
    _check_selection(name, others_background, "--others-background", yes=yes, given=of_one)
    daemon = options.daemon(config, run_dir)
    if name is None:
        _adopt_others(ctx, daemon, yes, output)
        return
    taken = daemon.adopt(name, _labels(**given))
    job = _read_job(daemon, taken["job"])
    if output == "json":
        print_json(taken)
        return
    print_text(f"{name}: adopted while it runs, as job {taken['job']}: no restart, no labels")
    limit = "no limit" if taken["limit_cores"] is None else render_cores(taken["limit_cores"])
    print_text(f"  limit before: {limit}; `dlsched drop {name}` gives it back")
    if taken["successors"] is not None:
        print_text(one_line(f"  later containers of service {taken['successors']} are adopted too"))
    if given["background"]:
        print_text(
            "  in the background: the container gets only CPU that no other job uses, without a "
            "limit"
        )
    elif job is None or job.target is not None:
        print_text(one_line(f"  measured: {_progress(job)}"))
    wire = None if job is None else job.sidecar.wire
    if wire is not None and wire.judges and wire.ports:
        print_text(one_line(f"  sockets: {wire.text}"))


@click.command(short_help="Let an adopted container go and give its limits back.")
@click.argument("name", required=False, shell_complete=adopted_names)
@click.option("--all", "every", is_flag=True, help="Instead of NAME: all adopted containers.")
@_yes
@options.output
@options.asking
@click.pass_context
def drop(
    ctx: click.Context,
    name: str | None,
    every: bool,
    yes: bool,
    output: str,
    config: Path | None,
    run_dir: Path | None,
) -> None:
    """Let an adopted container go: every limit is given back and checked in the kernel.

    It stays dropped, whatever its labels say, until `dlsched adopt NAME`. --all lets all adopted
    containers go, after a list of them and a question; with nothing adopted it says so and ends
    with 0. Ends with 1 if a container did not get all limits back.

    \b
    Examples:
      dlsched drop asr
      dlsched drop --all
    """
    _check_selection(name, every, "--all", yes=yes)
    daemon = options.daemon(config, run_dir)
    if name is None:
        _drop_all(ctx, daemon, yes, output)
        return
    back = daemon.drop(name)
    if output == "json":
        print_json(back)
    else:
        print_text(_dropped(name, back))
    if back["failure"] is not None:
        ctx.exit(FAILURE)


def _dropped(name: str, back: Mapping[str, Any]) -> str:
    """What a drop did to the container, in one line."""
    now = f"{name}: dropped; its limits now: {back['now'] or 'not read'}"
    failure = back["failure"]
    return one_line(f"{now} (checked)" if failure is None else f"{now}; FAILED: {failure}")


# ------------------------------------------------------------------ several containers


def _check_selection(
    name: str | None, every: bool, option: str, *, yes: bool, given: bool = False
) -> None:
    """Raise UsageError unless it is either NAME or that option, and --yes with the latter alone.
    `given`: whether there are options that concern one container."""
    if name is None and not every:
        raise click.UsageError(f"which container? Give NAME, or {option}")
    if every and name is not None:
        raise click.UsageError(f"NAME and {option} exclude each other")
    if every and given:
        raise click.UsageError(f"{option} takes no target, bounds or weight: give them with NAME")
    if yes and not every:
        raise click.UsageError(f"--yes goes with {option}: nothing is asked about one container")


def _adopt_others(ctx: click.Context, daemon: Daemon, yes: bool, output: str) -> None:
    others = daemon.containers()["others"]
    question = (
        f"Adopt {counted(len(others), 'container')} as background jobs, which get only CPU that no "
        "other job uses?"
    )
    none = "no other container runs that could be adopted; nothing has been changed"
    if not _agreed(ctx, others, none, question, yes, output):
        return
    _for_each(
        ctx,
        others,
        lambda one: daemon.adopt(one["container_id"], BACKGROUND),
        lambda one, taken: f"{one['name']}: in the background, as job {taken['job']}",
        output,
    )


def _drop_all(ctx: click.Context, daemon: Daemon, yes: bool, output: str) -> None:
    adopted = daemon.containers()["adopted"]
    question = f"Drop {counted(len(adopted), 'container')}?"
    none = "no container is adopted; nothing has been changed"
    if not _agreed(ctx, adopted, none, question, yes, output):
        return
    _for_each(
        ctx,
        adopted,
        lambda one: daemon.drop(one["container_id"]),
        lambda one, back: _dropped(one["name"], back),
        output,
    )


def _agreed(
    ctx: click.Context,
    found: Sequence[Mapping[str, Any]],
    none: str,
    question: str,
    yes: bool,
    output: str,
) -> bool:
    """Show these containers and ask; whether to go on. Ends with 1 on a no, with 2 without
    a terminal. `none`: the line without any, which is no failure."""
    if output == "table" and found:
        _show_containers(found)
    elif output == "table":
        print_text(none)
    if yes or not found:
        return bool(found) or output == "json"
    if output == "json" or not _has_terminal():
        say("error: nothing has been changed: there is no terminal to ask on; give --yes")
        ctx.exit(INVALID)
    if not click.confirm(question, err=True):
        say("nothing has been changed")
        ctx.exit(FAILURE)
    return True


def _has_terminal() -> bool:
    """Whether there is a person to ask."""
    return sys.stdin.isatty()


def _show_containers(found: Sequence[Mapping[str, Any]]) -> None:
    from dlsched.cli.pages.layout import Cell, Column, Page

    page = Page()
    columns = [Column("CONTAINER", 4, 40), Column("IMAGE", 5, 48)]
    rows = [[Cell(one["name"]), Cell(one["image"] or "-")] for one in found]
    if any(one["cpu_cores"] is not None for one in found):
        columns.insert(1, Column("CPU", 3, right=True))
        for row, one in zip(rows, found, strict=True):
            used = one["cpu_cores"]
            row.insert(1, Cell("?" if used is None else f"{used:.2f}"))
    page.table(columns, rows)


def _for_each(
    ctx: click.Context,
    found: Sequence[Mapping[str, Any]],
    change: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    line: Callable[[Mapping[str, Any], Mapping[str, Any]], str],
    output: str,
) -> None:
    """Change each and print a line of it; what is refused keeps no other back. Ends with 1 if one
    failed."""
    results: list[dict[str, Any]] = []
    for one in found:
        try:
            done = change(one)
        except Refused as error:
            done = {"failure": str(error)}
            say(f"{one['name']}: {error}")
        else:
            if output == "table":
                print_text(one_line(line(one, done)))
        results.append({"name": one["name"], "failure": None, **done})
    if output == "json":
        print_json({"containers": results})
    if any(result["failure"] is not None for result in results):
        ctx.exit(FAILURE)


@click.command(short_help="Print an adoption as labels for a Compose file.")
@click.argument("name", shell_complete=adopted_names)
@options.output
@options.asking
def export(name: str, output: str, config: Path | None, run_dir: Path | None) -> None:
    """Print what `adopt` was asked for as labels, for the service in a Compose file.

    \b
    Example:
      dlsched export asr
    """
    from dlsched.runtime.docker.identity.labels import DEFAULT_INSTANCE, ENABLE, INSTANCE

    daemon = options.daemon(config, run_dir)
    labels, instance = daemon.adopted_labels(name), daemon.about()["instance"]
    whose = {} if instance == DEFAULT_INSTANCE else {INSTANCE: instance}
    labels = {ENABLE: "true", **whose, **labels}
    if output == "json":
        print_json(labels)
        return
    # Compose replaces $NAME by a variable.
    print_text(as_yaml(labels).replace("$", "$$").rstrip("\n"))


def as_yaml(labels: Mapping[str, str]) -> str:
    """The labels as the key of a Compose file, each in quotes: versions of YAML differ in what else
    is a text."""
    import yaml

    lines = yaml.safe_dump(dict(labels), default_style="'", sort_keys=False, width=1000)
    return f"labels:\n{textwrap.indent(lines, '  ')}"


def _labels(
    latency: str | None,
    quantile: str | None,
    of: str | None,
    max_failed: str | None,
    reach: str | None,
    good_enough: str | None,
    deadline: str | None,
    metrics: tuple[str, ...],
    wire: str | None,
    minimum: str | None,
    maximum: str | None,
    weight: str | None,
    background: bool = False,
) -> dict[str, str]:
    asked = {
        "target.latency": latency,
        "target.quantile": quantile,
        "target.of": of,
        "target.max_failed": max_failed,
        "target.deadline": deadline,
        "cpus.min": minimum,
        "cpus.max": maximum,
        "weight": weight,
        "wire": wire,
        "background": "true" if background else None,
    }
    if reach is not None:
        asked |= _reach(reach, good_enough)
    elif good_enough is not None:
        raise click.UsageError("--good-enough needs --reach METRIC=VALUE")
    for one in metrics:
        key, equals, value = one.partition("=")
        if not one:
            raise click.UsageError("--metrics '': write a preset's name, or KEY=VALUE")
        name = f"metrics.{key}" if equals else "metrics"
        if name in asked:
            raise click.UsageError(f"--metrics {one}: {asked[name]} is given already")
        asked[name] = value if equals else one
    if not any(value is not None for value in asked.values()):
        raise click.UsageError(
            "nothing is asked of the container: give --latency, --reach, --minimum, --maximum, "
            "--weight "
            "or --background"
        )
    return {f"dlsched.{key}": value for key, value in asked.items() if value is not None}


def _reach(reach: str, good_enough: str | None) -> dict[str, str | None]:
    from dlsched.config.job_schema import rising

    metric, equals, value = reach.partition("=")
    if not equals or not metric:
        raise click.UsageError(f"--reach {reach!r}: write METRIC=VALUE, such as accuracy=0.9")
    if good_enough is None:
        rises = rising(metric)
        try:
            number = float(value)
        except ValueError:
            raise click.UsageError(f"--reach {reach!r}: {value!r} is not a number") from None
        if rises is None:
            raise click.UsageError(
                f"--reach {reach}: give --good-enough VALUE too: whether {metric!r} must rise or "
                "fall is not known by its name"
            )
        step = (1 - NEARLY_RATIO) * abs(number)
        good_enough = f"{number - step if rises else number + step:.6g}"
    return {
        "target.metric": metric,
        "target.deliver": good_enough.removeprefix(f"{metric}="),
        "target.finish": value,
    }


def _read_job(daemon: Daemon, name: str) -> JobStatus | None:
    """The job's status once it has progress or says why not; else the last."""
    until_s = time.monotonic() + READ_WITHIN_S
    found = None
    while time.monotonic() < until_s:
        found = next((job for job in daemon.status().jobs if job.name == name), None)
        if found is not None and (
            found.target is None or found.requests or found.metric is not None
        ):
            break
        time.sleep(_POLL_S)
    return found


def _progress(job: JobStatus | None) -> str:
    if job is None:
        return "nothing yet; `dlsched ps` shows the first measured value"
    from dlsched.api.wire_status import measurements
    from dlsched.cli.pages.ps import blindness, latency, sources

    if job.lowest_s is not None:
        unclear = f"; {job.blind}" if job.blind else ""
        return f"{latency(job)} over {measurements(job.requests, job.target)}{unclear}"
    if job.metric is not None:
        return f"its metric, {job.metric:g}"
    is_service = job.target is not None and job.target.kind == "latency"
    quiet = "no request yet" if is_service and job.sidecar.age_s is not None else None
    if quiet is not None and job.in_flight:
        quiet = f"{counted(job.in_flight, 'request')} wait for an answer"
    why = "; ".join(part for part in (blindness(job) or quiet, *sources(job)) if part)
    return f"nothing yet{f': {why}' if why else ''}; `dlsched why {job.name}` explains"
