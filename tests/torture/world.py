"""One instance's world: its agent, its containers, its files, and what is wrong with them.

Owns looking from outside: at the engine, the control groups, the state directory and the agent's
own answers. It must not repair anything.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.errors import APIError

from dlsched.runtime.allotment import install_reporter
from tests.torture.agent import WITHIN_S, Agent
from tests.torture.ceilings import Ceilings, Foreign
from tests.torture.kernel import cpu_folder, kernel_cores, kernel_files, lives, near
from tests.torture.unfinished import staying
from tools.base_image import BASE
from tools.session import Session


@dataclass(frozen=True, slots=True)
class Runs:
    """A job whose container runs, with that ceiling, for that round."""

    cores: float
    round: str = "1"
    delivered: bool = False
    """Whether that is recorded, and told to the job."""
    at_rest_cores: float = 0.7
    """What its spec allows it: its ceiling when no agent is there."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """A container that somebody else started runs, with that ceiling while it is managed."""

    cores: float | None
    memory_bytes: int | None = None
    """Its memory limit; None: whatever it has."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A container that somebody else started runs with its own limits, and is no job."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that is wished for and does not run: what the agent says of it."""

    state: str
    container: bool
    """Whether its container is kept."""
    starts: int = 0
    """How often it may have been started since the act began."""
    at_rest_cores: float = 0.7
    """What its spec allows it while it runs still."""


Wished = Mapping[str, Runs | Adopted | LeftAlone | Ended]
"""What there should be, by job; whatever is not named should not be there."""


_NONE: Mapping[str, str] = {}


class World:
    """What the acts play in."""

    def __init__(self, session: Session, policy: str) -> None:
        self.session = session
        self.policy = policy
        self.reserves = policy in ("fair", "adaptive")
        self._api = session.engine.api
        self._label = f"dlsched.instance={session.instance}"
        self.foreign: dict[str, Foreign] = {}
        # Made once a release: its own points are played where no engine is needed.
        install_reporter(session.state_dir)
        self.agent = Agent(session, policy)
        self.ceilings = Ceilings(self._own_group, self.foreign)
        self.starts: list[tuple[str, str]] = []
        """Starts of containers of this instance, heard from the engine: job and container."""
        self._starts_from_ns = 0
        self._listen()

    # ------------------------------------------------------------------ other people's containers

    def adopt(
        self, name: str, *, asks: bool = True, labels: Mapping[str, str] = _NONE, **host: Any
    ) -> bool:
        """Somebody starts a container, unless it is there; `asks`: its labels, and `labels` beside
        them, ask for adoption. Returns True."""
        if name in self.foreign:
            return True
        enable = "true" if asks else "false"
        own = {"dlsched.enable": enable, "dlsched.instance": self.session.instance}
        made = self._api.create_container(
            BASE,
            ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done"],
            name=self.full(name),
            labels={**own, **labels},
            host_config={**self._api.create_host_config(network_mode="none"), **host},
        )
        self._api.start(made["Id"])
        pid = self._api.inspect_container(made["Id"])["State"]["Pid"]
        self.foreign[name] = Foreign(made["Id"], pid, cpu_folder(pid), kernel_files(pid))
        return True

    def run_in(self, name: str, script: str) -> bool:
        """Its owner runs that in it, and does not wait for it. Returns True."""
        made = self._api.exec_create(self.foreign[name].container, ["sh", "-c", script])
        self._api.exec_start(made["Id"], detach=True)
        return True

    def unadopt(self, *keep: str) -> None:
        """Its owner removes it."""
        for name in [name for name in self.foreign if name not in keep]:
            self._api.remove_container(self.foreign.pop(name).container, force=True)

    def full(self, name: str) -> str:
        return f"{self.session.instance}-{name}"

    def _short(self, name: str) -> str:
        return name.removeprefix(f"{self.session.instance}-")

    # ------------------------------------------------------------------ the facts

    def containers(self) -> list[dict[str, Any]]:
        """This instance's containers, inspected."""
        found = []
        for one in self._api.containers(all=True, filters={"label": self._label}):
            with suppress(APIError):
                found.append(self._api.inspect_container(one["Id"]))
        return found

    def wrongs(self, wished: Wished) -> list[str]:
        """Everything in which the world is not as wished, a line each."""
        # The agent first: as long as it says so itself the engine need not be asked.
        if wrong := self._told_wrong(wished):
            return wrong
        by_job = self._by_job()
        for job in sorted({*by_job, *wished}):
            wish, bodies = wished.get(job), by_job.get(job, [])
            if len(bodies) > 1:
                wrong.append(f"{job}: {len(bodies)} containers")
            elif wish is None:
                wrong.append(f"{job}: a container that nobody wishes for")
            elif isinstance(wish, Ended):
                if bool(bodies) != wish.container:
                    wrong.append(f"{job}: container {'there' if bodies else 'gone'}")
                if bodies and bodies[0]["State"]["Running"]:
                    wrong.append(f"{job}: runs, and should not")
            else:
                wrong += self._not_running(job, wish, bodies[0] if bodies else None)
        return wrong

    def wrongs_at_rest(self, wished: Wished) -> list[str]:
        """With every limit given back: everything that is not as before dlsched was."""
        by_job = self._by_job()
        wrong = [
            f"{job}: does not run"
            for job in wished
            if not any(body["State"]["Running"] for body in by_job.get(job, []))
        ]
        allowed = {
            job: {wish.at_rest_cores} for job, wish in wished.items() if isinstance(wish, Runs)
        }
        for job, cores in allowed.items():
            told = self._allotment(job).get("cpu_cores")
            if not any(near(told, one) for one in cores):
                wrong.append(f"{job}: left told {told} cores of {cores}")
        return wrong + self.limits_left(allowed)

    def limits_left(self, allowed: Mapping[str, Set[float]]) -> list[str]:
        """What running containers have of limits that are dlsched's; `allowed` for own jobs."""
        wrong: list[str] = []
        for job, bodies in self._by_job().items():
            for body in bodies:
                pid = body["State"]["Pid"]
                if not pid:
                    continue
                has, cores = kernel_files(pid), kernel_cores(pid)
                if not lives(pid):  # it has ended since the engine was asked
                    continue
                if job in self.foreign:
                    wrong += [
                        f"{job}: {name} is {has.get(name)}, was {text}"
                        for name, text in self.foreign[job].files.items()
                        if has.get(name) != text
                    ]
                    continue
                if not any(near(cores, one) for one in allowed.get(job, ())):
                    wrong.append(f"{job}: left with {cores} cores of {allowed.get(job)}")
                if has.get("cpu.shares", "1024") != "1024" or has.get("cpu.weight", "100") != "100":
                    wrong.append(f"{job}: left with another weight: {has}")
        return wrong

    def _by_job(self) -> dict[str, list[dict[str, Any]]]:
        by_job: dict[str, list[dict[str, Any]]] = {}
        for body in self.containers():
            labels = body["Config"]["Labels"]
            job = labels.get("dlsched.job") or self._short(body["Name"].lstrip("/"))
            by_job.setdefault(job, []).append(body)
        return by_job

    def _not_running(
        self, job: str, wish: Runs | Adopted | LeftAlone, body: dict[str, Any] | None
    ) -> list[str]:
        if body is None:
            return [f"{job}: no container"]
        if not body["State"]["Running"]:
            return [f"{job}: container is {body['State']['Status']}"]
        if isinstance(wish, LeftAlone):
            has, had = kernel_files(body["State"]["Pid"]), self.foreign[job].files
            return [] if has == had else [f"{job}: has {has}, had {had}"]
        wrong = []
        cores = kernel_cores(body["State"]["Pid"])
        if not near(cores, wish.cores):
            wrong.append(f"{job}: has {cores} cores, not {wish.cores}")
        if isinstance(wish, Adopted):
            has = kernel_files(body["State"]["Pid"])
            limit = has.get("memory.max", has.get("memory.limit_in_bytes"))
            if wish.memory_bytes is not None and limit != str(wish.memory_bytes):
                wrong.append(f"{job}: has a memory limit of {limit}, not {wish.memory_bytes}")
            if (body["Id"], body["State"]["Pid"]) != self.foreign[job].identity:
                wrong.append(f"{job}: is not the container that its owner started")
            return wrong
        if f"ROUND={wish.round}" not in body["Config"]["Env"]:
            wrong.append(f"{job}: of another spec")
        told = self._allotment(job)
        if not near(told.get("cpu_cores"), wish.cores):
            wrong.append(f"{job}: told {told.get('cpu_cores')} cores, not {wish.cores}")
        if bool(told.get("deliverable")) != wish.delivered:
            wrong.append(f"{job}: deliverable is {told.get('deliverable')} in its allotment")
        recorded = (self.session.state_dir / "delivered" / f"{job}.json").exists()
        if recorded != wish.delivered:
            wrong.append(f"{job}: its delivery is {'' if recorded else 'not '}recorded")
        return wrong

    def _allotment(self, job: str) -> dict[str, Any]:
        try:
            file = self.session.state_dir / "in" / job / "allotment.json"
            told: dict[str, Any] = json.loads(file.read_text())
        except (OSError, ValueError):
            return {}
        return told

    def _told_wrong(self, wished: Wished) -> list[str]:
        status = self.agent.status()
        if status is None:
            return ["the agent does not answer"]
        rows = {self._short(row["name"]): row["state"] for row in status["jobs"]}
        why = {self._short(row["name"]): row["reason"] for row in status["jobs"]}
        states = {
            job: wish.state if isinstance(wish, Ended) else "running"
            for job, wish in wished.items()
            if not isinstance(wish, LeftAlone)
        }
        wrong = [
            f"{job}: told as {rows.get(job)} ({why.get(job)}), not {states.get(job)}"
            for job in sorted({*rows, *states})
            if rows.get(job) != states.get(job)
        ]
        return wrong + [f"alarm: {alarm}" for alarm in status["alarms"]]

    def left_behind(self) -> list[str]:
        """Unfinished and broken files that stay in the agent's directories."""
        folders = (self.session.state_dir, self.session.watch, self.session.root / "run")
        return [f"left: {path.relative_to(self.session.root)}" for path in staying(folders)]

    def becomes(self, wished: Wished, within_s: float = WITHIN_S) -> list[str]:
        """Wait until the world is as wished and stays so for two cycles; else what is wrong."""
        until_s = time.monotonic() + within_s
        while True:
            wrong = self.wrongs(wished)
            if not wrong:
                wrong = self._stays(wished)
            if not wrong or time.monotonic() > until_s:
                return wrong
            if not self.agent.alive:
                return ["the agent has ended", *wrong]
            time.sleep(0.05)

    def _stays(self, wished: Wished) -> list[str]:
        before = self.agent.status()
        until_s = time.monotonic() + 3.0
        while before is not None and time.monotonic() < until_s:
            now = self.agent.status()
            if now is not None and now["cycle"] >= before["cycle"] + 2:
                return self.wrongs(wished)
            time.sleep(0.05)
        return ["the agent makes no cycles"]

    def _own_group(self) -> Path | None:
        """The group above this instance's own containers."""
        for body in self.containers():
            if body["State"]["Pid"] and "dlsched.job" in body["Config"]["Labels"]:
                return cpu_folder(body["State"]["Pid"]).parent
        return None

    # ------------------------------------------------------------------ what is heard

    def _listen(self) -> None:
        stream = self._api.events(
            decode=True, filters={"label": self._label, "event": ["start"], "type": ["container"]}
        )

        def hear() -> None:
            with suppress(Exception):
                for event in stream:
                    if event["timeNano"] < self._starts_from_ns:
                        continue
                    name = event["Actor"]["Attributes"]["name"].removeprefix("dlsched-")
                    self.starts.append((self._short(name), event["id"]))

        self._stream = stream
        threading.Thread(target=hear, name="torture-events", daemon=True).start()

    def forget_starts(self) -> None:
        """Only starts from now on count, and none that is heard of late."""
        self._starts_from_ns = time.time_ns()
        self.starts.clear()

    def forget_gone(self, wished: Wished) -> None:
        """As on a host where these jobs never were: their directories, and the group if empty."""
        for folder in (self.session.state_dir / "in").glob("*/"):
            if folder.name not in wished:
                shutil.rmtree(folder, ignore_errors=True)
        if not wished:
            with suppress(OSError):
                (self.session.state_dir / "in").rmdir()
            if self.ceilings.parent is not None:
                with suppress(OSError):
                    self.ceilings.parent.rmdir()

    def close(self) -> None:
        """End the agent and what listens; the session removes the agent's containers."""
        self.ceilings.stop()
        self.agent.kill()
        self.unadopt()
        self._stream.close()
