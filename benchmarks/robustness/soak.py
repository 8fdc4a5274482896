"""`python -m benchmarks run soak`: half an hour of churn on a real engine, and a month simulated.

Prints what the daemon held after its warm-up and at the end, writes `results/soak.json`; exit code
1 when anything grew.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from unittest import mock

import psutil
from docker.errors import DockerException, NotFound
from requests.exceptions import RequestException

from benchmarks.options import end_on_terminate, options
from benchmarks.publish import results
from benchmarks.simulated.playing import play
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import DlschedError
from dlsched.simulation.node.workloads import SimulatedJob, Trace
from dlsched.simulation.trace import Recipe, generate
from dlsched.store.journal.schema import JOURNAL_NAME
from dlsched.store.journal.writer import Journal
from tools.base_image import BASE, ensure_base
from tools.private_engine import Engine, private_engine
from tools.session import Session, session, wait_for

# ---------------------------------------------------------------------- judging

WARM_UP_RATIO = 0.2
"""Part of a run in which caches and windows may still fill."""
_END_RATIO = 0.1
"""First and last are medians over such a part of what follows."""

ALLOWED: Mapping[str, float] = {
    "RSS MiB": 8.0,
    "descriptors": 4.0,
    "threads": 4.0,
    "journal MiB": 1.0,
    "state files": 8.0,
}
"""By how much the last may be above the first. Connections to an engine are kept, so descriptors
grow a little until there are as many as it was ever asked at a time."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was held at one moment."""

    at_s: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Flatness:
    """One measure over a run after its warm-up."""

    measure: str
    first: float
    last: float
    slope_per_h: float
    samples: int

    @property
    def flat(self) -> bool:
        """Whether it stayed within what is allowed."""
        return self.last - self.first <= ALLOWED[self.measure]

    def row(self) -> dict[str, object]:
        return {
            "measure": self.measure,
            "first": round(self.first, 2),
            "last": round(self.last, 2),
            "slope an hour": round(self.slope_per_h, 4) + 0.0,
            "flat": "yes" if self.flat else "NO",
            "samples": self.samples,
        }


def held(process: psutil.Process, state_dir: Path, at_s: float) -> Sample:
    """What that process holds now, and what its state directory holds."""
    with process.oneshot():
        values = {
            "RSS MiB": process.memory_info().rss / 2**20,
            "descriptors": float(process.num_fds()),
            "threads": float(process.num_threads()),
        }
    sizes = {}
    for path in state_dir.rglob("*"):
        with suppress(FileNotFoundError):  # it went meanwhile
            if path.is_file():
                sizes[str(path.relative_to(state_dir))] = path.stat().st_size
    journal_bytes = sum(size for name, size in sizes.items() if name.startswith("journal.db"))
    more = {"journal MiB": journal_bytes / 2**20, "state files": float(len(sizes))}
    return Sample(at_s, values | more)


def judged(samples: Sequence[Sample]) -> list[Flatness]:
    """Each measure after the warm-up; needs some samples beyond it."""
    begun_s = samples[0].at_s + WARM_UP_RATIO * (samples[-1].at_s - samples[0].at_s)
    warm = [sample for sample in samples if sample.at_s >= begun_s]
    end = max(1, int(_END_RATIO * len(warm)))
    hours = [sample.at_s / 3600.0 for sample in warm]
    rows = []
    for measure in warm[0].values:
        told = [sample.values[measure] for sample in warm]
        slope = statistics.linear_regression(hours, told).slope if len(told) > 1 else 0.0
        first, last = statistics.median(told[:end]), statistics.median(told[-end:])
        rows.append(Flatness(measure, first, last, slope, len(told)))
    return rows


# ---------------------------------------------------------------------- simulated

DAY_S = 86_400.0
JOBS_A_DAY = 20
CYCLE_S = 10.0
SAMPLES_A_DAY = 8
POLICY = "dqoes"

_JOURNAL_BYTES = 8 << 20
"""So little that retention works all the time after the first day."""
_FLUSH_CYCLES = 60
"""The simulation is faster than the disk: it waits for the journal now and then."""


def trace_of(days: int, jobs_a_day: int = JOBS_A_DAY) -> Trace:
    """So many days, each with its own jobs, all gone at its end."""
    recipe = Recipe(jobs=jobs_a_day, duration_s=DAY_S, cycle_s=CYCLE_S, stay_s=7200.0)
    jobs: list[SimulatedJob] = []
    for day in range(days):
        one = generate(replace(recipe, seed=day))
        jobs += (_on_day(job, day) for job in one.jobs)
    jobs.sort(key=lambda job: job.name)
    return replace(one, jobs=tuple(jobs), duration_s=days * DAY_S, name=f"{days} days")


