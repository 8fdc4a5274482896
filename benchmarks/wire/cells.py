"""Response times at the socket beside those that clients saw, one cell after the other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.wire import client, servers
from benchmarks.wire.place import StandIn, busy, printed
from benchmarks.wire.servers import Server
from dlsched.estimate.sketch import measured_s, merge
from dlsched.model.facts import LatencySketch
from dlsched.runtime.wire.tap import Tap
from dlsched.runtime.wire.traffic import Watched
from tools.waiting import until

TOLERANCE_RATIO, TOLERANCE_MS = 0.05, 0.5
REQUESTS_LEAST = 300
WINDOW_S, QUICK_WINDOW_S = 30.0, 5.0
TRIAL_S = 3.0
"""Before a window the server is tried for so long: whether it can answer so many requests."""
TRIED_FROM_PER_S = 50.0
REPORTED_S = 2.5
"""After the last answer all is reported: a block is handed over, and a report is made."""
CLIENT_CORE_RATIO = 0.5
KEPT_UP_RATIO = 0.9
"""Of the asked rate, at least so much is answered where the server can."""
SEEN_RATIO = 0.98
"""At least so much of what was answered is measured, or the rest is reported."""
QUANTILES = {"p50": 0.5, "p95": 0.95}

WITHIN, OUT, NOT_MEASURED = "within", "OUT", "not measured"
BEYOND_SERVER, BEYOND_CLIENT = "beyond the server", "beyond the client"


@dataclass(frozen=True)
class Cell:
    """One way of asking a server."""

    server: Server
    keep: bool
    rate_per_s: float
    beside: str = ""
    """What else is there."""
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    fills_queue: bool = False
    """Whether more is asked than the server can take, on purpose."""

    @property
    def name(self) -> str:
        return ", ".join(filter(None, (self.server.name, self.beside)))


def all_cells() -> Iterator[Cell]:
    for server in servers.SERVERS:
        for keep in (True, False):
            for rate in server.rates_per_s:
                yield Cell(server, keep, rate)
    two = Cell(servers.UVICORN, True, 200.0, "beside two busy loops", lambda: busy(2))
    yield two
    yield Cell(servers.NGINX, False, 200.0, "beside two busy loops", lambda: busy(2))
    for keep in (True, False):
        yield Cell(servers.IPV6, keep, 200.0)
        yield Cell(servers.PAIR, keep, 200.0)
    yield Cell(servers.UPLOADS, True, 10.0)
    yield Cell(servers.LARGE, True, 10.0)
    yield Cell(servers.LARGE_NGINX, True, 10.0)
    yield Cell(servers.NARROW, False, 35.0, fills_queue=True)
    yield Cell(servers.STREAM_TLS, True, 10.0)


@dataclass
class Seen:
    """What the wire measured in a window."""

    whole: LatencySketch = field(default_factory=LatencySketch)
    first: LatencySketch = field(default_factory=LatencySketch)
    lost: int = 0
    dropped: int = 0
    connections: Counter[str] = field(default_factory=Counter)
    unmeasured: Counter[str] = field(default_factory=Counter)


def seen_by(watched: Watched) -> Seen:
    """All that it measured since the last call."""
    found = Seen()
    for one in watched.take(time.monotonic()):
        for name in ("whole", "first"):
            sketches = [each.latency for each in getattr(one, name) if each.latency is not None]
            setattr(found, name, merge(getattr(found, name), *sketches))
        found.lost += one.lost
        found.dropped += one.dropped
        found.connections.update(one.connections)
        found.unmeasured.update(one.unmeasured)
    return found


def settle(watched: Watched) -> Seen:
    """Wait until all is reported; what was measured since the last call."""
    time.sleep(REPORTED_S)
    return seen_by(watched)


@contextmanager
def watching(tap: Tap, one: StandIn, port: int) -> Iterator[Watched]:
    """Watch that port of a stand-in. Raises AssertionError where it is not found."""
    watched = tap.watch(one.pid, one.container, (port,))
    try:
        until(lambda: watched.found and not watched.problem, f"watch {port}", 15)
        yield watched
    finally:
        watched.close()


def asking(address: str, port: int, cell: Cell, count: int) -> list[str]:
    """The client's command."""
    plan = {
        "host": address, "port": port, "rate_per_s": cell.rate_per_s, "count": count,
        "keep": cell.keep, "tls": cell.server.tls, **cell.server.request,
    }  # fmt: skip
    return [sys.executable, "-I", str(Path(client.__file__)), json.dumps(plan)]


