"""`make demo-cluster`: three hosts on this machine, trainings placed on them, one host killed, one
drained.

Three engines of one swarm, each in a network of its own and with a part of this machine's cores; a
daemon on each, a controller on the first. Five trainings are dropped as files. While they run, one
host is killed with all that runs on it, and given up: its trainings start elsewhere. Then one host
is drained: its trainings save themselves, move, and go on. Placements and moves are printed as the
controller logs them. What ran where is read from the engines. At the end nothing of it is left.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.options import options, stage
from benchmarks.places import ROOT
from benchmarks.publish.results import CLUSTER_PICTURE
from benchmarks.real.cluster_trainings import (
    SIZES_CORES,
    Seen,
    arrive,
    seeing,
    training,
)
from tools.engine import end_with_signal
from tools.engines import swarm
from tools.hosts import Host, cluster
from tools.steps import SetupError
from tools.waiting import wait_for

INSTANCE = "demo-cluster"
LENGTHS_CORE_S = (("cnn", 45.0), ("mlp", 45.0), ("vae", 45.0), ("gru", 40.0), ("lstm", 35.0))
GAP_S = 5.0
POLL_S = 0.5
BEGUN_WITHIN_S, EMPTY_WITHIN_S, ENDED_WITHIN_S = 180.0, 600.0, 600.0
DOWN_WITHIN_S, BACK_WITHIN_S = 120.0, 120.0


class Course:
    """What is shown while it runs: stages, commands, and the controller's own log."""

    def __init__(self, console: Console, hosts: Sequence[Host]) -> None:
        self._console = console
        self.hosts = hosts
        self._log = (hosts[0].folder / "cluster.log").open()
        self._log.seek(0, os.SEEK_END)

    def command(self, *words: str) -> None:
        """Type a command of `dlsched` on the manager."""
        self.print(f"$ dlsched {' '.join(words)}")
        self.print(self.hosts[0].ask(*words).rstrip())

    def tell(self) -> None:
        """What the controller has logged since the last time."""
        for line in self._log:
            self.print(f"   {line.rstrip().split(maxsplit=2)[-1]}")

    def wait(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, POLL_S))
            self.tell()

    def until(self, holds: Callable[[], bool], within_s: float, what: str) -> None:
        """Tell on until that holds. AssertionError when the time passes."""

        def told() -> bool:
            self.tell()
            return holds()

        wait_for(told, within_s, what)

    def print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        self._log.close()


def show(console: Console, hosts: Sequence[Host]) -> None:
    """The whole of it. AssertionError where it does not come about in time."""
    trainings = [
        training(model, model, core_s, number * GAP_S, number)
        for number, (model, core_s) in enumerate(LENGTHS_CORE_S, start=1)
    ]
    with closing(Course(console, hosts)) as course, seeing(hosts) as seen:
        stage(f"{len(trainings)} trainings come, as files in cluster.d of {_name(hosts[0])}")
        arrive(hosts[0], trainings, course.wait)
        course.until(lambda: _movable(hosts) is not None, BEGUN_WITHIN_S, "trainings that can move")
        died = _killed(course, seen)
        course.until(lambda: _movable(hosts) is not None, BEGUN_WITHIN_S, "trainings that can move")
        source = _movable(hosts) or hosts[-1]
        stage(f"{_name(source)} is to be switched off: its trainings move away")
        course.command("cluster", "drain", _name(source))
        course.until(
            lambda: getattr(_row(source, hosts), "jobs", None) == 0,
            EMPTY_WITHIN_S,
            f"{_name(source)} is empty",
        )
        course.command("cluster", "status")
        stage(f"{_name(source)} is back")
        course.command("cluster", "undrain", _name(source))
        jobs = [one.name for one in trainings]
        course.until(lambda: seen.all_ended(jobs), ENDED_WITHIN_S, "all trainings to end")
        stage("all have ended; their files are removed, and with them their containers")
        for one in trainings:
            hosts[0].withdraw(one.name)
        course.until(lambda: not any(map(Host.containers, hosts)), EMPTY_WITHIN_S, "no containers")
        course.print(verdict(seen, died))


