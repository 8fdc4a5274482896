"""Limits that a daemon which was killed has left on containers, by the records that it kept."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from dlsched.cli.commands import options
from dlsched.model.errors import DlschedError
from dlsched.model.units import counted
from dlsched.runtime.originals import Originals
from dlsched.store.jobs import lock_state_dir

GIVE_BACK = "`dlsched release` gives each its own limits back"


def still_applied(state_dir: Path) -> str | None:
    """How many containers have limits that no daemon gave back; None: none, or not readable. The
    caller knows that no daemon runs."""
    try:
        count = len(Originals(state_dir, read_only=True).changed())
    except OSError:
        return None
    containers = counted(count, "container")
    return f"the limits of {containers} are still as dlsched set them" if count else None


def without_daemon(config: Path | None) -> str | None:
    """The same with the remedy, in one line, where no daemon has the lock; None also where this
    user cannot read the settings or the lock."""
    with suppress(DlschedError, OSError):
        settings = options.settings(config)
        # Released immediately, or a daemon that starts meanwhile would end.
        lock_state_dir(settings.state_dir, settings.instance, read_only=True).release()
        if (line := still_applied(settings.state_dir)) is not None:
            return f"{line}: {GIVE_BACK}"
    return None