def _on_day(job: SimulatedJob, day: int) -> SimulatedJob:
    begins_s = day * DAY_S
    name = f"day{day:02}-{job.name}"
    leaves_s = DAY_S - CYCLE_S if job.leaves_s is None else job.leaves_s
    return replace(
        job,
        spec=replace(job.spec, name=name, digest=f"{name}-{job.spec.digest}"),
        arrives_s=begins_s + job.arrives_s,
        leaves_s=begins_s + leaves_s,
        shifts=tuple(replace(shift, at_s=begins_s + shift.at_s) for shift in job.shifts),
        faults=tuple(replace(fault, at_s=begins_s + fault.at_s) for fault in job.faults),
    )


def simulated(
    days: int, tell: Callable[[str], None], jobs_a_day: int = JOBS_A_DAY
) -> tuple[list[Sample], dict[str, object]]:
    """Samples over the days, at simulated seconds, and what was done meanwhile."""
    samples: list[Sample] = []
    process = psutil.Process()
    began_s = time.process_time()
    with tempfile.TemporaryDirectory(prefix="dlsched-soak-") as folder:
        journal = Journal(Path(folder) / JOURNAL_NAME, max_bytes=_JOURNAL_BYTES)

        def publish(report: CycleReport) -> None:
            journal.write(report)
            now_s, cycle = report.snapshot.now_s, report.snapshot.cycle
            if cycle % _FLUSH_CYCLES == 0:
                journal.flush()
            if now_s >= len(samples) * DAY_S / SAMPLES_A_DAY:
                gc.collect()  # garbage is not held
                samples.append(held(process, Path(folder), now_s))
                if len(samples) % (5 * SAMPLES_A_DAY) == 0:
                    tell(f"day {now_s / DAY_S:.0f}: {dict(samples[-1].values)}")

        trace = trace_of(days, jobs_a_day)
        result = play(trace, POLICY, 0, publish=publish)
        journal.flush()
        lost, trouble = journal.lost_cycles, journal.problem()
        journal.close()
    if lost or trouble is not None:
        raise RuntimeError(f"the journal lost {lost} cycles: {trouble}")
    return samples, {
        "days": days,
        "jobs": len(result.jobs),
        "cycles": result.cycles,
        "updates": result.updates,
        "CPU s": round(time.process_time() - began_s),
    }


# ---------------------------------------------------------------------- real

ACT_S = 2.0
OWN, ADOPTED = 4, 3
"""So many there are at a time, and one more between a start and the stop after it."""
LEAST_SAMPLES = 7
"""So many on a slow host, too: fewer do not tell a leak from what one container has."""
LOOKS, LOOK_S = 5, 0.3
"""A sample is the least of so many looks: cycles and listings open descriptors and threads for
milliseconds."""
SETTLE_S = 120.0

_JOURNAL = {"max_size": "1MiB", "frame": "10s"}
"""So little that retention works within the run."""
_TELLS = 'while :; do echo "$LINE" >> "$FILE"; echo took 12ms; sleep 1; done'
_LINE = '{"latency_s": [0.012, 0.013]}'
_SOURCES = (
    {"dlsched.metrics.path": "/tmp/metrics.jsonl"},
    {"dlsched.metrics.pattern": r"took (?P<latency_ms>\d+)ms"},
    {},
)


class Churn:
    """Own jobs and adopted containers, the oldest of which goes when a new one has come."""

    def __init__(self, node: Session) -> None:
        self._node = node
        self._made = 0
        self._own: deque[str] = deque()
        self._adopted: deque[str] = deque()
        acts = (self._start_own, self._start_adopted, self._stop_own, self._stop_adopted)
        self.round = len(acts)
        """After so many acts there are as many containers as at the beginning."""
        self._acts = cycle(acts)
        self._sources = cycle(_SOURCES)
        self.done = 0
        self.refused = 0

    def fill(self) -> None:
        """Make those that are there at a time."""
        for start in (*[self._start_own] * OWN, *[self._start_adopted] * ADOPTED):
            start()

    def act(self) -> None:
        self._try(next(self._acts))

    def replace_all(self) -> None:
        """Others for all that there are: a restart of the engine has ended some of them."""
        own, adopted = (self._stop_own, self._start_own), (self._stop_adopted, self._start_adopted)
        for act in (*own * OWN, *adopted * ADOPTED):
            self._try(act)

    def _try(self, act: Callable[[], None]) -> None:
        """An engine that is just being restarted refuses it."""
        try:
            act()
            self.done += 1
        except (DlschedError, DockerException, RequestException):
            self.refused += 1

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._node.instance}-{self._made}"

    def _start_own(self) -> None:
        name = self._name("own")
        command = ["sh", "-c", f"LINE='{_LINE}'; FILE=$DLSCHED_METRICS_FILE; {_TELLS}"]
        restart = '"no"' if self._made % 2 else "unless-stopped"
        self._node.drop(
            name,
            f"name: {name}\nimage: {BASE}\ncommand: {json.dumps(command)}\nnetwork: none\n"
            f"cpus: {{min: 0.02, max: 1}}\ntarget: {{latency: 20ms}}\nrestart: {restart}\n"
            "stop: {grace: 1s}\n",
        )
        self._own.append(name)

    def _stop_own(self) -> None:
        name = self._own.popleft()
        if self._made % 3 == 0:
            with suppress(DlschedError):  # it may have ended already
                self._node.client.stop(name)
        (self._node.watch / f"{name}.yaml").unlink()

    def _start_adopted(self) -> None:
        name = self._name("adopted")
        labels = {
            "dlsched.enable": "true",
            "dlsched.instance": self._node.instance,
            "dlsched.target.latency": "20ms",
            **next(self._sources),
        }
        self._node.engine.containers.run(
            BASE,
            ["sh", "-c", _TELLS],
            name=name,
            labels=labels,
            environment={"LINE": _LINE, "FILE": "/tmp/metrics.jsonl"},
            network_mode="none",
            detach=True,
        )
        self._adopted.append(name)

    def _stop_adopted(self) -> None:
        with suppress(NotFound):
            self._node.engine.containers.get(self._adopted[0]).remove(force=True)
        self._adopted.popleft()

    def clear(self) -> None:
        """Remove what was adopted: nobody else will."""
        while self._adopted:
            self._stop_adopted()