def _killed(course: Course, seen: Seen) -> list[str]:
    """Kill a host, give it up, and bring it back; returns the containers that were killed."""
    host = max(course.hosts[1:], key=lambda one: len(one.running()))
    jobs = host.running()
    stage(f"{_name(host)} loses its power: daemon, engine and {len(jobs)} trainings die")
    died = host.power_off()
    course.until(lambda: _is("down", host, course.hosts), DOWN_WITHIN_S, "the host is missed")
    course.command("cluster", "status")
    stage("its trainings wait for it, until a person says that it does not come back")
    course.command("cluster", "forget", _name(host), "--i-know-it-is-off")
    others = [one for one in course.hosts if one is not host]

    def run_elsewhere() -> bool:
        there = [job for one in others for job in one.running()]
        return set(jobs) <= {*there, *seen.finished()}

    course.until(run_elsewhere, EMPTY_WITHIN_S, f"the trainings of {_name(host)} run elsewhere")
    stage(f"{_name(host)} has power again")
    host.power_on()
    course.until(lambda: _is("ready", host, course.hosts), BACK_WITHIN_S, f"{_name(host)} is ready")
    return died


def _row(host: Host, hosts: Sequence[Host]) -> Any:
    """What the controller reports of a host; None: nothing yet."""
    status = hosts[0].status()
    rows = status.nodes if status else ()
    return next((one for one in rows if one.name == host.node.node_id), None)


def _is(state: str, host: Host, hosts: Sequence[Host]) -> bool:
    return getattr(_row(host, hosts), "state", None) == state


def _name(host: Host) -> str:
    return host.node.name


def _movable(hosts: Sequence[Host]) -> Host | None:
    """The host with most trainings, once all of the cluster's can be moved."""
    status = hosts[0].status()
    if status is None or len(status.jobs) < len(LENGTHS_CORE_S):
        return None
    here = [one for one in status.jobs if one.state == "running"]
    if any(one.unmovable for one in here):
        return None
    ids = [one.node for one in here]
    return max(hosts, key=lambda host: ids.count(host.node.node_id))


def verdict(seen: Seen, died: Collection[str] = ()) -> str:
    """Whether a move lost a step, or a training ran twice. `died`: containers that were killed, so
    that their trainings did not move."""
    moves = Seen({name: one for name, one in seen.runs.items() if name not in died}).moves()
    lost = sum(one.lost_steps for one in moves)
    twice = ", ".join(sorted(seen.twice)) or "none"
    pause_s = statistics.median(one.pause_s for one in moves) if moves else 0.0
    return (
        f"moves: {len(moves)}, median pause {pause_s:.1f} s; steps lost: {lost}; trainings on two "
        f"hosts at the same time: {twice}, in {seen.listings} listings of all engines\n"
        f"what placing and moves are worth, simulated: {CLUSTER_PICTURE.relative_to(ROOT)}"
    )


def main(arguments: list[str] | None = None) -> int:
    options(__doc__, arguments)
    signal.signal(signal.SIGTERM, end_with_signal)
    console = Console(stderr=False)
    try:
        with tempfile.TemporaryDirectory() as folder, swarm(len(SIZES_CORES), 1) as engines:
            engines.give_images(["training"])
            sizes = ", ".join(
                f"{node.name} with {cores:g}"
                for node, cores in zip(engines.nodes, SIZES_CORES, strict=True)
            )
            stage(f"three hosts of one swarm on this machine: {sizes} cores")
            policies = ("adaptive", "adaptive")
            with cluster(engines, SIZES_CORES, Path(folder), INSTANCE, *policies) as hosts:
                show(console, hosts)
    except KeyboardInterrupt:
        console.print("interrupted; the engines and all that ran on them are gone")
        return 130
    except (SetupError, AssertionError) as error:
        console.print(f"demo-cluster: {error}", markup=False)
        return 1
    console.print(
        "the engines, their network and all that ran on them are gone; their images stay in "
        ".build/engines for the next time (`make clean` removes them)",
        soft_wrap=True,
    )
    return 0
