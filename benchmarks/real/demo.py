"""`make demo`: two services beside two busy neighbours, first under plain Docker, then adopted.

Three minutes on two cores, with four containers of its own; no other container is touched. The
services report nothing: dlsched measures them at their sockets. What the table shows was measured
by their clients, from the moment that a request was due. Writes `demo.json` and `demo.png` of
`benchmarks/results`.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from docker.errors import NotFound
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.options import options, stage
from benchmarks.publish import results
from benchmarks.real.scene import (
    CLIENT,
    COMMAND_WITHIN_S,
    SPIN,
    asking,
    kernel_reading,
    ms,
    quantile,
    stranger,
    takes,
    told_if_it_fails,
    typed,
)
from dlsched.runtime.cgroup.cpu_units import DEFAULT_SHARES, engine_cores
from tools.session import Process, Session, free_address, session, undivided
from tools.steps import step

IMAGE = "dlsched-examples/inference"
PLAIN, ADOPTED = "plain Docker", "adopted"
CORES = 2
WARM_S, SETTLE_S, JUDGE_S = 5.0, 15.0, 40.0
"""Before the first measurement, before the second, and of each: 600 requests a service."""
LINE_EVERY_S = 3.0
"""So often there is a line, whatever goes on."""
START_WITHIN_S = 60.0
CLIENT_S = 900.0
"""Longest life of a client, should nobody end it."""

REQUEST_S = 0.015
"""A request takes so long on idle cores, with fewer images on a slower host: else the services need
more than plain Docker's share, and it answers too late to be compared."""
CALIBRATE_S, CALIBRATE_PER_S = 3.0, 5.0

FASTER_RATIO = 0.5
"""Figure: p95 of each service, of what it was under plain Docker."""
LEFT_RATIO = 0.85
"""Figure: CPU of each neighbour, of its half of what the services leave."""
WHOLE_S = 180.0
"""Figure: the demo takes no longer."""


@dataclass(frozen=True)
class Service:
    """A network behind HTTP, and its client."""

    name: str
    model: str
    images: int
    """Of a request: at most, see `REQUEST_S`."""
    rate_per_s: float


SERVICES = (
    Service("demo-faces", "vgg", 144, 15.0),
    Service("demo-search", "inception", 88, 15.0),
)
NEIGHBOURS = ("demo-batch-1", "demo-batch-2")
NAMES = (*(service.name for service in SERVICES), *NEIGHBOURS)

LIFE = ("Pid", "StartedAt")
"""What would change if a container were restarted."""

_DAEMON, _WHOLE = "dlsched", "whole"
"""Beside the containers' names: what used CPU."""

Requests = Mapping[str, Sequence[tuple[float, float | None]]]
"""By service: when each was due (monotonic clock) and its latency in seconds; None: it failed."""


@dataclass(frozen=True)
class Phase:
    """A measured span of the scene."""

    name: str
    began_s: float
    ended_s: float
    cpu_cores: Mapping[str, float]
    """By container."""
    daemon_cores: float
    """dlsched with its child."""
    others_cores: float
    """All else on these cores: clients, what else the host does, stolen time."""

    def latencies_s(self, requests: Sequence[tuple[float, float | None]]) -> list[float]:
        """Latencies in order of those that were due in this span; a failed one is infinite."""
        due = (latency for due_s, latency in requests if self.began_s <= due_s < self.ended_s)
        return sorted(math.inf if latency is None else latency for latency in due)

    def left_ratio(self, neighbour: str) -> float:
        """A neighbour's CPU over its equal part of what the services leave."""
        left = CORES - sum(self.cpu_cores[service.name] for service in SERVICES)
        return self.cpu_cores[neighbour] * len(NEIGHBOURS) / left


@dataclass(frozen=True)
class Row:
    """One container in one phase of one run."""

    run: int
    container: str
    phase: str
    cpu_cores: float
    left_ratio: float | None
    """Of a neighbour: its CPU over its half of what the services leave."""
    daemon_cores: float
    others_cores: float
    requests: int | None = None
    failed: int | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    target_ms: float | None = None


