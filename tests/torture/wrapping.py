"""Puts a fault point around every call of a process that changes something outside of it.

Engine calls, files under the state directory and the run directory, control group files, the
journal's transactions, sockets and locks. The product knows nothing of it: what is wrapped are the
calls of the standard library and of the HTTP client that it makes them with, and the methods of
`Engine`.
"""

from __future__ import annotations

import builtins
import fcntl
import io
import os
import re
import socket
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import urllib3.connection

from dlsched.runtime.docker.engine import Engine
from tests.torture.points import REQUEST, Phase, Points, die

CHANGING = ("create", "start", "update", "kill", "unpause", "remove")
"""The engine's calls that change something."""

SLOW_S = 3.0
"""Longer than a cycle, and than the loop waits for the engine."""

_CGROUPS = "/sys/fs/cgroup/"
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[^.]+\.tmp")
_RECORDS = {
    "ended": "record of an end",
    "delivered": "record of a delivery",
    "originals": "record of an original",
    "claims": "record of a name's holder",
}
_local = threading.local()


class Names:
    """What a path or a container is called in a point's name: the same in every run."""

    def __init__(self, state_dir: Path, run_dir: Path, instance: str) -> None:
        self._state_dir = str(state_dir)
        self._run_dir = str(run_dir)
        self._instance = instance
        self._containers: dict[str, str] = {}

    def learn(self, container: str, name: str) -> None:
        """A container's name, without what is random in it."""
        name = name.lstrip("/").removeprefix("dlsched-")
        self._containers[container] = name.removeprefix(f"{self._instance}-")

    def container(self, container: str) -> str:
        """The name of that container."""
        return self._containers.get(container, container[:12])

    def path(self, path: str) -> tuple[str, str] | None:
        """What that file is, and whose; None: nothing that is watched."""
        if path.startswith(_CGROUPS):
            group, file = os.path.split(path)
            group = os.path.basename(group)  # noqa: PTH119
            known = re.fullmatch(r"(?:docker-)?([0-9a-f]{64})(?:\.scope)?", group)
            return (file, self.container(known[1])) if known else (f"{file} of the group", "")
        if path.startswith(f"{self._run_dir}/"):
            return os.path.basename(path), ""  # noqa: PTH119
        if path == self._state_dir:
            return "state directory", ""
        if not path.startswith(f"{self._state_dir}/"):
            return None
        parts = path[len(self._state_dir) + 1 :].split("/")
        if parts[0] in _RECORDS:
            return self._record(_RECORDS[parts[0]], parts[1:])
        if parts[0] == "in" and len(parts) > 2:
            unfinished = ", unfinished" if _TEMPORARY.fullmatch(parts[2]) else ""
            return f"allotment{unfinished}", parts[1]
        if parts[0] == "in":
            return "job's directory", "".join(parts[1:])
        if parts[0].startswith("journal.db"):
            return "journal", ""
        temporary = _TEMPORARY.fullmatch(parts[0])
        return (f"{temporary['name']}, unfinished" if temporary else parts[0]), ""

    def _record(self, what: str, rest: list[str]) -> tuple[str, str]:
        if not rest:  # the folder, for the sake of what was just put into it or taken out
            return f"{what}: its folder", getattr(_local, "whose", "")
        temporary = _TEMPORARY.fullmatch(rest[0])
        name = (temporary["name"] if temporary else rest[0]).removesuffix(".json")
        _local.whose = self.container(name) if len(name) == 64 else name
        return (f"{what}, unfinished" if temporary else what), _local.whose


def wrap_everything(points: Points, names: Names) -> None:
    """From now on every change of this process is a point; for a process that does nothing else."""
    _wrap_engine(points, names)
    wrap_files(points, names)
    _wrap_journal(points)
    _wrap_socket(points, names)


# ------------------------------------------------------------------------------- the engine


