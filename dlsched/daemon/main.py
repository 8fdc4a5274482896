"""The daemon's process: set-up around one agent."""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from dlsched.config.settings import Settings
from dlsched.config.settings_file import default_settings_file
from dlsched.daemon import logs
from dlsched.daemon.agent import Agent, Reload
from dlsched.daemon.wiring import engine_options
from dlsched.model.errors import CannotStart
from dlsched.runtime.docker.doctor.engine import out_of_reach
from dlsched.runtime.doctor.host import folder
from dlsched.store.jobs import lock_state_dir

_OBJECTS_PER_SWEEP = 50_000
"""Number of new objects that starts the cyclic garbage collector."""


def run(
    settings: Settings,
    *,
    dry_run: bool = False,
    reload: Reload | None = None,
    settings_file: Path | None = None,
) -> int:
    """Run the daemon until SIGTERM or SIGINT; returns the exit code. `reload` reads the settings
    again on SIGHUP; `settings_file` is what they were read from. Raises AlreadyRunning if another
    agent of the instance holds the state directory, CannotStart, PolicyError or EngineUnavailable
    if it cannot start."""
    logs.set_up(settings.log.level, settings.log.format)
    if problems := tuple(_problems(settings)):
        raise CannotStart(problems)
    # A watchdog ends a hung daemon with SIGABRT; the log then shows where it hung.
    faulthandler.enable()
    # A container takes up to twenty descriptors, so fifty would use up the default 1024.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Hardly any object here is in a reference cycle, and each job has many small objects. Searching
    # them in every control cycle takes a tenth of the loop's time.
    gc.set_threshold(_OBJECTS_PER_SWEEP)
    with lock_state_dir(settings.state_dir, settings.instance, read_only=dry_run):
        agent = Agent(settings, dry_run=dry_run, notes=tuple(_notes(settings_file)))
        try:
            agent.run(reload)
        finally:
            agent.close()
    return 0


def _problems(settings: Settings) -> Iterator[str]:
    """Folders that this user cannot use, each with a remedy; then what keeps the engine away, too,
    so that all of it can be mended together."""
    findings = (folder("state", settings.state_dir), folder("run", settings.run_dir))
    failed = [found for found in findings if found.state == "fail"]
    yield from (f"{found.line}: {found.remedy}" for found in failed)
    host = engine_options(settings).host
    if failed and (why := out_of_reach(host)) is not None:
        yield f"the Docker Engine at {host}: {why}"


def _notes(settings_file: Path | None) -> Iterator[str]:
    """What somebody without settings or rights should know at the start."""
    if settings_file is None:
        yield (
            f"no settings file {default_settings_file}: every setting has its default; "
            "--config names another file"
        )
    if os.geteuid() != 0:
        yield (
            "dlsched does not run as root: CPU limits and weights are set through the engine; "
            "CPU burst, the idle class and metrics files in containers of other users cannot "
            "be used"
        )
