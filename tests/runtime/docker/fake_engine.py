"""An engine in this process: containers that live on a host of files, and faults on top of any
engine. What it does is held to a real one by `engine_contract`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker.engine import Body, EngineRefused, PathStat
from tests.runtime.docker.fake_host import FakeHost, older_weight

NO_ANSWER = "no answer from the Docker Engine: timed out"


@dataclass(slots=True)
class _Container:
    name: str
    body: Body
    host: FakeHost
    status: str = "created"
    exit_code: int = 0
    started_at: str = "0001-01-01T00:00:00Z"


class FakeEngine:
    """Containers by id. A program that sets a trap for TERM ends with it; any other is a first
    process without handlers, which only SIGKILL ends."""

    host = "unix:///fake"

    def __init__(self, root: Path, *, v2: bool = False, weigh: Any = older_weight) -> None:
        self._make = lambda **more: FakeHost(root, v2=v2, weigh=weigh, **more)
        self.proc = root / "proc"
        self.all: dict[str, _Container] = {}
        self.made: list[Body] = []
        """The bodies of all that were ever made, in their order."""
        self.facts: Body = {
            **{"ID": "fake", "NCPU": 2, "CgroupDriver": "cgroupfs"},
            "CgroupVersion": "2" if v2 else "1",
        }
        self.tagged: list[Body] = []
        self.there: set[str] | None = None
        """Its images, by name and tag; None: any."""
        self.pulling: Callable[[], Iterable[Body]] = tuple
        """What a pull reports, and meets."""
        self.kept: dict[str, Mapping[str, str]] = {}
        """The labels of its volumes, by name."""
        self.shown: dict[str, PathStat] = {}
        """The files that containers show, by path."""
        self.packed: Iterable[bytes] = ()
        """What is packed of any folder."""
        self.unpacked: list[tuple[str, str, bytes]] = []
        self._numbers = itertools.count(1)

    def containers(self, labels: Mapping[str, str]) -> list[Body]:
        listed = [
            {
                "Id": key,
                "Names": [f"/{one.name}"],
                "State": one.status,
                "Labels": one.body["Labels"],
            }
            for key, one in self.all.items()
        ]
        return [one for one in listed if labels.items() <= (one["Labels"] or {}).items()]

    def inspect(self, container: str) -> Body:
        key, one = self._find(container)
        return {
            "Id": key,
            "Name": f"/{one.name}",
            "Image": f"image-of-{key}",
            "RestartCount": 0,
            "State": {
                "Status": one.status,
                "Pid": one.host.pid,
                "StartedAt": one.started_at,
                "ExitCode": one.exit_code,
            },
            "Config": {
                "Image": one.body["Image"],
                "Labels": one.body["Labels"],
                "Env": one.body.get("Env"),
            },
            "HostConfig": {**one.body["HostConfig"], **one.host.words},
            "NetworkSettings": {"Networks": {}},
        }

    def create(self, name: str, body: Body) -> str:
        if any(one.name == name for one in self.all.values()):
            raise EngineRefused(409, f"Conflict. The container name /{name} is already in use")
        key = f"{next(self._numbers):064x}"
        self.made.append({"Name": name, **body})
        self.put(key, name, body)
        return key

    def put(self, key: str, name: str, body: Body) -> None:
        """A container of that id is there."""
        host = self._make(container=key, pid=0)
        given = body.get("HostConfig", {})
        host.words.update({word: given[word] for word in host.words if word in given})
        self.all[key] = _Container(name, {"HostConfig": {}, "Labels": {}, **body}, host)

    def start(self, container: str) -> None:
        _, one = self._find(container)
        if one.host.pid:
            return
        number = next(self._numbers)
        one.host.begin(1000 + number)
        one.host.restart()
        one.status, one.started_at = "running", f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"

    def update(self, container: str, body: Body) -> None:
        _, one = self._find(container)
        policy = body.get("RestartPolicy")
        if policy is not None:
            one.body["HostConfig"]["RestartPolicy"] = policy
        limits = {word: value for word, value in body.items() if word != "RestartPolicy"}
        if limits:
            one.host.update(one.host.container, limits)

    def kill(self, container: str, signal: str) -> None:
        key, one = self._find(container)
        if not one.host.pid:
            raise EngineRefused(409, f"Cannot kill container: {key}: container is not running")
        obeys = signal == "SIGTERM" and "trap" in " ".join(one.body.get("Cmd", ()))
        if obeys or signal == "SIGKILL":
            one.host.stop()
            one.status, one.exit_code = "exited", 0 if obeys else 137

    def remove(self, container: str) -> None:
        try:
            key, one = self._find(container)
        except EngineRefused:
            return
        if one.host.pid:
            raise EngineRefused(409, f"You cannot remove a running container {key}")
        del self.all[key]

    def discard(self, container: str) -> None:
        key, _ = self._find(container)
        del self.all[key]

    def rename(self, container: str, name: str) -> None:
        _, one = self._find(container)
        if any(other.name == name for other in self.all.values()):
            raise EngineRefused(409, f"Conflict. The container name /{name} is already in use")
        one.name = name

    def images(self) -> list[Body]:
        return self.tagged

    def image(self, reference: str) -> Body:
        if self.there is not None and not {reference, f"{reference}:latest"} & self.there:
            raise EngineRefused(404, "No such image")
        return {"Id": "sha256:0", "Config": {"Labels": {}}}

    def pull(self, repository: str, tag: str, auth: bytes | None) -> Iterator[Body]:
        yield from self.pulling()
        if self.there is not None:
            self.there.add(f"{repository}:{tag}")

    def volumes(self, labels: Mapping[str, str]) -> list[Body]:
        return [{"Name": key} for key, one in self.kept.items() if labels.items() <= one.items()]

    def remove_volume(self, name: str) -> None:
        for one in self.all.values():
            if any(name == mount["Source"] for mount in one.body["HostConfig"].get("Mounts", ())):
                raise EngineRefused(409, f"remove {name}: volume is in use")
        self.kept.pop(name, None)

    def stat(self, container: str, path: str) -> PathStat:
        if path not in self.shown:
            raise EngineRefused(404, f"Could not find the file {path} in container {container}")
        return self.shown[path]

    def archive(self, container: str, path: str) -> Iterator[bytes]:
        yield from self.packed

    def unpack(self, container: str, path: str, archive: Iterable[bytes]) -> None:
        self.unpacked.append((container, path, b"".join(archive)))

    def info(self) -> Body:
        return self.facts

    def version(self) -> Body:
        return {"Components": [{"Name": "runc", "Version": "1.1.5"}]}

    def ping(self) -> None:
        """It answers."""

    def close(self) -> None:
        """It has no connections."""

    def _find(self, container: str) -> tuple[str, _Container]:
        if container in self.all:
            return container, self.all[container]
        for key, one in self.all.items():
            if container == one.name:
                return key, one
        raise EngineRefused(404, f"No such container: {container}")


@dataclass
class Faulty:
    """An engine, some of whose answers are lost, late for ever, or a refusal."""

    engine: Any
    lost: set[str] = field(default_factory=set)
    """Calls that are made, and whose answers never come."""
    refused: dict[str, Exception] = field(default_factory=dict)
    """Calls that are not made, as `inspect`, or `inspect CONTAINER` for those of one."""
    answers: dict[str, Body] = field(default_factory=dict)
    """What is answered instead to calls, as in `inspect CONTAINER`."""
    asked: list[tuple[str, Any]] = field(default_factory=list)
    """All calls, with what they are of."""
    away: bool = False
    """Whether the engine does not run."""

    def of(self, name: str) -> list[Any]:
        """What the calls of that name were of."""
        return [what for call, what in self.asked if call == name]

    def __getattr__(self, name: str) -> Any:
        if name in ("all", "close", "host", "tagged", "there"):
            return getattr(self.engine, name)

        def call(*args: Any, **more: Any) -> Any:
            self.asked.append((name, args[0] if len(args) == 1 else args))
            if self.away:
                raise EngineUnavailable(NO_ANSWER)
            for asked in (name, " ".join([name, *map(str, args[:1])])):
                if asked in self.refused:
                    raise self.refused[asked]
                if asked in self.answers:
                    return self.answers[asked]
            answer = getattr(self.engine, name)(*args, **more)
            if name in self.lost:
                raise EngineUnavailable(NO_ANSWER)
            return answer

        return call
