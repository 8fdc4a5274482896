"""The command events: what the daemon did and noticed, as it happens."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from dlsched.cli.commands import options
from dlsched.cli.output import one_line, say
from dlsched.model.errors import DaemonUnavailable, Refused

if TYPE_CHECKING:
    from dlsched.api.client import Daemon

AGAIN_S = 1.0
"""Time between two attempts to reach a daemon that has gone."""


@click.command(short_help="Show changes of limits, states, targets and alarms as they happen.")
@click.option("--follow", "-f", is_flag=True, help="Go on printing as it happens, until Ctrl-C.")
@options.output
@options.asking
def events(follow: bool, output: str, config: Path | None, run_dir: Path | None) -> None:
    """Show what happened in the last 15 minutes, since the daemon's start at most: changes of
    limits with their reasons, states of jobs, targets that were missed or met again, alarms that
    began or ended. One line each, oldest first.

    A latency target counts as missed when the latency is more than 10 % above it, and as met again
    when the latency is not above it. With --follow the command waits for a daemon that is
    restarted, and says so on standard error. With --output json each line is one JSON object; its
    `type` is change, event or alarm. `dlsched why JOB` shows a job's older history.

    \b
    Examples:
      dlsched events
      dlsched events --follow
      dlsched events -f --json | jq -r 'select(.kind == "missed") | .job'
    """
    daemon = options.daemon(config, run_dir)
    with contextlib.suppress(KeyboardInterrupt):
        for cycle in _cycles(daemon, follow):
            for line in _objects(cycle) if output == "json" else _lines(cycle):
                click.echo(line)


def _cycles(daemon: Daemon, follow: bool) -> Iterator[dict[str, Any]]:
    """What happened in each cycle, as JSON. With `follow` it outlasts the daemon that answered
    first."""
    last_id, answered, lost = "", False, False
    while True:
        try:
            for message in daemon.cycle_events(last_id, follow):
                if lost:
                    say("the daemon answers again")
                answered, lost = True, False
                last_id = message.id or last_id
                if message.kind == "events":
                    yield json.loads(message.data)
            problem = "the daemon has ended the stream"
        except (DaemonUnavailable, Refused) as error:
            if not (follow and answered):
                raise
            problem = str(error)
        if not follow:
            return
        if not lost:
            say(f"{problem}; tried again every {AGAIN_S:g} s")
        lost = True
        sleep(AGAIN_S)


def _lines(cycle: dict[str, Any]) -> Iterator[str]:
    """A line for each event, change and alarm, in this order, as `why` has it."""
    from dlsched.api.codec import read
    from dlsched.api.stream_schema import CycleEvents
    from dlsched.cli.pages.layout import GAP
    from dlsched.cli.pages.why import change_cells, change_reasons, event_text

    found = read(CycleEvents, cycle)
    for event in found.events:
        yield one_line(GAP.join((event.wall_time, event.job, event_text(event))))
    for change in found.changes:
        reasons = "; ".join(change_reasons(change))
        what = GAP.join((change.wall_time, change.job, *change_cells(change)))
        yield one_line(f"{what}: {reasons}" if reasons else what)
    for alarm in found.alarms:
        yield one_line(GAP.join((alarm.wall_time, f"alarm {alarm.kind}: {alarm.text}")))


def _objects(cycle: dict[str, Any]) -> Iterator[str]:
    """The same as JSON, of any version of the schema."""
    for kind in ("event", "change", "alarm"):
        for one in cycle.get(f"{kind}s", ()):
            version = {"schema_version": cycle.get("schema_version"), "type": kind}
            yield json.dumps({**version, **one})