def rows_of(
    number: int, phases: Sequence[Phase], requests: Requests, targets_ms: Mapping[str, float]
) -> list[Row]:
    """A row a container and phase."""
    found = []
    for phase in phases:
        for name in NAMES:
            shares = (phase.cpu_cores[name], phase.daemon_cores, phase.others_cores)
            cpu, daemon, others = (round(cores, 3) for cores in shares)
            if name in NEIGHBOURS:
                left = round(phase.left_ratio(name), 3)
                found.append(Row(number, name, phase.name, cpu, left, daemon, others))
                continue
            ordered = phase.latencies_s(requests[name])
            p50_ms, p95_ms = (ms(quantile(ordered, part)) for part in (0.5, 0.95))
            failed = sum(map(math.isinf, ordered))
            seen = (len(ordered), failed, p50_ms, p95_ms, targets_ms.get(name))
            found.append(Row(number, name, phase.name, cpu, None, daemon, others, *seen))
    return found


def headlines(rows: Sequence[Row], whole_s: Sequence[float]) -> list[str]:
    """The figures, each ending in whether it is reached."""
    runs = sorted({row.run for row in rows})
    faster = [[_faster_ratio(rows, run, one.name) for one in SERVICES] for run in runs]
    quick = sum(max(ratios) <= FASTER_RATIO for ratios in faster)
    after = [row for row in rows if row.phase == ADOPTED and row.left_ratio is not None]
    least = min(row.left_ratio or 0.0 for row in after)
    left = ", ".join(f"{row.left_ratio:.2f}" for row in after)
    others = {row.run: f"{row.daemon_cores:.2f} + {row.others_cores:.2f}" for row in after}
    return [
        (
            f"p95 of both services at most {FASTER_RATIO:g} of plain Docker's: in {quick} of "
            f"{len(runs)} runs ({', '.join(f'{ratio:.2f}' for ratio in chain(*faster))}): "
            f"{results.verdict(quick == len(runs))}"
        ),
        (
            f"CPU of each neighbour at least {LEFT_RATIO:g} of its half of what the services "
            f"leave: {left} (dlsched + others used {', '.join(others.values())} of {CORES} "
            f"cores): {results.verdict(least >= LEFT_RATIO)}"
        ),
        (
            f"the demo at most {WHOLE_S:g} s: {', '.join(f'{s:.0f}' for s in whole_s)} s: "
            f"{results.verdict(max(whole_s) <= WHOLE_S)}"
        ),
    ]


def _faster_ratio(rows: Sequence[Row], run: int, name: str) -> float:
    """p95 when adopted over p95 under plain Docker; infinite where one is not known."""
    p95 = {row.phase: row.p95_ms for row in rows if (row.run, row.container) == (run, name)}
    plain, adopted = p95[PLAIN], p95[ADOPTED]
    return math.inf if plain is None or adopted is None else adopted / plain


def lines_of(rows: Sequence[Row]) -> list[dict[str, str]]:
    """A line a run and container: before and after."""
    return [
        {
            "container": was.container,
            "target": "" if now.target_ms is None else f"{now.target_ms:g} ms",
            "p50, ms": "" if now.requests is None else _pair(was.p50_ms, now.p50_ms),
            "p95, ms": "" if now.requests is None else _pair(was.p95_ms, now.p95_ms),
            "CPU, cores": _pair(was.cpu_cores, now.cpu_cores, 2),
            "part": "" if now.left_ratio is None else _pair(was.left_ratio, now.left_ratio, 2),
        }
        for was, now in _both(rows)
    ]


def table(rows: Sequence[Row], seed: int) -> Table:
    """Before and after, of one run."""
    both = _both(rows)
    counts = (
        f"{was.container} {was.requests} and {now.requests}"
        for was, now in both
        if was.requests is not None
    )
    daemon = " and ".join(f"{row.daemon_cores:.2f}" for row in both[0])
    others = " and ".join(f"{row.others_cores:.2f}" for row in both[0])
    shown = Table(
        title=f"{PLAIN} -> {ADOPTED}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        caption=f"seed {seed}; requests: {', '.join(counts)}, "
        f"{sum(row.failed or 0 for row in rows)} failed; part: a neighbour's CPU over its half of "
        f"what the services leave; dlsched used {daemon} of these {CORES} cores, all else {others}",
        caption_justify="left",
    )
    lines = lines_of(rows)
    for column in lines[0]:
        shown.add_column(column, justify="left" if column == "container" else "right")
    for line in lines:
        shown.add_row(*line.values())
    return shown


