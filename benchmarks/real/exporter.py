"""FastAPI with its most used exporter beside clients that know the truth: is any verdict wrong?

Three services with the exporter's own buckets (0.1, 0.5 and 1 s), on real containers under the
default policy; their clients draw each request's service time, whose scale changes every minute.
Once a second what dlsched says of each is held against what its clients saw in the same window:
LATE is wrong if they saw it in time in every window that may be meant, OK is wrong if they saw it
late in each by more than the band. A client also waits for the connection and the event loop, of
which the exporter knows nothing; so OK is compared with a margin. Clients precede all else on the
host: on a busy one they would measure their own wait for CPU.

    python -m benchmarks run exporter-real     writes benchmarks/results/exporter-real.json
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.real.scene import quantile, takes
from dlsched.config.settings import Settings
from dlsched.model.spec import BAND_RATIO
from tests.stacks import environments
from tests.stacks.containers import PROGRAMS, PYTHON
from tools.base_image import BASE, ensure_base
from tools.session import free_address, session, wait_for

NAME = "exporter-real"
PHASE_S = 60.0
SCALES_S = (0.004, 0.15)
"""Of a phase's median service time, drawn between on a log scale."""
RATES_PER_S = (3.0, 25.0)
SPREAD = 0.4
"""Standard deviation of a service time's logarithm."""
SLACK_S = 2.0
"""Between what clients saw and what the page of the last seconds says."""
MARGIN_S = 0.005
"""Of a client's own time for a request."""


@dataclass
class Service:
    """One service, with the requests that its clients saw end."""

    name: str
    target: str
    target_s: float
    quantile: float | None
    address: str = field(default_factory=free_address)
    ended: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=20_000))
    """When (monotonic), and after how many seconds."""
    requests: int = 0
    failed: int = 0

    @property
    def stat(self) -> str | None:
        """`p95`; None: the mean."""
        return None if self.quantile is None else f"p{100 * self.quantile:g}"

    def spec(self) -> str:
        """Its job file; JSON is YAML."""
        port = self.address.rpartition(":")[2]
        folder = environments.folder("serving").resolve()
        site = f"/packages/lib/{PYTHON}/site-packages"
        serve = ("python3", "-m", "uvicorn", "--port", port, "--log-level", "warning")
        stat = {} if self.stat is None else {"quantile": self.stat}
        return json.dumps(
            {
                "name": self.name,
                "image": BASE,
                "command": [*serve, "fastapi_app:app"],
                "environment": {"PYTHONPATH": f"/programs:{site}"},
                "volumes": [f"{folder}:/packages:ro", f"{PROGRAMS}:/programs:ro"],
                "network": "host",
                "target": {"latency": self.target, **stat},
                "metrics": {"base": "fastapi", "port": int(port)},
                "stop": {"grace": "1s"},
            }
        )

    def seen(self, from_s: float, to_s: float) -> float | None:
        """What its clients saw in that time, as its target has it; None: fewer than five."""
        found = sorted(took_s for at_s, took_s in list(self.ended) if from_s < at_s <= to_s)
        if len(found) < 5:
            return None
        if self.quantile is None:
            return sum(found) / len(found)
        return quantile(found, self.quantile)


def services() -> list[Service]:
    """A target between two bounds, one at a bound, and one for the mean."""
    return [
        Service("between", "50ms", 0.05, 0.95),
        Service("at-a-bound", "100ms", 0.1, 0.95),
        Service("mean", "30ms", 0.03, None),
    ]


async def ask(service: Service, service_s: float) -> None:
    """One request on a connection of its own."""
    host, _, port = service.address.rpartition(":")
    body = json.dumps({"s": service_s})
    head = f"POST /predict HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    began_s = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write((head + more + body).encode())
        answer = await reader.read()
        writer.close()
    except OSError:
        answer = b""
    if answer.startswith(b"HTTP/1.1 200"):
        now_s = time.monotonic()
        service.ended.append((now_s, now_s - began_s))
        service.requests += 1
    else:
        service.failed += 1


