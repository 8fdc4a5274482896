"""What one cycle costs with 10, 100 and 1,000 jobs, phase by phase.

The daemon's own loop runs: job files, control groups and metrics files are real files, the journal
is a real one, and only the engine is a double that answers at once. The clock is a number, a
second further in each cycle; what is measured is CPU time.

    python -m benchmarks run loop           prints alone
    python -m benchmarks run loop-real      also with 100 containers: writes results/loop.json
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.options import options, stage
from benchmarks.publish import results
from dlsched.config.job import parse_spec
from dlsched.config.settings import Settings
from dlsched.control.ports import Clock, Wake
from dlsched.daemon.agent import Agent
from dlsched.model.spec import JobSpec
from dlsched.report.buckets import bucket_index, bucket_value_s
from dlsched.runtime import host as host_facts
from dlsched.runtime.allotment import METRICS_FILE
from dlsched.runtime.docker.engine import Body, Engine
from dlsched.runtime.docker.identity.labels import container_name, labels_of
from dlsched.runtime.docker.instance import DockerOptions
from dlsched.runtime.docker.runtime import DockerRuntime
from dlsched.simulation.clock import VirtualClock
from tests.runtime.docker.fake_engine import FakeEngine
from tests.runtime.docker.fake_host import FakeHost
from tools.session import Session, session, wait_for
from tools.waiting import until

_COUNTED = {
    "cpuacct.usage": "1000000000",
    "cpu.stat": "nr_periods 120\nnr_throttled 3\nthrottled_time 91230000",
    "memory.usage_in_bytes": "104857600",
}


class InstantEngine(FakeEngine, Engine):
    """Running containers of these jobs; every call is answered from memory."""

    def __init__(self, root: Path, specs: Iterable[JobSpec], sources: Mapping[str, str]) -> None:
        super().__init__(root)
        self._ended = threading.Event()
        self.hosts: list[FakeHost] = []
        for spec in specs:
            labels = labels_of(spec, "loop", sources[spec.name])
            name = container_name("loop", spec.name)
            container = self.create(name, {"Image": spec.container.image, "Labels": labels})
            self.start(container)
            host = self.all[container].host
            (self.proc / str(host.pid) / "stat").write_text(f"{host.pid} (p) S " + "1 " * 40 + "\n")
            metrics_file(host).parent.mkdir(parents=True)
            for file, text in _COUNTED.items():
                host.write(file, text)
            self.hosts.append(host)

    def containers(self, labels: Mapping[str, str]) -> list[Body]:
        """As an engine's answer, each time parsed."""
        return list(json.loads(json.dumps(super().containers(labels))))

    def events(self, kinds: Iterable[str]) -> Any:
        return self

    def __iter__(self) -> Iterator[Body]:
        """The stream of events: none, until it is closed."""
        self._ended.wait()
        return iter(())

    def close(self) -> None:
        self._ended.set()


def metrics_file(host: FakeHost) -> Path:
    """Where the container's process reports."""
    return host.proc / str(host.pid) / "root" / METRICS_FILE[1:]


def line(now_s: float, latencies_s: Iterable[float]) -> bytes:
    """A second's report of a service, as `dlsched.report` writes it."""
    counts = Counter(map(bucket_index, latencies_s))
    latency = {
        "count": counts.total(),
        "sum": sum(bucket_value_s(index) * count for index, count in counts.items()),
        "buckets": {str(index): count for index, count in sorted(counts.items())},
        "errors": 0,
        "in_flight": 1,
        "oldest_s": 0.01,
    }
    return (json.dumps({"t": now_s, "w": "7", "latency": latency}) + "\n").encode()


COUNTS = (10, 100, 1000)
CYCLES_TITLE = "One cycle: CPU milliseconds of the loop's thread by phase, medians of 20 cycles"
CASES = ("nothing changed", "all report")
PHASES = ("inbox", "observe", "fold", "decide", "plan", "act", "rest")
"""As the controller marks them; `rest` is what the loop does outside of them: alarms, handing the
report to the journal, and what is held ready for giving everything back."""

WARM_CYCLES, CYCLES = 35, 20
"""The measuring window is full after the first ones."""

_JOBS_PER_CORE = 4
_REQUESTS = 12
"""A second, of each service."""