def _wrap_engine(points: Points, names: Names) -> None:
    for method in CHANGING:
        setattr(Engine, method, _engine_call(getattr(Engine, method), method, points, names))
    inspect, containers = Engine.inspect, Engine.containers

    def listing(self: Engine, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        bodies = containers(self, labels)
        # An agent that follows another inspects a container only once something changes there.
        for body in bodies:
            for name in (body["Names"] or ())[:1]:
                names.learn(body["Id"], name)
        return bodies

    def inspecting(self: Engine, container: str) -> dict[str, Any]:
        body = inspect(self, container)
        names.learn(body["Id"], body["Name"])
        return body

    Engine.inspect = inspecting  # type: ignore[method-assign]
    Engine.containers = listing  # type: ignore[method-assign]
    # The request has left the process; nobody will ever read the answer.
    connection = urllib3.connection.HTTPConnection
    request, answer = connection.putrequest, connection.getresponse

    def putrequest(self: Any, method: str, *rest: Any, **more: Any) -> Any:
        self.changes = method != "GET"
        return request(self, method, *rest, **more)

    def getresponse(self: Any, *rest: Any, **more: Any) -> Any:
        phase = getattr(_local, "phase", None) if getattr(self, "changes", False) else None
        if phase == "inside":
            die()
        _local.phase = None
        if phase == "slow":
            time.sleep(SLOW_S)
        answered = answer(self, *rest, **more)
        if phase == "lost":
            raise ConnectionResetError("the answer was lost")
        return answered

    connection.putrequest = putrequest  # type: ignore[method-assign]
    connection.getresponse = getresponse  # type: ignore[method-assign]


def _engine_call(
    call: Callable[..., Any], method: str, points: Points, names: Names
) -> Callable[..., Any]:
    def wrapped(self: Engine, container: str, *rest: Any) -> Any:
        if method == "create":
            names.learn(container, container)
        whose = names.container(container)
        with points.around(f"{REQUEST}{method}", whose, has_inside=True) as _local.phase:
            result = call(self, container, *rest)
        if method == "create":
            names.learn(result, container)
        return result

    return wrapped


# ------------------------------------------------------------------------------- files


def wrap_files(points: Points, names: Names) -> None:
    """Every change of a file is a point."""
    _wrap_calls(points, names)
    _wrap_writing(points, names)


def _wrap_calls(points: Points, names: Names) -> None:
    """Calls that the kernel does whole or not at all."""

    def wrap(
        verb: str,
        call: Callable[..., Any],
        place: Callable[..., str],
        idle: Callable[..., bool] = lambda *_, **__: False,
    ) -> Any:
        """`place`: the path that such a call changes; `idle`: whether it changes nothing."""

        def wrapped(*given: Any, **more: Any) -> Any:
            at = (
                nullcontext()
                if idle(*given, **more)
                else _at(points, names, verb, place(*given, **more))
            )
            with at:
                return call(*given, **more)

        return wrapped

    os.mkdir = wrap("make", os.mkdir, _absolute, _makes_no_folder)
    os.unlink = wrap("remove", os.unlink, _absolute, _is_absent)
    os.remove = wrap("remove", os.remove, _absolute, _is_absent)
    os.rmdir = wrap("remove", os.rmdir, _absolute, _is_absent)
    os.chmod = wrap("mode of", os.chmod, _absolute, _has_mode)
    os.chown = wrap("owner of", os.chown, _absolute)
    os.open = wrap("make", os.open, _absolute, _makes_nothing)
    os.rename = wrap("put in place", os.rename, _target)
    os.replace = wrap("put in place", os.replace, _target)
    os.fsync = wrap("to disk", os.fsync, _of_descriptor)
    os.fchmod = wrap("mode of", os.fchmod, _of_descriptor)
    os.ftruncate = wrap("empty", os.ftruncate, _of_descriptor)
    os.pwrite = wrap("write", os.pwrite, _of_descriptor)
    os.write = wrap("write", os.write, _of_descriptor)
    fcntl.flock = wrap("take", fcntl.flock, _of_descriptor)


def _at(points: Points, names: Names, verb: str, path: Any) -> AbstractContextManager[Phase | None]:
    """A point around what is done to that file, if it is one that is watched."""
    name = names.path(path) if isinstance(path, str) else None
    return nullcontext() if name is None else points.around(f"{verb} {name[0]}", name[1])


def _absolute(path: Any, *_: Any, dir_fd: int | None = None, **__: Any) -> str:
    if isinstance(path, int):
        return _path_of(path)
    text = os.fsdecode(path)
    if dir_fd is not None:
        text = f"{_path_of(dir_fd)}/{text}"
    return os.path.abspath(text)  # noqa: PTH100


def _target(_source: Any, target: Any, **_: Any) -> str:
    return _absolute(target)


def _of_descriptor(descriptor: Any, *_: Any) -> str:
    return _path_of(descriptor if isinstance(descriptor, int) else descriptor.fileno())


def _path_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
    except OSError:
        return ""


def _makes_no_folder(path: Any, *_: Any, **__: Any) -> bool:
    """It is there, or what it would be in is not: then it is tried again after that."""
    return os.path.isdir(path) or not os.path.isdir(os.path.dirname(path))  # noqa: PTH112, PTH120


def _is_absent(path: Any, *_: Any, dir_fd: int | None = None) -> bool:
    return not os.path.lexists(_absolute(path, dir_fd=dir_fd))


def _has_mode(path: Any, mode: int, **_: Any) -> bool:
    try:
        return stat.S_IMODE(os.stat(path).st_mode) == mode  # noqa: PTH116
    except OSError:
        return False


def _makes_nothing(path: Any, flags: int, *_: Any, **__: Any) -> bool:
    return not flags & os.O_CREAT or os.path.lexists(path)


class _Halving(io.FileIO):
    """A file whose writing is a point, with half of the text written inside of it."""

    def __init__(self, file: Any, mode: str, points: Points, name: tuple[str, str]) -> None:
        super().__init__(file, mode)
        self._points, self._name = points, name

    def write(self, data: Any) -> int:
        content = bytes(data)
        with self._points.around(
            f"write {self._name[0]}", self._name[1], has_inside=len(content) > 1
        ) as phase:
            if phase == "inside":
                super().write(content[: len(content) // 2])
                die()
            return super().write(content)


def _wrap_writing(points: Points, names: Names) -> None:
    plain = io.open

    def opened(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        name = names.path(_absolute(file)) if set(mode) & set("wax+") else None
        if name is None:
            return plain(file, mode, *rest, **more)
        raw_mode = mode.replace("t", "").replace("b", "")
        is_there = isinstance(file, int) or os.path.lexists(file)
        with nullcontext() if is_there else points.around(f"make {name[0]}", name[1]):
            raw = _Halving(file, raw_mode, points, name)
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        encoding = more.get("encoding") or (rest[1] if len(rest) > 1 else None) or "utf-8"
        return io.TextIOWrapper(buffered, encoding=encoding, newline=more.get("newline"))

    io.open = opened
    builtins.open = opened


# ------------------------------------------------------------------------------- the journal


class _Watched(sqlite3.Connection):
    """A connection whose transactions are points where they tell of a change or an event.

    The others tell of a cycle in which nothing was done: dying around one of those is dying
    between two actions, which is a point of these already.
    """

    points: Points
    _tells = False

    def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
        if sql == "BEGIN IMMEDIATE":
            self._tells = False
        elif sql.startswith(("INSERT INTO changes", "INSERT INTO events")):
            self._tells = True
        if sql != "COMMIT" or not self._tells:
            return super().execute(sql, *rest)
        # Before: every row is written, and not committed.
        with self.points.around("journal: commit", ""):
            return super().execute(sql, *rest)


def _wrap_journal(points: Points) -> None:
    _Watched.points = points
    connect = sqlite3.connect

    def watched(database: Any, *rest: Any, **more: Any) -> sqlite3.Connection:
        if more.get("uri"):
            return connect(database, *rest, **more)
        return connect(database, *rest, factory=_Watched, **more)

    sqlite3.connect = watched


# ------------------------------------------------------------------------------- sockets


def _wrap_socket(points: Points, names: Names) -> None:
    class Binding(socket.socket):
        def bind(self, address: Any) -> None:
            with _at(points, names, "bind", address):
                super().bind(address)

        def listen(self, *rest: Any) -> None:
            with _at(points, names, "listen", self.getsockname()):
                super().listen(*rest)

    socket.socket = Binding  # type: ignore[misc]
