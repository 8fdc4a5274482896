"""What ran on several hosts, as their engines say it: no figure of dlsched's own is used.

A training of the examples prints each evaluation, the step at which a signal ended it, and the step
from which its next start goes on. Engines keep the times of these lines.
"""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from benchmarks.real.training_set import IMAGE, MODELS, Model, command
from tools.hosts import Host, repeating

SIZES_CORES = (0.7, 0.7, 0.35)
"""What is left of two cores is for the engines, the daemons and the rest of the machine."""
LEAST_CORE_S, MOST_CORE_S = 25.0, 80.0
ARRIVE_S = 180.0
"""Arrivals are uniform up to this."""
EVALUATIONS = 40
START_CORE_S = 3.0
"""Until the first step, most of it the import of PyTorch."""
STEP_CORE_S = {
    "cnn": 0.055,
    "mlp": 0.055,
    "vae": 0.038,
    "lstm": 0.070,
    "gru": 0.052,
    "birnn": 0.070,
}


@dataclass(frozen=True)
class ClusterTraining:
    """One of them."""

    name: str
    model: Model
    work_core_s: float
    """About, its start included."""
    arrives_s: float
    seed: int

    def file(self) -> str:
        one = self.model
        return json.dumps(  # JSON is YAML
            {
                "name": self.name,
                "image": IMAGE,
                "command": command(one, self.seed, threads=1),
                "memory": "1GiB",
                "network": "none",
                "volumes": [f"{self.name}:/ckpt"],
                "target": {"metric": one.metric, "deliver": one.deliver, "finish": one.finish},
                "checkpoint": {"signal": "SIGUSR1", "timeout": "60s", "path": "/ckpt"},
                "stop": {"grace": "30s"},
            }
        )


def draw(seed: int, count: int) -> tuple[ClusterTraining, ...]:
    """The trainings of that seed, in the order in which they come."""
    chance = random.Random(f"cluster-real/{seed}")
    names = [sorted(MODELS)[index % len(MODELS)] for index in range(count)]
    chance.shuffle(names)
    arrivals = sorted(chance.uniform(0.0, ARRIVE_S) for _ in names)
    return tuple(
        training(f"{name}-{index:02}", name, _length(chance), at_s - arrivals[0], seed + index)
        for index, (name, at_s) in enumerate(zip(names, arrivals, strict=True), start=1)
    )


