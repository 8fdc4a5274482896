"""How soon the daemon reacts: from a file dropped to the create call, from a death to a decision.

The first ends with the engine's own stamp of the container it was asked for. The second is on the
kernel's boot clock, which the daemon's cycles carry; what the engine takes to tell of the death is
printed beside it.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import datetime

from benchmarks.real.session import Session, wait_for
from dlsched.model.cycle import CycleReport

IMAGE = "dlsched-examples/base:3.11"
SLEEPER = "command: [python, -c, 'import signal; signal.pause()']"


def idle_spec(name: str) -> str:
    """A job that does nothing."""
    return (
        f"name: {name}\nimage: {IMAGE}\n{SLEEPER}\nnetwork: none\n"
        "cpus: {min: 0.01}\nstop: {grace: 1s}\n"
    )


def measure(session: Session, rounds: int) -> list[dict[str, object]]:
    """Rounds of drop and kill; one row for each kind, with median and worst."""
    session.start("fair")
    drops, deaths, tells = [], [], []
    for index in range(rounds):
        name = f"idle-{index}"
        dropped_at = time.time()
        session.drop(name, idle_spec(name))
        wait_for(lambda name=name: _runs(session, name), 30, f"{name} to run")
        container = session.engine.containers.get(f"dlsched-{session.instance}-{name}")
        drops.append(_created_at(container.attrs["Created"]) - dropped_at)
        first = session.cycle()
        killed_s, killed_at = _boot_s(), time.time()
        os.kill(container.attrs["State"]["Pid"], signal.SIGKILL)
        wait_for(lambda name=name: not _runs(session, name), 30, f"{name} to be seen dead")
        decided_s = _cycle_s(session, first, lambda r, n=name: _left(r, n))
        deaths.append(decided_s - killed_s)
        tells.append(_engine_told_s(session, container.id, killed_at))
    session.stop()
    return [
        _row("file dropped to create call", drops, 0.0),
        _row("death to new decision", deaths, statistics.median(tells)),
    ]


def _row(what: str, times_s: list[float], engine_s: float) -> dict[str, object]:
    return {
        "what": what,
        "rounds": len(times_s),
        "median_ms": round(statistics.median(times_s) * 1000),
        "worst_ms": round(max(times_s) * 1000),
        "engine_ms": round(engine_s * 1000),
        "median_beyond_engine_ms": round((statistics.median(times_s) - engine_s) * 1000),
    }


def _engine_told_s(session: Session, container_id: str, killed_at: float) -> float:
    """How long the engine took to tell of the death."""
    events = session.engine.events(
        since=int(killed_at) - 1,
        until=int(time.time()) + 1,
        filters={"container": container_id, "event": "die"},
        decode=True,
    )
    return max(event["timeNano"] / 1e9 - killed_at for event in events)


def _cycle_s(session: Session, first: int, wanted: Callable[[CycleReport], bool]) -> float:
    """When the first cycle from `first` on began of which `wanted` holds."""
    found: list[float] = []

    def look() -> bool:
        found.extend(r.snapshot.now_s for r in session.reports(first) if wanted(r))
        return bool(found)

    wait_for(look, 15, "the cycle to be in the journal")
    return found[0]


def _created_at(stamp: str) -> float:
    """When the engine took the create call; its stamps have nine decimals."""
    return datetime.fromisoformat(f"{stamp[:26]}+00:00").timestamp()


def _left(report: CycleReport, name: str) -> bool:
    wakes = report.snapshot.wakes
    return report.decision is not None and any(w.startswith(f"{name}: left") for w in wakes)


def _runs(session: Session, name: str) -> bool:
    rows: list[Mapping[str, object]] = session.client.jobs()["jobs"]
    return any(row["name"] == name and row["state"] == "running" for row in rows)


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
