"""The daemon's process: what is set up once around an agent."""

from __future__ import annotations

import faulthandler
import gc
import resource

from dlsched.config.settings import Settings
from dlsched.daemon import logs
from dlsched.daemon.agent import Agent, Reload
from dlsched.store.jobs import lock_state_dir

_OBJECTS_PER_SWEEP = 50_000
"""So many more than before, and unreachable circles of objects are looked for."""


def run(settings: Settings, *, dry_run: bool = False, reload: Reload | None = None) -> int:
    """Run the daemon until SIGTERM or SIGINT; returns the exit code.

    `reload` reads the settings again on SIGHUP. Raises AlreadyRunning when another agent of the
    instance holds the state directory, PolicyError or EngineUnavailable when it cannot begin.
    """
    logs.set_up(settings.log.level, settings.log.format)
    # A watchdog ends what hangs with SIGABRT: the log then shows where it hung.
    faulthandler.enable()
    # A container takes ten descriptors: the usual 1024 would be spent by a hundred of them.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Hardly anything here refers to itself, and each job has many small objects: to look through
    # them for circles in every cycle is a tenth of the loop's time.
    gc.set_threshold(_OBJECTS_PER_SWEEP)
    with lock_state_dir(settings.state_dir, settings.instance):
        agent = Agent(settings, dry_run=dry_run)
        try:
            agent.run(reload)
        finally:
            agent.close()
    return 0
