"""A daemon on an engine of its own, with jobs and adopted containers that come and go.

Every two seconds one starts or stops; half-way the engine is restarted under all of them, and all
are replaced. What is measured is the daemon's process, and its state directory, whenever as many
containers of each kind run as at first and the daemon has nothing to do with them.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from unittest import mock

from docker.errors import DockerException, NotFound
from requests.exceptions import RequestException

from benchmarks.judge.flatness import Sample, held
from dlsched.model.errors import DlschedError
from tools.base_image import BASE, ensure_base
from tools.private_engine import Engine, private_engine
from tools.session import Session, session, wait_for

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
        """After so many acts there are as many as before."""
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


def run(seconds: float, tell: Callable[[str], None]) -> tuple[list[Sample], dict[str, object]]:
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

    def all_run() -> bool:
        return len(node.client.jobs()["jobs"]) == there == node.running()

    wait_for(all_run, SETTLE_S, f"{there} jobs to run and no other to be")
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
