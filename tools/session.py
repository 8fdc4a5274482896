"""A dlsched daemon of its own, as a user runs it: a folder, a settings file, the command.

Owns one random instance on the engine at DOCKER_HOST. It touches only containers of that instance,
and removes them however the bench ends.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

import docker
import psutil

from dlsched.api.client import Daemon
from dlsched.config.settings import Settings
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import DaemonUnavailable, Refused
from dlsched.model.state import JobState
from dlsched.store.journal.reader import JournalReader
from tools.engine import CGROUP_PARENT
from tools.engine_remains import cgroup_mounts
from tools.environment import ROOT
from tools.waiting import wait_for

_CGROUP_PARENT = os.environ.get(CGROUP_PARENT) or None
_DLSCHED = Path(sys.executable).parent / "dlsched"

__all__ = [
    "JOURNAL",
    "STRANGER",
    "Session",
    "free_address",
    "launch",
    "session",
    "undivided",
    "wait_for",
]

JOURNAL = "journal.db"
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STRANGER = "dlsched-bench"
"""Label of containers that a bench starts without dlsched; its value is the session's instance."""


class Process(Protocol):
    """A process that runs the daemon, in the words of `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Its number."""

    @property
    def returncode(self) -> int | None:
        """The exit code as of the last `poll` or `wait`, a signal's negative."""

    def poll(self) -> int | None:
        """The exit code; None: it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended; raises subprocess.TimeoutExpired."""

    def terminate(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""


Launch = Callable[[Sequence[str], BinaryIO], Process]
"""Starts `dlsched` with these words; what it prints goes to that file."""


def launch(arguments: Sequence[str], log: BinaryIO) -> Process:
    """Start the command `dlsched` with these words, as a user would, in a session of its own."""
    return subprocess.Popen(
        [_DLSCHED, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


class Session:
    """One instance: start and stop its daemon, drop files, read its reports."""

    def __init__(
        self, root: Path, host: str, capacity_cores: float | None, launch: Launch = launch
    ) -> None:
        self.instance = f"bench-{secrets.token_hex(4)}"
        self.root = root
        self.watch = root / "jobs.d"
        self.watch.mkdir()
        self.host = host
        self.listen: str | None = None
        """Address of the page while a daemon runs; None: there is none."""
        self._capacity = capacity_cores
        self._launch = launch
        self._daemon: Process | None = None
        self._log = (root / "daemon.log").open("ab")
        self.engine = docker.DockerClient(base_url=host, timeout=60)

    @property
    def cgroup_parent(self) -> str:
        """The group above the instance's own."""
        return _CGROUP_PARENT or ""

    @property
    def state_dir(self) -> Path:
        """The daemon's state."""
        return self.root / "state"

    @property
    def client(self) -> Daemon:
        """What asks the daemon."""
        return Daemon(self.root / "run")

    @property
    def process(self) -> psutil.Process:
        """The daemon's process."""
        if self._daemon is None:
            raise RuntimeError("no daemon runs")
        return psutil.Process(self._daemon.pid)

    def engine_processes(self) -> list[psutil.Process]:
        """The engine at the host address, its containerd and shims; nothing inside containers."""
        address = self.host.removeprefix("unix://")
        engines = [p for p in psutil.process_iter() if _is(p, "dockerd")]
        own = [
            p for p in engines if any(address in argument for argument in p.cmdline())
        ] or engines
        roots = [_option(p.cmdline(), "--exec-root") or "/var/run/docker" for p in own]
        shims = [
            p
            for p in psutil.process_iter()
            if _is(p, "containerd-shim")
            and any(argument.startswith(root) for argument in _arguments(p) for root in roots)
        ]
        containerds = [c for p in own for c in p.children() if _is(c, "containerd")]
        return [*own, *containerds, *shims]

    def weigh(self) -> None:
        """On the private engine, give its group the weight that dlsched's own has on a host."""
        for mount in cgroup_mounts() if _CGROUP_PARENT is not None else ():
            for name, default in (("cpu.shares", 1024), ("cpu.weight", 100)):
                file = Path(f"{mount}{_CGROUP_PARENT}") / name
                if file.exists():
                    file.write_text(str(round((Settings().group_weight or 1.0) * default)))

    def drop(self, name: str, text: str) -> None:
        """A job file into the watch folder, whole."""
        partial = self.watch / f".{name}.partial"
        partial.write_text(text)
        partial.rename(self.watch / f"{name}.yaml")

    def configure(
        self,
        policy: str,
        options: Mapping[str, object] | None = None,
        more: Mapping[str, object] | None = None,
    ) -> Path:
        """Write the settings for that policy, with `more` of them; returns their file."""
        settings: dict[str, object] = {
            "instance": self.instance,
            "state_dir": str(self.state_dir),
            "run_dir": str(self.root / "run"),
            "watch": str(self.watch),
            "policy": policy,
            "policy_options": dict(options or {}),
            "max_jobs": 256,
            "reserve": {"cpus": 0, "memory": "256MiB"},
            "engine": {"host": self.host, "cgroup_parent": _CGROUP_PARENT},
            **({} if self.listen is None else {"listen": self.listen}),
            **(more or {}),
        }
        if self._capacity is not None:
            settings["capacity"] = self._capacity
        file = self.root / "dlsched.yaml"
        file.write_text(json.dumps(settings))  # JSON is YAML
        return file

    def start(
        self,
        policy: str,
        options: Mapping[str, object] | None = None,
        *,
        dry_run: bool = False,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """The daemon under that policy, with `more` settings; returns when it answers."""
        file = self.configure(policy, options, more)
        arguments = ["run", "--config", str(file), *(["--dry-run"] if dry_run else [])]
        self._daemon = self._launch(arguments, self._log)
        wait_for(self._answers, 120, "the daemon to answer")

    def keep(self, folder: Path) -> None:
        """A copy of the journal into that folder, made again; the daemon must have stopped."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in self.state_dir.glob(f"{JOURNAL}*"):
            shutil.copy(file, folder / file.name)

    def forget(self) -> None:
        """Between two daemons: the next one's policy remembers nothing of the one before."""
        for file in self.state_dir.glob(f"{JOURNAL}*"):
            file.unlink()

    def stop(self) -> None:
        """SIGTERM: containers run on, under their specs' ceilings."""
        if self._daemon is None:
            return
        self._daemon.terminate()
        try:
            self._daemon.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        self._daemon = None

    def kill(self) -> None:
        """SIGKILL: the daemon has no last word."""
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait(60)
        self._daemon = None

    def reports(self, first_cycle: int) -> Iterator[CycleReport]:
        """The journal's cycles from that one on."""
        with JournalReader(self.state_dir / JOURNAL) as reader:
            yield from reader.reports(first_cycle, reader.last_cycle())

    def cycle(self) -> int:
        """The daemon's present cycle."""
        return int(self.client.jobs()["cycle"])

    def running(self) -> int:
        """How many jobs run now."""
        rows = self.client.jobs()["jobs"]
        return sum(row["state"] == JobState.RUNNING for row in rows)

    def why_not_running(self) -> str:
        """One line on each job that does not run."""
        rows = self.client.jobs()["jobs"]
        return "; ".join(
            f"{row['name']}: {row['state']} {row['reason'] or ''}"
            for row in rows
            if row["state"] != JobState.RUNNING
        )

    def close(self) -> None:
        """Stop the daemon, remove this instance's containers, close."""
        self.stop()
        for label in ("dlsched.instance", STRANGER):
            for container in self.engine.containers.list(
                all=True, filters={"label": f"{label}={self.instance}"}, ignore_removed=True
            ):
                container.remove(force=True, v=True)
        self.engine.close()
        self._log.close()
        for mount in cgroup_mounts():
            with suppress(OSError):
                Path(f"{mount}{_CGROUP_PARENT or ''}/dlsched-{self.instance}").rmdir()

    def _answers(self) -> bool:
        if self._daemon is not None and self._daemon.poll() is not None:
            tail = (self.root / "daemon.log").read_text()[-2000:]
            raise RuntimeError(f"the daemon ended with {self._daemon.returncode}:\n{tail}")
        try:
            return bool(self.client.jobs())
        except (DaemonUnavailable, Refused):
            return False


def free_address() -> str:
    """A loopback address whose port no one has now."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def session(capacity_cores: float | None = None, launch: Launch = launch) -> Iterator[Session]:
    """A session in a temporary folder, cleaned up at the end, on an error, and on Ctrl-C."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    root = Path(tempfile.mkdtemp(prefix="dlsched-"))
    one = Session(root, host, capacity_cores, launch)
    try:
        yield one
    finally:
        with undivided():
            one.close()
            shutil.rmtree(root, ignore_errors=True)


@contextmanager
def undivided() -> Iterator[None]:
    """Ctrl-C, and other signals that end the program, wait until what is within is done."""
    if threading.current_thread() is not threading.main_thread():
        yield  # the main thread has all signals
        return
    came: list[int] = []
    before = [(one, signal.signal(one, lambda n, _: came.append(n))) for one in _ENDING]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        for came_first in came[:1]:
            signal.raise_signal(came_first)


def _is(process: psutil.Process, name: str) -> bool:
    try:
        return process.name().startswith(name)
    except psutil.Error:
        return False


def _arguments(process: psutil.Process) -> list[str]:
    """Its command line; none where it has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _option(arguments: list[str], name: str) -> str | None:
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument == name:
            return following
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return None
