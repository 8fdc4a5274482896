"""Owns the running of cases that measure CPU or time: on a quiet host, or with its load said.

Before such a case the host's foreign load is looked at, and a quieter moment waited for, up to a
deadline. A case that failed while others kept the host busy is measured again; that is printed, and
the last verdict stands, with the load of each attempt. A failure on a quiet host is one at once.
"""

from __future__ import annotations

import os
import time

import pytest
from _pytest.runner import runtestprotocol

from tools.cpu_time import Reading, foreign_cores, own_used_s, processes_used_s, read_clocks

QUIET_CORES = 0.3
"""Less than so much foreign load is a quiet host."""
SAMPLE_S = 1.0
WAIT_S = 60.0
"""For a quiet host, in a session. Where one core is busy all day no wait helps the second case."""
LATER_WAIT_S = 3.0
ATTEMPTS = 3

_waited = pytest.StashKey[bool]()


def foreign_load(before: tuple[Reading, float]) -> float:
    """Cores that others kept busy since that look."""
    clocks, own_s = before
    return foreign_cores(clocks, read_clocks(), own_used_s(os.environ) - own_s)


def look() -> tuple[Reading, float]:
    """The clocks, and what this session and its engine have used so far."""
    return read_clocks(), own_used_s(os.environ)


def wait_for_quiet(deadline_s: float) -> float:
    """Wait until the host is quiet or the deadline has passed; returns the last load seen.

    The engine counts too: it clears up after the cases before.
    """
    end_s = time.monotonic() + deadline_s
    while True:
        before, own_s = read_clocks(), processes_used_s()
        time.sleep(SAMPLE_S)
        load = foreign_cores(before, read_clocks(), processes_used_s() - own_s)
        if load < QUIET_CORES or time.monotonic() >= end_s:
            return load


def run_measured(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run one case, again where others disturbed it, and report its last attempt."""
    terminal = item.config.pluginmanager.get_plugin("terminalreporter")
    say = terminal.write_line if terminal is not None else print
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    loads: list[str] = []
    for attempt in range(1, ATTEMPTS + 1):
        late = item.config.stash.get(_waited, False)
        load = wait_for_quiet(LATER_WAIT_S if late else WAIT_S)
        if load >= QUIET_CORES and not late:
            item.config.stash[_waited] = True
            say(f"QUIET: others keep {load:.2f} cores busy after {WAIT_S:g} s: going on beside it")
        before = look()
        if attempt > 1:
            item._initrequest()  # type: ignore[attr-defined]  # fixtures anew
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        loads.append(f"{foreign_load(before):.2f}")
        failed = any(report.failed for report in reports)
        if not failed or float(loads[-1]) < QUIET_CORES or attempt == ATTEMPTS:
            break
        say(f"QUIET: {item.nodeid} failed beside {loads[-1]} foreign cores: measured again")
    for report in reports:
        if report.failed:
            report.sections.append(("foreign load in cores, by attempt", ", ".join(loads)))
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