def ask(address: str, port: int, cell: Cell, count: int) -> dict[str, Any]:
    """What the client saw."""
    command = asking(address, port, cell, count)
    done = subprocess.run(command, check=True, capture_output=True, timeout=600)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(
    cell: Cell, one: StandIn, port: int, watched: Watched, window_s: float
) -> dict[str, Any]:
    """The row of one cell."""
    rate = cell.rate_per_s
    row: dict[str, Any] = {
        "server": cell.name,
        "connections": "kept" if cell.keep else "one a request",
        "a second": rate,
    }
    with cell.around():
        if rate >= TRIED_FROM_PER_S and not cell.fills_queue:
            tried = ask(one.address, port, cell, max(10, int(rate * TRIAL_S)))
            if why := beyond(tried, rate):
                return row | {"verdict": why}
        settle(watched)
        answered = ask(one.address, port, cell, max(REQUESTS_LEAST, int(rate * window_s)))
        seen = settle(watched)
    row |= compared(answered, seen)
    late = answered["cpu_ratio"] > CLIENT_CORE_RATIO
    return row | {"verdict": BEYOND_CLIENT if late else judged(row)}


def beyond(answered: Mapping[str, Any], rate_per_s: float) -> str:
    """Why this rate cannot be measured here; empty: it can."""
    if answered["cpu_ratio"] > CLIENT_CORE_RATIO:
        return BEYOND_CLIENT
    # What is on its way when the last request is sent takes its own time.
    expected_s = answered["sent"] / rate_per_s + (answered["whole_p95"] or 0.0) / 1e3 + 0.5
    kept_up = expected_s / answered["seconds"] >= KEPT_UP_RATIO
    return "" if kept_up and not answered["unsent"] else BEYOND_SERVER


def compared(answered: Mapping[str, Any], seen: Seen) -> dict[str, Any]:
    """What client and wire say, in ms."""
    row: dict[str, Any] = {"requests": answered["answered"], "measured": seen.whole.count}
    for kind, sketch in (("whole", seen.whole), ("first", seen.first)):
        for name, quantile in QUANTILES.items():
            wire_s = measured_s(sketch, quantile)
            row[f"{kind} {name}, client"] = answered[f"{kind}_{name}"]
            row[f"{kind} {name}, wire"] = None if wire_s is None else 1e3 * wire_s
    row |= {
        "lost": seen.lost,
        "dropped": seen.dropped,
        "not measured": ", ".join(f"{n} x {why}" for why, n in seen.unmeasured.items()) or "-",
        "as": ", ".join(f"{name} {n}" for name, n in seen.connections.items() if n) or "-",
        "failed": answered["failed"],
        "client's core": answered["cpu_ratio"],
    }
    return row


def judged(row: Mapping[str, Any]) -> str:
    """Whether what the wire measured is what the client saw."""
    if not row["measured"]:
        return NOT_MEASURED
    missing = row["requests"] * SEEN_RATIO - row["measured"]
    if missing > 0 and not (row["lost"] or row["dropped"] or row["not measured"] != "-"):
        return f"{OUT}: {row['measured']} of {row['requests']} requests"
    far = [
        f"{kind} {name}"
        for kind in ("whole", "first")
        for name in QUANTILES
        if not is_near(row.get(f"{kind} {name}, wire"), row.get(f"{kind} {name}, client"))
    ]
    return f"{OUT}: {', '.join(far)}" if far else WITHIN


def is_near(wire_ms: float | None, client_ms: float | None) -> bool:
    """Within 5 % and half a millisecond; what one of them does not say is not compared."""
    if client_ms is None or wire_ms is None:
        return True
    return abs(wire_ms - client_ms) <= TOLERANCE_RATIO * client_ms + TOLERANCE_MS


