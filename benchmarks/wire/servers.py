"""The servers whose response times are measured: programs of other makers, as they are."""

from __future__ import annotations

import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.places import ROOT
from benchmarks.real.scene import takes
from benchmarks.wire.place import ANSWERS_WITHIN_S, StandIn, stand_in
from tests.stacks import environments
from tools.images import fill_packages
from tools.waiting import until

PROGRAMS = Path(__file__).parent / "programs"
ENVIRONMENT = "wire"
_INFERENCE = ROOT / "examples" / "images" / "inference"


@dataclass(frozen=True)
class At:
    """Where a server runs."""

    folder: Path
    """The bench's."""
    host: str
    port: int


@dataclass(frozen=True, eq=False)
class Server:
    """A program, and how it is asked."""

    name: str
    command: Callable[[At], Sequence[str]]
    request: Mapping[str, object] = field(default_factory=dict)
    """Fields of the client's `Plan`."""
    environment: Callable[[], Mapping[str, str]] = dict
    host: str = "127.0.0.1"
    tls: bool = False
    own_network: bool = False
    rates_per_s: tuple[float, ...] = (10.0, 200.0, 2000.0)
    programs: Mapping[str, str] = field(default_factory=dict)
    """What it needs of Debian: by the name of a program, its package."""
    packages: Callable[[], object] = lambda: None
    """Sees to packages of Python."""

    @contextmanager
    def run(self, folder: Path) -> Iterator[tuple[StandIn, int]]:
        """The server, once it takes connections, and its port."""
        host = "0.0.0.0" if self.own_network else self.host
        port = free_port(self.host)
        with stand_in(
            self.command(At(folder, host, port)),
            environment=self.environment(),
            pair=1 if self.own_network else None,
        ) as one:
            if not self.own_network:
                one.address = self.host
            until(
                lambda: takes(f"{one.address}:{port}") or one.process.poll() is not None,
                self.name,
                ANSWERS_WITHIN_S,
            )
            if one.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with code {one.process.returncode}")
            yield one, port


def free_port(host: str) -> int:
    with socket.create_server(
        (host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET
    ) as one:
        return int(one.getsockname()[1])


def prepare(folder: Path) -> None:
    """Files that servers need, and a certificate where one can be made."""
    (folder / "www").mkdir()
    (folder / "www" / "index.html").write_bytes(b"<p>It works.</p>\n" * 64)
    squares = " ".join(str(number * number) for number in range(20_000))
    (folder / "www" / "compute").write_text(squares)  # to compress: about 12 ms of CPU time
    (folder / "www" / "large").write_bytes(bytes(10_000_000))
    folder.chmod(0o755)  # for nginx' workers
    if shutil.which("openssl") is None:
        return
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    make += ["-subj", "/CN=wire", "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run(make, cwd=folder, check=True, capture_output=True)


def _ensure() -> None:
    environments.ensure(ENVIRONMENT)


def _python() -> str:
    return str(environments.folder(ENVIRONMENT).resolve() / "bin" / "python")


def _nginx(at: At) -> Sequence[str]:
    text = (PROGRAMS / "nginx.conf").read_text().replace("FOLDER", str(at.folder))
    made = at.folder / "nginx.conf"
    made.write_text(text.replace("PORT", str(at.port)))
    return [shutil.which("nginx", path="/usr/sbin:/usr/bin") or "nginx", "-c", str(made)]


def _uvicorn(at: At) -> Sequence[str]:
    command = [_python(), "-m", "uvicorn", "--app-dir", str(PROGRAMS), "--host", at.host]
    command += ["--port", str(at.port), "--log-level", "warning", "--no-access-log"]
    return [*command, "--timeout-keep-alive", "120", "--backlog", "4096", "asgi_app:app"]


def _uvicorn_tls(at: At) -> Sequence[str]:
    files = [at.folder / "key.pem", at.folder / "certificate.pem"]
    return [
        *_uvicorn(at), "--ssl-keyfile", str(files[0]),
        "--ssl-certfile", str(files[1]),
    ]  # fmt: skip


def _gunicorn(at: At) -> Sequence[str]:
    command = [
        _python(),
        "-m",
        "gunicorn",
        "--chdir",
        str(PROGRAMS),
        "--bind",
        f"{at.host}:{at.port}",
    ]
    command += ["--workers", "4", "--worker-class", "gthread", "--threads", "32"]
    return [*command, "--keep-alive", "120", "--backlog", "4096", "wsgi_app:app"]


def _onnx(at: At) -> Sequence[str]:
    serve = str(_INFERENCE / "serve.py")
    return [
        sys.executable,
        serve,
        "--model",
        "mobilenet",
        "--host",
        at.host,
        "--port",
        str(at.port),
    ]


def _node(at: At) -> Sequence[str]:
    return ["node", str(PROGRAMS / "node_app.js"), str(at.port)]


def _narrow(at: At) -> Sequence[str]:
    return [sys.executable, str(PROGRAMS / "narrow_app.py"), str(at.port)]


def _onnx_packages() -> Mapping[str, str]:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    folder = fill_packages(_INFERENCE / "requirements.txt", machine).resolve()
    return {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


_NGINX = {"nginx": "nginx-light"}
_OPENSSL = {"openssl": "openssl"}
NGINX = Server("nginx", _nginx, programs=_NGINX)
UVICORN = Server("uvicorn", _uvicorn, packages=_ensure)
UVICORN_TLS = Server("uvicorn, TLS", _uvicorn_tls, tls=True, programs=_OPENSSL, packages=_ensure)
GUNICORN = Server("gunicorn, 4 workers", _gunicorn, packages=_ensure)
NODE = Server("Node", _node, programs={"node": "nodejs"})
ONNX = Server(
    "ONNX example",
    _onnx,
    {"method": "POST", "path": "/predict", "body": '{"count": 32}'},
    _onnx_packages,
    packages=_onnx_packages,
    rates_per_s=(10.0, 200.0),
)
STREAM = Server(
    "token stream", _uvicorn, {"path": "/stream"}, rates_per_s=(10.0, 50.0), packages=_ensure
)
SERVERS = (NGINX, UVICORN, UVICORN_TLS, GUNICORN, NODE, ONNX, STREAM)
"""Each is measured with kept connections and with one a request, at each of its rates."""

STREAM_TLS = Server(
    "token stream, TLS",
    _uvicorn_tls,
    {"path": "/stream"},
    tls=True,
    programs=_OPENSSL,
    packages=_ensure,
)
IPV6 = Server("uvicorn, IPv6", _uvicorn, host="::1", packages=_ensure)
PAIR = Server("uvicorn, bridge network", _uvicorn, own_network=True, packages=_ensure)
NARROW = Server("full accept queue", _narrow)
UPLOADS = Server(
    "uvicorn, 1 MB uploads",
    _uvicorn,
    {"method": "POST", "path": "/upload", "body_bytes": 1_000_000, "send_buffer_bytes": 16_384},
    packages=_ensure,
)
LARGE = Server("uvicorn, 10 MB answers", _uvicorn, {"path": "/large"}, packages=_ensure)
LARGE_NGINX = Server("nginx, 10 MB answers", _nginx, {"path": "/large"}, programs=_NGINX)
