"""Commands that ask the running daemon: ps, why, logs, stop."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from dlsched.cli.commands import options
from dlsched.cli.commands.completing import job_names
from dlsched.cli.output import LogText, print_json, say
from dlsched.cli.pages.layout import Page
from dlsched.cli.program import UNREACHABLE
from dlsched.model.errors import DaemonUnavailable


@click.command(short_help="Show every job, its target and whether it is met.")
@click.option(
    "--host",
    "hosts",
    metavar="HOST,...",
    multiple=True,
    help="Ask the daemons of these hosts by ssh, not this host's: `user@name`, or a name of your "
    "ssh configuration.",
)
@options.output
@options.asking
@click.pass_context
def ps(
    ctx: click.Context,
    hosts: tuple[str, ...],
    output: str,
    config: Path | None,
    run_dir: Path | None,
) -> None:
    """Show every job, its target, whether it is met, and why the job is as it is.

    MEASURED is the latency of a service's requests of the last 30 s (setting `window`), or the
    last value that a training reported.

    RESULT of a service is OK where the latency is not above the target, else LATE and by how much
    it is above (+63%, 3.2x). Of a training it is NOT YET, DELIVERED once the first value of its
    target is reached, FINISHED at the second. An adopted container was started by another program;
    the progress of a blind job is unknown; a background job gets only CPU that no other job uses.

    FORECAST is what the policy expects of the next target that is not met, where it can tell:
    `in 4 min (3-6)` with its 80 % interval; `lacks 1.2 cores` that other jobs have; `at best 64 ms`
    on this node, whatever else runs on it; `?` not known yet, or withdrawn because its time has
    passed. `dlsched why` gives the numbers.

    --host asks the daemons of hosts that need not be a cluster, with `ssh HOST dlsched ps --json`.
    ssh must get in without a question. Of a host that does not answer it says why, and ends with 3.

    \b
    Examples:
      dlsched ps
      dlsched ps --json | jq '.jobs[] | select(.satisfied_slo == false) | .name'
      dlsched ps --json | jq '.jobs[] | {name, in_s: .outlook[0].in_s}'
      dlsched ps --host gpu-1,gpu-2,ann@gpu-3
    """
    if hosts:
        ctx.exit(_print_hosts(hosts, output))
    daemon = options.daemon(config, run_dir)
    try:
        if output == "json":
            print_json(daemon.jobs())
            return
        status = daemon.status()
    except DaemonUnavailable:
        from dlsched.cli.commands.leftover import without_daemon

        if (line := without_daemon(config)) is not None:
            say(line)
        raise
    from dlsched.cli.pages.ps import show_jobs

    show_jobs(status, Page())


def _print_hosts(given: tuple[str, ...], output: str) -> int:
    """The exit code."""
    from dlsched.api.codec import as_json
    from dlsched.cli.commands.hosts import ask_hosts, named_hosts
    from dlsched.cli.pages.ps import show_hosts

    found = ask_hosts(named_hosts(given))
    answered = {host: one for host, one in found.items() if not isinstance(one, str)}
    failed = {host: one for host, one in found.items() if isinstance(one, str)}
    if output == "json":
        print_json(as_json({"hosts": answered, "failed": failed}))
    else:
        show_hosts(answered, Page())
    for host, line in failed.items():
        say(f"{host}: {line}")
    return UNREACHABLE if failed else 0


@click.command(short_help="Explain a job: its limits, its history and its forecasts.")
@click.argument("job", shell_complete=job_names)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="How many changes to show.",
)
@options.output
@options.asking
def why(job: str, limit: int, output: str, config: Path | None, run_dir: Path | None) -> None:
    """Show a job's last changes of limits with their reasons and numbers, what it waits for, and
    when each of its targets will be met or what prevents that.

    Below each of a service's last ten changes stands what was measured of its target in the 30 s
    before the change and from 10 to 40 s after it: `helped: 81 -> 44 ms (212 requests)`, or slower.
    `no effect` is within 10 %, where one of 50 % would have shown. `not judged`: the job was
    changed again too soon. The change need not be the cause: load changes, and so do other jobs,
    whose number is given. `expected 45 ms` is what the policy foresaw, where it foresaw a latency.

    \b
    Examples:
      dlsched why face-unlock
      dlsched why face-unlock --limit 50 --json
    """
    daemon = options.daemon(config, run_dir)
    if output == "json":
        print_json(daemon.why(job, limit))
        return
    from dlsched.cli.pages.why import show_why

    show_why(job, daemon.explain(job, limit), Page())


@click.command(short_help="Print a job's output.")
@click.argument("job", shell_complete=job_names)
@click.option(
    "--follow", "-f", is_flag=True, help="Go on printing what the job writes, until Ctrl-C."
)
@click.option(
    "--tail",
    "-n",
    type=click.IntRange(0, 1_000_000),
    default=100,
    show_default=True,
    help="How many of the last lines to print first.",
)
@click.option("--raw", is_flag=True, help="Print the job's bytes unchanged, control codes too.")
@options.asking
def logs(
    job: str, follow: bool, tail: int, raw: bool, config: Path | None, run_dir: Path | None
) -> None:
    """Print a job's output without the codes that control a terminal.

    The codes are left out of a pipe or file too; --raw keeps them.

    \b
    Examples:
      dlsched logs face-unlock
      dlsched logs face-unlock -f --tail 20
      dlsched logs face-unlock --raw > face-unlock.log
    """
    text = LogText()
    daemon = options.daemon(config, run_dir)
    with contextlib.suppress(KeyboardInterrupt):
        for chunk in daemon.logs(job, tail, follow):
            click.echo(chunk if raw else text.feed(chunk), nl=False)
    click.echo(text.feed(b"", last=True), nl=False)


@click.command(short_help="Stop a job's container, and keep it stopped.")
@click.argument("job", shell_complete=job_names)
@options.asking
def stop(job: str, config: Path | None, run_dir: Path | None) -> None:
    """Stop a job's container and keep it stopped.

    The container gets the signal and the grace time that the job file gives; the job file stays.
    `dlsched submit --start FILE` or a changed file starts the job again.

    \b
    Example:
      dlsched stop face-unlock
    """
    options.daemon(config, run_dir).stop(job)
    lifts = "`dlsched submit --start FILE` or a changed file"
    say(f"{job}: its container is being stopped; {lifts} starts it again")
