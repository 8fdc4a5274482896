"""The daemon's process: set-up around one agent."""

from __future__ import annotations

import faulthandler
import gc
import resource

from dlsched.config.settings import Settings
from dlsched.daemon import logs
from dlsched.daemon.agent import Agent, Reload
from dlsched.store.jobs import lock_state_dir

_OBJECTS_PER_SWEEP = 50_000
"""Number of new objects that starts the cyclic garbage collector."""


def run(settings: Settings, *, dry_run: bool = False, reload: Reload | None = None) -> int:
    """Run the daemon until SIGTERM or SIGINT; returns the exit code. `reload` reads the settings
    again on SIGHUP. Raises AlreadyRunning if another agent of the instance holds the state
    directory, PolicyError or EngineUnavailable if it cannot start."""
    logs.set_up(settings.log.level, settings.log.format)
    # A watchdog ends a hung daemon with SIGABRT; the log then shows where it hung.
    faulthandler.enable()
    # A container takes ten descriptors, so a hundred containers would use up the default 1024.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Hardly any object here is in a reference cycle, and each job has many small objects. Searching
    # them in every control cycle takes a tenth of the loop's time.
    gc.set_threshold(_OBJECTS_PER_SWEEP)
    with lock_state_dir(settings.state_dir, settings.instance, read_only=dry_run):
        agent = Agent(settings, dry_run=dry_run)
        try:
            agent.run(reload)
        finally:
            agent.close()
    return 0
