"""The command `doctor`, which checks the installation and repairs nothing. Engine and host are
checked by `runtime`, the rest here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlsched.cli.commands import options
from dlsched.cli.output import clean, print_json
from dlsched.model.errors import AlreadyRunning, DlschedError, PolicyError, SettingsError
from dlsched.model.units import render_address, render_bytes, render_seconds
from dlsched.runtime.doctor.finding import Finding

if TYPE_CHECKING:
    from dlsched.config.settings import Settings
    from dlsched.policies.protocol import Policy
    from dlsched.runtime.docker.engine import Engine

LASTS_LEAST_S = 86_400.0
"""A journal whose size limit holds less than a day gets a warning."""

_AS_DAEMON = "run `dlsched doctor` as the daemon's user"

READ = "status, reasons, history, metrics, the logs of one's own jobs"
CHANGED = "all that the status socket gives, every job's logs, and all changes"
"""What the sockets serve."""

_COLOUR = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command(short_help="Check what keeps dlsched from working.")
@options.output
@options.config
@click.option("--no-probe", is_flag=True, help="Do not make a scratch container.")
@click.pass_context
def doctor(ctx: click.Context, output: str, config: Path | None, no_probe: bool) -> None:
    """Check settings, engine, GPUs, host, folders, daemon and journal, and show what to do.

    Limits are tried on a scratch container, which is removed after a second; nothing else is
    changed. Ends with 1 if a check fails.

    \b
    Examples:
      dlsched doctor
      dlsched doctor --no-probe -o json --config ./dlsched.yaml
    """
    show(ctx, output, _findings(config, probing=not no_probe))


def show(ctx: click.Context, output: str, found: Iterator[Finding]) -> None:
    """Print the findings. Ends the command with 1 if a check failed."""
    findings = list(found)
    if output == "json":
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            state = click.style(f"{finding.state:<4}", fg=_COLOUR[finding.state])
            if "NO_COLOR" in os.environ:
                state = click.unstyle(state)
            remedy = f" -> {finding.remedy}" if finding.remedy and finding.state != "ok" else ""
            click.echo(f"{state}  {finding.what:<8}  {clean(finding.line + remedy)}")
    if any(finding.state == "fail" for finding in findings):
        ctx.exit(1)


def unusable(error: SettingsError) -> Iterator[Finding]:
    """One finding for each problem of the settings."""
    for problem in error.problems:
        yield Finding(
            "settings",
            "fail",
            str(problem),
            "correct it where it is set: the settings file, an environment variable or a flag",
        )


def _findings(config: Path | None, *, probing: bool) -> Iterator[Finding]:
    from dlsched.api.schema import CONTROL_SOCKET_NAME, STATUS_SOCKET_NAME
    from dlsched.runtime.doctor import host

    try:
        settings = options.settings(config)
    except SettingsError as error:
        yield from unusable(error)
        return
    yield Finding("settings", "ok", f"instance {settings.instance}, policy {settings.policy}")
    yield from _policies(settings)
    yield from _engine(settings, probing=probing)
    yield from host.kernel()
    yield host.spinning()
    yield host.descriptors(settings.max_jobs)
    for what, path in (("state", settings.state_dir), ("run", settings.run_dir)):
        yield _permitted(what, partial(host.folder, what, path))
    yield _watch(settings.watch)
    for name, group, setting, serves in (
        (STATUS_SOCKET_NAME, settings.status_group, "status_group", READ),
        (CONTROL_SOCKET_NAME, settings.control_group, "control_group", CHANGED),
    ):
        yield host.socket(settings.run_dir / name, group, setting, serves)
    yield _listen(settings)
    yield from _daemon(settings)
    yield _permitted("journal", partial(_journal, settings))


def _permitted(what: str, check: Callable[[], Finding]) -> Finding:
    """What that check finds; where this user may not look, that is the finding."""
    try:
        return check()
    except PermissionError as error:
        return Finding(what, "warn", f"{error.filename}: {error.strerror}", _AS_DAEMON)


def _policies(settings: Settings) -> Iterator[Finding]:
    """The acting policy, and each other of the settings that does not load."""
    from dlsched.cluster.core.registry import CLUSTER
    from dlsched.policies.registry import NODE, build, load

    cluster = settings.cluster
    try:
        yield _policy(settings.policy, load(settings.policy, settings.policy_options))
    except PolicyError as error:
        yield _unloaded(str(error))
    for what, name, given, group in (
        ("shadow", settings.shadow, settings.shadow_options, NODE),
        ("cluster.policy", cluster.policy, cluster.policy_options, CLUSTER),
    ):
        try:
            if name is not None:
                build(name, given, group)
        except PolicyError as error:
            yield _unloaded(f"{what}: {error}")


def _unloaded(line: str) -> Finding:
    return Finding("policy", "fail", line, "see `dlsched policies --verbose`")


def _policy(name: str, policy: Policy) -> Finding:
    if policy.traits.holds_at_target:
        line = (
            f"policy {name} limits every service so that it just meets its target: requests "
            "that do not wait for answers (open loops: web clients, cameras) then queue up "
            "without bound"
        )
        remedy = (
            "set policy adaptive in mode slo for such services; `dlsched why JOB` shows which "
            "these are"
        )
        return Finding("policy", "warn", line, remedy)
    return Finding("policy", "ok", f"{name} loads")


def _engine(settings: Settings, *, probing: bool) -> Iterator[Finding]:
    from dlsched.daemon.wiring import engine_options, ledger_options
    from dlsched.runtime.docker.doctor.engine import around_containers, examine, probe
    from dlsched.runtime.docker.engine import Engine
    from dlsched.runtime.doctor import host

    reached = engine_options(settings)
    engine = Engine(reached.host, reached.timeout_s)
    try:
        findings = list(examine(engine))
        yield from findings
        works = all(finding.state != "fail" for finding in findings)
        if not works:
            yield Finding("probe", "ok", "skipped: there is no engine to try limits on")
        elif not probing:
            yield Finding("probe", "ok", "skipped, as --no-probe is given")
        else:
            yield from probe(engine, settings.instance)
        cpus, around = None, None
        with suppress(DlschedError):
            if works:
                cpus = int(engine.info()["NCPU"])
                around = around_containers(engine, reached)
        ledger = ledger_options(settings)
        yield host.capacity(ledger.capacity_cores, ledger.reserve_cores, cpus, around=around)
        yield from _gpus(settings, engine, works=works)
    finally:
        engine.close()


def _gpus(settings: Settings, engine: Engine, *, works: bool) -> Iterator[Finding]:
    from dlsched.daemon.wiring import gpu_options, placement_options
    from dlsched.runtime.docker.doctor import gpus
    from dlsched.runtime.docker.identity.labels import ENABLE, INSTANCE

    yield from gpus.alarm(settings.state_dir)
    placement = placement_options(settings)
    reading = gpus.poll(settings.gpus.device_folder)
    yield from gpus.devices(reading, placement)
    if not reading.devices:
        return
    if works:
        with suppress(DlschedError):  # an unreachable engine was reported above
            info = engine.info()
            marks = ({INSTANCE: settings.instance}, {ENABLE: "true"})
            ours = {one["Id"] for labels in marks for one in engine.containers(labels)}
            yield from gpus.foreign_users(reading, ours, placement)
            yield gpus.access(reading, info, gpu_options(settings))
            yield from gpus.user_namespaces(reading, info)
    yield gpus.mps(os.environ)
    with suppress(DlschedError):
        yield from gpus.reached_by(int(options.daemon_of(settings).about()["pid"]), reading)


def _listen(settings: Settings) -> Finding:
    """Who may read the status by TCP."""
    if settings.listen is None:
        return Finding("listen", "ok", "no TCP port is open, as `listen` is null")
    line = "every user of this host may read status, reasons, history and metrics"
    return Finding("listen", "ok", f"{render_address(*settings.listen)}: {line}")


def _watch(folder: Path) -> Finding:
    try:
        count = sum(1 for _ in folder.iterdir())
    except FileNotFoundError:
        return Finding("watch", "warn", f"{folder} does not exist", f"mkdir -p {folder}")
    except OSError as error:
        remedy = "no job is removed while the folder cannot be listed; correct its permissions"
        return Finding("watch", "fail", f"{folder}: {error.strerror}", remedy)
    if not os.access(folder, os.W_OK | os.X_OK):
        line = f"{folder} can be listed, but you may not write into it"
        return Finding("watch", "warn", line, "`dlsched submit` needs the right to write into it")
    return Finding("watch", "ok", f"{folder}: {count} entries")


def _daemon(settings: Settings) -> Iterator[Finding]:
    """Whether a daemon answers. One that holds the lock without answering is a failure."""
    from dlsched.cli.commands.leftover import GIVE_BACK, still_applied
    from dlsched.store.jobs import lock_state_dir

    try:
        about = options.daemon_of(settings).about()
    except DlschedError as error:
        yield Finding("daemon", "warn", str(error))
    else:
        line = f"version {about['version']}, pid {about['pid']}, policy {about['policy']}"
        yield Finding("daemon", "ok", line + (", dry run" if about["dry_run"] else ""))
        return
    try:
        if settings.state_dir.is_dir():
            # Released immediately, or a daemon that starts meanwhile would end.
            lock_state_dir(settings.state_dir, settings.instance).release()
        yield Finding("lock", "ok", "free")
        if (left := still_applied(settings.state_dir)) is not None:
            yield Finding("limits", "warn", left, GIVE_BACK)
    except AlreadyRunning as error:
        remedy = (
            "the daemon that holds the lock uses another run_dir, or its API has failed: see its "
            "log"
        )
        yield Finding("lock", "fail", str(error), remedy)
    except OSError as error:
        yield Finding("lock", "warn", f"{settings.state_dir}: {error.strerror}", _AS_DAEMON)


def _journal(settings: Settings) -> Finding:
    from dlsched.store.journal.reader import JournalReader
    from dlsched.store.journal.schema import JOURNAL_NAME

    path, bound = settings.state_dir / JOURNAL_NAME, settings.journal.max_size_bytes
    if not path.exists():
        return Finding("journal", "ok", f"{path}: does not exist yet")
    with JournalReader(path) as reader:
        growth = reader.growth(bound)
        if reader.problem is not None:
            return Finding(
                "journal",
                "warn",
                reader.problem,
                "move the journal away: dlsched begins a new one",
            )
    size = f"the journal has {render_bytes(growth.bytes)} of at most {render_bytes(bound)}"
    if growth.bytes_per_day is None or growth.lasts_s is None:
        return Finding("journal", "ok", f"{size}; it is too new to know its growth")
    rate = f"{render_bytes(growth.bytes_per_day)} a day"
    line = f"{size}, and grows by {rate}: so it can hold the last {render_seconds(growth.lasts_s)}"
    short = growth.lasts_s < min(LASTS_LEAST_S, settings.journal.max_age_s)
    return Finding("journal", "warn" if short else "ok", line, "raise journal.max_size")
