"""Hosts of one swarm with one training, processes that can be killed at any step of its moves, and
what must hold of it all once they have been started again."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from docker.errors import DockerException
from requests.exceptions import RequestException

from benchmarks.robustness.cluster_points import program
from dlsched.cluster.agent.assignments import FOLDER, Assignment
from dlsched.cluster.core.records import Phase, Record, RecordState, Request, Wanted
from dlsched.cluster.status_file import read_status
from dlsched.cluster.store import StoreError
from dlsched.cluster.swarm.calls import SwarmCalls
from dlsched.cluster.swarm.store import SwarmStore
from dlsched.model.errors import DlschedError
from dlsched.model.spec import NAME
from dlsched.runtime.docker.engine import Engine
from dlsched.store.records import Records
from tests.torture.points import Order, Point, give_order, withdraw_order
from tests.torture.points import Phase as At
from tools.base_image import BASE
from tools.engines import EngineNodes
from tools.hosts import Host, repeating, saving_job
from tools.private_engine import empty

JOB = "training"
LISTED_S = 0.25
SETTLES_WITHIN_S = 150.0
"""From when the last process was started again until nothing is left of the fault."""
POLL_S = 0.1
WAKES_S = 1.0
"""Between rounds of the controllers, which otherwise pause for longer while nothing moves."""


TOGETHER = "at the same time"
"""In each line that says that the job ran twice."""
SOCKET, LOCK = "witness", "lock"
"""In the folder that all hosts share; containers may only read it."""

_TRAINS = """
import fcntl, json, os, signal, socket, sys, time
folder, asked, ended = "/ckpt", [], []
saved = folder + "/step"
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
witness = socket.socket(socket.AF_UNIX)
witness.connect("/shared/witness")
def say(word, step):
    witness.sendall(f"{word} {step}\\n".encode())
def tell(**what):
    with open(os.environ["DLSCHED_METRICS_FILE"], "a") as file:
        file.write(json.dumps(dict(what, t=time.time())) + "\\n")
step = int(open(saved).read()) if os.path.exists(saved) else 0
lock = open("/shared/lock")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    say("locked-out", step)
say("begins", step)
if witness.recv(8) == b"fail":
    sys.exit(1)
while not ended:
    step += 1
    tell(step=step, accuracy=0.5, total_steps=10_000_000)
    if asked:
        asked.clear()
        with open(folder + "/weights", "wb") as file:
            file.write(os.urandom(4_000_000))
        with open(saved + ".new", "w") as file:
            file.write(str(step))
        os.rename(saved + ".new", saved)
        say("saved", step)
        tell(checkpoint={"step": step, "path": saved})
    time.sleep(0.1)
