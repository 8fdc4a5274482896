"""A thin typed adapter over docker-py's client: the calls that dlsched needs, and no others.

Owns the connection, its time limits and the meaning of its errors: every call raises
EngineUnavailable (no answer) or EngineRefused (an answer that says no), each in one line. It must
not know jobs. Calls block for up to `timeout_s`; they belong in a background thread.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import docker
from docker.errors import APIError, DockerException
from docker.transport.unixconn import (
    UnixHTTPAdapter,
    UnixHTTPConnection,
    UnixHTTPConnectionPool,
)
from docker.types.daemon import CancellableStream
from docker.utils import kwargs_from_env
from requests import Response
from requests.adapters import BaseAdapter
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from dlsched.config.setting_values import engine_address
from dlsched.model.errors import DlschedError, EngineUnavailable
from dlsched.report.lines import LINE_BYTES
from dlsched.runtime.cgroup.cpu_units import DEFAULT_SHARES, OLDER_DEFAULT_SHARES
from dlsched.runtime.machine.outcomes import one_line

T = TypeVar("T")
Body = dict[str, Any]
"""A JSON object of the engine's API."""

PULL_SILENCE_S = 300.0
"""A pull that shows no progress for so long has failed."""

ARCHIVE_SILENCE_S = 300.0
"""A transfer of files that shows no progress for so long has failed."""

ARCHIVE_BYTES = 256 * 1024
"""What is taken of files at once."""

FOLLOW_BYTES = 16 * 1024
"""What is taken of a terminal's output at once, where there is so much."""

_PIECE = struct.Struct(">BxxxL")
"""What stands before each piece of an output: the number of its stream, and its length."""

PATH_STAT = "X-Docker-Container-Path-Stat"
"""The header in which the engine says what is at a path."""


class PathStat(NamedTuple):
    """What is at a path in a container."""

    size_bytes: int
    mode: int
    """As Go has it."""
    link: str
    """Where a link leads, all the way."""


