"""What reading packets costs: CPU time of a packet and a request, and of idle containers."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.publish import results
from benchmarks.wire import cells, place, servers
from dlsched.runtime.wire.process import Child
from dlsched.runtime.wire.ring import BLOCK_BYTES, Ring, RingCounts
from dlsched.runtime.wire.tap import Tap
from dlsched.runtime.wire.traffic import Watched
from tools.waiting import until

PACKET_US, REQUEST_US = 2.0, 5.0
CONTAINERS = 100
IDLE_CORE_RATIO, IDLE_MIB = 0.003, 40.0
RATE_PER_S = 10_000
STOPPED_S = 3.0
"""For so long the process that reads is stopped, so that the kernel must drop packets."""
_LISTEN = (
    "import signal, socket; s = socket.create_server(('0.0.0.0', 8000)); "
    "signal.sigwait([signal.SIGTERM])"
)


class CountingTap(Tap):
    """A tap that counts what its rings had."""

    def __init__(self) -> None:
        self.rings: list[Ring] = []
        self.packets = 0
        self.children: list[Child] = []
        super().__init__(open_ring=self._ring, start_child=self._child)

    def _child(self) -> Child:
        self.children.append(Child())
        return self.children[-1]

    def _ring(self, *arguments: Any, **options: Any) -> Ring:
        tap = self

        class Counting(Ring):
            def counts(self) -> RingCounts:
                found = super().counts()
                tap.packets += found.packets
                return found

        self.rings.append(Counting(*arguments, **options))
        return self.rings[-1]

    def used_s(self) -> tuple[float, float]:
        """CPU time of the thread that hands packets on, and of the process that reads them."""
        (task,) = (
            task
            for task in Path("/proc/self/task").iterdir()
            if task.name == str(self._thread.native_id if self._thread else 0)
        )
        return place.used_s(task), place.used_s(Path(f"/proc/{self.children[-1].pid}"))


@contextmanager
def counting(tap: CountingTap) -> Iterator[dict[str, Any]]:
    """Fills in what was used in the meantime."""
    row: dict[str, Any] = {}
    before, packets, began_s = tap.used_s(), tap.packets, time.monotonic()
    yield row
    took_s = time.monotonic() - began_s
    after = tap.used_s()
    row["packets"] = tap.packets - packets
    row["core of the thread"], row["core of the process"] = (
        (one - other) / took_s for one, other in zip(after, before, strict=True)
    )
    row["used_s"] = sum(after) - sum(before)


def rows(folder: Path, window_s: float) -> Iterator[dict[str, Any]]:
    yield at_full_speed(folder, window_s)
    for stopped_s in (0.0, STOPPED_S):
        yield at_a_rate(folder, window_s, stopped_s)
    yield idle(window_s)


@contextmanager
def asked(folder: Path) -> Iterator[tuple[CountingTap, int, Watched]]:
    """nginx, its port, and who watches it."""
    with (
        closing(CountingTap()) as tap,
        servers.NGINX.run(folder) as (one, port),
        cells.watching(tap, one, port) as watched,
    ):
        cells.settle(watched)
        yield tap, port, watched


def at_full_speed(folder: Path, window_s: float) -> dict[str, Any]:
    """CPU time while wrk asks nginx as fast as it can."""
    with asked(folder) as (tap, port, watched):
        with counting(tap) as row:
            log = place.printed(
                "wrk", "-t1", "-c8", f"-d{window_s:.0f}s", f"http://127.0.0.1:{port}/index.html"
            )
            time.sleep(cells.REPORTED_S)
        seen, one_of = cells.seen_by(watched), watched.one_of
    used_us, requests = 1e6 * row.pop("used_s"), seen.whole.count
    most_us = PACKET_US * row["packets"] + REQUEST_US * requests
    return {
        "what": "wrk on nginx, as fast as it can",
        "requests": int(re.findall(r"([0-9]+) requests in", log)[0]),
        "measured": requests,
        **row,
        "us a request": used_us / max(1, requests),
        "at most": most_us / max(1, requests),
        "lost": seen.lost,
        "dropped": seen.dropped,
        "one connection of": one_of,
        "verdict": results.verdict(0 < used_us <= most_us),
    }


def at_a_rate(folder: Path, window_s: float, stopped_s: float) -> dict[str, Any]:
    """Whether all of 10,000 requests a second are measured, or the rest is reported; also while the
    process that reads is stopped for a while."""
    with asked(folder) as (tap, port, watched):
        with counting(tap) as row, place.stopped(tap.children[-1].pid, stopped_s):
            log = place.printed(
                "h2load", "--h1", "-c10", "-t1", f"--rps={RATE_PER_S // 10}",
                "-n", str(int(RATE_PER_S * window_s)), f"http://127.0.0.1:{port}/index.html",
            )  # fmt: skip
            time.sleep(cells.REPORTED_S)
        seen = cells.seen_by(watched)
    (answered,) = map(int, re.findall(r"([0-9]+) succeeded", log))
    (took_s,) = (
        float(number) * {"s": 1.0, "ms": 1e-3}[unit]
        for number, unit in re.findall(r"finished in ([0-9.]+)(s|ms)", log)
    )
    missing = answered - seen.whole.count
    row.pop("used_s")
    return {
        "what": f"{answered / took_s:,.0f} requests a second on one port"
        + (f", the process stopped for {stopped_s:g} s" if stopped_s else ""),
        "requests": answered,
        "measured": seen.whole.count,
        **row,
        "lost": seen.lost,
        "dropped": seen.dropped,
        "verdict": results.verdict(0 <= missing <= seen.lost + seen.dropped),
    }


def idle(window_s: float) -> dict[str, Any]:
    """CPU time and kernel memory of 100 containers in networks of their own that do nothing."""
    with ExitStack() as held:
        tap = held.enter_context(closing(CountingTap()))
        for pair in range(CONTAINERS):
            command = [sys.executable, "-I", "-S", "-c", _LISTEN]
            one = held.enter_context(place.stand_in(command, pair=pair))
            held.enter_context(closing(tap.watch(one.pid, one.container)))
        until(lambda: len(tap.rings) == CONTAINERS, "100 rings", 120)
        time.sleep(cells.REPORTED_S + 5)
        with counting(tap) as row:
            time.sleep(window_s)
        used_s = row.pop("used_s")
        mib = sum(ring.blocks for ring in tap.rings) * BLOCK_BYTES / 2**20
    core = used_s / window_s
    return {
        "what": f"{CONTAINERS} idle containers, each in a network of its own",
        **row,
        "core": core,
        "kernel memory, MiB": mib,
        "verdict": results.verdict(core <= IDLE_CORE_RATIO and mib <= IDLE_MIB),
    }


def headlines(rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    speed, rate, stopped, still = rows
    reported = rate["verdict"] == stopped["verdict"] == "reached"
    speed_says = (
        f"Cost: {speed['us a request']:.1f} us of CPU time a request on nginx under wrk, at most "
        f"{speed['at most']:.1f} by its packets: {speed['verdict']}."
    )
    idle_says = (
        f"Cost: {CONTAINERS} idle containers use {100 * still['core']:.2f} % of a core and "
        f"{still['kernel memory, MiB']:.0f} MiB of kernel memory, at most "
        f"{100 * IDLE_CORE_RATIO:g} % and {IDLE_MIB:g} MiB: {still['verdict']}."
    )
    rate_says = (
        f"Cost: at {rate['what']} nothing is dropped without being reported, also while the "
        f"process that reads is stopped: {results.verdict(reported)}."
    )
    return speed_says, idle_says, rate_says