def _both(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    before, after = ([row for row in rows if row.phase == phase] for phase in (PLAIN, ADOPTED))
    return list(zip(before, after, strict=True))


def _pair(was: float | None, now: float | None, digits: int = 1) -> str:
    return " -> ".join(
        "never" if one is None else f"{one:.{0 if one >= 100 else digits}f}" for one in (was, now)
    )


def say(line: str) -> None:
    print(line, flush=True)


def _fitted(service: Service, address: str) -> Service:
    """The same with as many images as a request of `REQUEST_S` has on this host, idle."""
    words = asking(f"http://{address}", CALIBRATE_PER_S, service.images, 0, CALIBRATE_S)
    _, done = [  # the first answers of all are slow
        subprocess.run(words, cwd=CLIENT, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    mean_s = json.loads(done.stdout.splitlines()[-1])["mean_s"]
    return replace(service, images=max(1, round(service.images * min(1.0, REQUEST_S / mean_s))))


class Scene:
    """Four containers and two clients, which run from the beginning to the end."""

    def __init__(self, one: Session, seed: int) -> None:
        self._one, self._seed = one, seed
        # Two cores of a larger host: the scene is the same there.
        self._cpus = sorted(os.sched_getaffinity(0))[:CORES]
        self._containers: dict[str, Any] = {}
        self._counted: dict[str, int] = {}
        """By service: how many requests its client counted in all."""
        self.requests: dict[str, list[tuple[float, float | None]]] = {
            service.name: [] for service in SERVICES
        }

    def start(self, clients: ExitStack) -> None:
        """All containers, then the clients. Raises RuntimeError where a name is taken."""
        for name in NAMES:
            try:
                self._one.engine.containers.get(name)
            except NotFound:
                continue
            raise RuntimeError(
                f"there is a container {name}; if a killed demo left it: docker rm -f {name}"
            )
        addresses = {service: free_address() for service in SERVICES}
        for service, address in addresses.items():
            host, _, port = address.partition(":")
            listen = ("--model", service.model, "--host", host, "--port", port)
            self._run(service.name, "host", ("python", "serve.py", *listen))
        self._one.weigh()
        for service, address in addresses.items():
            self.watch(START_WITHIN_S, f"{service.name} starts", lambda at=address: takes(at))
            if not takes(address):
                raise RuntimeError(f"{service.name} does not listen after {START_WITHIN_S:g} s")
        fitted = {_fitted(service, address): address for service, address in addresses.items()}
        for name in NEIGHBOURS:
            self._run(name, "none", SPIN)
        for container in self._containers.values():
            container.reload()
        for index, (service, address) in enumerate(fitted.items()):
            clients.enter_context(self._client(service, address, 1000 * self._seed + index))

    def _run(self, name: str, network: str, command: Sequence[str]) -> None:
        words = " ".join(f"'{word}'" if " " in word else word for word in command)
        say(f"$ docker run -d --name {name} --network {network} {IMAGE} {words}")
        cpus = ",".join(map(str, self._cpus))
        self._containers[name] = stranger(
            self._one, IMAGE, name, command, network_mode=network, cpuset_cpus=cpus
        )

    @contextmanager
    def _client(self, service: Service, address: str, seed: int) -> Iterator[None]:
        client = subprocess.Popen(
            [
                *asking(f"http://{address}", service.rate_per_s, service.images, seed, CLIENT_S),
                "--each",
            ],
            cwd=CLIENT,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        reader = threading.Thread(
            target=self._read, args=(service.name, client.stdout), daemon=True
        )
        reader.start()
        try:
            yield
            client.terminate()
            self.watch(30.0, "the last requests are answered", lambda: not reader.is_alive())
            got, sent = len(self.requests[service.name]), self._counted.get(service.name)
            if got != sent:
                raise RuntimeError(f"the client of {service.name} lost requests: {got} of {sent}")
        finally:
            client.kill()
            client.wait()

    def _read(self, name: str, lines: Iterator[str]) -> None:
        for line in lines:
            row = json.loads(line)
            if "due_s" in row:
                self.requests[name].append((row["due_s"], row["latency_s"]))
            elif "total" in row:
                self._counted[name] = row["sent"] + row["dropped"]

    def watch(self, seconds: float, what: str, until: Callable[[], bool] = lambda: False) -> None:
        """Wait so long, or until then, with a line every three seconds of what clients see."""
        end_s = time.monotonic() + seconds
        line_s = time.monotonic() + LINE_EVERY_S
        while not until() and (left_s := end_s - time.monotonic()) > 0:
            if time.monotonic() >= line_s:
                line_s += LINE_EVERY_S
                say(f"  {what}, {left_s:.0f} s left at most{self._just_now()}")
            time.sleep(min(0.1, left_s))

    def _just_now(self) -> str:
        since_s = time.monotonic() - LINE_EVERY_S
        seen = {
            name: sorted(s for due_s, s in list(found)[-200:] if s is not None and due_s > since_s)
            for name, found in self.requests.items()
        }
        if not any(seen.values()):
            return ""
        shown = (
            f"{name} {1000 * quantile(some, 0.95):.0f} ms" for name, some in seen.items() if some
        )
        return f"; p95 just now: {', '.join(shown)}"

    def measure(self, name: str, seconds: float) -> Phase:
        """Latencies are read later: the last are answered after the span."""
        began_s, before = time.monotonic(), self._cpu_s()
        self.watch(seconds, name)
        after, ended_s = self._cpu_s(), time.monotonic()
        cores = {key: (after[key] - before[key]) / (ended_s - began_s) for key in after}
        whole, daemon = cores.pop(_WHOLE), cores.pop(_DAEMON)
        others = max(0.0, whole - daemon - sum(cores.values()))
        return Phase(name, began_s, ended_s, cores, daemon, others)

    def _cpu_s(self) -> dict[str, float]:
        """CPU time by container, of the daemon, and of the cores on which containers run."""
        daemon = self._one.process
        own = [one.cpu_times() for one in (daemon, *daemon.children(recursive=True))]
        cpu_s = {_DAEMON: sum(one.user + one.system for one in own)}
        for name, one in self._containers.items():
            used = kernel_reading(one).usage_core_s
            if used is None:
                raise RuntimeError(f"the CPU time of {name} cannot be read: has it ended?")
            cpu_s[name] = used
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        wanted = {f"cpu{cpu}" for cpu in self._cpus}
        # user, nice, system, idle, iowait, irq, softirq, steal
        busy = [[int(n) for n in line[1:9]] for line in lines if line[0] in wanted]
        ticks = sum(sum(one) - one[3] - one[4] for one in busy)
        return cpu_s | {_WHOLE: ticks / os.sysconf("SC_CLK_TCK")}

    def dlsched(self, *words: str) -> None:
        """A command as a user types it. Raises RuntimeError when it fails."""

        def wait(command: Process) -> None:
            self.watch(COMMAND_WITHIN_S, "at work", lambda: command.poll() is not None)

        typed(self._one, *words, wait=wait)

    def limits(self) -> dict[str, dict[str, object]]:
        """By container, all that must be the same at the end, by the engine and the kernel."""
        found = {}
        for name, one in self._containers.items():
            one.reload()
            state = one.attrs["State"]
            life = {key: state[key] for key in LIFE}
            own, kernel = one.attrs["HostConfig"], kernel_reading(one)
            cores = engine_cores(own["NanoCpus"] or 0, own["CpuQuota"], own["CpuPeriod"])
            # Docker cannot write the 0 again that stands for its default.
            engine = {"limit": cores, "shares given": own["CpuShares"] or DEFAULT_SHARES}
            fields = ("quota_us", "period_us", "burst_us", "shares", "weight", "idle")
            found[name] = life | engine | {field: getattr(kernel, field) for field in fields}
        return found


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """What is not as it was, one phrase each."""
    return [
        f"{key} was {before.get(key)}, is {after.get(key)}"
        for key in dict.fromkeys((*before, *after))
        if before.get(key) != after.get(key)
    ]


def play(
    one: Session, number: int, seed: int, judge_s: float
) -> tuple[list[Row], Sequence[Phase], Requests]:
    """The whole scene. Raises RuntimeError where a container does not get back what it had."""
    one.listen = free_address()
    os.environ["DLSCHED_RUN_DIR"] = str(one.root / "run")
    with step("dlsched starts; it has no container yet"):
        one.start("adaptive", more={"capacity": CORES})
    say(f"the page: http://{one.listen}/   (open it now: it lives until the end)")
    say(f"for commands of your own: export DLSCHED_RUN_DIR={one.root / 'run'}")
    stage("four containers under plain Docker")
    scene = Scene(one, seed)
    with ExitStack() as clients:
        scene.start(clients)
        had = scene.limits()
        scene.watch(WARM_S, "warming up")
        stage(f"{PLAIN}: measured for {judge_s:g} s")
        phases = [scene.measure(PLAIN, judge_s)]
        targets_ms = {}
        stage("adopted while they run: for each service half of the p95 that it has now")
        for name, requests in scene.requests.items():
            p95_s = quantile(phases[0].latencies_s(list(requests)), 0.95)
            if math.isinf(p95_s):
                raise RuntimeError(f"{name} answers too few requests: is this host busy?")
            targets_ms[name] = max(1.0, math.floor(1000 * FASTER_RATIO * p95_s))
            target = ("--latency", f"{targets_ms[name]:g}ms", "--quantile", "p95")
            scene.dlsched("adopt", name, *target)
        for name in NEIGHBOURS:
            scene.dlsched("adopt", name, "--background")
        scene.watch(SETTLE_S, "limits and weights settle")
        stage(f"{ADOPTED}: measured for {judge_s:g} s")
        phases.append(scene.measure(ADOPTED, judge_s))
        scene.dlsched("ps")
        stage("everything as it was")
        scene.dlsched("drop", "--all", "--yes")
        wrong = []
        for name, now in scene.limits().items():
            problems = changed(had[name], now)
            words = (f"{k} {v}" for k, v in now.items() if v is not None and k not in LIFE)
            had_all = f"exactly what it had: {', '.join(words)}, the same process"
            say(f"  {name}: {'; '.join(problems) or had_all}")
            wrong += problems
    if wrong:
        raise RuntimeError("not everything is as it was (see above)")
    return rows_of(number, phases, scene.requests, targets_ms), phases, scene.requests


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        seed=(1, "of the arrivals in the first run; the next run has the next seed"),
        runs=(1, "how many times"),
        judge=(JUDGE_S, "seconds of each of the two measurements"),
    )
    console = Console(stderr=False)

    def run() -> None:
        from benchmarks.publish import pictures

        rows: list[Row] = []
        lines: list[dict[str, object]] = []
        whole_s = []
        seeds = range(chosen.seed, chosen.seed + chosen.runs)
        for number, seed in enumerate(seeds, 1):
            began_s = time.monotonic()
            with ExitStack() as ending:
                one = ending.enter_context(session())
                try:
                    mine, phases, requests = play(one, number, seed, chosen.judge)
                    host = results.host_facts(one.engine.version()["Version"])
                finally:
                    with undivided(), step("dlsched stops, the demo's containers are removed"):
                        ending.close()
            whole_s.append(time.monotonic() - began_s)
            rows += mine
            lines += [{"run": number, **line} for line in lines_of(mine)]
            console.print(table(mine, seed))
        pictures.draw_scene(phases, requests, mine, results.FOLDER / "demo.png")
        figures = headlines(rows, whole_s)
        saved = [asdict(row) for row in rows]
        title = f"Two services and two busy neighbours, {PLAIN} -> {ADOPTED}, {JUDGE_S:g} s each"
        results.save("demo", host, seeds, saved, title=title, table=lines, headlines=figures)
        for line in (*figures, f"picture and figures: {results.FOLDER}"):
            say(line)

    return told_if_it_fails("demo", run)