class EngineRefused(DlschedError):
    """The engine answered, and the answer is no."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(reason)


class Engine:
    """One Docker Engine. May be used from any thread."""

    def __init__(self, host: str, timeout_s: float) -> None:
        """No call is made before the first one is needed."""
        self.host = host
        self._timeout_s = timeout_s
        self._client: docker.APIClient | None = None

    def containers(self, labels: Mapping[str, str]) -> list[Body]:
        """All containers, in whatever state, that carry these labels."""
        filters = {"label": [f"{name}={value}" for name, value in labels.items()]}
        return self._call(lambda client: list(client.containers(all=True, filters=filters)))

    def inspect(self, container: str) -> Body:
        return self._call(lambda client: dict(client.inspect_container(container)))

    def create(self, name: str, body: Body) -> str:
        """Make a container and return its id."""
        made = self._call(lambda client: client.create_container_from_config(body, name))  # type: ignore[no-untyped-call]
        return str(made["Id"])

    def start(self, container: str) -> None:
        """Start a container; one that runs already is left as it is."""
        self._call(lambda client: client.start(container))

    def update(self, container: str, body: Body) -> None:
        """Change resources or the restart policy of a container."""
        path, limit = f"/containers/{container}/update", self._timeout_s
        self._call(lambda client: _answer(client, "POST", path, json=body, timeout=limit))

    def rename(self, container: str, name: str) -> None:
        self._call(lambda client: client.rename(container, name))

    def kill(self, container: str, signal: str) -> None:
        """Send a signal to the container's first process."""
        self._call(lambda client: client.kill(container, signal))

    def unpause(self, container: str) -> None:
        self._call(lambda client: client.unpause(container))

    def remove(self, container: str) -> None:
        """Remove a container that does not run; its volumes stay. One that is gone is removed."""
        self._remove(lambda client: client.remove_container(container, v=False, force=False))

    def discard(self, container: str) -> None:
        """Remove a container, running or not, with the volumes that it alone has."""
        self._call(lambda client: client.remove_container(container, v=True, force=True))

    def archive(self, container: str, path: str) -> Generator[bytes]:
        """A tar archive of what is at that path in a container, running or not; to be closed. Until
        then the container cannot be inspected."""
        with (
            self._calling() as client,
            _answer(
                client,
                "GET",
                f"/containers/{container}/archive",
                params={"path": path},
                headers={"Accept-Encoding": "identity"},
                stream=True,
                timeout=(self._timeout_s, ARCHIVE_SILENCE_S),
            ) as response,
        ):
            yield from response.iter_content(ARCHIVE_BYTES)

    def stat(self, container: str, path: str) -> PathStat:
        """What is at that path in a container, running or not; status 404: nothing is."""
        with self._calling() as client:
            asked, limit = {"path": path}, self._timeout_s
            place = f"/containers/{container}/archive"
            response = _answer(client, "HEAD", place, params=asked, timeout=limit)
            try:
                found = json.loads(base64.b64decode(response.headers[PATH_STAT]))
                return PathStat(int(found["size"]), int(found["mode"]), str(found["linkTarget"]))
            except (KeyError, TypeError, ValueError) as error:
                why = f"the engine does not report whether {path} is a file or a folder"
                raise EngineRefused(500, why) from error

    def unpack(self, container: str, path: str, archive: Iterator[bytes]) -> None:
        """Unpack a tar archive at that path in a container, running or not; its entries keep their
        owners. What `archive` itself raises is raised, and then parts of it are there. The
        container cannot be inspected meanwhile."""
        with self._calling() as client:
            _answer(
                client,
                "PUT",
                f"/containers/{container}/archive",
                params={"path": path},
                headers={"Content-Type": "application/x-tar"},
                data=archive,
                timeout=(self._timeout_s, ARCHIVE_SILENCE_S),
            )

    def volumes(self, labels: Mapping[str, str]) -> list[Body]:
        """All volumes that carry these labels."""
        filters = {"label": [f"{name}={value}" for name, value in labels.items()]}
        return self._call(lambda client: list(client.volumes(filters=filters)["Volumes"] or ()))

    def remove_volume(self, name: str) -> None:
        """Remove a volume that no container has. One that is gone is removed."""
        self._remove(lambda client: client.remove_volume(name))

    def images(self) -> list[Body]:
        return self._call(lambda client: list(client.images()))

    def image(self, reference: str) -> Body:
        """All that the engine knows of an image; status 404 when it is not there."""
        return self._call(lambda client: dict(client.inspect_image(reference)))  # type: ignore[no-untyped-call]

    def info(self) -> Body:
        """The engine's own description."""
        return self._call(lambda client: dict(client.info()))

    def ping(self) -> None:
        """Have any answer of the engine; unlike other calls it waits for no container."""
        self._call(lambda client: client.ping())

    def version(self) -> Body:
        return self._call(lambda client: dict(client.version()))

    def pull(self, repository: str, tag: str, auth: bytes | None) -> Iterator[Body]:
        """Pull an image, yielding the engine's progress messages until it is there."""
        headers = {} if auth is None else {"X-Registry-Auth": auth.decode("ascii")}
        with self._calling() as client:
            response = _answer(
                client,
                "POST",
                "/images/create",
                params={"fromImage": repository, "tag": tag},
                headers=headers,
                stream=True,
                timeout=(self._timeout_s, PULL_SILENCE_S),
            )
            yield from client._stream_helper(response, decode=True)  # type: ignore[attr-defined]

    def events(self, kinds: Iterable[str]) -> CancellableStream[Body]:
        """Open the stream of containers' events of these kinds; closing it ends it."""
        filters = {"type": ["container"], "event": list(kinds)}
        return self._call(lambda client: client.events(decode=True, filters=filters))

    def logs(
        self, container: str, tail: int, follow: bool, until_s: float | None = None
    ) -> CancellableStream[bytes]:
        """A container's output, oldest first: all of it, or whole lines up to that wall time;
        closing it, from any thread, ends it."""
        asked: dict[str, Any] = {"follow": int(follow), "tail": tail}
        if until_s is not None:
            asked["until"] = f"{until_s:.6f}"
        with self._calling() as client:
            in_lines = until_s is not None
            response, chunks = self._output(
                client, container, asked, self._timeout_s, in_lines=in_lines
            )
            return CancellableStream(self._read(chunks, response), response)

    def follow(self, container: str, since_s: float | None) -> CancellableStream[bytes]:
        """Open a container's output as it is written, in whole lines, from that wall time on (None:
        from now); closing it ends it."""
        asked: dict[str, Any] = {"tail": 0} if since_s is None else {"since": f"{since_s:.6f}"}
        with self._calling() as client:
            asked["follow"] = 1
            response, chunks = self._output(client, container, asked, None, in_lines=True)
            return CancellableStream(_until_left(chunks, response), response)

    def _read(self, chunks: Iterator[bytes], response: Response) -> Iterator[bytes]:
        """The chunks; raises EngineUnavailable where they break off. The client stays, as others'
        calls go on when one reader has left."""
        try:
            yield from _until_left(chunks, response)
        except (RequestException, HTTPError, OSError) as error:
            raise EngineUnavailable(f"{self._silent()}: {root_cause(error)}") from error

    def _output(
        self,
        client: docker.APIClient,
        container: str,
        asked: Body,
        answer_s: float | None,
        *,
        in_lines: bool,
    ) -> tuple[Response, Iterator[bytes]]:
        """The engine's answer, within `answer_s`, and the output in it; this has no time limit.
        `in_lines`: as `whole_lines` has it, unless a terminal has one stream alone."""
        response = _answer(
            client,
            "GET",
            f"/containers/{container}/logs",
            params={"stdout": 1, "stderr": 1, **asked},
            stream=True,
            timeout=(self._timeout_s, answer_s),
        )
        if client._check_is_tty(container):  # type: ignore[attr-defined]
            return response, client._stream_raw_result(response, FOLLOW_BYTES, False)  # type: ignore[attr-defined]
        pieces = _pieces(client, response)
        return response, whole_lines(pieces) if in_lines else (piece for _, piece in pieces)

    def exchange(
        self,
        method: str,
        path: str,
        asked: Mapping[str, str] | None = None,
        body: Body | None = None,
    ) -> Any:
        """The JSON answer to a call that has no method here; None: an empty answer."""
        with self._calling() as client:
            limit = self._timeout_s
            response = _answer(client, method, path, params=asked, json=body, timeout=limit)
            return response.json() if response.content else None

    def close(self) -> None:
        """Drop the idle connections; the next call makes new ones."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _call(self, call: Callable[[docker.APIClient], T]) -> T:
        with self._calling() as client:
            return call(client)

    def _remove(self, call: Callable[[docker.APIClient], object]) -> None:
        """Make that call; what is gone is removed."""
        try:
            self._call(call)
        except EngineRefused as error:
            if error.status != 404:
                raise

    @contextmanager
    def _calling(self) -> Iterator[docker.APIClient]:
        """The client, with every error of a call turned into one of the two that are promised."""
        try:
            yield self._connected()
        except APIError as error:
            status = error.status_code or 0
            if status in (502, 503, 504):
                raise EngineUnavailable(f"{self._silent()}: {one_line(error)}") from error
            raise EngineRefused(status, one_line(error.explanation or error)) from error
        except (RequestException, HTTPError, DockerException, OSError) as error:
            # The next engine at this address may be of another version: negotiate again.
            self.close()
            raise EngineUnavailable(f"{self._silent()}: {root_cause(error)}") from error

    def _connected(self) -> docker.APIClient:
        client = self._client
        if client is None:
            try:
                host = engine_address(self.host)
            except ValueError as error:
                raise EngineUnavailable(f"the engine's address {error}") from None
            tls = kwargs_from_env(environment={**os.environ, "DOCKER_HOST": host})
            # The client only ever hands this to the socket, which takes fractions.
            limit: Any = self._timeout_s
            client = Client(**tls, timeout=limit, version="auto")
            self._client = client
        return client

    def _silent(self) -> str:
        return f"no answer from the Docker Engine at {self.host}"


_NEWER_RUNC = (1, 3, 2)
"""From this version on 1024 shares are weight 100 on cgroup v2."""


class EngineFacts:
    """One engine's. May be used from any thread; raises what the engine's calls raise."""

    def __init__(self, engine: Engine) -> None:
        """Nothing is asked before it is needed."""
        self._engine = engine
        self.driver: str | None = None
        """As `cgroup_driver`; None: not asked yet."""
        self._identity = ""

    def identity(self, *, fresh: bool = False) -> str:
        """Its own id; empty: it does not say. `fresh`: another may answer by now. Never raises."""
        if fresh or not self._identity:
            self._identity = ""
            with suppress(DlschedError):
                self._identity = str(self._engine.info().get("ID") or "")
        return self._identity

    def cgroup_driver(self) -> str:
        """systemd or cgroupfs."""
        if self.driver is None:
            self.driver = str(self._engine.info().get("CgroupDriver", "cgroupfs"))
        return self.driver

    @cached_property
    def cores(self) -> int:
        """Of the host, as it counts them."""
        return int(self._engine.info().get("NCPU") or 1)

    def default_shares(self) -> int:
        """What a container that does not run must be given to have the default weight later."""
        if str(self._engine.info().get("CgroupVersion", "1")) != "2":
            return DEFAULT_SHARES
        return DEFAULT_SHARES if self.has_newer_runc else OLDER_DEFAULT_SHARES

    @cached_property
    def has_newer_runc(self) -> bool:
        """Whether its runc turns shares into weights as later ones do."""
        parts = self._engine.version().get("Components") or ()
        versions = [str(part.get("Version", "")) for part in parts if part.get("Name") == "runc"]
        numbers = tuple(int(number) for number in re.findall(r"\d+", "".join(versions))[:3])
        return numbers >= _NEWER_RUNC


def _answer(client: docker.APIClient, method: str, path: str, **more: Any) -> Response:
    """The answer to that call; raises APIError where it is no.

    docker-py's own update() drops zero and -1, its pull() waits for ever, and its logs() take a
    terminal's output byte by byte: this uses what it calls private.
    """
    response = client.request(method, client._url(path), **more)  # type: ignore[attr-defined]
    client._raise_for_status(response)  # type: ignore[attr-defined]
    return response


def _pieces(client: docker.APIClient, response: Response) -> Iterator[tuple[int, bytes]]:
    """The pieces of an output, each with the number of its stream, which docker-py leaves out."""
    client._disable_socket_timeout(client._get_raw_response_socket(response))  # type: ignore[attr-defined]
    while header := response.raw.read(_PIECE.size):
        stream, length = _PIECE.unpack(header)
        if not length:
            continue
        if not (piece := response.raw.read(length)):
            return
        yield stream, piece


def whole_lines(pieces: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """The output of several streams in whole lines, which a carriage return ends, too.

    The engine cuts long lines, such as a progress bar's, and a line of the other stream may stand
    between the pieces. Of a line that is too long to be read the beginning is kept."""
    rests: dict[int, bytes] = {}
    for stream, piece in pieces:
        printed = rests.pop(stream, b"") + piece
        end = max(printed.rfind(b"\n"), printed.rfind(b"\r")) + 1
        if end:
            yield printed[:end]
        rests[stream] = printed[end:][:LINE_BYTES]


KEPT_CONNECTIONS = 10
"""So many idle connections are kept; more calls than that at a time make new ones."""


class Client(docker.APIClient):
    """docker-py's client, whose calls to a unix socket share a pool, and forget no connection.

    docker-py keeps a pool for each URL, so an idle connection for each container that was ever
    asked for, up to 25; and the socket of a refused connection is in a reference cycle with its
    error, thus open until the cyclic garbage collector runs. While an engine is away that makes
    hundreds.
    """

    def mount(self, prefix: str | bytes, adapter: BaseAdapter) -> None:
        """The transport for addresses that begin like this; here a unix socket's is replaced."""
        if isinstance(adapter, UnixHTTPAdapter):
            adapter = _Adapter(
                f"http+unix://{adapter.socket_path}",
                adapter.timeout,
                pool_connections=1,
                max_pool_size=KEPT_CONNECTIONS,
            )
        super().mount(prefix, adapter)