sys.exit(143)
"""
"""Makes ten steps a second, and saves 4 MB when it is asked to."""


@dataclass
class Seen:
    """What one job reported."""

    living: int = 0
    """Its processes that run now."""
    saved: int = 0
    """The last checkpoint that it finished."""
    wrong: list[str] = field(default_factory=list)
    """Starts below that checkpoint, two processes at a time, a lock that another one holds."""


class Witness:
    """Listens for one job until it is closed."""

    def __init__(self, shared: Path, fails: Callable[[int], bool]) -> None:
        """`fails` is asked, with the process, whether a start should fail."""
        self.seen = Seen()
        self._fails = fails
        self._lock = threading.Lock()
        (shared / LOCK).touch()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(shared / SOCKET))
        self._listening.listen(16)
        threading.Thread(target=self._accept, name="witness", daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                talking, _ = self._listening.accept()
                threading.Thread(target=self._listen, args=(talking,), daemon=True).start()

    def _listen(self, talking: socket.socket) -> None:
        with self._lock:
            self.seen.living += 1
            if self.seen.living > 1:
                self.seen.wrong.append(f"{self.seen.living} processes of it {TOGETHER}")
        try:
            with talking, talking.makefile() as lines:
                for line in lines:
                    word, step = line.split()
                    self._heard(word, int(step))
                    if word == "begins":
                        talking.sendall(b"fail" if self._fails(_pid(talking)) else b"go")
        except (OSError, ValueError):
            pass  # it was killed
        finally:
            with self._lock:
                self.seen.living -= 1

    def _heard(self, word: str, step: int) -> None:
        with self._lock:
            seen = self.seen
            if word == "saved":
                seen.saved = step
            elif word == "locked-out":
                seen.wrong.append("its lock was taken twice")
            elif step < seen.saved:
                seen.wrong.append(f"began at step {step}, had saved {seen.saved}")


def _pid(talking: socket.socket) -> int:
    """The process at the other end."""
    credentials = talking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], "little")


@dataclass
class Listings:
    """What listings of all engines have shown."""

    whole: int = 0
    """Those to which every engine answered."""
    twice: int = 0
    """Those with two running containers of one job."""

    def take(self, hosts: Sequence[Host]) -> None:
        """One more."""
        running, whole = Counter[str](), True
        for host in hosts:
            try:
                running.update(host.running())
            except (DockerException, RequestException, OSError):
                whole = False
        self.whole += whole
        self.twice += any(count > 1 for count in running.values())


class World:
    """The hosts, each with its daemon; controllers on the managers; one training."""

    def __init__(self, engines: EngineNodes, folder: Path, instance: str) -> None:
        self.engines, self._folder = engines, folder
        self._shared = folder / "shared"
        self._shared.mkdir(parents=True)
        self.fails_on: Host | None = None
        """Where a start of the job fails."""
        self.witness = Witness(self._shared, self._fails)
        self.hosts = [
            Host(
                node,
                folder / node.name,
                instance,
                2.0,
                program=program(folder / node.name / "orders"),
            )
            for node in engines.nodes
        ]
        self._engines = {host.node.name: Engine(host.node.host, 5.0) for host in self.hosts}
        self.listings = Listings()
        self._watching = ExitStack()
        self._round = 0
        self.turns = 0
        """Moves that were asked for among three hosts."""

    @property
    def managers(self) -> list[Host]:
        return [host for host in self.hosts if host.node.is_manager]

    def begin(self) -> None:
        """Until the job runs. Raises AssertionError."""
        for host in self.hosts:
            host.start("run")
        for host in self.managers:
            host.start("cluster", "run")
        self._watching.enter_context(repeating(partial(self.listings.take, self.hosts), LISTED_S))
        volumes = [f"{JOB}:/ckpt", f"{self._shared}:/shared:ro"]
        self.hosts[0].drop(JOB, saving_job(JOB, BASE, _TRAINS, volumes))
        self.settled()

    def close(self) -> None:
        self._watching.close()
        for host in self.hosts:
            with suppress(DockerException, RequestException):
                host.close()
                empty(host.node.host)
        for engine in self._engines.values():
            engine.close()
        self.witness.close()

    def logs(self, characters: int = 4000) -> str:
        return "\n".join(host.logs(characters) for host in self.hosts)

    def seen(self) -> tuple[int, int, int]:
        """How much was seen so far, for `since`."""
        return self.listings.whole, self.listings.twice, len(self.witness.seen.wrong)

    def since(self, before: tuple[int, int, int]) -> list[str]:
        """What the listings and the job itself have shown since then that must never be."""
        twice = self.listings.twice - before[1]
        shown = [f"{twice} listings with two running containers {TOGETHER}"] if twice else []
        return [*shown, *self.witness.seen.wrong[before[2] :]]

    # ------------------------------------------------------------------ acts

    def store(self, host: Host | None = None) -> SwarmStore:
        """As that manager has it; None: one that answers."""
        host = host or self._answering()
        return SwarmStore(self._engines[host.node.name], host.instance)

    def leader(self) -> Host:
        """The manager that leads. Raises StoreError."""
        leader = self.store().leader()
        return next(host for host in self.hosts if host.node.node_id == leader)

    def leading(self) -> list[Host]:
        """The managers whose controllers act, by their own statuses."""
        found = []
        for host in self.managers:
            with suppress(DlschedError, OSError):
                status = read_status(host.folder / "run")
                if status.leader == status.manager:
                    found.append(host)
        return found

    def _answering(self) -> Host:
        for host in self.managers:
            with suppress(StoreError, DlschedError):
                SwarmCalls(self._engines[host.node.name]).nodes()
                return host
        return self.managers[0]

    def move(self, target: Host) -> None:
        """Ask for a move, as `dlsched cluster move` does."""
        self.store().ask(Request(Wanted.MOVE, JOB, target.node.node_id))
        self.wake()

    def wake(self) -> None:
        """Let the controllers begin their next round now."""
        for host in self.managers:
            for file in host.cluster.iterdir():
                os.utime(file)

    @contextmanager
    def order(self, host: Host, word: str, point: Point, at: At, pid: int) -> Iterator[None]:
        """Have a process, by its first word, kill `pid` (0: itself) once it comes to that point."""
        self._round += 1
        folder = host.folder / "orders" / word
        give_order(folder, Order(self._round, point=point, phase=at, pid=pid))
        try:
            yield
        finally:
            withdraw_order(folder)

    def record(self, host: Host | None = None) -> Record | None:
        """The job's present record; None where the store does not answer."""
        try:
            return self.store(host).records()[JOB].record
        except (StoreError, DlschedError, KeyError):
            return None

    def on(self) -> Host:
        """Where the record says that it runs. Raises AssertionError."""
        record = self.record()
        assert record is not None, "no record of the job"
        return next(host for host in self.hosts if host.node.node_id == record.on)

    def dockerd(self, host: Host) -> int:
        """The process of its engine."""
        file = Path(host.node.host.removeprefix("unix://")).with_name("dockerd.pid")
        return int(file.read_text())

    # ------------------------------------------------------------------ judgement

    def settled(self, within_s: float = SETTLES_WITHIN_S) -> float:
        """Wait until one host runs the job and nothing else is left; returns the seconds. Raises
        AssertionError with what is not so."""
        began_s = woken_s = time.monotonic()
        while wrong := self.wrong():
            now_s = time.monotonic()
            assert now_s - began_s < within_s, "; ".join(wrong)
            if now_s - woken_s > WAKES_S:
                self.wake()
                woken_s = now_s
            time.sleep(POLL_S)
        return time.monotonic() - began_s

    def wrong(self) -> list[str]:
        """What is not as it is when one host runs the job and no move is under way."""
        record = self.record()
        if record is None:
            return ["no record of the job can be read"]
        wrong = [] if record.state is RecordState.PLACED else [f"its record is {record.state}"]
        if record.source or record.target:
            wrong.append("its record names another host")
        try:
            wrong += [f"request: {one}" for one in self.store().requests()]
            ours = f"dlsched.{self.hosts[0].instance}."
            calls = SwarmCalls(self._engines[self._answering().node.name])
            names = [one.name for one in calls.configs(ours)]
            if len(names) != 2 + sum(line.startswith("request") for line in wrong):
                wrong.append(f"configs: {', '.join(names)}")
            for host in self.hosts:
                wrong += self._wrong_on(host, host.node.node_id == record.on, record.epoch)
        except (StoreError, DlschedError, DockerException, RequestException, OSError) as error:
            wrong.append(f"{type(error).__name__}: {error}")
        if self.witness.seen.living != 1:
            wrong.append(f"{self.witness.seen.living} processes of it")
        return wrong

    def _wrong_on(self, host: Host, owns: bool, epoch: int) -> list[str]:
        api, state, name = host.engine.api, host.folder / "state", host.node.name
        there = api.containers(all=True)
        running = [one for one in there if one["State"] == "running"]
        # The volume of the job file is the user's, and stays where the job first ran.
        volumes = {one["Name"] for one in api.volumes()["Volumes"] or ()} - {JOB}
        mounted = {one.get("Name") for each in there for one in each["Mounts"]} - {None, JOB}
        held = _held(state)
        wrong = []
        if len(there) != owns or len(running) != owns:
            names = [f"{one['Names'][0]} {one['State']}" for one in there]
            wrong.append(f"containers on {name}: {', '.join(names) or 'none'}")
        if volumes - mounted if owns else volumes:
            wrong.append(f"volumes on {name}: {', '.join(sorted(volumes))}")
        for direction in ("incoming", "outgoing"):
            left = [path.name for path in (state / "cluster" / direction).iterdir()]
            wrong += [f"{direction} on {name}: {one}" for one in left]
        if owns != (held is not None and held.phase is Phase.RUNNING and held.epoch == epoch):
            phase = "nothing" if held is None else f"{held.phase} {held.epoch}"
            wrong.append(f"{name} holds {phase}")
        if owns and held is not None and not held.confirmed:
            wrong.append(f"{name} waits for a confirmation")
        # Room that is kept for it lapses by itself.
        if not owns and held is not None and held.phase not in (Phase.FENCED, Phase.PREPARED):
            wrong.append(f"{name} holds {held.phase} {held.epoch}")
        arrivals = list((state / "arrivals").glob("*.json"))
        if len(arrivals) > owns:
            wrong.append(f"arrivals on {name}")
        return wrong

    def _fails(self, pid: int) -> bool:
        host = self.fails_on
        if host is None:
            return False
        try:
            groups = Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            return False
        return f"{host.node.engine.cgroup_parent}/" in groups


def _held(state: Path) -> Assignment | None:
    """What a daemon's file of the job says; None: there is none."""
    folder = state / FOLDER / "jobs"
    return Records(folder, Assignment, lambda one: one.job, NAME, "", read_only=True).of(JOB)


def is_dead(pid: int) -> bool:
    """Whether that process has ended, also where its parent has not read its end yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
