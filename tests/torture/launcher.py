"""`dlsched run` and `dlsched release` in processes whose every change is a fault point.

Owns what happens in such a process before the product begins. It is forked from a server that has
imported everything already, so that a start costs milliseconds.
"""

from __future__ import annotations

import itertools
import os
import resource
import time
from datetime import datetime, tzinfo
from pathlib import Path

import psutil

from dlsched.cli.commands.release import release
from dlsched.config.settings import Settings, load_settings
from dlsched.daemon import main as daemon
from dlsched.runtime import clock
from dlsched.runtime.machine import container
from tests.torture.points import Points
from tests.torture.wrapping import Names, wrap_everything

STEPPING, MEMORY = "stepping-clock", "memory-bytes"
"""Files beside the orders: the wall clock goes back and forth; so much more memory can be had."""


def run_agent(settings_file: str, orders: str, log: str) -> None:
    """Run the agent under these settings; the process ends with its exit code."""
    settings = _begin(settings_file, orders, log)
    # Only at the start: in the middle of an act it would come now and then.
    container.SWEEP_S = 3600.0
    raise SystemExit(daemon.run(settings, reload=lambda: _load(settings_file)))


def run_release(settings_file: str, orders: str, log: str) -> None:
    """Give everything back as systemd does it after the agent's end."""
    _begin(settings_file, orders, log)
    release.main(["--config", settings_file, "--unattended"], prog_name="dlsched release")


def _begin(settings_file: str, orders: str, log: str) -> Settings:
    os.setsid()  # as a service manager starts it
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    settings = _load(settings_file)
    names = Names(settings.state_dir, settings.run_dir, settings.instance)
    wrap_everything(Points(Path(orders)), names)
    if (Path(orders) / STEPPING).exists():
        _step_the_clock()
    limit = Path(orders) / MEMORY
    if limit.exists():
        most = psutil.Process().memory_info().vms + int(limit.read_text())
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return settings


def _step_the_clock() -> None:
    """Every look at the wall clock is a day before or after the one before."""
    days = itertools.cycle((86_400.0, -86_400.0, 0.0))
    true = time.time

    class Stepping(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.fromtimestamp(time.time(), tz)

    time.time = lambda: true() + next(days)
    clock.datetime = Stepping  # type: ignore[misc]


def _load(settings_file: str) -> Settings:
    return load_settings(Path(settings_file), {}, {})