class _Adapter(UnixHTTPAdapter):
    """Has one pool."""

    def get_connection(self, url: str | bytes, proxies: object = None) -> _Pool:  # noqa: ARG002
        """The pool, for whatever URL."""
        with self.pools.lock:
            pool: _Pool | None = self.pools.get(self.socket_path)
            if pool is None:
                pool = _Pool(self.socket_path, self.socket_path, self.timeout, self.max_pool_size)
                self.pools[self.socket_path] = pool
        return pool


class _Pool(UnixHTTPConnectionPool):
    """Makes connections that close what they cannot use."""

    def _new_conn(self) -> _Connection:  # type: ignore[override]
        # The stubs want whole seconds; docker-py hands it to the socket, which takes fractions.
        limit: Any = self.timeout
        return _Connection(self.base_url, self.socket_path, limit)


class _Connection(UnixHTTPConnection):
    """One connection."""

    def connect(self) -> None:
        """Connect; a socket that is refused is closed."""
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            opened.settimeout(self.timeout)
            opened.connect(self.unix_socket)
        except BaseException:
            opened.close()
            raise
        self.sock = opened


def _until_left(chunks: Iterator[bytes], response: Response) -> Iterator[bytes]:
    """The chunks; the connection is closed when the reader stops."""
    with response:
        yield from chunks


def root_cause(error: BaseException) -> str:
    """What was at the bottom of a chain of library errors, in one line."""
    deepest: BaseException = error
    while (below := deepest.__cause__ or deepest.__context__) is not None:
        deepest = below
    if isinstance(deepest, TimeoutError):
        return "timed out"
    if isinstance(deepest, OSError) and deepest.strerror:
        return deepest.strerror
    return one_line(deepest)
