"""Commands on job files: check, schema, submit.

Owns their options and words. It must not know what a job file may say: `config.job` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlsched.cli import options
from dlsched.cli.output import say, tell, tell_json
from dlsched.model.errors import DaemonUnavailable, Problem, SpecError

if TYPE_CHECKING:
    from dlsched.config.settings import Settings
    from dlsched.model.spec import JobSpec

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(short_help="Tell everything that is wrong with job files.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=_FILE)
@click.option("--node", is_flag=True, help="Also whether the daemon's node can give that.")
@options.output
@options.asking
@click.pass_context
def check(
    ctx: click.Context,
    files: tuple[Path, ...],
    node: bool,
    output: str,
    config: Path | None,
    run_dir: Path | None,
) -> None:
    """Tell everything that is wrong with job files, each as FILE:LINE:COLUMN: path: what.

    Ends with 0 when every file is right, with 2 when one is not. No daemon is asked without --node;
    with it what speaks against a target is told, too, where that job runs already: the latency that
    the node brought it to at best, or the cores that it needs.

    \b
    Examples:
      dlsched check face-unlock.yaml
      dlsched check --node train.yaml
      dlsched check jobs/*.yaml -o json
    """
    status: Mapping[str, Any] = {}
    if node:
        with options.daemon(config, run_dir) as daemon:
            status = daemon.jobs()
    checked = [(file, *_checked(file, status)) for file in files]
    if output == "json":
        tell_json([_as_json(*one) for one in checked])
    else:
        for file, spec, problems, doubted in checked:
            if spec is not None:
                tell(f"{file}: ok, job {spec.name}")
            for problem in problems:
                say(str(problem))
            for doubt in doubted:
                say(f"{file}: {doubt}")
    if any(problems for _, _, problems, _ in checked):
        ctx.exit(2)


@click.command(short_help="Print the JSON Schema of job files.")
def schema() -> None:
    """Print the JSON Schema of job files, for an editor's completion.

    \b
    Example:
      dlsched schema > dlsched-job.schema.json
    """
    from dlsched.config.job import json_schema

    tell_json(json_schema())


@click.command(short_help="Check a job file and put it into the watch folder.")
@click.argument("file", type=_FILE)
@click.option("--start", is_flag=True, help="Also start a job that was stopped or has ended.")
@click.option(
    "--watch",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder; else the running daemon's, else that of the settings.",
)
@options.asking
def submit(
    file: Path, start: bool, watch: Path | None, config: Path | None, run_dir: Path | None
) -> None:
    """Check a job file and put it into the watch folder, whole or not at all.

    A file of that name is replaced: the job changes live where it can. Where the folder has a
    subfolder of your name that is yours, the file goes there. A job that wants more cores, memory
    or GPUs than the running daemon's node has is refused, with what it has; what speaks against the
    target of one that runs already is told.

    \b
    Examples:
      dlsched submit face-unlock.yaml
      dlsched submit --start face-unlock.yaml
    """
    from dlsched.config.inbox.submit import doubts, lacks, own_folder
    from dlsched.config.inbox.submit import submit as put

    flags = {"watch": watch, "run_dir": run_dir}
    settings = options.settings(config, flags)
    running, status = _running(settings) if watch is None else (settings.watch, {})
    folder = own_folder(running)
    node = status.get("node", {})
    spec = put(_read(file), file.name, folder, lambda spec: lacks(spec, node))
    tell(str(folder / file.name))
    for doubt in doubts(spec, status.get("jobs", ())):
        say(f"{file.name}: {doubt}")
    if start:
        _lift(spec.name, settings)


def _running(settings: Settings) -> tuple[Path, Mapping[str, Any]]:
    """The running daemon's folder and what `ps` shows; without a daemon the settings' and {}."""
    from dlsched.api.client import Refused

    folder = settings.watch
    try:
        with options.daemon_of(settings) as daemon:
            folder = Path(str(daemon.about()["watch"]))
            return folder, daemon.jobs()
    except (DaemonUnavailable, Refused):  # no daemon, or its first cycle is not done yet
        return folder, {}


def _lift(job: str, settings: Settings) -> None:
    """Through the daemon, which acts at once; without one in the records, which it reads later."""
    from dlsched.api.client import Refused
    from dlsched.store.jobs import ended_records

    try:
        with options.daemon_of(settings) as daemon:
            daemon.start(job)
    except DaemonUnavailable:
        ended_records(settings.state_dir).lift(job)
    except Refused as error:
        if error.status != 404:  # a job that the daemon has not seen yet starts by itself
            raise


def _checked(
    file: Path, status: Mapping[str, Any]
) -> tuple[JobSpec | None, tuple[Problem, ...], tuple[str, ...]]:
    """The job, or what is wrong; and what speaks against its targets."""
    from dlsched.config.inbox.submit import doubts, lacks
    from dlsched.config.job import env_file_reader, parse_spec

    beside, node = env_file_reader(file.parent), status.get("node", {})
    try:
        spec = parse_spec(_read(file), str(file), beside, lambda spec: lacks(spec, node))
    except SpecError as error:
        return None, error.problems, ()
    return spec, (), tuple(doubts(spec, status.get("jobs", ())))


def _read(file: Path) -> str:
    from dlsched.config.yaml import SIZE_MAX_BYTES

    try:
        with file.open("rb") as stream:
            return stream.read(SIZE_MAX_BYTES + 1).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError((Problem(str(file), 0, 0, "", "it is not UTF-8"),)) from error
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise SpecError((Problem(str(file), 0, 0, "", what),)) from error


def _as_json(
    file: Path, spec: JobSpec | None, problems: tuple[Problem, ...], doubted: tuple[str, ...]
) -> dict[str, Any]:
    from dlsched.api.status import plain

    return {
        "file": str(file),
        "job": None if spec is None else spec.name,
        "problems": [plain(problem) for problem in problems],
        "doubts": list(doubted),
    }
