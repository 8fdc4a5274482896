"""The command top."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from dlsched.cli.commands import options
from dlsched.cli.output import say
from dlsched.cli.program import INVALID


@click.command(short_help="Watch jobs, targets, limits and reasons live.")
@options.asking
@click.pass_context
def top(ctx: click.Context, config: Path | None, run_dir: Path | None) -> None:
    """Watch every job live in the terminal: its target, its CPU and limit, the last 5 minutes, and
    the reasons of the job that is selected. It needs a terminal, also by ssh and in tmux, and
    changes nothing. The keys are on the screen; `?` explains them.

    TREND shows the measured latency over its target, 15 s a column, on a scale from 0.5 to 1.5: the
    target itself is the middle. The jobs farthest above their targets in the last 30 s come first.

    \b
    Examples:
      dlsched top
      ssh -t HOST dlsched top
    """
    if problem := _unfit():
        say(f"error: {problem}; `dlsched ps` prints a table anywhere")
        ctx.exit(INVALID)
    daemon = options.daemon(config, run_dir)
    daemon.about()  # one line in place of an empty screen where there is none
    from dlsched.cli.top.app import Top
    from dlsched.cli.top.feed import Feed

    Top(Feed(daemon)).run()


def _unfit() -> str | None:
    """Why nothing can be drawn here. Textual draws on standard error."""
    if find_spec("textual") is None:
        return "top needs the package textual: pip install 'dlsched[top]'"
    streams = (("input", sys.stdin), ("output", sys.stdout), ("error", sys.stderr))
    for name, stream in streams:
        if stream is None or not stream.isatty():
            return f"top needs a terminal, and standard {name} is not one"
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return f"top needs a terminal that can be drawn on, and TERM is {os.environ.get('TERM')!a}"
    return None