class _Clock(VirtualClock):
    """Time is a number, but thinking costs what it costs."""

    def cpu_s(self) -> float:
        return time.thread_time()


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle cost."""

    cpu_s: float
    """Of the loop's thread."""
    phases_s: dict[str, float]


class World:
    """An agent over a host of files; to be closed."""

    def __init__(self, root: Path, jobs: int) -> None:
        self.clock = _Clock(1000.0)
        watch = root / "jobs"
        watch.mkdir()
        specs, sources = [], {}
        for index in range(jobs):
            name, file = f"job-{index:04}", watch / f"job-{index:04}.yaml"
            text = (
                f"name: {name}\nimage: model:1\ncpus: {{min: 0.01, max: 1}}\n"
                f"target: {{latency: {20 + index % 50}ms}}\n"
            )
            file.write_text(text)
            specs.append(parse_spec(text, file.name))
            sources[name] = str(file)
        self._engine = InstantEngine(root, specs, sources)
        self._files = [
            os.open(metrics_file(host), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for host in self._engine.hosts
        ]
        self._random = random.Random(1)
        self._used_ns = 10**9
        settings = Settings(
            instance="loop",
            state_dir=root / "state",
            run_dir=root / "run",
            watch=watch,
            policy="adaptive",
            max_jobs=10_000,
            group_weight=None,
            status_group=None,
            control_group=None,
        )
        self.agent = Agent(settings, dry_run=False, clock=self.clock, runtime=self._runtime)

    def second(self, *, reports: bool) -> None:
        """A second passes; where they report, every service has used CPU and tells of requests."""
        self.clock.advance(1.0)
        if not reports:
            return
        self._used_ns += 10**8
        lines = [self._line() for _ in range(50)]
        for host, file in zip(self._engine.hosts, self._files, strict=True):
            host.write("cpuacct.usage", str(self._used_ns))
            os.write(file, self._random.choice(lines))

    def cycle(self) -> Cycle:
        mine_s = time.thread_time()
        report = self.agent.cycle()
        cpu_s = time.thread_time() - mine_s
        self.agent.journal.flush()
        phases_s = {name: report.phase_s[name] for name in PHASES if name in report.phase_s}
        return Cycle(cpu_s, {**phases_s, "rest": cpu_s - sum(phases_s.values())})

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self.agent.close()

    def _line(self) -> bytes:
        scale_s = 0.04 * self._random.uniform(0.7, 1.4)
        latencies_s = [scale_s * self._random.uniform(0.8, 1.3) for _ in range(_REQUESTS)]
        return line(self.clock.now_s(), latencies_s)

    def _runtime(self, options: DockerOptions, clock: Clock, wake: Wake) -> DockerRuntime:
        return DockerRuntime(options, clock, wake, engine=self._engine, proc=self._engine.proc)


@contextmanager
def world(jobs: int) -> Iterator[World]:
    """An agent over so many jobs, on a node that is large enough for them."""
    root = Path(tempfile.mkdtemp(prefix="dlsched-loop-"))
    cores = max(2.0, jobs / _JOBS_PER_CORE)
    look = host_facts.node

    def large(grain_cores: float, **more: Any) -> object:
        found = look(grain_cores, **more)
        return found and replace(found, cores=cores)

    with mock.patch.object(host_facts, "node", large):
        one = World(root, jobs)
        try:
            yield one
        finally:
            one.close()
            shutil.rmtree(root, ignore_errors=True)


def measure(jobs: int, case: str) -> dict[str, object]:
    reports = case == "all report"
    with world(jobs) as one:
        for _ in range(WARM_CYCLES):
            one.second(reports=reports)
            one.cycle()
        until(_is_settled, "the end of the agent's calls", 60)
        cycles = []
        for _ in range(CYCLES):
            one.second(reports=reports)
            cycles.append(one.cycle())
    return {
        "jobs": jobs,
        "case": case,
        "cycle_ms": _ms(c.cpu_s for c in cycles),
        "worst_ms": round(1000 * max(c.cpu_s for c in cycles), 2),
        **{f"{name}_ms": _ms(c.phases_s[name] for c in cycles) for name in PHASES},
    }


def run() -> Iterator[dict[str, object]]:
    """Every case with every number of jobs, printed too."""
    logging.disable()
    for case in CASES:
        for jobs in COUNTS:
            row = measure(jobs, case)
            print(row, flush=True)
            yield row


def _ms(seconds: Iterable[float]) -> float:
    return round(1000 * statistics.median(seconds), 3)


def _is_settled() -> bool:
    """Whether no call is under way any more."""
    return not any(one.name.startswith("dlsched-Remember") for one in threading.enumerate())


def main(arguments: list[str] | None = None) -> int:
    options(__doc__, arguments)
    for _ in run():
        pass
    return 0


# ---------------------------------------------------------------------- real containers

CONTAINERS, WATCHED_S = 100, 60.0
IMAGE = "dlsched-examples/base:3.11"
_SLEEPER = "import signal; signal.pause()"
_REPORTS = (
    "import os,time\n"
    "f=os.open(os.environ['DLSCHED_METRICS_FILE'],os.O_WRONLY|os.O_CREAT|os.O_APPEND)\n"
    "n=0\n"
    "while True:\n"
    " time.sleep(1);n+=1;b=400+n%7\n"
    ' l=b\'{"t":1,"w":"1","latency":{"count":12,"buckets":{"%d":5,"%d":7}}}\\n\'\n'
    " os.write(f,l%(b,b+9))\n"
    " if n%2000==0: os.ftruncate(f,0)\n"
)
"""Tells of twelve requests every second."""
KINDS = {"idle": (_SLEEPER, ""), "reporting": (_REPORTS, "target: {latency: 50ms}\n")}
"""Of containers: the program, and more of the job file."""


def spec(name: str, kind: str) -> str:
    """The job file of a container of that kind."""
    program, more = KINDS[kind]
    return (
        f"name: {name}\nimage: {IMAGE}\ncommand: [python, -c, {json.dumps(program)}]\n"
        f"network: none\ncpus: {{min: 0.01}}\n{more}stop: {{grace: 1s}}\n"
    )


def watched(one: Session, kind: str) -> dict[str, object]:
    """One row: containers of that kind, watched after they all run. They run on."""
    one.start("adaptive")
    for index in range(CONTAINERS):
        one.drop(f"idle-{index:03}", spec(f"idle-{index:03}", kind))
    wait_for(lambda: one.running() == CONTAINERS, 60 + 6 * CONTAINERS, "all to run")
    time.sleep(5)
    agent, engines = one.process, one.engine_processes()
    first, began_s = one.cycle(), time.monotonic()
    agent_s, engine_s = sum(agent.cpu_times()[:2]), _cpu_s(engines)
    time.sleep(WATCHED_S)
    elapsed_s = time.monotonic() - began_s
    agent_s, engine_s = sum(agent.cpu_times()[:2]) - agent_s, _cpu_s(engines) - engine_s
    rss_bytes = agent.memory_info().rss
    one.stop()
    reports = list(one.reports(first))
    return {
        "kind": kind,
        "containers": CONTAINERS,
        "core_ratio": round(agent_s / elapsed_s, 4),
        "rss_mib": round(rss_bytes / 2**20, 1),
        "engine_core_ratio": round(engine_s / elapsed_s, 4),
        **{
            f"{name}_ms": round(1000 * sum(r.phase_s[name] for r in reports) / len(reports), 2)
            for name in reports[0].phase_s
        },
    }


def _cpu_s(processes: Sequence[object]) -> float:
    return sum(sum(one.cpu_times()[:4]) for one in processes)  # type: ignore[attr-defined]


def main_real(arguments: list[str] | None = None) -> int:
    options("What the loop costs with many containers, idle or reporting.", arguments)
    cycles, rows = list(run()), []
    for kind in KINDS:
        stage(f"{CONTAINERS} {kind} containers")
        with session() as one:
            rows.append(watched(one, kind))
    tables = {
        CYCLES_TITLE: cycles,
        "Real containers at a period of 1 s: part of one core, and milliseconds by phase": rows,
    }
    whole_ms = next(row["cycle_ms"] for row in cycles if row["jobs"] == COUNTS[-1])
    told = [_against(f"a cycle with {COUNTS[-1]} jobs and no change, ms", whole_ms, 50.0)]
    told += [
        _against(f"of one core with {CONTAINERS} {row['kind']} containers", row["core_ratio"], 0.04)
        for row in rows
    ]
    results.finish("loop", results.engine_facts(), [], rows, tables, told)
    return 0


def _against(what: str, found: object, most: float) -> str:
    reached = results.verdict(isinstance(found, float) and found <= most)
    return f"{what}: {found} (at most {most:g}: {reached})"