async def drive(service: Service, seed: int, until_s: float) -> None:
    """An open loop of Poisson arrivals; scale and rate are drawn again for each phase."""
    chance = random.Random(f"{seed} {service.name}")
    under_way: set[asyncio.Task[None]] = set()
    while (now_s := time.monotonic()) < until_s:
        scale, rate = (
            math.exp(chance.uniform(*map(math.log, ends))) for ends in (SCALES_S, RATES_PER_S)
        )
        phase_ends_s = min(until_s, now_s + PHASE_S)
        while time.monotonic() < phase_ends_s:
            task = asyncio.ensure_future(ask(service, scale * chance.lognormvariate(0, SPREAD)))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            await asyncio.sleep(chance.expovariate(rate))
    await asyncio.gather(*under_way)


def precede() -> None:
    """Let this thread compute before all others."""
    os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def verdict(row: Mapping[str, Any]) -> str:
    """What dlsched says of a job in one word."""
    if row["ratio"] is None:
        return "unclear" if row["blind"] and row["lowest_s"] is not None else "none"
    return "OK" if row["satisfied_slo"] else "LATE"


def is_wrong(said: str, seen_s: Sequence[float], target_s: float) -> bool:
    """Whether clients contradict a verdict in each of the windows that may be meant."""
    if said == "LATE":
        return all(one <= target_s for one in seen_s)
    return said == "OK" and all(one > (1 + BAND_RATIO) * target_s + MARGIN_S for one in seen_s)


def watch(
    one: Any, all_services: Sequence[Service], seconds: float
) -> tuple[dict[str, Counter[str]], list[dict[str, Any]]]:
    """Counts of verdicts by service, and those that clients contradict."""
    counts: dict[str, Counter[str]] = {service.name: Counter() for service in all_services}
    wrong: list[dict[str, Any]] = []
    window_s, began_s = Settings().window_s, time.monotonic()
    while (now_s := time.monotonic()) < began_s + seconds:
        rows = {row["name"]: row for row in one.client.jobs()["jobs"]}
        for service in all_services if now_s > began_s + window_s + SLACK_S else ():
            row, said = rows[service.name], verdict(rows[service.name])
            ends = [now_s - late_s for late_s in (0.0, SLACK_S / 2, SLACK_S, 2 * SLACK_S)]
            seen = [service.seen(end_s - window_s, end_s) for end_s in ends]
            known = [each for each in seen if each is not None]
            counts[service.name][said] += 1
            if None not in seen and is_wrong(said, known, service.target_s):
                keys = ("measured_s", "lowest_s", "highest_s", "requests")
                wrong.append(
                    {
                        "service": service.name,
                        "at_s": now_s - began_s,
                        "said": said,
                        "seen_s": known,
                        **{key: row[key] for key in keys},
                    }
                )
        time.sleep(max(0.0, now_s + 1.0 - time.monotonic()))
    return counts, wrong


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(
        __doc__, arguments, minutes=(60.0, "of changing load"), seed=(34, "of the clients")
    )
    environments.ensure("serving")
    ensure_base(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    all_services, seconds = services(), 60 * chosen.minutes
    with session() as one:
        one.start("adaptive")
        for service in all_services:
            one.drop(service.name, service.spec())
        wait_for(
            lambda: one.running() == len(all_services), 120, "every service", one.why_not_running
        )
        wait_for(lambda: all(takes(each.address) for each in all_services), 120, "every port")

        def clients() -> None:
            precede()

            async def all_of_them() -> None:
                until_s = time.monotonic() + seconds
                await asyncio.gather(*(drive(each, chosen.seed, until_s) for each in all_services))

            asyncio.run(all_of_them())

        precede()  # it shares the interpreter with the clients
        thread = threading.Thread(target=clients, daemon=True)
        thread.start()
        counts, wrong = watch(one, all_services, seconds)
        thread.join(60)
        host = results.host_facts(str(one.engine.version()["Version"]))
    rows = [
        {
            "service": each.name,
            "target": f"{each.stat or 'mean'} {each.target}",
            **{word: counts[each.name][word] for word in ("OK", "LATE", "unclear", "none")},
            "requests": each.requests,
            "failed": each.failed,
            **{
                f"wrong {said}": sum(
                    (one["service"], one["said"]) == (each.name, said) for one in wrong
                )
                for said in ("OK", "LATE")
            },
        }
        for each in all_services
    ]
    results.finish(
        NAME, host, [chosen.seed], [*rows, *wrong], {"": rows}, whole=chosen.minutes >= 60
    )
    return 0