def training(
    name: str, model: str, work_core_s: float, arrives_s: float, seed: int
) -> ClusterTraining:
    """A training of about that length."""
    steps = max(round((work_core_s - START_CORE_S) / STEP_CORE_S[model]), EVALUATIONS)
    one = replace(MODELS[model], steps=steps, evaluate_every=max(steps // EVALUATIONS, 1))
    return ClusterTraining(name, one, work_core_s, round(arrives_s, 1), seed)


def arrive(
    host: Host, trainings: Sequence[ClusterTraining], wait: Callable[[float], None] = time.sleep
) -> dict[str, float]:
    """Drop each file when it is due; returns the times, by job. `wait`: lets seconds pass."""
    began_s, arrived = time.monotonic(), {}
    for one in sorted(trainings, key=lambda one: one.arrives_s):
        wait(max(began_s + one.arrives_s - time.monotonic(), 0.0))
        arrived[one.name] = time.time()
        host.drop(one.name, one.file())
    return arrived


def _length(chance: random.Random) -> float:
    least, most = math.log(LEAST_CORE_S), math.log(MOST_CORE_S)
    return math.exp(chance.uniform(least, most))


LISTED_S = 1.0
_EVALUATED = re.compile(r"step (\d+) \w+ ")
_RESUMED = re.compile(r"checkpoint \S+: resuming at step (\d+)")
_STOPPED = re.compile(r"stopped after step (\d+)")


@dataclass(frozen=True)
class Ran:
    """One container of a training, from its start to its end."""

    job: str
    host: str
    began_s: float
    ended_s: float
    exit_code: int
    first_step: int
    """From which it went on; 0: from the beginning."""
    first_at_s: float
    last_step: int
    """The last one that it told."""
    last_at_s: float


@dataclass(frozen=True)
class Moved:
    """A job that went on on another host."""

    job: str
    source: str
    target: str
    step: int
    """At its end on the source."""
    lost_steps: int
    pause_s: float
    """From its last sign there to its first one here."""


@dataclass
class Seen:
    """What listings of all engines have shown so far."""

    runs: dict[str, Ran] = field(default_factory=dict)
    """Those that have ended, by container."""
    twice: set[str] = field(default_factory=set)
    """Jobs that ran on two hosts in one listing."""
    listings: int = 0

    def of(self, job: str) -> list[Ran]:
        """In the order in which they began."""
        found = [one for one in self.runs.values() if one.job == job]
        return sorted(found, key=lambda one: one.began_s)

    def finished(self) -> dict[str, float]:
        return {one.job: one.ended_s for one in self.runs.values() if one.exit_code == 0}

    def failed(self) -> dict[str, int]:
        """Exit codes of jobs that no signal ended."""
        ends = {one.job: one.exit_code for one in self.runs.values()}
        return {job: code for job, code in ends.items() if 0 < code < 128}

    def all_ended(self, jobs: Iterable[str]) -> bool:
        """Whether these came to their own end. AssertionError where one failed."""
        failed = self.failed()
        assert not failed, f"exit codes of trainings: {failed}"
        return set(jobs) <= self.finished().keys()

    def moves(self) -> list[Moved]:
        jobs = sorted({one.job for one in self.runs.values()})
        return [one for job in jobs for one in moves(self.of(job))]


def moves(runs: Sequence[Ran]) -> Iterator[Moved]:
    """The moves among the runs of one job."""
    for before, after in pairwise(runs):
        if before.host != after.host:
            yield Moved(
                after.job,
                before.host,
                after.host,
                before.last_step,
                max(before.last_step - after.first_step, 0),
                after.first_at_s - before.last_at_s,
            )


@contextmanager
def seeing(hosts: Sequence[Host]) -> Iterator[Seen]:
    """List all engines until the block ends."""
    seen = Seen()
    with repeating(lambda: take(seen, hosts), LISTED_S):
        yield seen


def take(seen: Seen, hosts: Sequence[Host]) -> None:
    """One listing. An engine that does not answer has none: it was killed with its containers.
    Raises DockerException and RequestException."""
    running: Counter[str] = Counter()
    for host in hosts:
        try:
            listed = host.containers()
        except (DockerException, RequestException):
            continue
        for one in listed:
            if one["State"] == "running":
                running[one["Labels"]["dlsched.job"]] += 1
            elif one["State"] == "exited" and one["Id"] not in seen.runs:
                ran = _ran(host, one["Id"])
                if ran is not None:
                    seen.runs[one["Id"]] = ran
    seen.listings += 1
    seen.twice |= {job for job, count in running.items() if count > 1}


def _ran(host: Host, identifier: str) -> Ran | None:
    try:
        found = host.engine.api.inspect_container(identifier)
        text = host.engine.api.logs(identifier, timestamps=True).decode(errors="replace")
    except APIError:
        return None
    return ran(host.node.name, found, text)


def ran(host: str, inspected: Mapping[str, Any], log: str) -> Ran:
    """From what an engine says of a container that has ended, and the lines that it printed."""
    state = inspected["State"]
    began_s, ended_s = seconds(state["StartedAt"]), seconds(state["FinishedAt"])
    first, first_at_s, last, last_at_s = 0, began_s, 0, ended_s
    for at, _, text in (line.partition(" ") for line in log.splitlines()):
        if resumed := _RESUMED.match(text):
            first, first_at_s = int(resumed[1]), seconds(at)
        elif told := _EVALUATED.match(text) or _STOPPED.match(text):
            last, last_at_s = int(told[1]), seconds(at)
    return Ran(
        inspected["Config"]["Labels"]["dlsched.job"],
        host,
        began_s,
        ended_s,
        int(state["ExitCode"]),
        first,
        first_at_s,
        max(last, first),
        last_at_s,
    )


def seconds(at: str) -> float:
    """An engine's time."""
    return datetime.fromisoformat(at).timestamp()
