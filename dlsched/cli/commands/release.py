"""The command `release`, which gives every container its own limits back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlsched.cli.commands import options
from dlsched.cli.output import one_line, print_json, print_text, say
from dlsched.cli.program import FAILURE
from dlsched.model.errors import AlreadyRunning, EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlsched.config.settings import Settings


@click.command(short_help="Give every container its own limits back.")
@click.option("--resume", is_flag=True, help="Let the daemon set limits again after a release.")
@click.option(
    "--unattended",
    is_flag=True,
    help="Give back only if no daemon runs; leave a running one alone.",
)
@options.output
@options.asking
@click.pass_context
def release(
    ctx: click.Context,
    resume: bool,
    unattended: bool,
    output: str,
    config: Path | None,
    run_dir: Path | None,
) -> None:
    """Give every container its own limits back: adopted ones what they had before, jobs their
    ceiling. No container is stopped.

    A running daemon does it, and then sets no limits until SIGHUP or --resume. Without a daemon it
    is done from the records in the state directory. Ends with 1 if a container did not get all
    limits back.

    \b
    Examples:
      dlsched release
      dlsched release --resume
    """
    settings = options.settings(config, {"run_dir": run_dir})
    if resume:
        options.daemon_of(settings).resume()
        say("resumed: the daemon sets limits again")
        return
    backs = _released(settings, ask=not unattended)
    if backs is None:
        return
    if output == "json":
        print_json({"containers": backs})
    else:
        for back in backs:
            print_text(_line(back))
        if not backs:
            say("no container has limits set by dlsched")
    if any(back["failure"] is not None for back in backs):
        ctx.exit(FAILURE)


def _released(settings: Settings, *, ask: bool) -> Sequence[dict[str, Any]] | None:
    """The result for each container. The daemon that holds the lock releases, else this process.
    None: a daemon runs, and `ask` is false."""
    from dlsched.store.jobs import lock_state_dir

    if not settings.state_dir.is_dir():
        return ()
    try:
        lock = lock_state_dir(settings.state_dir, settings.instance)
    except (AlreadyRunning, PermissionError) as error:
        if not ask:
            say(f"nothing was given back: {error}")
            return None
        answer: Sequence[dict[str, Any]] = options.daemon_of(settings).release()["containers"]
        return answer
    with lock:
        from dlsched.daemon.wiring import engine_options
        from dlsched.runtime.docker.limits.writer import release_all
        from dlsched.runtime.originals import Originals

        try:
            return [asdict(back) for back in release_all(engine_options(settings))]
        except EngineUnavailable:
            kept = Originals(settings.state_dir, read_only=True)
            if ask or kept.changed() or kept.all_lost():
                raise
            # A package is removed after its engine: no container lacks anything.
            return ()


def _line(back: dict[str, Any]) -> str:
    whose = "adopted" if back["adopted"] else "job"
    has = f"{back['job']} ({whose} {back['container_id'][:12]}): {back['now'] or 'not read'}"
    return one_line(has if back["failure"] is None else f"{has}; FAILED: {back['failure']}")