def real(seconds: float, tell: Callable[[str], None]) -> tuple[list[Sample], dict[str, object]]:
    """Samples over so long, and what was done meanwhile."""
    with _node() as (node, engine):
        node.start("dqoes", more={"journal": _JOURNAL, "max_jobs": 64})
        churn = Churn(node)
        churn.fill()
        began_s = time.monotonic()
        samples = [_settled(node, began_s)]
        first_cycle = node.cycle()
        restarts = 0
        while (at_s := time.monotonic() - began_s) < seconds or len(samples) < LEAST_SAMPLES:
            if at_s >= seconds / 2 and not restarts:
                assert engine.restart is not None
                engine.restart()
                restarts += 1
                tell(f"{at_s:.0f} s: the engine was restarted")
                wait_for(lambda: node.client.jobs()["engine"]["ok"], SETTLE_S, "the engine")
                churn.replace_all()
            else:
                for _ in range(churn.round):
                    acted_s = time.monotonic()
                    churn.act()
                    time.sleep(max(0.0, acted_s + ACT_S - time.monotonic()))
            samples.append(_settled(node, began_s))
            if len(samples) % 60 == 0:
                tell(f"{at_s:.0f} s: {dict(samples[-1].values)}")
        cycles = node.cycle() - first_cycle
        churn.clear()
        node.stop()
    return samples, {
        "seconds": round(seconds),
        "starts and stops": churn.done,
        "refused": churn.refused,
        "engine restarts": restarts,
        "cycles": cycles,
    }


def _settled(node: Session, began_s: float) -> Sample:
    """What the daemon holds when all run that are to, and nothing that is going."""
    there = OWN + ADOPTED
    wait_for(
        lambda: len(node.client.jobs()["jobs"]) == there == node.running(),
        SETTLE_S,
        f"{there} jobs to run and no other to be",
    )
    at_s = time.monotonic() - began_s
    looks = []
    for _ in range(LOOKS):
        time.sleep(LOOK_S)
        looks.append(held(node.process, node.state_dir, at_s))
    return Sample(at_s, {name: min(one.values[name] for one in looks) for name in looks[0].values})


@contextmanager
def _node() -> Iterator[tuple[Session, Engine]]:
    with (
        tempfile.TemporaryDirectory(prefix="dlsched-soak-") as engines,
        private_engine(Path(engines)) as engine,
        mock.patch.dict(os.environ, DOCKER_HOST=engine.host),
    ):
        ensure_base(engine.host)
        with session() as node:
            yield node, engine


SECONDS = 1800.0
DAYS = 30


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, seconds=(SECONDS, "of the real soak; fewer: not saved"))
    end_on_terminate()  # an engine and its containers would be left
    tell = partial(print, flush=True)
    parts = {"simulated": simulated(DAYS, tell), "real": real(chosen.seconds, tell)}
    tables, rows, grew = {}, [], False
    for name, (samples, facts) in parts.items():
        measures = judged(samples)
        title = f"Soak, {name}: " + ", ".join(f"{value} {what}" for what, value in facts.items())
        tables[title] = [one.row() for one in measures]
        rows.append({"part": name, **facts})
        grew = grew or not all(one.flat for one in measures)
    whole = chosen.seconds == SECONDS
    results.finish("soak", "of its own", [0], rows, tables, whole=whole)
    return 1 if grew else 0
