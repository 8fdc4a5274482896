"""Commands that ask the running daemon: ps, logs, stop, why.

Owns their options and words. It must not read the engine, the journal or the job files itself.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from dlsched.cli import options
from dlsched.cli.output import LogText, say, tell_json


@click.command(short_help="Show every job, its target and how well it is kept.")
@options.output
@options.asking
def ps(output: str, config: Path | None, run_dir: Path | None) -> None:
    """Show every job, its target, how well it is kept, and why it is as it is.

    OF-TARGET is measured latency over target: `ok` within 10 %, `slow` above, `fast` below. Of a
    training it tells the tier: `under` the first, `deliver ok`, `finish ok`. `adopted` is a
    container that somebody else started; `blind` a job of whose progress nothing is known.

    OUTLOOK is what is expected of the next target that is not met, where the policy tells it:
    `in 4 min (3-6)` with its 80 % interval, `lacks 1.2 cores` that others have, `at best 64 ms` on
    this node whoever else is on it, `?` not known yet. `dlsched why` tells each with its numbers.

    \b
    Examples:
      dlsched ps
      dlsched ps -o json | jq '.jobs[] | select(.satisfied_slo == false) | .name'
      dlsched ps -o json | jq '.jobs[] | {name, in_s: .outlook[0].in_s}'
    """
    with options.daemon(config, run_dir) as daemon:
        status = daemon.jobs()
    if output == "json":
        tell_json(status)
        return
    from dlsched.cli import pages

    pages.show_jobs(status, pages.console())


@click.command(short_help="Print a job's output.")
@click.argument("job")
@click.option("--follow", "-f", is_flag=True, help="Go on as the job writes, until Ctrl-C.")
@click.option(
    "--tail",
    "-n",
    type=click.IntRange(0, 1_000_000),
    default=100,
    show_default=True,
    help="How many of the last lines to begin with.",
)
@click.option("--raw", is_flag=True, help="The bytes as the job wrote them, whatever they do.")
@options.asking
def logs(
    job: str, follow: bool, tail: int, raw: bool, config: Path | None, run_dir: Path | None
) -> None:
    """Print a job's output, without anything that steers a terminal.

    Also into a pipe, since most pipes end on a terminal; --raw leaves the output as it is.

    \b
    Examples:
      dlsched logs face-unlock
      dlsched logs face-unlock -f --tail 20
      dlsched logs face-unlock --raw > face-unlock.log
    """
    text = LogText()
    with options.daemon(config, run_dir) as daemon, contextlib.suppress(KeyboardInterrupt):
        for chunk in daemon.logs(job, tail, follow):
            click.echo(chunk if raw else text.feed(chunk), nl=False)
    click.echo(text.feed(b"", last=True), nl=False)


@click.command(short_help="End a job's container, and keep it ended.")
@click.argument("job")
@options.asking
def stop(job: str, config: Path | None, run_dir: Path | None) -> None:
    """End a job's container as its file says (signal, grace time), and keep it ended.

    The job file stays. `dlsched submit --start FILE` or a changed file starts the job again.

    \b
    Example:
      dlsched stop face-unlock
    """
    with options.daemon(config, run_dir) as daemon:
        daemon.stop(job)
    say(f"{job}: stopping; `dlsched submit --start` lifts it")


@click.command(short_help="Tell a job's last changes, with their reasons.")
@click.argument("job")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="How many changes to tell.",
)
@options.output
@options.asking
def why(job: str, limit: int, output: str, config: Path | None, run_dir: Path | None) -> None:
    """Tell a job's last changes of limits with their numbers, what it waits for, and when each of
    its targets will be met, or what keeps it from that.

    \b
    Examples:
      dlsched why face-unlock
      dlsched why face-unlock --limit 50 -o json
    """
    with options.daemon(config, run_dir) as daemon:
        answer = daemon.why(job, limit)
    if output == "json":
        tell_json(answer)
        return
    from dlsched.cli import pages

    pages.show_why(job, answer, pages.console())