def short(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with client and wire in one column."""
    shown: dict[str, Any] = {"server": row["server"], "connections": row["connections"]}
    if "a second" in row:
        shown["a second"] = f"{row['a second']:g}"
    if "requests" in row:
        shown["requests"] = f"{row['requests']} / {row['measured']}"
        for kind in ("whole", "first"):
            for name in QUANTILES:
                both = (row[f"{kind} {name}, client"], row[f"{kind} {name}, wire"])
                shown[f"{kind} {name}"] = " / ".join(
                    "-" if ms is None else f"{ms:.3g}" for ms in both
                )
        shown["lost, dropped"] = f"{row['lost']}, {row['dropped']}"
        shown["not measured"] = row["not measured"]
    return shown | {"verdict": row["verdict"]}


# ------------------------------------------------------------------ clients of other makers

PROGRAMS = {"wrk": "wrk", "hey": "hey", "h2load": "nghttp2-client", "chrt": "util-linux"}
_PROMPTLY = ("chrt", "--fifo", "10")
"""So that what is measured is not the client's own waiting for a CPU."""
_AT_200_PER_S = {"hey": ("-c", "8", "-q", "25"), "h2load": ("-c8", "-t1", "--rps=25")}


def hey(_: Path, url: str, window_s: float) -> dict[str, Any]:
    """A connection a request."""
    more = ("-z", f"{window_s:.0f}s", *_AT_200_PER_S["hey"], "-disable-keepalive", url)
    out = printed(*_PROMPTLY, "hey", *more)
    found = {
        f"p{which}": 1e3 * float(seconds)
        for which, seconds in re.findall(r"([0-9]+)% in ([0-9.]+) secs", out)
    }
    (count,) = re.findall(r"\[200\]\s+([0-9]+) responses", out)
    return _as_client(found, int(count))


def h2load(folder: Path, url: str, window_s: float) -> dict[str, Any]:
    """Kept connections, with a log of each request."""
    log = folder / "h2load.log"
    log.unlink(missing_ok=True)
    count = str(int(200 * window_s))
    more = ("--h1", *_AT_200_PER_S["h2load"], "-n", count, f"--log-file={log}", url)
    printed(*_PROMPTLY, "h2load", *more)
    lines = [line.split() for line in log.read_text().splitlines()]
    took_ns = [1000 * int(us) for _, status, us in lines if status == "200"]
    found = {name: client.quantile_ms(took_ns, q) for name, q in QUANTILES.items()}
    return _as_client(found, len(took_ns))


def _as_client(found: Mapping[str, Any], count: int) -> dict[str, Any]:
    whole = {f"whole_{name}": found[name] for name in QUANTILES}
    return {
        "answered": count, "failed": 0, "cpu_ratio": None, "first_p50": None, "first_p95": None,
        **whole,
    }  # fmt: skip


OTHERS: Sequence[tuple[str, Callable[[Path, str, float], dict[str, Any]], Server, str]] = (
    *(
        ("h2load", h2load, server, "kept")
        for server in (
            servers.NGINX,
            servers.UVICORN,
            servers.UVICORN_TLS,
            servers.GUNICORN,
            servers.NODE,
        )
    ),
    *(
        ("hey", hey, server, "one a request")
        for server in (servers.NGINX, servers.UVICORN, servers.GUNICORN, servers.NODE)
    ),
)


def beside_others(tap: Tap, folder: Path, window_s: float) -> Iterator[dict[str, Any]]:
    """Rows of other makers' clients."""
    for name, run, server, connections in OTHERS:
        with server.run(folder) as (one, port), watching(tap, one, port) as watched:
            settle(watched)
            scheme = "https" if server.tls else "http"
            answered = run(folder, f"{scheme}://{one.address}:{port}/", window_s)
            row = {"server": server.name, "connections": f"{connections}, {name}"}
            row |= compared(answered, settle(watched))
            yield row | {"verdict": judged(row)}


def rows(
    tap: Tap, folder: Path, window_s: float, cells: Sequence[Cell]
) -> Iterator[dict[str, Any]]:
    """The row of each cell; a server is started once for those of its cells that follow."""
    for server, mine in groupby(cells, key=lambda cell: cell.server):
        with server.run(folder) as (one, port), watching(tap, one, port) as watched:
            for cell in mine:
                yield measured(cell, one, port, watched, window_s)
