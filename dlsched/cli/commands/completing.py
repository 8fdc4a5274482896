"""Completion of job names in shells: asked of the daemon, none where it does not answer."""

from __future__ import annotations

import re
from contextlib import suppress

import click

from dlsched.cli.commands import options
from dlsched.model.errors import DlschedError

WITHIN_S = 0.5
"""A person waits for it with a key pressed. 200 jobs are answered in a tenth of that."""


def job_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of the daemon's jobs that begin so."""
    return [name for name, _ in _jobs(ctx) if name.startswith(incomplete)]


def adopted_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of its adopted containers' jobs that begin so."""
    return [
        name for name, source in _jobs(ctx) if source == "container" and name.startswith(incomplete)
    ]


def _jobs(ctx: click.Context) -> list[tuple[str, str]]:
    """Names and sources. Only what a name may be, as shells expand what they are given."""
    from dlsched.model.spec import NAME

    with suppress(DlschedError, OSError):
        daemon = options.daemon(ctx.params.get("config"), ctx.params.get("run_dir"))
        rows = daemon.jobs(WITHIN_S)["jobs"]
        return [(row["name"], row["source"]) for row in rows if re.fullmatch(NAME, row["name"])]
    return []
